"""Choose what is read again after sums: as few and as short ranges as possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from producer_core.pipeline.integrity.ranges import MAX_READS, Range, merged
from producer_core.pipeline.integrity.spans import OffsetSpan

if TYPE_CHECKING:
    import pyarrow

OFFSETS_PER_READ = 50_000
"""Offsets of a partition that justify the plan and the tasks of one more read."""


def ranges_to_read(intervals: pyarrow.Table, spans: Mapping[int, OffsetSpan]) -> dict[int, list[Range]]:
    """Return the ranges that cover an Arrow table of partition, off_min, off_max."""
    found: dict[int, list[Range]] = {}
    columns = (intervals.column(name).to_pylist() for name in ("partition", "off_min", "off_max"))
    for partition, first, last in zip(*columns, strict=True):
        found.setdefault(partition, []).append((max(first, spans[partition].start), last + 1))
    return {partition: merged(ranges, _max_reads(spans[partition])) for partition, ranges in found.items()}


def _max_reads(span: OffsetSpan) -> int:
    return min(MAX_READS, 1 + (span.end - span.start) // OFFSETS_PER_READ)
