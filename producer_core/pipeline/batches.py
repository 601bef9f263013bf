"""Telemetry records as DataFrames: read, judged against our schema, and typed, one row a recorder's batch.

Every step is a map: no shuffle, no state, no watermark, so one Spark job of one stage is a whole micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from producer_core.store import ProducerRow
from producer_core.store.batch import KINDS
from producer_core.telemetry import SCHEMA_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_A_BATCH = 20_000
"""Records of a micro-batch: its rows pass through the driver, about 3 kB a record."""

_ALWAYS = ("statistics", "latencies", "errors")
"""Kinds that each batch has; the others came later, and older producers do not send them."""
_ROWS = "array<array<string>>"
_SCHEMA = "v int, producer_id string, sequence bigint, first bigint, producer array<string>, " + ", ".join(
    f"{column} {_ROWS}" for column in KINDS
)
_TYPES = {int: "bigint", float: "double", str: "string", bool: "boolean"}
_SMALL = ("bucket", "broker_id")
"""INTEGER in the store: what is larger must not reach it, for one refused row stops the whole job."""
_HIGHEST = 2**53


def read(session: SparkSession, topics: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """The topics as a stream, from their beginning where the checkpoint does not say otherwise.

    `options` are those of `kafka_options`. Records that retention took away before they were read are passed over:
    the gap shows in the dense numbers of the batches.
    """
    reader = session.readStream.format("kafka").options(**options)
    reader = reader.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", OFFSETS_A_BATCH).option("failOnDataLoss", "false").load()


def judge(records: DataFrame) -> DataFrame:
    """Each record with its `batch` and whether it `fits`: our version, and every row of our columns and types."""
    from pyspark.sql import functions as F

    parsed = records.withColumn("batch", F.from_json(F.col("value").cast("string"), _SCHEMA))
    return parsed.withColumn("fits", F.expr(f"coalesce({_fits()}, false)"))


def typed(judged: DataFrame) -> DataFrame:
    """One row a record, its kinds as lists of structs with the store's columns; of what does not fit only `v`."""
    from pyspark.sql import functions as F

    def known(expression: str, name: str) -> Any:
        return F.expr(f"case when fits then {expression} end").alias(name)

    return judged.select(
        "fits",
        F.col("batch.v").alias("v"),
        known("batch.producer_id", "producer_id"),
        known("coalesce(batch.first, batch.sequence)", "first"),
        known("batch.sequence", "sequence"),
        *[
            known(f"transform(batch.{name}, row -> {_struct(kind.row, 'row')})", name)
            for name, kind in KINDS.items()
        ],
        known(
            f"case when batch.producer is not null then {_struct(ProducerRow, 'batch.producer')} end",
            "producer",
        ),
    )


def unknown(judged: DataFrame) -> DataFrame:
    """What does not fit, as it stands on the topic: a newer schema, rows of another shape, or no telemetry at all."""
    return judged.where("not fits").selectExpr(
        "topic", "partition", "offset", "timestamp", "key", "value", "batch.v as v"
    )


def columns(kind: type[Any]) -> dict[str, str]:
    """A row's columns and Spark's types for them."""
    return {name: _sql_type(name, hint) for name, hint in get_type_hints(kind).items()}


def _struct(kind: type[Any], row: str) -> str:
    fields = ", ".join(
        f"'{name}', try_cast(get({row}, {place}) as {sql_type})"
        for place, (name, sql_type) in enumerate(columns(kind).items())
    )
    return f"named_struct({fields})"


def _fits() -> str:
    """True for a batch of our version whose every row has our columns; else one bad record would stop the job."""
    named = [
        f"batch.v = {SCHEMA_VERSION}",
        "batch.producer_id is not null",
        f"batch.sequence between 0 and {_HIGHEST}",
        "(batch.first is null or batch.first between 0 and batch.sequence)",
    ]
    for name, kind in KINDS.items():
        rows_fit = f"forall(batch.{name}, row -> {_row_fits(kind.row, 'row')})"
        named.append(rows_fit if name in _ALWAYS else f"(batch.{name} is null or {rows_fit})")
    return " and ".join([*named, f"(batch.producer is null or {_row_fits(ProducerRow, 'batch.producer')})"])


def _row_fits(kind: type[Any], row: str) -> str:
    hints = get_type_hints(kind)
    cells = [
        _cell_fits(f"get({row}, {place})", name, hint) for place, (name, hint) in enumerate(hints.items())
    ]
    return " and ".join([f"size({row}) = {len(hints)}", *cells])


def _cell_fits(cell: str, name: str, hint: Any) -> str:
    fits = f"try_cast({cell} as {_sql_type(name, hint)}) is not null"
    return f"({cell} is null or {fits})" if type(None) in get_args(hint) else fits


def _sql_type(name: str, hint: Any) -> str:
    """Spark's type for a row's field; `X | None` is X, as every column may be null."""
    if name in _SMALL:
        return "int"
    return _TYPES[next((part for part in get_args(hint) if part is not type(None)), hint)]
