"""Send a canary first, then growing batches, and stop the replay if too many records fail again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from producer_core.replay.operation import Operation

CANARY = 10
STOP_PERCENT = 50.0
STOP_LAST = 50
GROWTH = 2
"""Records in flight may be at most this multiple of the acknowledged records."""


@dataclass(frozen=True, slots=True)
class CanaryRule:
    """`canary` records are settled before the others are sent (0: no canary).

    The replay stops if more than `percent` % of the canary, or of the `last` outcomes, failed again; 100 never stops.
    """

    canary: int = CANARY
    percent: float = STOP_PERCENT
    last: int = STOP_LAST


def rule_of(operation: Operation) -> CanaryRule:
    """Return the planned rule, with defaults for missing values."""
    return CanaryRule(
        CANARY if operation.canary is None else operation.canary,
        operation.stop_percent or STOP_PERCENT,
        operation.stop_last or STOP_LAST,
    )


class ReplayGuard:
    """Count the outcomes of sent records; records found on their topic or skipped do not count.

    Each runner starts with its own counts, so a runner that takes over sends its own canary.
    """

    def __init__(self, rule: CanaryRule, *, growth: int = GROWTH) -> None:
        self._rule = rule
        self._growth = growth
        self._recent: deque[bool] = deque(maxlen=max(1, rule.last))
        self._acknowledged = 0
        self._failed = 0

    def room(self, in_flight: int, most: int) -> int:
        """Return how many more records may be claimed: the canary first, then `growth` times the acknowledged ones."""
        settled = self._acknowledged + self._failed
        if settled < self._rule.canary:
            return max(0, min(most, self._rule.canary - settled - in_flight))
        if self._rule.canary == 0:
            return most
        return max(0, min(most, self._growth * self._acknowledged + 1 - in_flight))

    def record(self, *, failed: bool) -> None:
        self._recent.append(failed)
        self._failed += failed
        self._acknowledged += not failed

    def record_acknowledged(self, count: int) -> None:
        self._recent.extend(repeat(False, count))
        self._acknowledged += count

    def verdict(self) -> str | None:
        """Return why the replay must stop, as a sentence; None if it may continue."""
        settled, canary = self._acknowledged + self._failed, self._rule.canary
        if 0 < settled <= canary and self._failed * 100 > self._rule.percent * canary:
            first = "its first record" if settled == 1 else f"{self._failed} of its first {settled} records"
            return f"The canary failed: {first} failed again"
        recent, failed = len(self._recent), sum(self._recent)
        if recent == self._recent.maxlen and failed * 100 > self._rule.percent * recent:
            share = "the last one" if recent == 1 else f"{failed} of the last {recent}"
            return f"Too many records failed again: {share}"
        return None
