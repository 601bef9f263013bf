"""Fetch a topic's message ids and their offsets from Spark, a slice at a time, or the sums of their windows.

A slice bounds what the driver holds: about 64 MB as Arrow here, and three times that in its JVM, whatever is read. Spark
reads a slice while this process works on the one before, so that at most two are held.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Protocol

from producer_core.pipeline.integrity import groups
from producer_core.pipeline.integrity.ranges import Range, covered, layers, split
from producer_core.pipeline.integrity.read_ahead import ReadAhead
from producer_core.pipeline.integrity.read_topic import raw_ids, with_ids

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]
"""Returns the records of one range per partition; `among` is the number of ranges in all reads of a pass."""

FIRST_SLICE = 2_000_000
"""Records of the first slice; an id with its place takes about 40 bytes, a sum about 80."""
_SLICE_BYTES = 64 << 20
_MAX_GROWTH = 4
"""Growth from a slice to the next, because records may become larger."""
_CACHED_READS = 4
"""Reads whose Kafka clients Spark still keeps when the next one begins; see `read_topic.fetch_settings`."""

BROADCAST_LIMIT = 200_000
"""Groups up to which they are broadcast to every task; more are joined by a shuffle of the records read again."""


class Tables(Protocol):
    """Iterate over Arrow tables; `close` ends the read that is under way."""

    def __iter__(self) -> Iterator[pyarrow.Table]: ...

    def close(self) -> None: ...


class TopicRecords(Protocol):
    """Return records as Arrow tables of (partition, offset, id); the id is null without a message id."""

    def ids(self, ranges: Mapping[int, Range]) -> Tables:
        """Start to read all records of the ranges."""

    def groups(self, ranges: Mapping[int, Range]) -> Tables:
        """Start to sum the windows of successive parts of the ranges, as `groups.groups` does."""

    def ids_of(self, ranges: Mapping[int, Sequence[Range]], chosen: pyarrow.Table) -> Iterator[pyarrow.Table]:
        """Yield the records of the ranges that belong to the chosen groups."""


class SparkRecords:
    """Read the records with Spark."""

    def __init__(self, session: SparkSession, read: Read) -> None:
        self._session = session
        self._read = read

    def ids(self, ranges: Mapping[int, Range]) -> Slices:
        return Slices(
            self._session, lambda some, among: raw_ids(self._read(some, among=among)), ranges, FIRST_SLICE
        )

    def groups(self, ranges: Mapping[int, Range]) -> Slices:
        def summed(some: Mapping[int, Range], among: int | None) -> DataFrame:
            return groups.groups(with_ids(self._read(some, among=among)))

        return Slices(self._session, summed, ranges, FIRST_SLICE, most=covered_once(ranges))

    def ids_of(
        self, ranges: Mapping[int, Sequence[Range]], chosen: pyarrow.Table
    ) -> Generator[pyarrow.Table]:
        from pyspark.sql import functions as F

        keys = self._session.createDataFrame(chosen)
        keys = F.broadcast(keys) if chosen.num_rows <= BROADCAST_LIMIT else keys
        among = sum(map(len, ranges.values()))

        def read(some: Mapping[int, Range], among: int | None) -> DataFrame:
            return groups.records_of(with_ids(self._read(some, among=among)), keys)

        for layer in layers(ranges):
            with closing(Slices(self._session, read, layer, FIRST_SLICE, among=among)) as slices:
                yield from slices


class Slices:
    """Iterate over the frames of successive parts of the ranges, as Arrow tables.

    Spark reads the first part as soon as this object is made, and each other part while the caller uses the one before.
    `size` is the number of offsets of the first part. The size of the others, up to `most`, follows from the bytes of
    the one before. `among` is the number of ranges in all reads of a pass.
    """

    def __init__(
        self,
        session: SparkSession,
        read: Callable[[Mapping[int, Range], int | None], DataFrame],
        ranges: Mapping[int, Range],
        size: int,
        *,
        most: int = FIRST_SLICE,
        among: int | None = None,
    ) -> None:
        self._session, self._frame, self._most, self._among = session, read, most, among or 0
        self._size = size
        self._part, self._rest = split(ranges, size)
        self._reads = _CACHED_READS if self._rest else 1
        self._ahead = self._start()

    def __iter__(self) -> Iterator[pyarrow.Table]:
        while self._ahead is not None:
            table = self._ahead.table()
            self._choose_next(table)
            self._ahead = self._start()
            yield table

    def close(self) -> None:
        """Cancel the read that is under way."""
        if self._ahead is not None:
            self._ahead.cancel()

    def _start(self) -> ReadAhead | None:
        if not self._part:
            return None
        among = max(self._reads * len(self._part), self._among)
        return ReadAhead(self._session, partial(self._frame, self._part, among))

    def _choose_next(self, table: pyarrow.Table) -> None:
        fitting = _SLICE_BYTES * covered_once(self._part) // max(1, table.get_total_buffer_size())
        self._size = max(1, min(fitting, self._most, _MAX_GROWTH * self._size))
        self._part, self._rest = split(self._rest, self._size)


def covered_once(ranges: Mapping[int, Range]) -> int:
    """Return the number of offsets in the ranges, one per partition."""
    return covered({number: [one] for number, one in ranges.items()})
