"""The guard of a replay: a canary first, then more at a time, and a stop when too many fail again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from producer_core.replay.operation import Operation

CANARY = 10
STOP_PERCENT = 50.0
STOP_LAST = 50
GROWTH = 2
"""How many times what succeeded so far may be under way."""


@dataclass(frozen=True, slots=True)
class CanaryRule:
    """`canary` records are settled before any other goes (0: none). It stops when more than `percent` % of the
    canary, or of the `last` outcomes, failed again; 100 never stops."""

    canary: int = CANARY
    percent: float = STOP_PERCENT
    last: int = STOP_LAST


def rule_of(operation: Operation) -> CanaryRule:
    """As it was planned; what was left out is the default."""
    return CanaryRule(
        CANARY if operation.canary is None else operation.canary,
        operation.stop_percent or STOP_PERCENT,
        operation.stop_last or STOP_LAST,
    )


class ReplayGuard:
    """Counts sent records only: what was found on its topic or left out says nothing about the next one.

    Begins anew with each runner, so one that takes over sends a canary of its own.
    """

    def __init__(self, rule: CanaryRule, *, growth: int = GROWTH) -> None:
        self._rule = rule
        self._growth = growth
        self._recent: deque[bool] = deque(maxlen=max(1, rule.last))
        self._acknowledged = 0
        self._failed = 0

    def room(self, in_flight: int, most: int) -> int:
        """How many more may be claimed: the canary first, then at most `growth` times what was acknowledged so far."""
        settled = self._acknowledged + self._failed
        if settled < self._rule.canary:
            return max(0, min(most, self._rule.canary - settled - in_flight))
        if self._rule.canary == 0:
            return most
        return max(0, min(most, self._growth * self._acknowledged + 1 - in_flight))

    def heard(self, *, failed: bool) -> None:
        self._recent.append(failed)
        self._failed += failed
        self._acknowledged += not failed

    def verdict(self) -> str | None:
        """Why the replay must stop, in a sentence; None to go on."""
        settled, canary = self._acknowledged + self._failed, self._rule.canary
        if 0 < settled <= canary and self._failed * 100 > self._rule.percent * canary:
            return f"The canary failed: {self._failed} of its first {settled} records failed again"
        recent, failed = len(self._recent), sum(self._recent)
        if recent == self._recent.maxlen and failed * 100 > self._rule.percent * recent:
            return f"Too many fail again: {failed} of the last {recent} records"
        return None
