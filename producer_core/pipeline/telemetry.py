"""The telemetry job: batches of a whole fleet, from their Kafka topics into one store.

Stateless on purpose: a micro-batch is parsed and flattened by Spark, and merged by one DuckDB transaction that
also records which batches it holds. So a batch counts once whatever is killed when, and however late it comes;
a watermark would drop late ones silently (measured), and needs state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from producer_core.pipeline.merging import committed, merge, unseen
from producer_core.store import ProducerRow
from producer_core.store.batch import KINDS
from producer_core.telemetry import SCHEMA_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from producer_core.store import Store

_ROWS = "array<array<string>>"
_SCHEMA = (
    "v int, producer_id string, sequence bigint, cluster_id string, producer array<string>, "
    + ", ".join(f"{column} {_ROWS}" for column in KINDS)
)
_ALWAYS = ("statistics", "latencies", "errors")
"""Kinds that each batch has; the others came later, and older producers do not send them."""
_TYPES = {int: "bigint", float: "double", str: "string", bool: "boolean"}
_OFFSETS_A_BATCH = 50_000
_KINDS: Mapping[str, Any] = {column: kind.row for column, kind in KINDS.items()}


@dataclass(frozen=True)
class Merged:
    """What a run did: batches seen and merged, and records set aside because they are no telemetry we know."""

    batches: int = 0
    merged: int = 0
    set_aside: int = 0

    def __add__(self, other: Merged) -> Merged:
        return Merged(
            self.batches + other.batches, self.merged + other.merged, self.set_aside + other.set_aside
        )


def read(session: SparkSession, servers: str, topics: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """The topics as a stream, from their beginning where the checkpoint does not say otherwise."""
    reader = session.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", _OFFSETS_A_BATCH).option("failOnDataLoss", "false")
    for name, value in options.items():
        reader = reader.option(f"kafka.{name}", value)
    return reader.load()


def parse(records: DataFrame) -> DataFrame:
    """Kafka records to batches, one a row; what is none has a null producer_id."""
    from pyspark.sql import functions as F

    return records.select("value", F.from_json(F.col("value").cast("string"), _SCHEMA).alias("batch")).select(
        "value", "batch.*"
    )


def known(batches: DataFrame) -> DataFrame:
    """Batches that this code understands to the last column, each once."""
    return batches.where(_fits()).drop("value", "v").dropDuplicates(["producer_id", "sequence"])


def unknown(batches: DataFrame) -> DataFrame:
    """The raw values of everything else: a newer schema, rows of another shape, or no telemetry at all."""
    return batches.where(f"not coalesce({_fits()}, false)").select("value")


def _fits() -> str:
    """True for a batch of our version whose every row has our columns; else one bad record would stop the job."""
    rows_fit = [
        f"({'' if column in _ALWAYS else f'{column} is null or '}forall({column}, row -> {_row_fits(kind, 'row')}))"
        for column, kind in _KINDS.items()
    ]
    producer_fits = f"(producer is null or {_row_fits(ProducerRow, 'producer')})"
    named = [f"v = {SCHEMA_VERSION}", "producer_id is not null", "sequence is not null"]
    return " and ".join([*named, *rows_fit, producer_fits])


def _row_fits(kind: type[Any], row: str) -> str:
    hints = get_type_hints(kind).values()
    columns = [_column_fits(f"get({row}, {place})", hint) for place, hint in enumerate(hints)]
    return " and ".join([f"size({row}) = {len(columns)}", *columns])


def _column_fits(column: str, hint: Any) -> str:
    fits = f"try_cast({column} as {_sql_type(hint)}) is not null"
    return f"({column} is null or {fits})" if type(None) in get_args(hint) else fits


def rows(batches: DataFrame, column: str, kind: type[Any]) -> DataFrame:
    """One kind of rows of all batches, with the batch each belongs to and its columns by name and type."""
    from pyspark.sql import functions as F

    exploded = batches.select("producer_id", "sequence", F.explode(column).alias("row"))
    return exploded.select(
        F.col("producer_id").alias("batch_producer"),
        F.col("sequence").alias("batch_sequence"),
        *_columns(kind, "row"),
    )


def heartbeats(batches: DataFrame) -> DataFrame:
    """The latest word of each producer about itself."""
    from pyspark.sql import functions as F

    said = batches.where("producer is not null").select(*_columns(ProducerRow, "producer"))
    latest = [F.max_by(name, "seen_at").alias(name) for name in ProducerRow._fields[1:]]
    return said.groupBy("producer_id").agg(*latest).select(*ProducerRow._fields)


def _columns(kind: type[Any], source: str) -> list[Any]:
    from pyspark.sql import functions as F

    return [
        F.get(F.col(source), F.lit(place)).try_cast(_sql_type(hint)).alias(name)
        for place, (name, hint) in enumerate(get_type_hints(kind).items())
    ]


def _sql_type(hint: Any) -> str:
    """Spark's type for a row's field; `X | None` is X, as every column may be null."""
    return _TYPES[next((part for part in get_args(hint) if part is not type(None)), hint)]


def sink(
    store: Store, aside: Path, told: Callable[[Merged], None], history: Path | None = None
) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` calls: flatten, write the history, then merge in one transaction."""

    def write(records: DataFrame, batch_id: int) -> None:
        query_id = str(records.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        if committed(store, query_id=query_id, batch_id=batch_id):
            return  # Spark repeats a micro-batch whose end it did not write down
        parsed = parse(records).persist()
        try:
            batches, name = known(parsed), f"{query_id}-{batch_id:08d}"
            tables = _tables(batches)
            set_aside = _set_aside(unknown(parsed), aside / name)
            if history is not None:
                _keep(batches, unseen(store, tables["ids"]), history, name)
        finally:
            parsed.unpersist()
        merged = merge(store, tables, query_id=query_id, batch_id=batch_id, now=time.time())
        told(Merged(tables["ids"].num_rows, merged, set_aside))

    return write


def _tables(batches: DataFrame) -> dict[str, Any]:
    flat = {column: rows(batches, column, kind).toArrow() for column, kind in _KINDS.items()}
    ids = batches.select("producer_id", "sequence").toArrow()
    return {"ids": ids, **flat, "producers": heartbeats(batches).toArrow()}


def _keep(batches: DataFrame, fresh: Any, history: Path, name: str) -> None:
    """Parquet of what is new, a folder a kind and micro-batch; written again whole when the batch is run again."""
    if not fresh.num_rows:
        return
    new = batches.join(batches.sparkSession.createDataFrame(fresh), ["producer_id", "sequence"], "left_semi")
    for column, kind in _KINDS.items():
        target = history / column / name  # no `=` in a folder's name: readers would take it for a column
        rows(new, column, kind).coalesce(1).write.mode("overwrite").parquet(str(target))


def _set_aside(values: DataFrame, target: Path) -> int:
    count = values.count()
    if count:
        values.coalesce(1).write.mode("overwrite").parquet(str(target))
    return int(count)


def run(
    session: SparkSession,
    store: Store,
    *,
    servers: str,
    topics: Sequence[str],
    checkpoint: Path,
    once: bool,
    history: Path | None = None,
    options: Mapping[str, str] | None = None,
    told: Callable[[Merged], None] = lambda merged: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Merged:
    """Merge until `stopped()`, or with `once` what is there now; the sum of what was done.

    The session is the caller's and stays open, so that a notebook on a cluster can call this.
    """
    done = [Merged()]

    def tell(merged: Merged) -> None:
        done.append(done.pop() + merged)
        told(done[-1])

    writer = read(session, servers, topics, options or {}).writeStream.foreachBatch(
        sink(store, checkpoint / "set_aside", tell, history)
    )
    writer = writer.option("checkpointLocation", str(checkpoint / "spark"))
    query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 second")).start()
    try:
        while not query.awaitTermination(0.5):
            if stopped():
                break
    finally:
        query.stop()
    return done[-1]
