"""The request and the result of a comparison of a topic with its ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from producer_core.pipeline.integrity.outcome import ExpiredRange
from producer_core.pipeline.integrity.spans import OffsetSpan


@dataclass(frozen=True)
class ComparisonRequest:
    """Define what is compared.

    `fresh` and `old` are SQL over a ledger row: `fresh` rows were judged by no earlier audit; `old` rows were written
    before the time that this audit covers (see `OffsetSpan.judged`). `waiting`, of an incremental audit, are ids
    without an offset that the previous audit could not judge. `started` is when the topic's end offsets were
    requested; `since` limits what counts as expired. `compacted` is None when the topic's configuration cannot be
    read.
    """

    topic: str
    cluster: str
    spans: Mapping[int, OffsetSpan]
    started: float
    fresh: str = "true"
    old: str = "false"
    waiting: Sequence[tuple[bytes, int]] | None = None
    since: float | None = None
    compacted: bool | None = False


@dataclass(frozen=True)
class ComparisonResult:
    """Hold the counts of a comparison; without suspects there are no findings."""

    records: int
    foreign: int
    acknowledged: int
    read_again: int
    suspicious: bool
    expired: tuple[ExpiredRange, ...]
    spans: Mapping[int, OffsetSpan]


class Counts(NamedTuple):
    """Count records, those without a message id, and acknowledgements; and unequal and doubtful groups."""

    records: int
    foreign: int
    acknowledged: int
    unequal: int
    doubtful: int
