"""The slices in which an audit fetches ids."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from producer_core.pipeline.integrity import topic_records


class Frame:
    def __init__(self, table):
        self._table = table

    def toArrow(self):
        return self._table


class Session:
    """Has the part of a Spark session that a read uses; `cancelled` says that its job was cancelled."""

    def __init__(self):
        self.sparkContext, self.tags, self.cancelled = self, [], threading.Event()

    def addJobTag(self, tag):
        self.tags.append(tag)

    def cancelJobsWithTag(self, tag):
        if tag in self.tags:
            self.cancelled.set()


def test_each_slice_is_as_large_as_the_bytes_of_the_one_before_allow(monkeypatch):
    """A record takes 100 bytes; the first slice is a guess, the others have 200 kB, and no offset is left out."""
    monkeypatch.setattr(topic_records, "_SLICE_BYTES", 200_000)
    reads = []

    def read(ranges, among):
        reads.append((ranges, among))
        return Frame(pa.table({"value": pa.array([bytes(96)] * topic_records.covered_once(ranges))}))

    tables = [*topic_records.Slices(Session(), read, {0: (0, 5_000), 1: (10, 1_010)}, 1_200, most=2_500)]

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

    assert len([*topic_records.Slices(Session(), read, {0: (0, 50), 1: (7, 7)}, 100)]) == 1
    assert reads == [1]


def test_the_next_slice_is_read_while_the_caller_uses_the_one_before_and_no_further_one():
    reads, started = [], threading.Semaphore(0)

    def read(ranges, among):
        reads.append(ranges)
        started.release()
        return Frame(pa.table({"value": pa.array(range(100))}))

    slices = iter(topic_records.Slices(Session(), read, {0: (0, 1_000)}, 100, most=100))
    assert started.acquire(timeout=10)  # before anything is requested
    for number in range(1, 10):
        next(slices)
        assert started.acquire(timeout=10)
        assert len(reads) == number + 1
    assert [one.num_rows for one in slices] == [100]
    assert reads == [{0: (start, start + 100)} for start in range(0, 1_000, 100)]


def test_an_error_of_a_read_reaches_the_caller():
    def read(ranges, among):
        raise LookupError("no leader")

    with pytest.raises(LookupError, match="no leader"):
        list(topic_records.Slices(Session(), read, {0: (0, 10)}, 100))


def test_a_closed_read_is_cancelled_and_has_ended():
    session, ended = Session(), []

    class Endless:
        def toArrow(self):
            assert session.cancelled.wait(10)
            ended.append(True)
            raise InterruptedError

    slices = topic_records.Slices(session, lambda ranges, among: Endless(), {0: (0, 10)}, 100)
    slices.close()

    assert ended
