"""A micro-batch that is too large for the driver is cut by bytes, each record into one piece."""

from __future__ import annotations

from producer_core.pipeline.pieces import cut


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
