"""Read bounded ranges of a topic's partitions as frames of message ids with their places.

Each Kafka partition is one task that reads in the order of offsets, so decoding and grouping need no shuffle. Never
set minPartitions here: it splits a partition into tasks and costs a third of the speed (measured).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from producer_core._internal.id_header import spark_record_id
from producer_core.pipeline.integrity.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORDS, _BYTES = 30_000, 24 << 20
_MIN_RECORDS, _MIN_BYTES = 500, 1 << 20  # Kafka's own defaults
_MAX_RECORDS, _MAX_BYTES = 5_000, 4 << 20

_ID = spark_record_id()
_SEQ = "try_cast(conv(hex(substring(id, 17, 8)), 16, 10) as bigint)"


def read_ranges(
    session: SparkSession,
    topic: str,
    ranges: Mapping[int, Range],
    options: Mapping[str, str],
    *,
    headers: bool = True,
    among: int | None = None,
) -> DataFrame:
    """Return the records of one range per partition as Kafka has them; an empty frame when every range is empty.

    `among` is the number of ranges in all reads, when this is one of several; see `fetch_settings`. Records that
    retention removes during the read are left out: the caller checks the low watermarks afterwards.
    """
    wanted = {str(partition): one for partition, one in ranges.items() if one[0] < one[1]}
    if not wanted:
        return session.createDataFrame([], _KAFKA)
    ends = {
        name: json.dumps({topic: {partition: one[place] for partition, one in wanted.items()}})
        for place, name in enumerate(("startingOffsets", "endingOffsets"))
    }
    reader = session.read.format("kafka").option("assign", json.dumps({topic: [int(one) for one in wanted]}))
    reader = reader.options(**fetch_settings(among or len(wanted)), **options, **ends)
    reader = reader.option("includeHeaders", str(headers).lower()).option("failOnDataLoss", "false")
    with _newer_reader(session):
        return reader.load()


@contextmanager
def _newer_reader(session: SparkSession) -> Iterator[None]:
    """Select Spark's newer Kafka reader while a frame is made.

    It creates Spark's internal rows directly; the default reader creates external rows and converts each. The choice
    is made when the frame is created, so the setting is restored at once.
    """
    with _conf_lock:
        before = session.conf.get(_OLDER)
        assert before is not None  # Spark has a default
        session.conf.set(_OLDER, ",".join(one for one in before.split(",") if one.strip() != "kafka"))
        try:
            yield
        finally:
            session.conf.set(_OLDER, before)


_OLDER = "spark.sql.sources.useV1SourceList"
_conf_lock = threading.Lock()  # two audits of one session must not restore each other's setting


def fetch_settings(ranges: int) -> dict[str, str]:
    """Return fetch sizes for each range's consumer with which all consumers that Spark keeps fit into a small JVM.

    Spark keeps the consumer of each range it has read, with its last records and its prefetched data, for five
    minutes (`session.py` shortens that), up to 64 of them over all audits: with 16 MiB and 20,000 records each, the
    third audit of a session ran out of memory. With these sizes a plain read is a tenth slower, but the first pass of
    an audit is not (measured).
    """
    return {
        "kafka.max.poll.records": str(max(_MIN_RECORDS, min(_MAX_RECORDS, _RECORDS // ranges))),
        "kafka.max.partition.fetch.bytes": str(max(_MIN_BYTES, min(_MAX_BYTES, _BYTES // ranges))),
        "kafka.fetch.max.bytes": str(64 << 20),
        "kafka.receive.buffer.bytes": "-1",  # the system's choice: with Kafka's 64 KB, a tenth more CPU time (measured)
    }


_KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)


def raw_ids(records: DataFrame) -> DataFrame:
    """Return (partition, offset, id); the id of 24 bytes is null for a record without a producer_core id.

    Like `messages.record_id`, it takes the first header of that name with an id, binary or as text.
    """
    from pyspark.sql import functions as F

    return records.select("partition", "offset", F.expr(_ID).alias("id"))


def with_ids(records: DataFrame) -> DataFrame:
    """Return (partition, offset, id, session, seq); session and seq are null for a record without a valid id."""
    from pyspark.sql import functions as F

    with_seq = raw_ids(records).withColumn("seq", F.expr(_SEQ))
    session = F.expr("if(seq is null, null, substring(id, 1, 16))")
    return with_seq.select("partition", "offset", "id", session.alias("session"), "seq")
