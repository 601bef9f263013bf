"""Fetch a topic's message ids and their offsets from Spark, a slice at a time, or the sums of their windows.

A slice bounds what the driver holds: about 64 MB as Arrow here, and three times that in its JVM, whatever is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from producer_core.pipeline.integrity import groups
from producer_core.pipeline.integrity.ranges import Range, covered, layers, split
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


class TopicRecords(Protocol):
    """Return records as Arrow tables of (partition, offset, id); the id is null without a message id."""

    def ids(self, ranges: Mapping[int, Range]) -> Iterator[pyarrow.Table]:
        """Yield all records of the ranges."""

    def groups(self, ranges: Mapping[int, Range]) -> Iterator[pyarrow.Table]:
        """Yield the sums of the windows of successive parts of the ranges, as `groups.groups` does."""

    def ids_of(self, ranges: Mapping[int, Sequence[Range]], chosen: pyarrow.Table) -> Iterator[pyarrow.Table]:
        """Yield the records of the ranges that belong to the chosen groups."""


class SparkRecords:
    """Read the records with Spark."""

    def __init__(self, session: SparkSession, read: Read) -> None:
        self._session = session
        self._read = read

    def ids(self, ranges: Mapping[int, Range]) -> Iterator[pyarrow.Table]:
        return in_slices(lambda some, among: raw_ids(self._read(some, among=among)), ranges, FIRST_SLICE)

    def groups(self, ranges: Mapping[int, Range]) -> Iterator[pyarrow.Table]:
        def summed(some: Mapping[int, Range], among: int | None) -> DataFrame:
            return groups.groups(with_ids(self._read(some, among=among)))

        return in_slices(summed, ranges, FIRST_SLICE, most=covered_once(ranges))

    def ids_of(self, ranges: Mapping[int, Sequence[Range]], chosen: pyarrow.Table) -> Iterator[pyarrow.Table]:
        from pyspark.sql import functions as F

        keys = self._session.createDataFrame(chosen)
        keys = F.broadcast(keys) if chosen.num_rows <= BROADCAST_LIMIT else keys
        for layer in layers(ranges):
            yield from in_slices(
                lambda some, among: groups.records_of(with_ids(self._read(some, among=among)), keys),
                layer,
                FIRST_SLICE,
                among=sum(map(len, ranges.values())),
            )


def in_slices(
    read: Callable[[Mapping[int, Range], int | None], DataFrame],
    ranges: Mapping[int, Range],
    size: int,
    *,
    most: int = FIRST_SLICE,
    among: int | None = None,
) -> Iterator[pyarrow.Table]:
    """Yield the frames of successive parts of the ranges; `size` is the number of offsets of the first part.

    The size of the others, up to `most`, follows from the bytes of the one before.
    """
    part, rest = split(ranges, size)
    reads = _CACHED_READS if rest else 1
    while part:
        table = read(part, max(reads * len(part), among or 0)).toArrow()
        yield table
        fitting = _SLICE_BYTES * covered_once(part) // max(1, table.get_total_buffer_size())
        size = max(1, min(fitting, most, _MAX_GROWTH * size))
        part, rest = split(rest, size)


def covered_once(ranges: Mapping[int, Range]) -> int:
    """Return the number of offsets in the ranges, one per partition."""
    return covered({number: [one] for number, one in ranges.items()})
