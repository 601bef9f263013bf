"""Replace the delivery report of a message that the client never reported."""

from __future__ import annotations

from dataclasses import dataclass

from producer_core.events import Verdict


@dataclass(frozen=True, slots=True)
class MissingReport:
    """Takes the place of a report that never arrived. `verdict` is what is proved without it; None is ambiguous."""

    verdict: Verdict | None
    at_partition: int | None

    def partition(self) -> int | None:
        return self.at_partition

    def latency(self) -> None:
        return None


NOT_SENT = MissingReport("not_sent", None)
"""The message provably never left the client."""
OUTCOME_UNKNOWN = MissingReport(None, 0)
"""Nothing is proved: the message may have been assigned to a partition and sent."""
