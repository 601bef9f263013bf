"""Parse ledgers, the producers' records of the broker's acknowledgements, from telemetry records.

A batch of a ledger may occur twice, in two sources or by a repeated send: (producer_id, sequence) counts once. Its
rows add up: one per session, topic, partition and window of 4,096 sequences, with sums and with the detail as text,
which is parsed only where it is needed (`sql/ledgers.sql`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STORE = "store"
"""The source of batches from a store."""

_SCHEMA = (
    "v int, producer_id string, sequence bigint, first bigint, cluster_id string, ledger_lost bigint, "
    "ledger array<array<string>>, given_up array<array<string>>"
)


def parsed(records: DataFrame) -> DataFrame:
    """Parse telemetry records into batches, one per row; `v` is null for a record that is not telemetry."""
    from pyspark.sql import functions as F

    return records.select(
        F.concat_ws("-", "topic", "partition").alias("source"),
        F.col("offset").alias("position"),
        F.expr("unix_micros(timestamp) / 1e6").alias("at"),
        F.from_json(F.col("value").cast("string"), _SCHEMA).alias("batch"),
    ).select("source", "position", "at", "batch.*")
