"""A micro-batch that is too large for the driver is split by bytes; each record is in one piece."""

from __future__ import annotations

import pyarrow as pa

from producer_core.pipeline.slices import offset_ranges, split_fetched


def fetched(*rows):
    """Return rows as Spark fetches them: (partition, offset, bytes, here)."""
    return pa.Table.from_pylist(
        [
            {
                "topic": "t", "partition": partition, "offset": offset, "timestamp": 0, "key": None,
                "value": bytes(size) if here else None, "bytes": size, "here": here,
            }
            for partition, offset, size, here in rows
        ]
    )  # fmt: skip


def test_a_complete_fetch_is_one_piece_including_tombstones():
    whole, left = split_fetched(fetched((0, 1, 10, True), (1, 5, 0, True)))

    assert whole.column_names == ["topic", "partition", "offset", "timestamp", "key", "value"]
    assert whole["offset"].to_pylist() == [1, 5]
    assert list(left) == []


def test_a_partition_is_read_again_from_its_first_missing_record():
    whole, left = split_fetched(
        fetched((1, 4, 9, True), (0, 9, 3, True), (0, 8, 50, False), (0, 7, 2, True), (1, 5, 9, True))
    )

    assert list(zip(whole["partition"].to_pylist(), whole["offset"].to_pylist(), strict=True)) == [
        (0, 7),
        (1, 4),
        (1, 5),
    ]
    assert list(left) == [("t", 0, 8, 50), ("t", 0, 9, 3)]


def test_pieces_are_offset_ranges_of_a_bounded_size():
    rows = [("a", 0, offset, 10) for offset in range(5)] + [("a", 1, 7, 10), ("b", 0, 0, 10)]

    assert list(offset_ranges(rows, 30)) == [
        {"a": {"0": (0, 3)}},
        {"a": {"0": (3, 5), "1": (7, 8)}},
        {"b": {"0": (0, 1)}},
    ]


def test_a_record_above_the_size_limit_is_a_separate_piece():
    rows = [
        ("a", 0, 0, 1),
        ("a", 0, 4, 100),
        ("a", 0, 5, 1),
    ]  # the offsets in between are transaction markers

    assert list(offset_ranges(rows, 50)) == [{"a": {"0": (0, 1)}}, {"a": {"0": (4, 5)}}, {"a": {"0": (5, 6)}}]


def test_an_empty_fetch_has_no_pieces():
    assert list(offset_ranges([], 50)) == []
