"""A look by Spark: which of many message ids are on a topic, where there is too much to read for one reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from producer_core.config import ClientConfig
from producer_core.errors import ConfigError
from producer_core.kafka.record_lookup import BulkLookup
from producer_core.messages import ID_HEADER, id_text, parse_id
from producer_core.pipeline.kafka_options import kafka_options
from producer_core.pipeline.spark_errors import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What a higher-order filter costs each record is saved where our header is the first one, as in records of ours.
_ID = (
    f"CASE WHEN headers[0].key = '{ID_HEADER}' THEN headers[0].value "
    f"ELSE filter(headers, header -> header.key = '{ID_HEADER}')[0].value END AS id"
)
_LARGE = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
}


def far(session: Callable[[], SparkSession], config: ClientConfig) -> BulkLookup | None:
    """Reads committed records of these offsets once, without a shuffle; the ids travel to every task. None where
    Java's client cannot be told how to sign in: then one reader of ours reads what it can."""
    try:
        kafka_options(config)
    except ConfigError:
        return None

    def look(topic: str, spans: Mapping[int, tuple[int, int]], ids: set[str]) -> dict[str, tuple[int, int]]:
        import pyarrow

        wanted = pyarrow.table({"id": pyarrow.array([parse_id(one) for one in ids], pyarrow.binary())})
        try:
            records = read(session(), config, topic, spans)
            rows = found(records, session().createDataFrame(wanted, "id binary")).toArrow().to_pylist()
        except Exception as error:  # Spark's and py4j's own have no common root
            said = str(explained(error) or error)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, said)) from error  # it is looked again
        return {id_text(row["id"]): (row["partition"], row["offset"]) for row in rows}

    return look


def read(
    session: SparkSession, config: ClientConfig, topic: str, spans: Mapping[int, tuple[int, int]]
) -> DataFrame:
    """The committed records of [start, end) of these partitions."""

    def offsets(which: int) -> str:
        return json.dumps({topic: {str(number): span[which] for number, span in spans.items()}})

    return (
        session.read.format("kafka")
        .options(**{**kafka_options(config), **_LARGE})
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: sorted(spans)}))
        .option("startingOffsets", offsets(0))
        .option("endingOffsets", offsets(1))
        .option("includeHeaders", "true")
        .load()
    )


def found(records: DataFrame, wanted: DataFrame) -> DataFrame:
    """Where the wanted ids are: id, partition, offset; a record without our header is none."""
    from pyspark.sql import functions as F

    return (
        records.selectExpr(_ID, "partition", "offset")
        .join(F.broadcast(wanted), "id", how="inner")
        .select("id", "partition", "offset")
    )
