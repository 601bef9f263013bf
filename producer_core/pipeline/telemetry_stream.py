"""Telemetry topics as a stream of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_A_BATCH = 20_000
"""Records of a micro-batch: its rows pass through the driver, about 3 kB a record."""


def read(session: SparkSession, topics: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """The topics as a stream, from their beginning where the checkpoint does not say otherwise.

    `options` are those of `kafka_options`. Records that retention took away before they were read are passed over:
    the gap shows in the dense numbers of the batches.
    """
    reader = session.readStream.format("kafka").options(**options)
    reader = reader.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", OFFSETS_A_BATCH).option("failOnDataLoss", "false").load()
