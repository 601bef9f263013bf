"""Group a window of one session in one partition as sums, in the log and in the ledger, and compare the two.

Equal count, sum and fingerprint show that each acknowledged message is at the very offset that was acknowledged. So
millions of records become thousands of groups where they are read, and only the groups are shuffled and joined.
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
_INDEX = f"seq & {WINDOW - 1}"
_SUMS = {
    "n": "count(*)",
    "s": f"sum({_INDEX})",
    "f": f"sum((({_INDEX}) + 1) * (offset % {MODULUS}))",
    "off_min": "min(offset)",
    "off_max": "max(offset)",
}
_MERGED_SUMS = {
    "n": "sum(n)",
    "s": "sum(s)",
    "f": "sum(f)",
    "off_min": "min(off_min)",
    "off_max": "max(off_max)",
}


def groups(records: DataFrame) -> DataFrame:
    """Return the log's groups: count, sum, fingerprint, lowest and highest offset.

    Records without a message id form one group per partition, without a session.
    """
    from pyspark.sql import functions as F

    windows = records.withColumn("window", F.expr(f"shiftright(seq, {SHIFT})"))
    return windows.groupBy(*KEY).agg(*_expressions(_SUMS))


def of_topic(rows: DataFrame, topic: str, cluster: str, spans: DataFrame) -> DataFrame:
    """Return the ledger's rows about one topic of one cluster, with the span of their partition."""
    from pyspark.sql import functions as F

    same_cluster = F.coalesce("cluster_id", F.lit("")).isin("", cluster) if cluster else F.lit(True)
    about = rows.where((F.col("topic") == topic) & same_cluster)
    return about.join(F.broadcast(spans), "partition", "left")


def span_frame(session: SparkSession, spans: Mapping[int, OffsetSpan]) -> DataFrame:
    """Return the spans as a small frame: partition, span_start, span_end, …"""
    import pyarrow as pa

    fields = ("start", "end", "low", "stable", "high", "after", "floor", "judged")
    columns = {"partition": pa.array([*spans], pa.int32())}
    columns |= {
        f"span_{name}": pa.array([getattr(span, name) for span in spans.values()], pa.int64())
        for name in fields
    }
    return session.createDataFrame(pa.table(columns))


def with_doubts(rows: DataFrame) -> DataFrame:
    """Add `doubt`: whether the order within a row, or between it and other rows of its session and partition, is
    uncertain.

    Rows of a session in a partition, in the order of offsets, should not overlap and should rise; then a log that
    equals them is in order, too. All rows of the ledger's history are compared, so that a range is judged with the
    rows before it.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy("partition", "session").orderBy("off_min", "lowest")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    placed = "off_min >= 0 and (span_end is null or off_min < span_end)"
    checked = (
        rows.where(placed)
        .withColumn("top", F.max("highest").over(earlier))
        .withColumn("reach", F.max("off_max").over(earlier))
        .withColumn("next", F.lead("off_min").over(order))
    )
    doubt = "falls or coalesce(lowest <= top, false) or coalesce(off_min <= reach, false) or coalesce(next <= off_max, false)"
    rest = rows.where(f"not ({placed})").withColumn("doubt", F.lit(False))
    return checked.withColumn("doubt", F.expr(doubt)).drop("top", "reach", "next").unionByName(rest)


def pieces(zoned: DataFrame, *, cut: bool = True) -> DataFrame:
    """Return zoned rows as (partition, session, window, zone, sums, at, doubt).

    A row that lies in one zone stays whole, any other is split by zone. With `cut=False` no row needs splitting, and
    nothing is planned for it.
    """
    from pyspark.sql import functions as F

    columns = [*KEY, "zone", *_SUMS, "at", "doubt"]
    whole = zoned.where("zone = last_zone").select(*columns)
    if not cut:
        return whole
    spans = [name for name in zoned.columns if name.startswith("span_")]
    split = entries(zoned.where("zone <> last_zone"), "window", "at", "doubt", "old", *spans)
    split = split.withColumn("zone", F.expr(zone("offset")))
    parts = split.groupBy(*KEY, "zone", "at", "doubt").agg(*_expressions(_SUMS)).select(*columns)
    return whole.unionByName(parts)


def zoned_rows(rows: DataFrame) -> DataFrame:
    """Add the zones of each row's first and last offset."""
    from pyspark.sql import functions as F

    return rows.withColumn("zone", F.expr(zone("off_min"))).withColumn("last_zone", F.expr(zone("off_max")))


def ledger_groups(found: DataFrame) -> DataFrame:
    """Return the ledger's groups within the range."""
    from pyspark.sql import functions as F

    return (
        found.where("zone = 'inside'")
        .groupBy(*KEY)
        .agg(*_expressions(_MERGED_SUMS), F.expr("bool_or(doubt)").alias("doubt"))
    )


def exact(ledger: DataFrame) -> DataFrame:
    """Return (partition, session, window, ledger_n, ledger_s, ledger_f): sums of the ledger's entries within the range.

    `ledger` has each entry once.
    """
    sums = {f"ledger_{name}": _SUMS[name] for name in ("n", "s", "f")}
    return ledger.where("zone = 'inside'").groupBy(*KEY).agg(*_expressions(sums))


def tally(found: DataFrame) -> DataFrame:
    """Return per partition the number of acknowledgements, their first and last offset, and the number `taken`."""
    from pyspark.sql import functions as F

    return found.groupBy("partition").agg(
        F.sum("n").alias("n"), F.min("off_min").alias("first"), F.max("off_max").alias("last"),
        F.expr("coalesce(sum(n) filter (where zone = 'taken'), 0)").alias("taken"),
    )  # fmt: skip


def loose(everything: DataFrame, rows: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """Return the (session, window) pairs for which the sums do not rule out a message with two acknowledged places.

    They rule it out for a window of a session in which every sequence between the lowest and the highest was
    acknowledged or given up once, in any topic, and for a window in one partition only, where the rows' order shows
    it. `everything` holds the rows of all topics.
    """
    from pyspark.sql import functions as F

    sums = everything.select("session", "window", "n", "s", "lowest", "highest")
    given_up = dead_letters.selectExpr("session", "window", "1L", f"{_INDEX}", "seq", "seq")
    windows = sums.union(given_up).groupBy("session", "window").agg(
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
    """Return groups with a message that was acknowledged at two places, which equal sums do not show."""
    from pyspark.sql import functions as F

    placed = rows.where("off_min >= 0").join(loose, ["session", "window"], "left_semi")
    each = entries(placed, "window").distinct()
    twice = each.groupBy("session", "seq").agg(F.count("*").alias("places")).where("places > 1")
    return each.join(twice, ["session", "seq"], "left_semi").select(*KEY).distinct()


def compared(log: DataFrame, ledger: DataFrame, doubled: DataFrame | None = None) -> DataFrame:
    """Join both sides of each group: `n s f off_min off_max` of the log, `ledger_…` of the ledger; null for a missing
    side.

    `unequal`: the log differs from the ledger. `doubtful`: equal, but order or uniqueness is uncertain.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if doubled is not None:
        ledger = ledger.join(doubled.withColumn("twice", F.lit(True)), KEY, "left")
        ledger = ledger.withColumn("doubt", F.expr("doubt or coalesce(twice, false)"))
    renamed = ledger.select(*KEY, *(F.col(name).alias(f"ledger_{name}") for name in (*_SUMS, "doubt")))
    both = log.join(renamed, KEY, "full_outer")
    higher = (
        Window.partitionBy("partition", "session").orderBy("window").rowsBetween(1, Window.unboundedFollowing)
    )
    return (
        both.withColumn("higher", F.min("off_min").over(higher))
        .withColumn(
            "unequal",
            F.expr("session is not null and not (n <=> ledger_n and s <=> ledger_s and f <=> ledger_f)"),
        )
        .withColumn(
            "doubtful",
            F.expr(
                "session is not null and (coalesce(ledger_doubt, false) or coalesce(off_max > higher, false))"
            ),
        )
        .drop("higher", "ledger_doubt")
    )


def _expressions(named: Mapping[str, str]) -> list[Any]:
    from pyspark.sql import functions as F

    return [F.expr(text).alias(name) for name, text in named.items()]
