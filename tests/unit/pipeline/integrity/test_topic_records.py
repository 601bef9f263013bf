"""The slices in which an audit fetches ids."""

from __future__ import annotations

import pyarrow as pa

from producer_core.pipeline.integrity import topic_records


class Frame:
    def __init__(self, table):
        self._table = table

    def toArrow(self):
        return self._table


def test_each_slice_is_as_large_as_the_bytes_of_the_one_before_allow(monkeypatch):
    """A record takes 100 bytes; the first slice is a guess, the others have 200 kB, and no offset is left out."""
    monkeypatch.setattr(topic_records, "_SLICE_BYTES", 200_000)
    reads = []

    def read(ranges, among):
        reads.append((ranges, among))
        return Frame(pa.table({"value": pa.array([bytes(96)] * topic_records.covered_once(ranges))}))

    tables = [*topic_records.in_slices(read, {0: (0, 5_000), 1: (10, 1_010)}, 1_200, most=2_500)]

    assert [(ranges, among) for ranges, among in reads[:2]] == [
        ({0: (0, 600), 1: (10, 610)}, 8), ({1: (610, 1_010), 0: (600, reads[1][0][0][1])}, 8)
    ]  # fmt: skip
    assert sum(table.num_rows for table in tables) == 6_000
    assert all(1_900 < table.num_rows < 2_100 for table in tables[1:-1])


def test_a_small_range_is_one_slice():
    reads = []

    def read(ranges, among):
        reads.append(among)
        return Frame(pa.table({"value": [1]}))

    assert len([*topic_records.in_slices(read, {0: (0, 50), 1: (7, 7)}, 100)]) == 1
    assert reads == [1]
