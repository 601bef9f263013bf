"""Select the suspects for the second pass: groups that differ from the ledger, or whose order is uncertain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer_core.pipeline.integrity.groups import KEY
from producer_core.pipeline.integrity.ledgers import entries
from producer_core.pipeline.integrity.ranges import MAX_READS, Range, merged
from producer_core.pipeline.integrity.spans import OffsetSpan, zone
from producer_core.pipeline.integrity.verdicts import windowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROADCAST_LIMIT = 200_000
"""Keys up to which a frame is broadcast to every task; more are joined by a shuffle of the records read again."""

_MAX_INTERVALS = 4_096

OFFSETS_PER_READ = 50_000
"""Offsets of a partition that justify the plan and the tasks of one more read."""

ALWAYS = ("beyond", "unplaced", "pending")
"""Zones whose messages are all reported by id, suspect or not."""


def hinted(frame: DataFrame, count: int) -> DataFrame:
    """Mark a small frame for a broadcast join."""
    from pyspark.sql import functions as F

    return F.broadcast(frame) if count <= BROADCAST_LIMIT else frame


def suspect_windows(compared: DataFrame, rows: DataFrame) -> DataFrame:
    """Return (session, window) of the suspects and of the ledger rows in a zone of `ALWAYS`."""
    always = rows.where(f"zone in {ALWAYS} or last_zone in {ALWAYS}").select("session", "window")
    return compared.where("unequal or doubtful").select("session", "window").union(always).distinct()


def ledger_entries(
    rows: DataFrame, windows: DataFrame, fresh: str, waiting: DataFrame | None = None
) -> DataFrame:
    """Return the ledger's entries in these windows, one per message, in all partitions and at all offsets.

    Columns: session, seq, partition, offset, window, at, old. `at` is when the entry was written, for messages
    without an offset in a `fresh` (SQL) row and for those in `waiting`; null for others. Each place occurs once: it
    is `old` when all of its entries are.
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


def id_frame(session: SparkSession, known: Sequence[tuple[bytes, int]]) -> DataFrame:
    """Return (session, seq, waits): a small frame of message ids."""
    import pyarrow as pa

    sessions, seqs = zip(*known, strict=True)
    columns = {"session": pa.array(sessions, pa.binary()), "seq": pa.array(seqs, pa.int64())}
    return session.createDataFrame(pa.table({**columns, "waits": pa.array([True] * len(known))}))


def with_zones(ledger: DataFrame, spans: DataFrame) -> DataFrame:
    """Add the zone of each offset by a small frame of spans, and drop entries that were judged before."""
    from pyspark.sql import functions as F

    beside = ledger.join(F.broadcast(spans), "partition", "left").withColumn("zone", F.expr(zone("offset")))
    return beside.select("session", "seq", "partition", "offset", "window", "zone", "at").where(
        "zone <> 'judged'"
    )


def highest_before(rows: DataFrame) -> DataFrame:
    """Return (partition, session, before): the highest sequence that was acknowledged below the range."""
    from pyspark.sql import functions as F

    placed = rows.where("off_min >= 0 and off_min < span_start")
    whole = placed.where("off_max < span_start").select("partition", "session", F.col("highest").alias("seq"))
    cut = entries(placed.where("off_max >= span_start"), "span_start").where("offset < span_start")
    both = whole.unionByName(cut.select("partition", "session", "seq"))
    # Its offset is not looked up; -1 means "below the range".
    return both.groupBy("partition", "session").agg(
        F.struct(F.max("seq").alias("seq"), F.lit(-1).cast("bigint").alias("offset")).alias("before")
    )


def intervals(groups: DataFrame, count: int, size: int) -> Any:
    """Return the positions of these groups' records as an Arrow table of partition, off_min, off_max.

    For many groups, of a topic of `size` offsets, return a few thousand intervals, because the driver holds them.
    """
    from pyspark.sql import functions as F

    found = groups.where("n is not null").select("partition", "off_min", "off_max")
    if count > BROADCAST_LIMIT:
        interval = F.expr(f"off_min div {max(1, size // _MAX_INTERVALS)}").alias("interval")
        found = found.groupBy("partition", interval).agg(
            F.min("off_min").alias("off_min"), F.max("off_max").alias("off_max")
        )
    return found.toArrow()


def ranges_to_read(intervals: Any, spans: Mapping[int, OffsetSpan]) -> dict[int, list[Range]]:
    """Return the ranges that cover an Arrow table of partition, off_min, off_max."""
    found: dict[int, list[Range]] = {}
    columns = (intervals.column(name).to_pylist() for name in ("partition", "off_min", "off_max"))
    for partition, first, last in zip(*columns, strict=True):
        found.setdefault(partition, []).append((max(first, spans[partition].start), last + 1))
    return {partition: merged(ranges, _max_reads(spans[partition])) for partition, ranges in found.items()}


def _max_reads(span: OffsetSpan) -> int:
    return min(MAX_READS, 1 + (span.end - span.start) // OFFSETS_PER_READ)


def records_of(records: DataFrame, groups: DataFrame) -> DataFrame:
    """Return those of the records that belong to these groups: (partition, offset, session, seq, window)."""
    return windowed(records.where("session is not null")).join(groups.select(*KEY), KEY, "left_semi")
