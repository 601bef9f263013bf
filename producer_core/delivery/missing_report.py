"""What stands in a delivery report's place, where the client has none of a message."""

from __future__ import annotations

from dataclasses import dataclass

from producer_core.events import Verdict


@dataclass(frozen=True, slots=True)
class MissingReport:
    """Stands for the report that never came; `verdict` is what is proved all the same, None leaves it in doubt."""

    verdict: Verdict | None
    at_partition: int | None

    def partition(self) -> int | None:
        return self.at_partition

    def latency(self) -> None:
        return None


NOT_SENT = MissingReport("not_sent", None)
"""It provably never left us."""
SILENT = MissingReport(None, 0)
"""Nothing is known: it may have been assigned to a partition, and sent."""
