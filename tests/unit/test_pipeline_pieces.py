"""A micro-batch that is too large for the driver is cut by bytes, each record into one piece."""

from __future__ import annotations

import pyarrow as pa

from producer_core.pipeline.slices import come, cut


def arrived(*rows):
    """What Spark fetched: (partition, offset, bytes, here)."""
    return pa.Table.from_pylist(
        [
            {
                "topic": "t", "partition": partition, "offset": offset, "timestamp": 0, "key": None,
                "value": bytes(size) if here else None, "bytes": size, "here": here,
            }
            for partition, offset, size, here in rows
        ]
    )  # fmt: skip


def test_what_came_whole_is_one_piece_with_its_tombstones():
    whole, left = come(arrived((0, 1, 10, True), (1, 5, 0, True)))

    assert whole.column_names == ["topic", "partition", "offset", "timestamp", "key", "value"]
    assert whole["offset"].to_pylist() == [1, 5]
    assert list(left) == []


def test_of_a_partition_that_did_not_come_whole_everything_behind_is_read_again():
    whole, left = come(
        arrived((1, 4, 9, True), (0, 9, 3, True), (0, 8, 50, False), (0, 7, 2, True), (1, 5, 9, True))
    )

    assert list(zip(whole["partition"].to_pylist(), whole["offset"].to_pylist(), strict=True)) == [
        (0, 7),
        (1, 4),
        (1, 5),
    ]
    assert list(left) == [("t", 0, 8, 50), ("t", 0, 9, 3)]


def test_pieces_are_ranges_of_at_most_so_many_bytes():
    rows = [("a", 0, offset, 10) for offset in range(5)] + [("a", 1, 7, 10), ("b", 0, 0, 10)]

    assert list(cut(rows, 30)) == [
        {"a": {"0": (0, 3)}},
        {"a": {"0": (3, 5), "1": (7, 8)}},
        {"b": {"0": (0, 1)}},
    ]


def test_a_record_that_is_larger_is_a_piece_of_its_own():
    rows = [("a", 0, 0, 1), ("a", 0, 4, 100), ("a", 0, 5, 1)]  # offsets between are markers of transactions

    assert list(cut(rows, 50)) == [{"a": {"0": (0, 1)}}, {"a": {"0": (4, 5)}}, {"a": {"0": (5, 6)}}]


def test_nothing_has_no_pieces():
    assert list(cut([], 50)) == []
