"""Ledgers: what producers wrote down of the broker's acknowledgements, as one frame of batches from all sources.

A batch of a ledger may come twice, from two sources or by a repeated send: (producer_id, sequence) counts once. Its
rows add up: one a session, topic, partition and window of 4,096 sequences, with sums and with the detail as text, which
is parsed only where it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from producer_core.metrics.ack_ledger import MODULUS, WINDOW, GivenUpRow, LedgerRow
from producer_core.metrics.telemetry import HIGHEST, SCHEMA_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


def understood(batches: DataFrame) -> DataFrame:
    """Batches of our version that name their producer and their number; others are counted, never guessed."""
    return batches.where(_UNDERSTOOD)


_UNDERSTOOD = (
    f"v = {SCHEMA_VERSION} and producer_id is not null and sequence between 0 and {HIGHEST} "
    f"and coalesce(first, sequence) between 0 and sequence and coalesce(ledger_lost, 0) between 0 and {HIGHEST}"
)


def counted(batches: DataFrame) -> dict[str, int]:
    """How many are `strange`; whether some are there twice or in another one (`repeated`); acknowledgements left out;
    how many do not say of which cluster they are (`bare`)."""
    from pyspark.sql import functions as F

    known = f"({_UNDERSTOOD})"
    row = batches.agg(
        F.expr(f"count_if(not coalesce({known}, false))").alias("strange"),
        F.expr(f"coalesce(sum(ledger_lost) filter (where {known}), 0)").alias("lost"),
        F.expr(f"count_if({known}) - count(distinct struct(producer_id, sequence)) filter (where {known})").alias("again"),
        F.expr(f"count_if({known} and first < sequence)").alias("joined"),
        F.expr(f"count_if({known} and coalesce(cluster_id, '') = '')").alias("bare"),
    ).first()  # fmt: skip
    found = row.asDict() if row is not None else {}
    repeated = found["again"] + found["joined"]
    return {"strange": found["strange"], "lost": found["lost"], "repeated": repeated, "bare": found["bare"]}


def located(batches: DataFrame) -> DataFrame:
    """With the cluster that other batches of the producer name, where one was told before it was known."""
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


def once(batches: DataFrame) -> DataFrame:
    """Each batch once, and none whose ledger another one has, which stands for several (`first`) and lost nothing.

    Only the numbers of batches are shuffled, not what is in them.
    """
    from pyspark.sql import functions as F

    numbers = batches.selectExpr("producer_id", *_STRETCH, "source", "position")
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


_STRETCH = ("sequence", "coalesce(first, sequence) as first", "coalesce(ledger_lost, 0) as lost")


def stretches(batches: DataFrame) -> DataFrame:
    """(producer_id, first, sequence): the numbers of batches that each record has, on telemetry topics.

    A record may stand for several, `first` to its own number: they were added up while the topic could not be had.
    """
    return batches.where(f"source <> '{STORE}'").selectExpr("producer_id", *_STRETCH).drop("lost")


def gaps(stretches: DataFrame) -> DataFrame:
    """(producer_id, first, last): batches that are missing between others of their producer."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    so_far = Window.partitionBy("producer_id").orderBy("first", "sequence")
    before = F.max("sequence").over(so_far.rowsBetween(Window.unboundedPreceding, -1))
    holes = stretches.withColumn("before", before).where("first > before + 1")
    return holes.select(
        "producer_id", F.expr("before + 1").alias("first"), F.expr("first - 1").alias("last")
    ).orderBy("producer_id", "first")


def sound(rows: DataFrame) -> DataFrame:
    """Rows that can be read and do not contradict themselves: another number of sequences than they say, sequences of
    another window, sums beyond what so many can have. Some of these would end an audit where they are added up."""
    return rows.where("sound").drop("length", "sound")


def odd(rows: DataFrame) -> DataFrame:
    """The others."""
    return rows.where("not sound")


_SOUND = (
    "session is not null and topic is not null and partition is not null and window is not null and "
    "n = length and (off_min < 0 or size(from_json(offs, 'array<bigint>')) = n) and "
    f"shiftright(lowest, {SHIFT}) = window and shiftright(highest, {SHIFT}) = window and "
    f"s between 0 and n * {WINDOW - 1} and f between 0 and n * {WINDOW * (MODULUS - 1)}"
)


def rows(batches: DataFrame) -> DataFrame:
    """The ledger's rows with their sums, the first, last, lowest and highest sequence, whether a sequence falls, and
    whether they are sound."""
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
    ).withColumn("sound", F.expr(f"coalesce({_SOUND}, false)"))


def _reach(which: str) -> str:
    """SQL: the lowest or highest sequence of a row. Where it never falls, that is an end of it."""
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
    """(session, seq, window): messages of the topic that their producer gave up."""
    from pyspark.sql import functions as F

    dead_letters = batches.select(F.explode("given_up").alias("row"))
    named = dead_letters.where(F.expr(f"get(row, {_LETTER['topic']})") == topic).select(
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
        F.coalesce(F.try_sum("one.moves").over(so_far), F.lit(-1)).alias("offset"),
        *keep,
    )
