"""A gathering: messages sent together whose ends are counted together."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from producer_core.acceptance import Acceptance
from producer_core.delivery import Delivery, Ended, Owner
from producer_core.errors import ProducerError
from producer_core.masking import mask_told

logger = logging.getLogger(__name__)

TOGETHER = 500
"""Messages that are claimed in one round trip, and written into the journal, or read back from it, in one step."""

_LARGE = 4 << 20
"""Bytes of a group from which on nothing more is put to it."""

_MOMENT = 0.05
"""Seconds that the first of a group waits for others, where making them is slow."""


class Gathering:
    """Counts how each message of a batch ended: `owner` hears of all of them, in one atomic step each, on any thread; the
    rest is the sender's."""

    def __init__(self) -> None:
        self._ends: list[Ended] = []
        self.owner = Owner(ended=self._ends.append)
        self._ids: list[str] = []
        self._total = 0

    def take(
        self,
        deliveries: Iterable[Delivery],
        acceptance: Acceptance,
        id_of: Callable[[int], str],
        *,
        together: bool,
    ) -> None:
        """Have each accepted: in groups that share a round trip and a sync, or as it comes."""
        if together:
            for group in groups(deliveries):
                for delivery, outcome in zip(group, acceptance.accept_many(group), strict=True):
                    if isinstance(outcome, ProducerError):
                        self.refused(outcome)
                    else:
                        self._accepted(id_of(delivery.seq) if outcome else None)
            return
        accept = acceptance.accept
        for delivery in deliveries:
            try:
                self._accepted(id_of(delivery.seq) if accept(delivery) else None)
            except ProducerError as error:
                self.refused(error)

    def _accepted(self, message_id: str | None) -> None:
        self._total += 1
        if message_id is None:
            self._ends.append("duplicate")
        else:
            self._ids.append(message_id)

    def refused(self, error: ProducerError) -> None:
        logger.warning("message of a batch not accepted", extra={"error": mask_told(str(error))})
        self._total += 1
        self._ends.append("failed")

    def complete(self) -> bool:
        return len(self._ends) >= self._total

    def result(self) -> dict[str, Any]:
        counts = Counter(self._ends)
        return {
            "total": self._total,
            "sent": counts["sent"],
            "failed": counts["failed"],
            "duplicate": counts["duplicate"],
            "message_ids": self._ids,
        }


class Valued(Protocol):
    """A delivery, or the journal's record of one."""

    @property
    def value(self) -> bytes | None: ...


T = TypeVar("T", bound=Valued)


def groups(messages: Iterable[T], *, clock: Callable[[], float] = time.monotonic) -> Iterator[list[T]]:
    """Of so many, of so many bytes, or of what came in a moment; also what came before the input failed.

    The input is at hand: one that has to be waited for would keep back what came before.
    """
    group: list[T] = []
    size, until = 0, 0.0
    try:
        for message in messages:
            if not group:
                size, until = 0, clock() + _MOMENT
            group.append(message)
            size += len(message.value or b"")
            if len(group) == TOGETHER or size >= _LARGE or clock() >= until:
                whole, group = group, []
                yield whole
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group
