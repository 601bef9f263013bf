"""Read telemetry topics as a stream of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_PER_BATCH = 20_000
"""Records of a micro-batch; its rows pass through the driver, about 3 kB per record."""


def read(session: SparkSession, topics: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Return the topics as a stream that starts at the checkpoint, or at the topics' beginning without one.

    `options` come from `kafka_options`. Records that retention removed before they were read are skipped; they show
    as a gap in the dense numbers of the batches.
    """
    reader = session.readStream.format("kafka").options(**options)
    reader = reader.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH).option("failOnDataLoss", "false").load()
