"""What a look is asked, and what it found."""

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
    """What is looked at. `fresh` is SQL over a ledger's row: no audit before this one has judged it; `old`: it was told
    before what this one is about (see `Span.judged`). `waiting`, of an incremental audit, are ids without a place that the
    last one could not judge. `started` is when the topic's ends were asked for; `since` bounds what counts as expired.
    `compacted` is None where nobody may say."""

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
    """`rows` of all topics, and the `dead letters`: messages of this topic that were given up."""

    rows: DataFrame
    dead_letters: DataFrame


@dataclass(frozen=True)
class ComparisonResult:
    """What was counted, and a frame of findings (see `judging`); None where nothing was suspect."""

    records: int
    foreign: int
    acknowledged: int
    read_again: int
    expired: tuple[ExpiredRange, ...]
    spans: Mapping[int, OffsetSpan]
    findings: DataFrame | None
