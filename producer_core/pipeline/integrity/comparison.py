"""The request and the result of a comparison of a topic with its ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer_core.pipeline.integrity.outcome import ExpiredRange
from producer_core.pipeline.integrity.spans import OffsetSpan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
class LedgerFrames:
    """Hold the ledger rows of all topics, and this topic's messages that their producer dropped."""

    rows: DataFrame
    dead_letters: DataFrame


@dataclass(frozen=True)
class ComparisonResult:
    """Hold the counts and a frame of findings (see `verdicts`), which is None when nothing is suspect."""

    records: int
    foreign: int
    acknowledged: int
    read_again: int
    expired: tuple[ExpiredRange, ...]
    spans: Mapping[int, OffsetSpan]
    findings: DataFrame | None
