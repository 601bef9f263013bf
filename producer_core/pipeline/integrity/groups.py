"""Groups: a window of one session in one partition, as sums, on the log and in the ledger, side by side.

Equal count, sum and fingerprint say that each acknowledged message stands at the very offset that was acknowledged.
So millions of records become thousands of groups where they are read, and only those are shuffled and joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from producer_core.metrics.ack_ledger import MODULUS, WINDOW
from producer_core.pipeline.integrity.ledgers import SHIFT, entries
from producer_core.pipeline.integrity.spans import OffsetSpan, zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = ["partition", "session", "window"]
_PLACE = f"seq & {WINDOW - 1}"
_SUMS = {
    "n": "count(*)",
    "s": f"sum({_PLACE})",
    "f": f"sum((({_PLACE}) + 1) * (offset % {MODULUS}))",
    "off_min": "min(offset)",
    "off_max": "max(offset)",
}
_FALLS = {"n": "sum(n)", "s": "sum(s)", "f": "sum(f)", "off_min": "min(off_min)", "off_max": "max(off_max)"}


def groups(records: DataFrame) -> DataFrame:
    """The log's groups: count, sum, fingerprint, and the offsets from which to which it reaches.

    One group a partition without a session: records of others.
    """
    from pyspark.sql import functions as F

    windows = records.withColumn("window", F.expr(f"shiftright(seq, {SHIFT})"))
    return windows.groupBy(*KEY).agg(*_expressions(_SUMS))


def of_topic(rows: DataFrame, topic: str, cluster: str, spans: DataFrame) -> DataFrame:
    """The ledger's rows about one topic of one cluster, beside the span of their partition."""
    from pyspark.sql import functions as F

    ours = F.coalesce("cluster_id", F.lit("")).isin("", cluster) if cluster else F.lit(True)
    about = rows.where((F.col("topic") == topic) & ours)
    return about.join(F.broadcast(spans), "partition", "left")


def span_frame(session: SparkSession, spans: Mapping[int, OffsetSpan]) -> DataFrame:
    """The spans as a small frame: partition, span_start, span_end, …"""
    import pyarrow as pa

    fields = ("start", "end", "low", "stable", "high", "after", "floor", "judged")
    columns = {"partition": pa.array([*spans], pa.int32())}
    columns |= {
        f"span_{name}": pa.array([getattr(span, name) for span in spans.values()], pa.int64())
        for name in fields
    }
    return session.createDataFrame(pa.table(columns))


def with_doubts(rows: DataFrame) -> DataFrame:
    """`doubt`: whether the order within a row, or between it and others of its session and partition, is in question.

    Rows in the order of offsets, of a session in a partition, should be apart and rise; where they do, so does the
    log that equals them. Rows of all the ledger's history are looked at, so that a range is judged with what stands
    before it.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy("partition", "session").orderBy("off_min", "lowest")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    placed = "off_min >= 0 and (span_end is null or off_min < span_end)"
    looked = (
        rows.where(placed)
        .withColumn("top", F.max("highest").over(earlier))
        .withColumn("reach", F.max("off_max").over(earlier))
        .withColumn("next", F.lead("off_min").over(order))
    )
    doubt = "falls or coalesce(lowest <= top, false) or coalesce(off_min <= reach, false) or coalesce(next <= off_max, false)"
    rest = rows.where(f"not ({placed})").withColumn("doubt", F.lit(False))
    return looked.withColumn("doubt", F.expr(doubt)).drop("top", "reach", "next").unionByName(rest)


def pieces(zoned: DataFrame, *, cut: bool = True) -> DataFrame:
    """Rows with zones as (partition, session, window, zone, sums, at, doubt): whole where a row lies in one zone, else
    taken apart. `cut=False`: there is none such, so nothing is planned for it."""
    from pyspark.sql import functions as F

    columns = [*KEY, "zone", *_SUMS, "at", "doubt"]
    whole = zoned.where("zone = last_zone").select(*columns)
    if not cut:
        return whole
    spans = [name for name in zoned.columns if name.startswith("span_")]
    apart = entries(zoned.where("zone <> last_zone"), "window", "at", "doubt", "old", *spans)
    apart = apart.withColumn("zone", F.expr(zone("offset")))
    parts = apart.groupBy(*KEY, "zone", "at", "doubt").agg(*_expressions(_SUMS)).select(*columns)
    return whole.unionByName(parts)


def zoned_rows(rows: DataFrame) -> DataFrame:
    """Rows with the zones of their first and last offset."""
    from pyspark.sql import functions as F

    return rows.withColumn("zone", F.expr(zone("off_min"))).withColumn("last_zone", F.expr(zone("off_max")))


def ledger_groups(found: DataFrame) -> DataFrame:
    """The ledger's groups within the range."""
    from pyspark.sql import functions as F

    return (
        found.where("zone = 'inside'")
        .groupBy(*KEY)
        .agg(*_expressions(_FALLS), F.expr("bool_or(doubt)").alias("doubt"))
    )


def exact(told: DataFrame) -> DataFrame:
    """(partition, session, window, told_n, told_s, told_f): sums of the ledger's entries within the range; `told` has each
    entry once."""
    sums = {f"told_{name}": _SUMS[name] for name in ("n", "s", "f")}
    return told.where("zone = 'inside'").groupBy(*KEY).agg(*_expressions(sums))


def tally(found: DataFrame) -> DataFrame:
    """How many acknowledgements of each partition these are, from which offset to which, and how many were `taken`."""
    from pyspark.sql import functions as F

    return found.groupBy("partition").agg(
        F.sum("n").alias("n"), F.min("off_min").alias("first"), F.max("off_max").alias("last"),
        F.expr("coalesce(sum(n) filter (where zone = 'taken'), 0)").alias("taken"),
    )  # fmt: skip


def loose(everything: DataFrame, rows: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """(session, window) of which the ledger's sums do not say that no message was acknowledged at two places.

    A window of a session in which every number between its lowest and highest was acknowledged or given up once, in
    whatever topic, holds none; nor does one that is in one partition only, where the rows' order shows it. `everything`
    are the rows of all topics.
    """
    from pyspark.sql import functions as F

    sums = everything.select("session", "window", "n", "s", "lowest", "highest")
    alone = dead_letters.selectExpr("session", "window", "1L", f"{_PLACE}", "seq", "seq")
    windows = sums.union(alone).groupBy("session", "window").agg(
        F.sum("n").alias("n"), F.sum("s").alias("s"), F.min("lowest").alias("lowest"), F.max("highest").alias("highest"),
    )  # fmt: skip
    gapless = f"n = highest - lowest + 1 and 2 * s = n * ((lowest & {WINDOW - 1}) + (highest & {WINDOW - 1}))"
    spread = (
        rows.where("off_min >= 0")
        .groupBy("session", "window")
        .agg(F.min("partition").alias("a"), F.max("partition").alias("b"))
    )
    return (
        windows.where(f"not ({gapless})")
        .join(spread.where("a <> b"), ["session", "window"], "left_semi")
        .select("session", "window")
    )


def doubled(rows: DataFrame, loose: DataFrame) -> DataFrame:
    """Groups with a message that was acknowledged at two places, of which equal sums say nothing."""
    from pyspark.sql import functions as F

    placed = rows.where("off_min >= 0").join(loose, ["session", "window"], "left_semi")
    each = entries(placed, "window").distinct()
    twice = each.groupBy("session", "seq").agg(F.count("*").alias("places")).where("places > 1")
    return each.join(twice, ["session", "seq"], "left_semi").select(*KEY).distinct()


def compared(log: DataFrame, ledger: DataFrame, doubled: DataFrame | None = None) -> DataFrame:
    """Both sides of each group: `n s f off_min off_max` of the log, `told_…` of the ledger; null where a side has none.

    `unequal`: the log is not what the ledger says. `doubtful`: equal, but its order or its being once is in question.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if doubled is not None:
        ledger = ledger.join(doubled.withColumn("twice", F.lit(True)), KEY, "left")
        ledger = ledger.withColumn("doubt", F.expr("doubt or coalesce(twice, false)"))
    told = ledger.select(*KEY, *(F.col(name).alias(f"told_{name}") for name in (*_SUMS, "doubt")))
    both = log.join(told, KEY, "full_outer")
    higher = (
        Window.partitionBy("partition", "session").orderBy("window").rowsBetween(1, Window.unboundedFollowing)
    )
    return (
        both.withColumn("higher", F.min("off_min").over(higher))
        .withColumn(
            "unequal", F.expr("session is not null and not (n <=> told_n and s <=> told_s and f <=> told_f)")
        )
        .withColumn(
            "doubtful",
            F.expr(
                "session is not null and (coalesce(told_doubt, false) or coalesce(off_max > higher, false))"
            ),
        )
        .drop("higher", "told_doubt")
    )


def _expressions(named: Mapping[str, str]) -> list[Any]:
    from pyspark.sql import functions as F

    return [F.expr(text).alias(name) for name, text in named.items()]
