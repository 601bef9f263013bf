"""Reading a topic: bounded ranges of its partitions as frames of (partition, offset, session, seq).

Each Kafka partition is one task that reads in the order of offsets, so nothing is shuffled to decode or to group.
Never set minPartitions here: it cuts a partition into tasks and costs a third of the speed (measured).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from producer_core.messages import ID_HEADER
from producer_core.pipeline.integrity.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORDS, _BYTES = 30_000, 24 << 20
_FEWEST, _LEAST = 500, 1 << 20  # Kafka's own defaults
_MANY, _MOST = 5_000, 4 << 20

# Our producer puts its header first; the slow filter runs only for records of others.
_ID = f"""case when get(headers, 0).key = '{ID_HEADER}' and length(get(headers, 0).value) = 24
               then get(headers, 0).value
               else get(filter(headers, one -> one.key = '{ID_HEADER}' and length(one.value) = 24), 0).value end"""
_SEQ = "try_cast(conv(hex(substring(id, 17, 8)), 16, 10) as bigint)"


def bounded(
    session: SparkSession,
    topic: str,
    ranges: Mapping[int, Range],
    options: Mapping[str, str],
    *,
    headers: bool = True,
    among: int | None = None,
) -> DataFrame:
    """The records of one range a partition, as Kafka has them; an empty frame where every range is empty.

    `among` is how many ranges are read in all, where this is one read of several; see `fetches`.

    Records that retention takes away meanwhile are left out: the caller looks at the low watermarks afterwards.
    """
    asked = {str(partition): one for partition, one in ranges.items() if one[0] < one[1]}
    if not asked:
        return session.createDataFrame([], _KAFKA)
    ends = {
        name: json.dumps({topic: {partition: one[place] for partition, one in asked.items()}})
        for place, name in enumerate(("startingOffsets", "endingOffsets"))
    }
    reader = session.read.format("kafka").option("assign", json.dumps({topic: [int(one) for one in asked]}))
    reader = reader.options(**fetches(among or len(asked)), **options, **ends)
    reader = reader.option("includeHeaders", str(headers).lower()).option("failOnDataLoss", "false")
    with _newer_reader(session):
        return reader.load()


@contextmanager
def _newer_reader(session: SparkSession) -> Iterator[None]:
    """Spark's newer Kafka reader makes its own rows at once; the one it takes by default makes rows for Java's eyes first
    and turns each back. Which one it is is settled when a frame is made, so the setting is restored at once."""
    with _choosing:
        before = session.conf.get(_OLDER)
        assert before is not None  # Spark has a default
        session.conf.set(_OLDER, ",".join(one for one in before.split(",") if one.strip() != "kafka"))
        try:
            yield
        finally:
            session.conf.set(_OLDER, before)


_OLDER = "spark.sql.sources.useV1SourceList"
_choosing = threading.Lock()  # two audits of one session must not restore each other's


def fetches(ranges: int) -> dict[str, str]:
    """How much the client of each range asks for at once, so that all that Spark keeps of them fits into a small JVM.

    Spark keeps the client of each range it has read, with its last records and what it fetched ahead, for five minutes
    (`session.py` makes that less), up to 64 of them from however many audits: with 16 MiB and 20,000 records each, the
    third audit of a session ended for want of memory. A plain read is a tenth slower with what is asked for here, the
    first pass of an audit is not (both measured).
    """
    return {
        "kafka.max.poll.records": str(max(_FEWEST, min(_MANY, _RECORDS // ranges))),
        "kafka.max.partition.fetch.bytes": str(max(_LEAST, min(_MOST, _BYTES // ranges))),
        "kafka.fetch.max.bytes": str(64 << 20),
    }


_KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)


def decoded(records: DataFrame) -> DataFrame:
    """(partition, offset, session, seq); both null for a record without a message id of ours.

    As `messages.record_id` reads it: the first header of that name that has 24 bytes.
    """
    from pyspark.sql import functions as F

    with_id = records.select("partition", "offset", F.expr(_ID).alias("id"))
    with_seq = with_id.select(
        "partition", "offset", F.substring("id", 1, 16).alias("session"), F.expr(_SEQ).alias("seq")
    )
    return with_seq.select(
        "partition", "offset", F.expr("if(seq is null, null, session)").alias("session"), "seq"
    )
