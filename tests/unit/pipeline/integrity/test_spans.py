"""The offsets that an audit covers."""

from __future__ import annotations

import pytest

from producer_core.errors import ConfigError
from producer_core.pipeline.integrity.spans import (
    OffsetSpan,
    PartitionBounds,
    above_low,
    cut_back,
    lowered,
    refreshed,
    spans,
)


def test_an_audit_covers_the_records_that_its_reader_sees():
    partitions = {0: PartitionBounds(3, 8, 10)}
    assert spans(partitions)[0] == OffsetSpan(3, 8, 3, 8, 10, 10, 0)
    uncommitted = spans(partitions, isolation="read_uncommitted")[0]
    assert (uncommitted.end, uncommitted.stable, uncommitted.whole) == (10, 10, True)


def test_an_audit_begins_at_the_given_offset_or_the_low_watermark():
    partitions = {0: PartitionBounds(3, 8, 10), 1: PartitionBounds(0, 5, 5)}
    found = spans(partitions, begin={0: 1})
    assert (found[0].start, found[0].floor, found[1].start) == (3, 1, 0)
    assert spans(partitions, begin={0: 99})[0].start == spans(partitions, begin={0: 99})[0].end == 8


def test_an_audit_ends_before_the_first_offset_that_is_too_late():
    partitions = {0: PartitionBounds(0, 8, 10), 1: PartitionBounds(0, 8, 8)}
    found = spans(partitions, until={0: 4, 1: None})
    assert [span.end for span in found.values()] == [4, 8]


def test_a_partition_that_does_not_exist_is_rejected():
    with pytest.raises(ConfigError, match="no partition 7; it has only partition 0"):
        spans({0: PartitionBounds(0, 1, 1)}, begin={7: 0})


def test_bounds_are_requested_again_after_the_read():
    before = spans({0: PartitionBounds(0, 8, 8), 1: PartitionBounds(0, 5, 5)})
    after = refreshed(before, {0: PartitionBounds(4, 9, 12), 2: PartitionBounds(0, 3, 3)})
    assert (after[0].low, after[0].after, after[0].end, after[1]) == (4, 12, 8, before[1])
    assert (after[2].end, after[0].whole) == (0, True)


def test_an_audit_begins_at_the_low_watermark_after_retention():
    (span,) = above_low({0: OffsetSpan(5, 8, 9, 20, 20, after=20)}).values()
    assert (span.start, span.end) == (9, 9)


def test_late_ledger_rows_make_an_audit_begin_earlier():
    before = spans({0: PartitionBounds(2, 8, 8), 1: PartitionBounds(0, 5, 5)}, begin={0: 6, 1: 4})
    after = lowered(before, {0: 1})
    assert (after[0].start, after[0].floor, after[1].start) == (2, 6, 4)


def test_a_log_that_ends_below_its_watermark_was_truncated():
    assert cut_back({0: 5, 1: 5, 2: 5}, {0: PartitionBounds(0, 4, 4), 1: PartitionBounds(0, 5, 5)}) == [0]
