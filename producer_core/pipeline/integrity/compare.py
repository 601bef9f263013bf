"""The look: a topic's records beside the ledger's rows, first as groups, then what is suspect message by message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from producer_core.pipeline.integrity import groups, sum_differences, suspects, verdicts
from producer_core.pipeline.integrity.cached_frames import keep
from producer_core.pipeline.integrity.comparison import ComparisonRequest, ComparisonResult, LedgerFrames
from producer_core.pipeline.integrity.offset_lookup import MOST
from producer_core.pipeline.integrity.outcome import ExpiredRange
from producer_core.pipeline.integrity.ranges import Range, covered, layers
from producer_core.pipeline.integrity.spans import OffsetSpan, PartitionBounds, seen_after
from producer_core.pipeline.integrity.verdicts import windowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]
"""Records of one range a partition, decoded; `among` is how many ranges this and the other reads of a pass have."""
Reading = Callable[[int, bool], AbstractContextManager[None]]
"""While so many records are read; whether again."""
LookUp = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | None]]
"""The message ids that stand at some places, each a partition and an offset (`places.looked_up`)."""

_SETTLING = 60.0
"""An acknowledgement without a place that was told so shortly before the topic's ends were asked for may lie above them."""

_BELOW = {"expired", "gone"}

_LITTLE = 0.05
"""Of the range: more is not read for the sake of single places."""


def look(
    session: SparkSession,
    question: ComparisonRequest,
    told: LedgerFrames,
    *,
    read: Read,
    edges_now: Callable[[], Mapping[int, PartitionBounds]],
    reading: Reading = lambda records, again: nullcontext(),
    look_up: LookUp | None = None,
) -> ComparisonResult:
    """Everything once, suspects twice. `edges_now` asks the brokers again when all was read; without `look_up`, single
    places are read by Spark, too."""
    ours = groups.zoned_rows(about(session, question, told.rows, question.spans))
    rows = keep(groups.with_doubts(ours.where("zone <> 'judged' or last_zone <> 'judged'")))
    zones = _zones(rows)
    first = compare(question, told, rows, read, cut=len(zones) > 1)
    with reading(_size(question.spans), False):
        compared = keep(first)
    counts = _counts(compared)
    second, entries = None, None
    if counts["unequal"] or counts["doubtful"] or zones.keys() & suspects.ALWAYS:
        most = counts["unequal"] + counts["doubtful"] + sum(zones.get(zone, 0) for zone in suspects.ALWAYS)
        windows = suspects.hinted(suspects.asked(compared, rows), most)
        waiting = suspects.ids(session, question.waiting) if question.waiting else None
        entries = keep(suspects.told(rows, windows, question.fresh, waiting))
        second = _second(session, question, compared, entries, counts, read, reading, look_up)
    after = seen_after(question.spans, edges_now())
    risen = any(span.low > question.spans[number].low for number, span in after.items())
    findings, beyond = None, 0
    if second is not None and entries is not None:
        zoned = keep(suspects.zoned(entries, groups.span_frame(session, after)))
        beyond = _beyond(zoned) if "beyond" in zones else 0
        findings = _judged(
            question, compared, rows, told.dead_letters, zoned, second, {*zones}, verdict(question, after)
        )
    expired: tuple[ExpiredRange, ...] = ()
    taken = 0
    if risen or zones.keys() & _BELOW:
        expired, taken = _expired(session, question, told.rows, after)
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


def _judged(
    question: ComparisonRequest,
    compared: DataFrame,
    rows: DataFrame,
    dead_letters: DataFrame,
    told: DataFrame,
    second: _Second,
    zones: set[str],
    verdict: str,
) -> DataFrame:
    """`zones`: what the ledger speaks of at all; for the others nothing is planned, since plans cost more than data."""
    places = keep(verdicts.ordered(verdicts.standing(second.seen, told, second.groups, second.missing), told))
    below = suspects.highest_before(rows) if zones & {"before", "expired", "gone"} else None
    found = [
        verdicts.duplicated(places),
        verdicts.reordered(places, compared, dead_letters, below),
        verdicts.unledgered(places, told, dead_letters),
    ]
    if "pending" in zones:
        found.append(verdicts.pending(told))
    if not question.compacted:
        found.append(verdicts.lost(places, told, compared.where("unequal")))
    if not question.compacted and "unplaced" in zones:
        found.append(verdicts.unplaced(places, told, verdict))
    return keep(reduce(lambda one, other: one.unionByName(other), found).where("kind is not null"))


@dataclass(frozen=True)
class _Second:
    """The second look: records `seen`, of the `groups` that were read whole and of single places; what is `missing` in
    other groups by arithmetic; how many offsets were read, and how often the ledger told what it had told already."""

    seen: DataFrame
    groups: DataFrame
    missing: DataFrame
    offsets: int
    repeats: int


def _second(
    session: SparkSession,
    question: ComparisonRequest,
    compared: DataFrame,
    entries: DataFrame,
    counts: Mapping[str, int],
    read: Read,
    reading: Reading,
    look_up: LookUp | None,
) -> _Second:
    """What arithmetic explains is read at single places or not at all, the rest whole."""
    told = suspects.zoned(entries, groups.span_frame(session, question.spans))
    if question.compacted or not counts["unequal"]:
        unequal = compared.where("unequal").select(*groups.KEY, "n", "off_min", "off_max")
        missing = told.select(*groups.KEY, "seq", "offset").limit(0)
        points, offsets, repeats = suspects.seen(read({}), unequal), 0, 0
    else:
        checked = keep(sum_differences.differing(compared, told))
        repeats = checked.selectExpr("coalesce(sum(repeats), 0) as n").first()["n"]
        unequal = checked.where("differs")
        missing = keep(sum_differences.missing(unequal, told))
        surplus = keep(sum_differences.surplus(unequal))
        points, offsets = _looked_up(session, surplus, look_up) or _points(question, surplus, read)
    unequal = unequal.select(*groups.KEY, "n", "off_min", "off_max")
    rest = unequal.join(missing, groups.KEY, "left_anti").join(points, groups.KEY, "left_anti")
    rest = keep(rest)
    ranges = (
        suspects.to_read(suspects.intervals(rest, counts["unequal"], _size(question.spans)), question.spans)
        if counts["unequal"]
        else {}
    )
    whole = suspects.seen(_again(read, ranges), suspects.hinted(rest, counts["unequal"]))
    with reading(covered(ranges), True) if ranges else nullcontext():
        seen = keep(points.unionByName(whole, allowMissingColumns=False))
    return _Second(
        seen, suspects.hinted(rest.select(*groups.KEY), counts["unequal"]), missing, offsets + covered(ranges), repeats
    )  # fmt: skip


def _looked_up(
    session: SparkSession, surplus: DataFrame, look_up: LookUp | None
) -> tuple[DataFrame, int] | None:
    """The records that are where arithmetic says, where these are so few that our own client has them sooner than Spark
    has planned a read; None where they are not."""
    import pyarrow as pa

    if look_up is None:
        return None
    named = surplus.limit(MOST + 1).toArrow()
    if named.num_rows > MOST:
        return None
    rows = named.to_pylist()
    there = look_up([(row["partition"], row["offset"]) for row in rows])
    found = [
        row for row, one in zip(rows, there, strict=True) if one == row["session"] + row["seq"].to_bytes(8)
    ]
    table = pa.Table.from_pylist(found, named.schema)
    return session.createDataFrame(table).select("partition", "offset", "session", "seq", "window"), len(rows)


def _points(question: ComparisonRequest, surplus: DataFrame, read: Read) -> tuple[DataFrame, int]:
    """The records that are where arithmetic says, and how many offsets were read; none where that would be much."""
    named = surplus.selectExpr("partition", "offset as off_min", "offset as off_max").toArrow()
    ranges = suspects.to_read(named, question.spans)
    if covered(ranges) > _size(question.spans) * _LITTLE:
        ranges = {}
    records = windowed(_again(read, ranges))
    place = [*groups.KEY, "seq", "offset"]
    found = keep(
        records.join(surplus, place, "left_semi").select("partition", "offset", "session", "seq", "window")
    )
    return found, covered(ranges)


def compare(
    question: ComparisonRequest, told: LedgerFrames, rows: DataFrame, read: Read, *, cut: bool = True
) -> DataFrame:
    """The first pass: the log's groups beside those of the ledger's zoned `rows`. The plan of all that is read."""
    from pyspark.sql import functions as F

    log = groups.groups(read({number: (span.start, span.end) for number, span in question.spans.items()}))
    ledger = groups.ledger_groups(groups.pieces(rows, cut=cut))
    loose = keep(groups.loose(told.rows, rows, told.dead_letters))
    twice = None if loose.isEmpty() else groups.doubled(rows, loose)
    compared = groups.compared(log, ledger, twice)
    if question.compacted:  # what compaction leaves is not what was acknowledged
        compared = compared.withColumn("unequal", F.expr("session is not null"))
    return compared


def about(
    session: SparkSession, question: ComparisonRequest, rows: DataFrame, spans: Mapping[int, OffsetSpan]
) -> DataFrame:
    """The ledger's rows of this topic, beside the span of their partition, and whether they are `old`."""
    from pyspark.sql import functions as F

    ours = groups.of_topic(rows, question.topic, question.cluster, groups.span_frame(session, spans))
    return ours.withColumn("old", F.expr(f"coalesce({question.old}, false)"))


def _again(read: Read, ranges: Mapping[int, list[Range]]) -> DataFrame:
    among = sum(map(len, ranges.values())) or None
    reads = [read(layer, among=among) for layer in layers(ranges) or [{}]]
    return reduce(lambda one, other: one.unionByName(other), reads)


def _size(spans: Mapping[int, OffsetSpan]) -> int:
    """Offsets that are read."""
    return sum(span.end - span.start for span in spans.values())


def _zones(rows: DataFrame) -> dict[str, int]:
    """Where the ledger's rows begin and end, and how many in each zone."""
    found = rows.selectExpr("explode(array(zone, last_zone)) as zone").groupBy("zone").count().collect()
    return {row["zone"]: row["count"] for row in found}


def _counts(compared: DataFrame) -> dict[str, int]:
    from pyspark.sql import functions as F

    row = compared.agg(
        F.sum("n").alias("records"), F.expr("sum(n) filter (where session is null)").alias("foreign"),
        F.sum("told_n").alias("acknowledged"), F.count_if("unequal").alias("unequal"),
        F.count_if("doubtful").alias("doubtful"),
    ).first()  # fmt: skip
    return {name: number or 0 for name, number in (row.asDict() if row is not None else {}).items()}


def _beyond(told: DataFrame) -> int:
    """How many messages were acknowledged above the log's end, and not within the range as well."""
    ids = told.where("zone = 'beyond'").select("session", "seq").distinct()
    inside = told.where("zone = 'inside'").select("session", "seq")
    return int(ids.join(inside, ["session", "seq"], "left_anti").count())


def verdict(question: ComparisonRequest, after: Mapping[int, OffsetSpan]) -> str:
    """SQL: what became of a message that was acknowledged nobody knows where, and does not stand in the range."""
    hidden = any(span.stable < span.high for span in after.values())
    whole = all(span.whole for span in after.values())
    final = "lost" if all(span.low == 0 for span in after.values()) else "expired"
    return (
        "case when at is null then null "
        f"when {str(hidden).lower()} or at >= {question.started - _SETTLING!r} then 'pending' "
        f"when {str(not whole).lower()} then 'undecided' else '{final}' end"
    )


def _expired(
    session: SparkSession, question: ComparisonRequest, rows: DataFrame, after: Mapping[int, OffsetSpan]
) -> tuple[tuple[ExpiredRange, ...], int]:
    """What expired, and how much of that was taken from the range while it was read."""
    from pyspark.sql import functions as F

    zoned = groups.zoned_rows(about(session, question, rows, after).withColumn("doubt", F.lit(False)))
    if question.waiting is not None:  # told late, of what no audit saw in time
        known = f"if(zone = 'gone' and ({question.fresh}), 'expired', zone)"
        zoned = zoned.withColumns(
            {"last_zone": F.expr(known.replace("zone", "last_zone")), "zone": F.expr(known)}
        )
    below = groups.pieces(zoned).where("zone in ('expired', 'taken')")
    if question.since is not None:
        below = below.where(f"zone = 'taken' or at >= {question.since!r}")
    told = groups.tally(below).orderBy("partition").collect()
    expired = tuple(ExpiredRange(row["partition"], row["n"], row["first"], row["last"]) for row in told)
    return expired, sum(row["taken"] for row in told)
