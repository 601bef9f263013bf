"""Split a micro-batch into pieces that fit into the driver: after an outage one record may be half a megabyte."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PIECE = 32 << 20
"""Bytes of records before parsing: about 10,000 records of producers with few topics."""

Ranges = dict[str, dict[str, tuple[int, int]]]
"""Per topic and partition, the first offset and the offset after the last."""

_POSITION = ("topic", "partition", "offset", "timestamp")
_RECORD = (*_POSITION, "key", "value")
_BYTES = "(coalesce(length(key), 0) + coalesce(length(value), 0))"
_INDEX = f"(monotonically_increasing_id() & {2**33 - 1})"
"""A record's position in its task, from 0: the lower 33 bits, as Spark documents."""


def pieces(
    records: DataFrame, options: Mapping[str, str], *, most: int = PIECE
) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the micro-batch's records in tables of about `most` bytes, or of one record, each with whether it is the
    last.

    One job of one stage fetches the whole micro-batch. If it is too large, the rest is read from Kafka piece by
    piece, because a micro-batch that Spark has planned cannot be made smaller.
    """
    whole, left = split_fetched(limit_bytes(records, most).toArrow())
    ranges = list(offset_ranges(left, most))
    if whole.num_rows or not ranges:
        yield whole, not ranges
    del whole
    for number, part in enumerate(ranges, 1):
        yield _read(records, options, part).select(*_RECORD).toArrow(), number == len(ranges)


def limit_bytes(records: DataFrame, most: int) -> DataFrame:
    """Return each record with its `bytes`, and with key and value where `here` is true: about `most` bytes in all.

    A task sees one record at a time, so the limit for each depends on its own size and position: a record with n
    records before it may have the task's share / (n + 1). In the worst case the sizes add up to ln(n) times `most`.
    """
    share = most // max(1, records.rdd.getNumPartitions())
    here = f"{_BYTES} * (1 + {_INDEX}) <= {share}"
    columns = (f"if({here}, {name}, null) as {name}" for name in ("key", "value"))
    return records.selectExpr(*_POSITION, *columns, f"{_BYTES} as bytes", f"{here} as here")


def split_fetched(arrived: pa.Table) -> tuple[pa.Table, Iterator[tuple[str, int, int, int]]]:
    """Return the fetched records of each partition up to the first that is missing, and the rest as `offset_ranges`
    takes it.

    The rest is in the order of topic, partition and offset.
    """
    from pyarrow import compute

    if compute.all(arrived["here"], min_count=0).as_py():
        return arrived.select(_RECORD), iter(())
    ordered = arrived.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
    incomplete: set[tuple[str, int]] = set()  # partitions with a missing record
    fits, left = [], []
    columns = (ordered[name].to_pylist() for name in ("topic", "partition", "offset", "bytes", "here"))
    for topic, partition, offset, bytes_, here in zip(*columns, strict=True):
        if not here:
            incomplete.add((topic, partition))
        fits.append((topic, partition) not in incomplete)
        if not fits[-1]:
            left.append((topic, partition, offset, bytes_))
    return ordered.filter(fits).select(_RECORD), iter(left)


def offset_ranges(rows: Iterable[tuple[str, int, int, int]], most: int) -> Iterator[Ranges]:
    """Yield ranges of `most` bytes each, or of one record, from (topic, partition, offset, bytes) in that order."""
    ranges: Ranges = {}
    size = 0
    for topic, partition, offset, bytes_ in rows:
        if ranges and size + bytes_ > most:
            yield ranges
            ranges, size = {}, 0
        first, _ = ranges.setdefault(topic, {}).get(str(partition), (offset, offset))
        ranges[topic][str(partition)] = (first, offset + 1)
        size += bytes_
    if ranges:
        yield ranges


def _read(records: DataFrame, options: Mapping[str, str], ranges: Ranges) -> DataFrame:
    def offsets(value: Any) -> str:
        return json.dumps(
            {topic: {part: value(at) for part, at in parts.items()} for topic, parts in ranges.items()}
        )

    named = {topic: [int(part) for part in parts] for topic, parts in ranges.items()}
    reader = records.sparkSession.read.format("kafka").options(**options).option("assign", json.dumps(named))
    reader = reader.option("startingOffsets", offsets(lambda at: at[0])).option(
        "endingOffsets", offsets(lambda at: at[1])
    )
    return reader.option("failOnDataLoss", "false").load()
