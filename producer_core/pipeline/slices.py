"""The pieces of a micro-batch: so much as the driver can hold. After an outage one record may be half a megabyte."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PIECE = 32 << 20
"""Bytes of records, before they are parsed: some 10,000 of producers with few topics."""

Ranges = dict[str, dict[str, tuple[int, int]]]
"""By topic and partition the first offset and the one after the last."""

_WHERE = ("topic", "partition", "offset", "timestamp")
_RECORD = (*_WHERE, "key", "value")
_BYTES = "(coalesce(length(key), 0) + coalesce(length(value), 0))"
_PLACE = f"(monotonically_increasing_id() & {2**33 - 1})"
"""A record's place in its task, from 0: Spark's documented lower 33 bits."""


def pieces(
    records: DataFrame, options: Mapping[str, str], *, most: int = PIECE
) -> Iterator[tuple[pa.Table, bool]]:
    """The micro-batch's records in tables of about `most` bytes, or of one record, and whether each is the last.

    One job of one stage fetches it whole, unless it is larger; then what did not come is read from Kafka piece by
    piece, for what was planned for a micro-batch cannot be made smaller later.
    """
    whole, left = come(bounded(records, most).toArrow())
    ranges = list(cut(left, most))
    if whole.num_rows or not ranges:
        yield whole, not ranges
    del whole
    for number, some in enumerate(ranges, 1):
        yield _read(records, options, some).select(*_RECORD).toArrow(), number == len(ranges)


def bounded(records: DataFrame, most: int) -> DataFrame:
    """Each record with its `bytes`, and where `here` its key and value: of records of one size as many as make `most`.

    A task knows its records one by one, so each is judged by its own size and place: with n records before it a
    record may have the task's share / (n + 1). Sizes that fall just so come to ln(n) times `most`.
    """
    share = most // max(1, records.rdd.getNumPartitions())
    here = f"{_BYTES} * (1 + {_PLACE}) <= {share}"
    given = (f"if({here}, {name}, null) as {name}" for name in ("key", "value"))
    return records.selectExpr(*_WHERE, *given, f"{_BYTES} as bytes", f"{here} as here")


def come(arrived: pa.Table) -> tuple[pa.Table, Iterator[tuple[str, int, int, int]]]:
    """The records that came, of each partition up to the first that did not; and of the rest, in order, what `cut` takes."""
    from pyarrow import compute

    if compute.all(arrived["here"], min_count=0).as_py():
        return arrived.select(_RECORD), iter(())
    ordered = arrived.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
    behind: set[tuple[str, int]] = set()  # partitions of which one did not come
    fits, left = [], []
    columns = (ordered[name].to_pylist() for name in ("topic", "partition", "offset", "bytes", "here"))
    for topic, partition, offset, bytes_, here in zip(*columns, strict=True):
        if not here:
            behind.add((topic, partition))
        fits.append((topic, partition) not in behind)
        if not fits[-1]:
            left.append((topic, partition, offset, bytes_))
    return ordered.filter(fits).select(_RECORD), iter(left)


def cut(rows: Iterable[tuple[str, int, int, int]], most: int) -> Iterator[Ranges]:
    """Ranges of (topic, partition, offset, bytes), given in that order, of `most` bytes each, or of one record."""
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
    def told(value: Any) -> str:
        return json.dumps(
            {topic: {part: value(at) for part, at in parts.items()} for topic, parts in ranges.items()}
        )

    named = {topic: [int(part) for part in parts] for topic, parts in ranges.items()}
    reader = records.sparkSession.read.format("kafka").options(**options).option("assign", json.dumps(named))
    reader = reader.option("startingOffsets", told(lambda at: at[0])).option(
        "endingOffsets", told(lambda at: at[1])
    )
    return reader.option("failOnDataLoss", "false").load()
