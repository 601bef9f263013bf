"""The pieces of a micro-batch: so much as the driver can hold. After an outage one record may be half a megabyte."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PIECE = 32 << 20
"""Bytes of records, before they are parsed: some 10,000 of producers with few topics. 64 MiB took 0.8 GB of the driver's Python and
all of a JVM of 1g (measured)."""

Ranges = dict[str, dict[str, tuple[int, int]]]
"""By topic and partition the first offset and the one after the last."""


def pieces(records: DataFrame, options: Mapping[str, str], *, most: int = PIECE) -> Iterator[DataFrame]:
    """The micro-batch as it is, or where it is larger than `most` bytes its parts, each read from Kafka alone.

    Its sizes are asked first, by one job of one stage: what was planned for a micro-batch cannot be made smaller later.
    """
    from pyarrow import compute

    sized = records.selectExpr(
        "topic", "partition", "offset", "coalesce(length(value), 0) as bytes"
    ).toArrow()
    if (compute.sum(sized["bytes"]).as_py() or 0) <= most:
        yield records
        return
    ordered = sized.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
    rows = zip(
        *(ordered[name].to_pylist() for name in ("topic", "partition", "offset", "bytes")), strict=True
    )
    for ranges in cut(rows, most):
        yield _read(records, options, ranges)


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
