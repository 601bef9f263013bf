"""Validate the requested delivery guarantees and create the journal and transport that provide them."""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from producer_core.config import ClientConfig
from producer_core.delivery.ordering import Ordering
from producer_core.delivery.prober import OnAmbiguous
from producer_core.delivery.transport import KafkaTransport, TransportFactory
from producer_core.errors import BrokerUnreachable, ConfigError
from producer_core.native import Core

if TYPE_CHECKING:
    from producer_core.delivery.journal import Journal
    from producer_core.delivery.replayable_source import ReplayableSource

DeliveryGuarantee = Literal["at_least_once", "exactly_once"]
JournalLevel = Literal["buffered", "process", "power"]

_DAY_MS = 24 * 3600 * 1000
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "delivery": get_args(DeliveryGuarantee),
    "ordering": get_args(Ordering),
    "on_ambiguous": get_args(OnAmbiguous),
    "journal_level": get_args(JournalLevel),
    "core": get_args(Core),
}


@dataclass(frozen=True)
class Guarantees:
    """The keywords of `ReliableKafkaProducer` with the same names."""

    delivery: DeliveryGuarantee = "at_least_once"
    ordering: Ordering = "key"
    on_ambiguous: OnAmbiguous = "retry"
    journal_dir: Path | str | None = None
    journal_level: JournalLevel = "process"
    transactional_id: str | None = None
    shards: int = 2
    core: Core = "python"
    journaled: bool = False
    """Whether a replayable input replaces the journal."""

    def __post_init__(self) -> None:
        for name, values in _CHOICES.items():
            if getattr(self, name) not in values:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} is not a known value.",
                    fix=f"Use one of {', '.join(values)}.",
                )
        if self.delivery == "exactly_once" and self.journal_dir is None and not self.journaled:
            raise ConfigError(
                "Exactly-once delivery needs a journal: without one, a crash loses accepted messages.",
                fix="Set journal_dir to a directory that only this producer uses.",
            )
        if self.journal_level != Guarantees.journal_level and self.journal_dir is None and not self.journaled:
            raise ConfigError(
                f"journal_level={self.journal_level!r} is only used with a journal.",
                fix="Set journal_dir to a directory that only this producer uses.",
            )
        if self.delivery != "exactly_once" and self.transactional_id is not None:
            raise ConfigError(
                "transactional_id is only used for exactly-once delivery.", fix='Set delivery="exactly_once".'
            )
        if self.delivery != "exactly_once" and self.core != "python":
            raise ConfigError(
                f"core={self.core!r} is only used for exactly-once delivery.",
                fix='Set delivery="exactly_once", or leave core out.',
            )
        if isinstance(self.shards, bool) or not isinstance(self.shards, int) or not 1 <= self.shards <= 16:
            raise ConfigError(
                f"shards={self.shards!r} is not a number from 1 to 16.", fix="Most producers need 2 to 4."
            )

    def settings(self, config: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return the client's settings. With a journal the delivery timeout is a day, unless the user set one.

        A long delivery timeout keeps order and avoids ambiguous outcomes, and the journal covers a crash.
        """
        given = dict(config or {})
        names = {name.replace("_", ".") for name in given}
        if self.journal_dir is None or names & {"delivery.timeout.ms", "message.timeout.ms"}:
            return given
        return {**given, "delivery_timeout_ms": _DAY_MS}

    def journal(self, notice: Callable[[str, str, str], None]) -> Journal | None:
        if self.journal_dir is None:
            return None
        from producer_core.delivery.journal import Journal

        return Journal.open(self.journal_dir, level=self.journal_level, notice=notice)

    def require(
        self, config: ClientConfig, journal: Journal | ReplayableSource | None, topics: Sequence[str]
    ) -> None:
        """Raise BrokerError for permissions that exactly-once delivery lacks. An unreachable broker is not an error."""
        if self.delivery == "exactly_once" and journal is not None:
            from producer_core.kafka import acls

            name = None if topics else self._transactional_id(journal)  # checked once, at the start
            with contextlib.suppress(BrokerUnreachable):
                acls.require(config, topics, feature="exactly_once", transactional_id=name, timeout=5)

    def reserve_transactional_id(
        self, config: ClientConfig, journal: Journal | ReplayableSource | None
    ) -> None:
        """Reserve the transactional id. Raise ConfigError if another producer of this process uses it: each would fence
        the other."""
        if self.delivery != "exactly_once" or journal is None:
            return
        name = self._transactional_id(journal)
        if _reserved.setdefault((os.getpid(), config.bootstrap_servers, name), self) is not self:
            raise ConfigError(
                f"Another producer in this process is using the transactional id {name!r}: each would fence the other.",
                fix="Use the existing producer, close() it first, or give this one its own transactional_id.",
            )

    def release_transactional_id(self) -> None:
        for key in [key for key, owner in _reserved.items() if owner is self]:
            _reserved.pop(key, None)

    def _transactional_id(self, journal: Journal | ReplayableSource) -> str:
        return self.transactional_id or f"producer-core-{journal.lasting_id}"

    def transport(self, journal: Journal | ReplayableSource | None) -> TransportFactory:
        if self.delivery != "exactly_once" or journal is None:
            return KafkaTransport
        from producer_core.delivery.exactly_once import TransactionalTransport

        return functools.partial(
            TransactionalTransport,
            progress=journal,
            transactional_id=self._transactional_id(journal),
            ids=journal.ids,
            shards=self.shards,
            core=self.core,
        )


_reserved: weakref.WeakValueDictionary[tuple[int, str, str], Guarantees] = weakref.WeakValueDictionary()
"""The user of each transactional id, by process id, because a forked child is a process of its own."""
