"""Suspects: groups that differ from the ledger, or whose order is in question; all that a second look is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer_core.pipeline.integrity.groups import KEY
from producer_core.pipeline.integrity.ledgers import entries
from producer_core.pipeline.integrity.ranges import MOST, Range, merged
from producer_core.pipeline.integrity.spans import OffsetSpan, zone
from producer_core.pipeline.integrity.verdicts import windowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW = 200_000
"""So many keys are sent to every task; more are joined by a shuffle of what was read again."""

_STRETCHES = 4_096

WORTH = 50_000
"""Offsets of a partition for which one more read of it is worth its plan and its tasks."""

ALWAYS = ("beyond", "unplaced", "pending")
"""Zones of which each message is told by its id, suspect or not."""


def hinted(frame: DataFrame, count: int) -> DataFrame:
    """For a join: broadcast where it is small."""
    from pyspark.sql import functions as F

    return F.broadcast(frame) if count <= FEW else frame


def asked(compared: DataFrame, rows: DataFrame) -> DataFrame:
    """(session, window) of the suspects, and of what the ledger tells that always needs a closer look."""
    always = rows.where(f"zone in {ALWAYS} or last_zone in {ALWAYS}").select("session", "window")
    return compared.where("unequal or doubtful").select("session", "window").union(always).distinct()


def told(rows: DataFrame, windows: DataFrame, fresh: str, waiting: DataFrame | None = None) -> DataFrame:
    """What the ledger says of these windows, message by message, in all partitions and at all offsets.

    (session, seq, partition, offset, window, at, old); `at` is when it was told, of messages without a place of a
    `fresh` (SQL) row, and of those that are `waiting`; null of others. Each place once: `old` when all that tell it are.
    """
    from pyspark.sql import functions as F

    chosen = rows.join(windows, ["session", "window"], "left_semi")
    chosen = chosen.withColumns(
        {"new": F.expr(f"case when off_min < 0 and ({fresh}) then at end"), "at": F.expr("case when off_min < 0 then at end")}
    )  # fmt: skip
    each = windowed(entries(chosen, "new", "at", "old"))
    if waiting is not None:
        each = each.join(F.broadcast(waiting), ["session", "seq"], "left")
    at = "coalesce(new, if(waits, at, null))" if waiting is not None else "new"
    return each.groupBy("session", "seq", "partition", "offset", "window").agg(
        F.expr(f"max({at})").alias("at"), F.expr("bool_and(old)").alias("old")
    )


def ids(session: SparkSession, known: Sequence[tuple[bytes, int]]) -> DataFrame:
    """(session, seq, waits): a small frame of message ids."""
    import pyarrow as pa

    sessions, seqs = zip(*known, strict=True)
    columns = {"session": pa.array(sessions, pa.binary()), "seq": pa.array(seqs, pa.int64())}
    return session.createDataFrame(pa.table({**columns, "waits": pa.array([True] * len(known))}))


def zoned(told: DataFrame, spans: DataFrame) -> DataFrame:
    """The same, with the zone of each offset; a small frame of spans decides it. Nothing that was judged before."""
    from pyspark.sql import functions as F

    beside = told.join(F.broadcast(spans), "partition", "left").withColumn("zone", F.expr(zone("offset")))
    return beside.select("session", "seq", "partition", "offset", "window", "zone", "at").where(
        "zone <> 'judged'"
    )


def highest_before(rows: DataFrame) -> DataFrame:
    """(partition, session, before): the highest sequence that was acknowledged below the range."""
    from pyspark.sql import functions as F

    placed = rows.where("off_min >= 0 and off_min < span_start")
    whole = placed.where("off_max < span_start").select("partition", "session", F.col("highest").alias("seq"))
    cut = entries(placed.where("off_max >= span_start"), "span_start").where("offset < span_start")
    both = whole.unionByName(cut.select("partition", "session", "seq"))
    # Which offset it has is not worth a look: -1 says «below the range».
    return both.groupBy("partition", "session").agg(
        F.struct(F.max("seq").alias("seq"), F.lit(-1).cast("bigint").alias("offset")).alias("before")
    )


def intervals(groups: DataFrame, count: int, size: int) -> Any:
    """Where the records of these groups stand, as an Arrow table of partition, off_min, off_max; many groups of a topic
    of so many offsets as a few thousand stretches, for the driver holds them."""
    from pyspark.sql import functions as F

    found = groups.where("n is not null").select("partition", "off_min", "off_max")
    if count > FEW:
        stretch = F.expr(f"off_min div {max(1, size // _STRETCHES)}").alias("stretch")
        found = found.groupBy("partition", stretch).agg(
            F.min("off_min").alias("off_min"), F.max("off_max").alias("off_max")
        )
    return found.toArrow()


def to_read(intervals: Any, spans: Mapping[int, OffsetSpan]) -> dict[int, list[Range]]:
    """The ranges that hold them; `intervals` is an Arrow table of partition, off_min, off_max."""
    found: dict[int, list[Range]] = {}
    columns = (intervals.column(name).to_pylist() for name in ("partition", "off_min", "off_max"))
    for partition, first, last in zip(*columns, strict=True):
        found.setdefault(partition, []).append((max(first, spans[partition].start), last + 1))
    return {partition: merged(ranges, _most(spans[partition])) for partition, ranges in found.items()}


def _most(span: OffsetSpan) -> int:
    return min(MOST, 1 + (span.end - span.start) // WORTH)


def seen(records: DataFrame, groups: DataFrame) -> DataFrame:
    """Of what was read again the records of these groups: (partition, offset, session, seq, window)."""
    return windowed(records.where("session is not null")).join(groups.select(*KEY), KEY, "left_semi")
