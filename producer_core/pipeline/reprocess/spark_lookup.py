"""Find message ids on a topic with Spark, when the range is too large for one consumer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from producer_core._internal.id_header import spark_record_id
from producer_core.config import ClientConfig
from producer_core.errors import ConfigError
from producer_core.kafka.record_lookup import BulkLookup
from producer_core.messages import id_text, parse_id
from producer_core.pipeline.kafka_options import kafka_options
from producer_core.pipeline.spark_errors import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ID = f"{spark_record_id()} AS id"
_LARGE_FETCHES = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
}


def lookup_by_spark(session: Callable[[], SparkSession], config: ClientConfig) -> BulkLookup | None:
    """Return a function that finds ids among the committed records of some offsets, in one pass without a shuffle.

    The ids are broadcast to every task. Returns None when Java's client lacks a connection setting; one Python
    consumer then reads as much as it can.
    """
    try:
        kafka_options(config)
    except ConfigError:
        return None

    def look_up(
        topic: str, spans: Mapping[int, tuple[int, int]], ids: set[str]
    ) -> dict[str, tuple[int, int]]:
        import pyarrow

        wanted = pyarrow.table({"id": pyarrow.array([parse_id(one) for one in ids], pyarrow.binary())})
        try:
            records = read(session(), config, topic, spans)
            rows = found(records, session().createDataFrame(wanted, "id binary")).toArrow().to_pylist()
        except Exception as error:  # Spark's and py4j's errors have no common base
            text = str(explained(error) or error)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, text)) from error  # the lookup is retried
        return {id_text(row["id"]): (row["partition"], row["offset"]) for row in rows}

    return look_up


def read(
    session: SparkSession, config: ClientConfig, topic: str, spans: Mapping[int, tuple[int, int]]
) -> DataFrame:
    """Return the committed records of the offsets [start, end) of these partitions."""

    def offsets(which: int) -> str:
        return json.dumps({topic: {str(number): span[which] for number, span in spans.items()}})

    return (
        session.read.format("kafka")
        .options(**{**kafka_options(config), **_LARGE_FETCHES})
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: sorted(spans)}))
        .option("startingOffsets", offsets(0))
        .option("endingOffsets", offsets(1))
        .option("includeHeaders", "true")
        .load()
    )


def found(records: DataFrame, wanted: DataFrame) -> DataFrame:
    """Return the positions of the wanted ids: id, partition, offset; records without our header do not match."""
    from pyspark.sql import functions as F

    return (
        records.selectExpr(_ID, "partition", "offset")
        .join(F.broadcast(wanted), "id", how="inner")
        .select("id", "partition", "offset")
    )
