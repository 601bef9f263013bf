"""Compare a topic's records with the ledger's rows: first as groups, then the suspects message by message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from producer_core.pipeline.integrity import groups, sum_differences, suspects, verdicts
from producer_core.pipeline.integrity.cached_frames import materialize
from producer_core.pipeline.integrity.comparison import ComparisonRequest, ComparisonResult, LedgerFrames
from producer_core.pipeline.integrity.offset_lookup import MAX_LOOKUPS
from producer_core.pipeline.integrity.outcome import ExpiredRange
from producer_core.pipeline.integrity.ranges import Range, covered, layers
from producer_core.pipeline.integrity.spans import OffsetSpan, PartitionBounds, refreshed
from producer_core.pipeline.integrity.verdicts import windowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]
"""Returns the decoded records of one range per partition; `among` is the number of ranges in all reads of a pass."""
Reading = Callable[[int, bool], AbstractContextManager[None]]
"""Returns a context for a read of this many records; the flag marks the second pass."""
LookUp = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | None]]
"""Returns the message ids at some places, each a partition and an offset (`offset_lookup.ids_at`)."""

_SETTLING = 60.0
"""Seconds before the request for the topic's end offsets in which an acknowledgement may lie above them.

Applies to acknowledgements without an offset.
"""

_BELOW_RANGE = {"expired", "gone"}

_MAX_POINT_SHARE = 0.05
"""Share of the range that may be read for single offsets."""


def run_comparison(
    session: SparkSession,
    request: ComparisonRequest,
    frames: LedgerFrames,
    *,
    read: Read,
    bounds_now: Callable[[], Mapping[int, PartitionBounds]],
    reading: Reading = lambda records, again: nullcontext(),
    look_up: LookUp | None = None,
) -> ComparisonResult:
    """Read everything once and suspects twice.

    `bounds_now` requests the topic's bounds again after everything was read; without `look_up`, Spark reads single
    offsets, too.
    """
    zoned_rows = groups.zoned_rows(rows_in_spans(session, request, frames.rows, request.spans))
    rows = materialize(groups.with_doubts(zoned_rows.where("zone <> 'judged' or last_zone <> 'judged'")))
    zones = _zones(rows)
    first = first_pass(request, frames, rows, read, cut=len(zones) > 1)
    with reading(_size(request.spans), False):
        compared = materialize(first)
    counts = _counts(compared)
    second, entries = None, None
    if counts["unequal"] or counts["doubtful"] or zones.keys() & suspects.ALWAYS:
        most = counts["unequal"] + counts["doubtful"] + sum(zones.get(zone, 0) for zone in suspects.ALWAYS)
        windows = suspects.hinted(suspects.suspect_windows(compared, rows), most)
        waiting = suspects.id_frame(session, request.waiting) if request.waiting else None
        entries = materialize(suspects.ledger_entries(rows, windows, request.fresh, waiting))
        second = _second_pass(session, request, compared, entries, counts, read, reading, look_up)
    after = refreshed(request.spans, bounds_now())
    low_moved = any(span.low > request.spans[number].low for number, span in after.items())
    findings, beyond = None, 0
    if second is not None and entries is not None:
        zoned = materialize(suspects.with_zones(entries, groups.span_frame(session, after)))
        beyond = _beyond(zoned) if "beyond" in zones else 0
        findings = _findings(
            request, compared, rows, frames.dead_letters, zoned, second, {*zones}, verdict(request, after)
        )
    expired: tuple[ExpiredRange, ...] = ()
    taken = 0
    if low_moved or zones.keys() & _BELOW_RANGE:
        expired, taken = _expired(session, request, frames.rows, after)
    known = counts["acknowledged"] - taken - (0 if second is None else second.repeats)
    return ComparisonResult(
        records=counts["records"],
        foreign=counts["foreign"],
        acknowledged=max(0, known) + beyond,
        read_again=0 if second is None else second.offsets,
        expired=expired,
        spans=after,
        findings=findings,
    )


def _findings(
    request: ComparisonRequest,
    compared: DataFrame,
    rows: DataFrame,
    dead_letters: DataFrame,
    ledger: DataFrame,
    second: _SecondPass,
    zones: set[str],
    verdict: str,
) -> DataFrame:
    """Return all findings. `zones` are those of the ledger's rows; other zones are not planned: plans cost more than
    data."""
    places = materialize(
        verdicts.with_copies(verdicts.placements(second.seen, ledger, second.groups, second.missing), ledger)
    )
    below = suspects.highest_before(rows) if zones & {"before", "expired", "gone"} else None
    found = [
        verdicts.duplicated(places),
        verdicts.reordered(places, compared, dead_letters, below),
        verdicts.unledgered(places, ledger, dead_letters),
    ]
    if "pending" in zones:
        found.append(verdicts.pending(ledger))
    if not request.compacted:
        found.append(verdicts.lost(places, ledger, compared.where("unequal")))
    if not request.compacted and "unplaced" in zones:
        found.append(verdicts.unplaced(places, ledger, verdict))
    return materialize(reduce(lambda one, other: one.unionByName(other), found).where("kind is not null"))


@dataclass(frozen=True)
class _SecondPass:
    """Hold the result of the second pass.

    `seen` are the records read again, of the `groups` that were read whole and of single offsets; `missing` are
    messages that arithmetic shows to be absent from other groups; `offsets` counts the offsets read, `repeats` the
    ledger's repeated entries.
    """

    seen: DataFrame
    groups: DataFrame
    missing: DataFrame
    offsets: int
    repeats: int


def _second_pass(
    session: SparkSession,
    request: ComparisonRequest,
    compared: DataFrame,
    entries: DataFrame,
    counts: Mapping[str, int],
    read: Read,
    reading: Reading,
    look_up: LookUp | None,
) -> _SecondPass:
    """Read single offsets or nothing where arithmetic explains the difference, and the other groups whole."""
    ledger = suspects.with_zones(entries, groups.span_frame(session, request.spans))
    if request.compacted or not counts["unequal"]:
        unequal = compared.where("unequal").select(*groups.KEY, "n", "off_min", "off_max")
        missing = ledger.select(*groups.KEY, "seq", "offset").limit(0)
        points, offsets, repeats = suspects.records_of(read({}), unequal), 0, 0
    else:
        checked = materialize(sum_differences.differing(compared, ledger))
        repeats = checked.selectExpr("coalesce(sum(repeats), 0) as n").first()["n"]
        unequal = checked.where("differs")
        missing = materialize(sum_differences.missing(unequal, ledger))
        surplus = materialize(sum_differences.surplus(unequal))
        points, offsets = _looked_up(session, surplus, look_up) or _points(request, surplus, read)
    unequal = unequal.select(*groups.KEY, "n", "off_min", "off_max")
    rest = unequal.join(missing, groups.KEY, "left_anti").join(points, groups.KEY, "left_anti")
    rest = materialize(rest)
    ranges = (
        suspects.ranges_to_read(
            suspects.intervals(rest, counts["unequal"], _size(request.spans)), request.spans
        )
        if counts["unequal"]
        else {}
    )
    whole = suspects.records_of(_read_ranges(read, ranges), suspects.hinted(rest, counts["unequal"]))
    with reading(covered(ranges), True) if ranges else nullcontext():
        seen = materialize(points.unionByName(whole, allowMissingColumns=False))
    return _SecondPass(
        seen, suspects.hinted(rest.select(*groups.KEY), counts["unequal"]), missing, offsets + covered(ranges), repeats
    )  # fmt: skip


def _looked_up(
    session: SparkSession, surplus: DataFrame, look_up: LookUp | None
) -> tuple[DataFrame, int] | None:
    """Look up the surplus records with the Python client; return None when there are too many.

    For a few records this client is faster than Spark's planning of a read.
    """
    import pyarrow as pa

    if look_up is None:
        return None
    candidates = surplus.limit(MAX_LOOKUPS + 1).toArrow()
    if candidates.num_rows > MAX_LOOKUPS:
        return None
    wanted = candidates.to_pylist()
    ids = look_up([(row["partition"], row["offset"]) for row in wanted])
    found = [
        row for row, one in zip(wanted, ids, strict=True) if one == row["session"] + row["seq"].to_bytes(8)
    ]
    table = pa.Table.from_pylist(found, candidates.schema)
    return session.createDataFrame(table).select("partition", "offset", "session", "seq", "window"), len(
        wanted
    )


def _points(request: ComparisonRequest, surplus: DataFrame, read: Read) -> tuple[DataFrame, int]:
    """Read the surplus records with Spark; return them and the number of offsets read, or none if that were too many."""
    candidates = surplus.selectExpr("partition", "offset as off_min", "offset as off_max").toArrow()
    ranges = suspects.ranges_to_read(candidates, request.spans)
    if covered(ranges) > _size(request.spans) * _MAX_POINT_SHARE:
        ranges = {}
    records = windowed(_read_ranges(read, ranges))
    place = [*groups.KEY, "seq", "offset"]
    found = materialize(
        records.join(surplus, place, "left_semi").select("partition", "offset", "session", "seq", "window")
    )
    return found, covered(ranges)


def first_pass(
    request: ComparisonRequest, frames: LedgerFrames, rows: DataFrame, read: Read, *, cut: bool = True
) -> DataFrame:
    """Plan the first pass: the log's groups beside those of the ledger's zoned `rows`."""
    from pyspark.sql import functions as F

    log = groups.groups(read({number: (span.start, span.end) for number, span in request.spans.items()}))
    ledger = groups.ledger_groups(groups.pieces(rows, cut=cut))
    loose = materialize(groups.loose(frames.rows, rows, frames.dead_letters))
    twice = None if loose.isEmpty() else groups.doubled(rows, loose)
    compared = groups.compared(log, ledger, twice)
    if request.compacted:  # compaction removes acknowledged records
        compared = compared.withColumn("unequal", F.expr("session is not null"))
    return compared


def rows_in_spans(
    session: SparkSession, request: ComparisonRequest, rows: DataFrame, spans: Mapping[int, OffsetSpan]
) -> DataFrame:
    """Return the ledger's rows of this topic, with the span of their partition and whether they are `old`."""
    from pyspark.sql import functions as F

    rows_of_topic = groups.of_topic(rows, request.topic, request.cluster, groups.span_frame(session, spans))
    return rows_of_topic.withColumn("old", F.expr(f"coalesce({request.old}, false)"))


def _read_ranges(read: Read, ranges: Mapping[int, list[Range]]) -> DataFrame:
    among = sum(map(len, ranges.values())) or None
    reads = [read(layer, among=among) for layer in layers(ranges) or [{}]]
    return reduce(lambda one, other: one.unionByName(other), reads)


def _size(spans: Mapping[int, OffsetSpan]) -> int:
    """Return the number of offsets that are read."""
    return sum(span.end - span.start for span in spans.values())


def _zones(rows: DataFrame) -> dict[str, int]:
    """Return the zones in which the ledger's rows begin and end, with the number of rows."""
    found = rows.selectExpr("explode(array(zone, last_zone)) as zone").groupBy("zone").count().collect()
    return {row["zone"]: row["count"] for row in found}


def _counts(compared: DataFrame) -> dict[str, int]:
    from pyspark.sql import functions as F

    row = compared.agg(
        F.sum("n").alias("records"), F.expr("sum(n) filter (where session is null)").alias("foreign"),
        F.sum("ledger_n").alias("acknowledged"), F.count_if("unequal").alias("unequal"),
        F.count_if("doubtful").alias("doubtful"),
    ).first()  # fmt: skip
    return {name: number or 0 for name, number in (row.asDict() if row is not None else {}).items()}


def _beyond(ledger: DataFrame) -> int:
    """Return how many messages were acknowledged above the log's end and not also within the range."""
    ids = ledger.where("zone = 'beyond'").select("session", "seq").distinct()
    inside = ledger.where("zone = 'inside'").select("session", "seq")
    return int(ids.join(inside, ["session", "seq"], "left_anti").count())


def verdict(request: ComparisonRequest, after: Mapping[int, OffsetSpan]) -> str:
    """Return SQL for the verdict on a message that was acknowledged without an offset and is not in the range."""
    hidden = any(span.stable < span.high for span in after.values())
    whole = all(span.whole for span in after.values())
    final = "lost" if all(span.low == 0 for span in after.values()) else "expired"
    return (
        "case when at is null then null "
        f"when {str(hidden).lower()} or at >= {request.started - _SETTLING!r} then 'pending' "
        f"when {str(not whole).lower()} then 'undecided' else '{final}' end"
    )


def _expired(
    session: SparkSession, request: ComparisonRequest, rows: DataFrame, after: Mapping[int, OffsetSpan]
) -> tuple[tuple[ExpiredRange, ...], int]:
    """Return the expired ranges, and how many of the acknowledgements expired while the range was read."""
    from pyspark.sql import functions as F

    zoned = groups.zoned_rows(rows_in_spans(session, request, rows, after).withColumn("doubt", F.lit(False)))
    if request.waiting is not None:  # late rows about offsets that expired before any audit read them
        known = f"if(zone = 'gone' and ({request.fresh}), 'expired', zone)"
        zoned = zoned.withColumns(
            {"last_zone": F.expr(known.replace("zone", "last_zone")), "zone": F.expr(known)}
        )
    below = groups.pieces(zoned).where("zone in ('expired', 'taken')")
    if request.since is not None:
        below = below.where(f"zone = 'taken' or at >= {request.since!r}")
    tallies = groups.tally(below).orderBy("partition").collect()
    expired = tuple(ExpiredRange(row["partition"], row["n"], row["first"], row["last"]) for row in tallies)
    return expired, sum(row["taken"] for row in tallies)
