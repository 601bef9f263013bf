"""Ledgers: what producers wrote down of the broker's acknowledgements, from their topics or a store, as one frame.

A batch of a ledger may come twice, from two sources or by a repeated send: (producer_id, sequence) counts once. Its
rows add up: one a session, topic, partition and window of 4,096 sequences, with sums and with the detail as text, which
is parsed only where it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from producer_core.ledger import GivenUpRow, LedgerRow
from producer_core.telemetry import SCHEMA_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from producer_core.store import Store

SHIFT = 12
"""A window is 2 ** 12 sequences."""

_SCHEMA = (
    "v int, producer_id string, sequence bigint, first bigint, cluster_id string, ledger_lost bigint, "
    "ledger array<array<string>>, given_up array<array<string>>"
)
_ROW = {name: place for place, name in enumerate(LedgerRow._fields)}
_LETTER = {name: place for place, name in enumerate(GivenUpRow._fields)}
STORE = "store"


def parsed(records: DataFrame) -> DataFrame:
    """Telemetry records to batches, one a row; `v` is null for what is no telemetry."""
    from pyspark.sql import functions as F

    return records.select(
        F.concat_ws("-", "topic", "partition").alias("source"),
        F.col("offset").alias("position"),
        F.expr("unix_micros(timestamp) / 1e6").alias("at"),
        F.from_json(F.col("value").cast("string"), _SCHEMA).alias("batch"),
    ).select("source", "position", "at", "batch.*")


def kept(session: SparkSession, store: Store | None) -> DataFrame:
    """The batches of a store's own ledger, in the same form; none without a store."""
    import pyarrow as pa

    rows = pa.list_(pa.list_(pa.string()))
    schema = pa.schema(
        [("source", pa.string()), ("position", pa.int64()), ("at", pa.float64()), ("v", pa.int32()),
         ("producer_id", pa.string()), ("sequence", pa.int64()), ("first", pa.int64()), ("cluster_id", pa.string()),
         ("ledger_lost", pa.int64()), ("ledger", rows), ("given_up", rows)]
    )  # fmt: skip
    if store is None:
        return session.createDataFrame(schema.empty_table())
    with store.borrow(limit=600) as connection:
        table = connection.sql(_KEPT).to_arrow_table()
    return session.createDataFrame(table.cast(schema) if table.num_rows else schema.empty_table())


def _texts(fields: tuple[str, ...], lists: tuple[str, ...] = ()) -> str:
    return ", ".join(f"to_json({name})::VARCHAR" if name in lists else f"{name}::VARCHAR" for name in fields)


_KEPT = f"""
WITH ledgers AS (
    SELECT producer_id, batch, cluster_id, max(written_at) AS written_at, list([{_texts(LedgerRow._fields, ("seqs", "offs"))}]) AS rows
    FROM ledger GROUP BY producer_id, batch, cluster_id),
letters AS (
    SELECT producer_id, batch, max(given_up_at) AS written_at, list([{_texts(GivenUpRow._fields)}]) AS rows
    FROM ledger_given_up GROUP BY producer_id, batch)
SELECT '{STORE}' AS source, floor(coalesce(ledgers.written_at, letters.written_at) * 1000)::BIGINT AS position,
       coalesce(ledgers.written_at, letters.written_at) AS "at", {SCHEMA_VERSION}::INTEGER AS v,
       producer_id, batch AS sequence, NULL::BIGINT AS first, cluster_id, NULL::BIGINT AS ledger_lost,
       ledgers.rows AS ledger, letters.rows AS given_up
FROM ledgers FULL JOIN letters USING (producer_id, batch)"""


def understood(batches: DataFrame) -> DataFrame:
    """Batches of our version that name their producer and their number."""
    return batches.where(f"v = {SCHEMA_VERSION} and producer_id is not null and sequence is not null")


def strange(batches: DataFrame) -> DataFrame:
    """The others: a newer schema, or no telemetry; counted, never guessed."""
    return batches.where(f"not (v <=> {SCHEMA_VERSION} and producer_id is not null and sequence is not null)")


def once(batches: DataFrame) -> DataFrame:
    """Each batch once, the first of its repeats. Only the numbers of batches are shuffled, not what is in them."""
    from pyspark.sql import functions as F

    place = F.struct("source", "position")
    repeats = batches.groupBy("producer_id", "sequence").agg(
        F.count("*").alias("times"), F.min(place).alias("original")
    )
    repeats = repeats.where("times > 1").select("producer_id", "sequence", "original")
    marked = batches.join(F.broadcast(repeats), ["producer_id", "sequence"], "left")
    first = "original is null or (original.source = source and original.position = position)"
    return marked.where(first).drop("original")


def gaps(batches: DataFrame) -> DataFrame:
    """(producer_id, first, last): batches that are missing between others of their producer, on telemetry topics.

    A batch may stand for several, `first` to its own number: they were added up while the topic could not be had.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    known = batches.where(f"source <> '{STORE}'").select(
        "producer_id", "sequence", F.expr("coalesce(first, sequence)").alias("first")
    )
    so_far = Window.partitionBy("producer_id").orderBy("sequence", "first")
    before = F.max("sequence").over(so_far.rowsBetween(Window.unboundedPreceding, -1))
    holes = known.withColumn("before", before).where("first > before + 1")
    return holes.select(
        "producer_id", F.expr("before + 1").alias("first"), F.expr("first - 1").alias("last")
    ).orderBy("producer_id", "first")


def rows(batches: DataFrame) -> DataFrame:
    """The ledger's rows with their sums, the first, last, lowest and highest sequence, and whether a sequence falls.

    A row that contradicts itself (another number of sequences than it says) is left out: see `odd`.
    """
    return _rows(batches).where(_SOUND).drop("length")


def odd(batches: DataFrame) -> DataFrame:
    """Rows that cannot be read or contradict themselves."""
    return _rows(batches).where(f"not coalesce({_SOUND}, false)")


_SOUND = (
    "session is not null and topic is not null and partition is not null and window is not null and "
    "n = length and (off_min < 0 or size(from_json(offs, 'array<bigint>')) = n)"
)


def _rows(batches: DataFrame) -> DataFrame:
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
        F.expr(_reach("least")).alias("lowest"),
        F.expr(_reach("greatest")).alias("highest"),
    )


def _reach(which: str) -> str:
    """SQL: the lowest or highest sequence of a row. Where it never falls, that is an end of it."""
    quick = "get(steps, 0)" if which == "least" else "aggregate(steps, 0L, (sum, step) -> sum + step)"
    slow = f"""aggregate(slice(steps, 2, greatest(size(steps), 1)),
        named_struct('here', get(steps, 0), 'found', get(steps, 0)),
        (at, step) -> named_struct('here', at.here + step, 'found', {which}(at.found, at.here + step)), at -> at.found)"""
    return f"case when late = 0 then {quick} else {slow} end"


def _session(place: int) -> Any:
    from pyspark.sql import functions as F

    raw = f"unhex(replace(get(row, {place}), '-', ''))"
    return F.expr(f"case when length({raw}) = 16 then {raw} end")


def given_up(batches: DataFrame, topic: str) -> DataFrame:
    """(session, seq, window): messages of the topic that their producer gave up."""
    from pyspark.sql import functions as F

    letters = batches.select(F.explode("given_up").alias("row"))
    named = letters.where(F.expr(f"get(row, {_LETTER['topic']})") == topic).select(
        _session(_LETTER["session"]).alias("session"),
        F.expr(f"try_cast(get(row, {_LETTER['seq']}) as bigint)").alias("seq"),
    )
    sound = named.where("session is not null and seq is not null").distinct()
    return sound.withColumn("window", F.expr(f"shiftright(seq, {SHIFT})"))


def entries(rows: DataFrame, *keep: str) -> DataFrame:
    """The acknowledgements of some rows, one a row: session, seq, partition, offset, and the columns in `keep`.

    The offset is -1 where nobody knows it. Shuffles what it is given, so give it what needs a closer look.
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
        F.coalesce(F.sum("one.moves").over(so_far), F.lit(-1)).alias("offset"),
        *keep,
    )
