"""A gathering: messages sent together whose ends are counted together."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from producer_core.errors import NotAccepted
from producer_core.masking import mask_told
from producer_core.transport import Ended

logger = logging.getLogger(__name__)

TOGETHER = 500
"""Messages that are claimed in one round trip, and written into the journal in one step."""

_MOMENT = 0.05
"""Seconds that the first of a group waits for others, where the input is slow."""

T = TypeVar("T")


class Gathering:
    """Counts how each message of a batch ended. `ended` is one atomic step, on any thread; the rest is the sender's."""

    def __init__(self) -> None:
        self._ends: list[Ended] = []
        self.ended: Callable[[Ended], None] = self._ends.append
        self._ids: list[str] = []
        self._total = 0

    def accepted(self, message_id: str | None) -> None:
        self._total += 1
        if message_id is None:
            self.ended("duplicate")
        else:
            self._ids.append(message_id)

    def refused(self, error: NotAccepted) -> None:
        logger.warning("message of a batch not accepted", extra={"error": mask_told(str(error))})
        self._total += 1
        self.ended("failed")

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


def groups(
    items: Iterable[T], *, size: int = TOGETHER, clock: Callable[[], float] = time.monotonic
) -> Iterator[list[T]]:
    """The items in lists of so many, or of what came in a moment; also what came before the input failed."""
    group: list[T] = []
    until = 0.0
    try:
        for item in items:
            if not group:
                until = clock() + _MOMENT
            group.append(item)
            if len(group) == size or clock() >= until:
                whole, group = group, []
                yield whole
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group
