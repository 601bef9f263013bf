"""The outcome of an audit, as data: what was asked of which topic, and how many of what were found."""

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
"""Findings of a kind that the report and the store hold; the Parquet has all."""


class LedgerGap(NamedTuple):
    """Batches of a producer's ledger that are missing, from the first to the last."""

    producer_id: str
    first: int
    last: int


class ExpiredRange(NamedTuple):
    """Acknowledgements of a partition that lie below its low watermark: so many, from one offset to another."""

    partition: int
    count: int  # type: ignore[assignment]  # nobody needs tuple.count here
    first: int
    last: int


@dataclass(frozen=True, repr=False)
class AuditOutcome:
    """The data of an `AuditReport`, which says what each number counts."""

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
        """Records with a message id."""
        return self.records - self.foreign

    @property
    def ledger_gaps(self) -> int:
        """Batches of ledgers that are missing."""
        return sum(gap.last - gap.first + 1 for gap in self.gaps)

    @property
    def auditable(self) -> bool:
        """Whether a loss would have shown, and shows for what it is."""
        return not self.unauditable

    @property
    def unauditable(self) -> bool:
        """A loss could not have shown: compaction removes records, or no ledger speaks of what is here, or only of what
        expired or is hidden. Where nobody may say whether a topic is compacted, what is missing may not be lost."""
        told = self.ours or self.expired or self.pending or self.undecided
        compacted = self.compacted or (self.compacted is None and self.lost)
        return bool(compacted or (told and not self.acknowledged and not self.lost))

    @property
    def clean(self) -> bool:
        """Nothing is lost, duplicated or out of order; `auditable` says whether a loss would have shown."""
        return not any(getattr(self, kind) for kind in FAULTS)

    def found(self, kinds: Sequence[str]) -> list[str]:
        """Of these kinds those that were found: `--fail-on`."""
        return [kind for kind in kinds if getattr(self, kind)]

    @property
    def ranges(self) -> dict[str, list[int]]:
        """By partition: first offset, the one after the last, low watermark, last stable offset."""
        return {
            str(number): [span.start, span.end, span.low, span.stable] for number, span in self.spans.items()
        }
