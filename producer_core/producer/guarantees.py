"""The guarantees: what a producer was asked to promise, checked, and the parts that keep the promise."""

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

if TYPE_CHECKING:
    from producer_core.delivery.journal import Journal
    from producer_core.delivery.replayable_source import ReplayableSource

DeliveryGuarantee = Literal["at_least_once", "exactly_once"]
JournalLevel = Literal["buffered", "process", "power"]

_A_DAY = 24 * 3600 * 1000
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "delivery": get_args(DeliveryGuarantee),
    "ordering": get_args(Ordering),
    "on_ambiguous": get_args(OnAmbiguous),
    "journal_level": get_args(JournalLevel),
}


@dataclass(frozen=True)
class Guarantees:
    """The producer's keywords of the same names."""

    delivery: DeliveryGuarantee = "at_least_once"
    ordering: Ordering = "key"
    on_ambiguous: OnAmbiguous = "retry"
    journal_dir: Path | str | None = None
    journal_level: JournalLevel = "process"
    transactional_id: str | None = None
    shards: int = 2
    journaled: bool = False
    """An input stands for the journal."""

    def __post_init__(self) -> None:
        for name, words in _CHOICES.items():
            if getattr(self, name) not in words:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} is not known.", fix=f"Use one of {', '.join(words)}."
                )
        if self.delivery == "exactly_once" and self.journal_dir is None and not self.journaled:
            raise ConfigError(
                "Exactly-once delivery needs a journal: without one a crash forgets what was accepted.",
                fix="Give journal_dir, a folder of this producer alone.",
            )
        if self.journal_level != Guarantees.journal_level and self.journal_dir is None and not self.journaled:
            raise ConfigError(
                f"journal_level={self.journal_level!r} is only used with a journal.",
                fix="Give journal_dir, a folder of this producer alone.",
            )
        if self.delivery != "exactly_once" and self.transactional_id is not None:
            raise ConfigError(
                "transactional_id is only used for exactly-once delivery.", fix='Set delivery="exactly_once".'
            )
        if isinstance(self.shards, bool) or not isinstance(self.shards, int) or not 1 <= self.shards <= 16:
            raise ConfigError(
                f"shards={self.shards!r} is not a number from 1 to 16.", fix="2 to 4 suit most."
            )

    def settings(self, config: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The client's settings: with a journal a message has a day, unless the user set a time.

        A long delivery timeout keeps order and avoids doubt, and what a crash interrupts is in the journal.
        """
        given = dict(config or {})
        names = {name.replace("_", ".") for name in given}
        if self.journal_dir is None or names & {"delivery.timeout.ms", "message.timeout.ms"}:
            return given
        return {**given, "delivery_timeout_ms": _A_DAY}

    def journal(self, notice: Callable[[str, str, str], None]) -> Journal | None:
        if self.journal_dir is None:
            return None
        from producer_core.delivery.journal import Journal

        return Journal.open(self.journal_dir, level=self.journal_level, notice=notice)

    def require(
        self, config: ClientConfig, journal: Journal | ReplayableSource | None, topics: Sequence[str]
    ) -> None:
        """Raise BrokerError with the permissions that exactly-once delivery lacks; a missing answer is no refusal."""
        if self.delivery == "exactly_once" and journal is not None:
            from producer_core.kafka import acls

            name = None if topics else self._name(journal)  # tried once, at the start
            with contextlib.suppress(BrokerUnreachable):
                acls.require(config, topics, feature="exactly_once", transactional_id=name, timeout=5)

    def take_name(self, config: ClientConfig, journal: Journal | ReplayableSource | None) -> None:
        """ConfigError where another producer of this process has our transactional id: each would fence the other."""
        if self.delivery != "exactly_once" or journal is None:
            return
        name = self._name(journal)
        if _named.setdefault((os.getpid(), config.bootstrap_servers, name), self) is not self:
            raise ConfigError(
                f"Another producer of this process uses the transactional id {name!r}: each would fence the other.",
                fix="Use the producer that is there, close() it first, or give this one an id of its own.",
            )

    def leave_name(self) -> None:
        for key in [key for key, owner in _named.items() if owner is self]:
            _named.pop(key, None)

    def _name(self, journal: Journal | ReplayableSource) -> str:
        return self.transactional_id or f"producer-core-{journal.lasting_id}"

    def transport(self, journal: Journal | ReplayableSource | None) -> TransportFactory:
        if self.delivery != "exactly_once" or journal is None:
            return KafkaTransport
        from producer_core.delivery.exactly_once import TransactionalTransport

        return functools.partial(
            TransactionalTransport,
            progress=journal,
            transactional_id=self._name(journal),
            ids=journal.ids,
            shards=self.shards,
        )


_named: weakref.WeakValueDictionary[tuple[int, str, str], Guarantees] = weakref.WeakValueDictionary()
"""Who has which transactional id in which process: a forked child is another one."""
