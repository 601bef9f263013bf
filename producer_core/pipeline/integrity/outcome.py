"""The data of an audit's outcome: the audited topic and range, and the number of findings of each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from producer_core.pipeline.integrity.spans import Isolation, OffsetSpan

if TYPE_CHECKING:
    import pyarrow

Kind = Literal[
    "lost", "duplicated", "reordered", "expired", "pending", "unledgered", "given_up_found", "undecided"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
FAULTS: tuple[Kind, ...] = ("lost", "duplicated", "reordered")
KEPT = 10_000
"""Findings per kind in the report and the store; the Parquet files have all."""


class LedgerGap(NamedTuple):
    """Name a producer's ledger batches that are missing, from the first to the last."""

    producer_id: str
    first: int
    last: int


class ExpiredRange(NamedTuple):
    """Count the acknowledgements of a partition below its low watermark, from one offset to another."""

    partition: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    first: int
    last: int


@dataclass(frozen=True, repr=False)
class AuditOutcome:
    """Hold the data of an `AuditReport`, whose docstring defines each number."""

    audit_id: str
    topic: str
    cluster_id: str
    started_at: float
    finished_at: float
    isolation: Isolation
    spans: Mapping[int, OffsetSpan]
    records: int
    foreign: int
    acknowledged: int
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    expired: int = 0
    pending: int = 0
    unledgered: int = 0
    given_up: int = 0
    given_up_found: int = 0
    undecided: int = 0
    expired_ranges: tuple[ExpiredRange, ...] = ()
    gaps: tuple[LedgerGap, ...] = ()
    ledger_lost: int = 0
    strange: int = 0
    compacted: bool | None = False
    since: float | None = None
    until: float | None = None
    read_again: int = 0
    findings: pyarrow.Table = field(default=None, compare=False)
    findings_path: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def ours(self) -> int:
        """Return the number of records with a message id."""
        return self.records - self.foreign

    @property
    def ledger_gaps(self) -> int:
        """Return the number of missing ledger batches."""
        return sum(gap.last - gap.first + 1 for gap in self.gaps)

    @property
    def auditable(self) -> bool:
        """Return whether a loss would have been detected, and not mistaken for something else."""
        return not self.unauditable

    @property
    def unauditable(self) -> bool:
        """Return whether losses could not be detected.

        Compaction removes records, or no ledger covers the records in the range, or only expired or hidden ones. When
        the topic's configuration cannot be read, missing messages may have been compacted away.
        """
        others = self.ours or self.expired or self.pending or self.undecided
        compacted = self.compacted or (self.compacted is None and self.lost)
        return bool(compacted or (others and not self.acknowledged and not self.lost))

    @property
    def clean(self) -> bool:
        """Return whether nothing is lost, duplicated or out of order; `auditable` tells whether losses are detected."""
        return not any(getattr(self, kind) for kind in FAULTS)

    def found(self, kinds: Sequence[str]) -> list[str]:
        """Return those of these kinds that were found, for `--fail-on`."""
        return [kind for kind in kinds if getattr(self, kind)]

    @property
    def ranges(self) -> dict[str, list[int]]:
        """Return per partition the first offset, the offset after the last, the low watermark and the last stable
        offset."""
        return {
            str(number): [span.start, span.end, span.low, span.stable] for number, span in self.spans.items()
        }
