"""Read ledgers, the producers' records of the broker's acknowledgements, as one frame of batches from all sources.

A batch of a ledger may occur twice, in two sources or by a repeated send: (producer_id, sequence) counts once. Its
rows add up: one per session, topic, partition and window of 4,096 sequences, with sums and with the detail as text,
which is parsed only where it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from producer_core.metrics.ack_ledger import MODULUS, WINDOW, GivenUpRow, LedgerRow
from producer_core.metrics.telemetry import HIGHEST, SCHEMA_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHIFT = 12
"""A window has 2 ** 12 sequences."""

_SCHEMA = (
    "v int, producer_id string, sequence bigint, first bigint, cluster_id string, ledger_lost bigint, "
    "ledger array<array<string>>, given_up array<array<string>>"
)
_ROW = {name: place for place, name in enumerate(LedgerRow._fields)}
_GIVEN_UP = {name: place for place, name in enumerate(GivenUpRow._fields)}
STORE = "store"


def parsed(records: DataFrame) -> DataFrame:
    """Parse telemetry records into batches, one per row; `v` is null for a record that is not telemetry."""
    from pyspark.sql import functions as F

    return records.select(
        F.concat_ws("-", "topic", "partition").alias("source"),
        F.col("offset").alias("position"),
        F.expr("unix_micros(timestamp) / 1e6").alias("at"),
        F.from_json(F.col("value").cast("string"), _SCHEMA).alias("batch"),
    ).select("source", "position", "at", "batch.*")


def readable(batches: DataFrame) -> DataFrame:
    """Return batches of this schema version with a producer and a number; the others are only counted."""
    return batches.where(_READABLE)


_READABLE = (
    f"v = {SCHEMA_VERSION} and producer_id is not null and sequence between 0 and {HIGHEST} "
    f"and coalesce(first, sequence) between 0 and sequence and coalesce(ledger_lost, 0) between 0 and {HIGHEST}"
)


def counted(batches: DataFrame) -> dict[str, int]:
    """Count the batches that need attention.

    `strange`: unreadable batches; `repeated`: whether batches occur twice or within another one; `lost`:
    acknowledgements left out of ledgers; `unlocated`: batches without a cluster id.
    """
    from pyspark.sql import functions as F

    known = f"({_READABLE})"
    row = batches.agg(
        F.expr(f"count_if(not coalesce({known}, false))").alias("strange"),
        F.expr(f"coalesce(sum(ledger_lost) filter (where {known}), 0)").alias("lost"),
        F.expr(f"count_if({known}) - count(distinct struct(producer_id, sequence)) filter (where {known})").alias("again"),
        F.expr(f"count_if({known} and first < sequence)").alias("joined"),
        F.expr(f"count_if({known} and coalesce(cluster_id, '') = '')").alias("unlocated"),
    ).first()  # fmt: skip
    found = row.asDict() if row is not None else {}
    repeated = found["again"] + found["joined"]
    return {
        "strange": found["strange"],
        "lost": found["lost"],
        "repeated": repeated,
        "unlocated": found["unlocated"],
    }


def with_cluster(batches: DataFrame) -> DataFrame:
    """Fill in the cluster id of the producer's other batches where a batch was written before it was known."""
    from pyspark.sql import functions as F

    named = (
        batches.where("coalesce(cluster_id, '') <> ''")
        .groupBy("producer_id")
        .agg(F.min("cluster_id").alias("known"))
    )
    cluster = F.expr("coalesce(nullif(cluster_id, ''), known)")
    return (
        batches.join(F.broadcast(named), "producer_id", "left")
        .withColumn("cluster_id", cluster)
        .drop("known")
    )


def deduplicated(batches: DataFrame) -> DataFrame:
    """Return each batch once, without batches that a combined one (`first` < `sequence`) without losses covers.

    Only the batches' numbers are shuffled, not their content.
    """
    from pyspark.sql import functions as F

    numbers = batches.selectExpr("producer_id", *_NUMBERS, "source", "position")
    place = F.struct(F.col("lost") > 0, "first", "source", "position")
    repeats = numbers.groupBy("producer_id", "sequence").agg(
        F.count("*").alias("times"), F.min(place).alias("original")
    )
    repeats = repeats.where("times > 1").select("producer_id", "sequence", "original")
    marked = batches.join(F.broadcast(repeats), ["producer_id", "sequence"], "left")
    known = "original is null or (original.source = source and original.position = position)"
    joined = numbers.where("first < sequence and lost = 0").selectExpr(
        "producer_id", "first as begins", "sequence as ends"
    )
    covered = "coalesce(first, sequence) >= begins and sequence < ends"
    mine = F.col("batch.producer_id") == F.col("joined.producer_id")
    alone = marked.where(known).drop("original").alias("batch")
    return alone.join(F.broadcast(joined.alias("joined")), mine & F.expr(covered), "left_anti")


_NUMBERS = ("sequence", "coalesce(first, sequence) as first", "coalesce(ledger_lost, 0) as lost")


def batch_ranges(batches: DataFrame) -> DataFrame:
    """Return (producer_id, first, sequence): the batch numbers that each record of a telemetry topic covers.

    A record may cover several, from `first` to its own number, when batches were combined while the topic was
    unavailable.
    """
    return batches.where(f"source <> '{STORE}'").selectExpr("producer_id", *_NUMBERS).drop("lost")


def gaps(batch_ranges: DataFrame) -> DataFrame:
    """Return (producer_id, first, last): batches that are missing between others of their producer."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    so_far = Window.partitionBy("producer_id").orderBy("first", "sequence")
    before = F.max("sequence").over(so_far.rowsBetween(Window.unboundedPreceding, -1))
    holes = batch_ranges.withColumn("before", before).where("first > before + 1")
    return holes.select(
        "producer_id", F.expr("before + 1").alias("first"), F.expr("first - 1").alias("last")
    ).orderBy("producer_id", "first")


def valid_rows(rows: DataFrame) -> DataFrame:
    """Return the rows that are readable and consistent.

    A row is inconsistent when its number of sequences, their window, or its sums contradict each other. Some of these
    would fail an audit when they are added up.
    """
    return rows.where("valid").drop("length", "valid")


def invalid_rows(rows: DataFrame) -> DataFrame:
    """Return the other rows."""
    return rows.where("not valid")


_VALID = (
    "session is not null and topic is not null and partition is not null and window is not null and "
    "n = length and (off_min < 0 or size(from_json(offs, 'array<bigint>')) = n) and "
    f"shiftright(lowest, {SHIFT}) = window and shiftright(highest, {SHIFT}) = window and "
    f"s between 0 and n * {WINDOW - 1} and f between 0 and n * {WINDOW * (MODULUS - 1)}"
)


def rows(batches: DataFrame) -> DataFrame:
    """Return the ledger's rows with their sums, the first, last, lowest and highest sequence, and the flags of their
    state.

    `falls` marks a row in which a sequence is lower than the one before; `valid` a consistent row.
    """
    from pyspark.sql import functions as F

    def number(name: str, kind: str = "bigint") -> Any:
        return F.expr(f"try_cast(get(row, {_ROW[name]}) as {kind})")

    def text(name: str) -> Any:
        return F.expr(f"get(row, {_ROW[name]})")

    exploded = batches.select(
        "source",
        "position",
        "at",
        "producer_id",
        "sequence",
        "cluster_id",
        F.posexplode("ledger").alias("place", "row"),
    )
    named = exploded.select(
        "source", "position", "at", "producer_id", "sequence", "cluster_id", "place",
        _session(_ROW["session"]).alias("session"),
        text("topic").alias("topic"),
        number("partition", "int").alias("partition"), number("first_window").alias("window"),
        number("count").alias("n"), number("sum_seq").alias("s"),
        F.coalesce(number("fp"), F.lit(0)).alias("f"), number("late").alias("late"),
        number("off_min").alias("off_min"), number("off_max").alias("off_max"),
        text("seqs").alias("seqs"), text("offs").alias("offs"),
        F.from_json(text("seqs"), "array<bigint>").alias("steps"),
    )  # fmt: skip
    return named.select(
        *(name for name in named.columns if name != "steps"),
        F.expr("size(steps)").alias("length"),
        F.expr("get(steps, 0)").alias("first"),
        F.expr("exists(slice(steps, 2, greatest(size(steps), 1)), step -> step <= 0)").alias("falls"),
        F.expr(_extreme("least")).alias("lowest"),
        F.expr(_extreme("greatest")).alias("highest"),
    ).withColumn("valid", F.expr(f"coalesce({_VALID}, false)"))


def _extreme(which: str) -> str:
    """Return SQL for the lowest or highest sequence of a row; without a falling sequence that is an end of the row."""
    quick = "get(steps, 0)" if which == "least" else "aggregate(steps, 0L, (sum, step) -> try_add(sum, step))"
    slow = f"""aggregate(slice(steps, 2, greatest(size(steps), 1)),
        named_struct('here', get(steps, 0), 'found', get(steps, 0)),
        (at, step) -> named_struct('here', try_add(at.here, step), 'found', {which}(at.found, try_add(at.here, step))),
        at -> if(at.here is null, null, at.found))"""
    return f"case when late = 0 then {quick} else {slow} end"


def _session(place: int) -> Any:
    from pyspark.sql import functions as F

    raw = f"unhex(replace(get(row, {place}), '-', ''))"
    return F.expr(f"case when length({raw}) = 16 then {raw} end")


def given_up(batches: DataFrame, topic: str) -> DataFrame:
    """Return (session, seq, window): messages of the topic that their producer dropped."""
    from pyspark.sql import functions as F

    dead_letters = batches.select(F.explode("given_up").alias("row"))
    named = dead_letters.where(F.expr(f"get(row, {_GIVEN_UP['topic']})") == topic).select(
        _session(_GIVEN_UP["session"]).alias("session"),
        F.expr(f"try_cast(get(row, {_GIVEN_UP['seq']}) as bigint)").alias("seq"),
    )
    known = named.where("session is not null and seq is not null").distinct()
    return known.withColumn("window", F.expr(f"shiftright(seq, {SHIFT})"))


def entries(rows: DataFrame, *keep: str) -> DataFrame:
    """Return the acknowledgements of some rows, one per row: session, seq, partition, offset, and the columns in `keep`.

    An unknown offset is -1. This shuffles all given rows, so pass only those that need a closer look.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    key = ["producer_id", "sequence", "place"]
    lists = rows.select(
        *key, "session", "partition", *keep,
        F.from_json("seqs", "array<bigint>").alias("steps"), F.from_json("offs", "array<bigint>").alias("moves"),
    )  # fmt: skip
    each = lists.select(
        *key, "session", "partition", *keep, F.posexplode(F.arrays_zip("steps", "moves")).alias("turn", "one")
    )
    so_far = (
        Window.partitionBy(*key).orderBy("turn").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return each.select(
        "session",
        F.sum("one.steps").over(so_far).alias("seq"),
        "partition",
        F.coalesce(F.try_sum("one.moves").over(so_far), F.lit(-1)).alias("offset"),
        *keep,
    )
