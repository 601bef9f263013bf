"""Compare a topic's records with the ledger's rows: first as groups, then the suspects message by message.

The rules are SQL (`sql/comparison.sql`, `sql/verdicts.sql`); this module orders them, and reads what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from producer_core.pipeline.integrity import suspects
from producer_core.pipeline.integrity.audit_tables import AuditTables
from producer_core.pipeline.integrity.comparison import ComparisonRequest, ComparisonResult, Counts
from producer_core.pipeline.integrity.offset_lookup import MAX_LOOKUPS
from producer_core.pipeline.integrity.outcome import ExpiredRange
from producer_core.pipeline.integrity.ranges import covered
from producer_core.pipeline.integrity.spans import OffsetSpan, PartitionBounds, refreshed
from producer_core.pipeline.integrity.topic_records import TopicRecords

Reading = Callable[[int, bool], AbstractContextManager[None]]
"""Returns a context for a read of this many records; the flag marks the second pass."""
LookUp = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | None]]
"""Returns the message ids at some places, each a partition and an offset (`offset_lookup.ids_at`)."""

MAX_IDS = 50_000_000
"""Records whose ids are fetched; of a longer range, Spark sums windows first, and ids of suspects follow."""

_SETTLING = 60.0
"""Seconds before the request for the topic's end offsets in which an acknowledgement may lie above them.

Applies to acknowledgements without an offset.
"""

_ALWAYS = ("beyond", "unplaced", "pending")
"""Zones whose messages are all reported by id, suspect or not."""
_BELOW_RANGE = {"expired", "gone"}

_MAX_POINT_SHARE = 0.05
"""Share of the range that may be read for single offsets."""
_MANY_GROUPS, _MAX_INTERVALS = 200_000, 4_096


def run_comparison(
    tables: AuditTables,
    request: ComparisonRequest,
    topic: TopicRecords,
    *,
    bounds_now: Callable[[], Mapping[int, PartitionBounds]],
    reading: Reading = lambda records, again: nullcontext(),
    look_up: LookUp | None = None,
) -> ComparisonResult:
    """Read everything once, as ids or as sums, and after sums the suspects again.

    `bounds_now` requests the topic's bounds again after everything was read; without `look_up`, Spark reads single
    offsets, too. The findings stay in `tables`.
    """
    select_rows(tables, request, request.spans)
    tables.create("rows_in_doubt")
    zones = {zone for (zone,) in tables.rows("zones")}
    by_sums = _size(request.spans) > MAX_IDS
    with reading(_size(request.spans), False):
        _read(tables, request, topic, by_sums=by_sums)
    tables.create("doubled")
    tables.create("compared", compacted=bool(request.compacted))
    counts = Counts(*tables.row("counts"))
    repeats, read_again, beyond = 0, 0, 0
    suspicious = bool(counts.unequal or counts.doubtful or zones & {*_ALWAYS})
    if suspicious:
        repeats, read_again = _suspects(
            tables, request, topic, counts.unequal, reading=reading, look_up=look_up, by_sums=by_sums
        )
    after = refreshed(request.spans, bounds_now())
    if suspicious:
        tables.put_spans(after)
        tables.create("ledger")
        (beyond,) = tables.row("beyond")
        _findings(tables, request, after)
    low_moved = any(span.low > request.spans[number].low for number, span in after.items())
    expired, taken = _expired(tables, request, after) if low_moved or zones & _BELOW_RANGE else ((), 0)
    return ComparisonResult(
        records=counts.records, foreign=counts.foreign, read_again=read_again, suspicious=suspicious,
        expired=expired, spans=after,
        acknowledged=max(0, counts.acknowledged - taken - repeats) + beyond,
    )  # fmt: skip


def select_rows(tables: AuditTables, request: ComparisonRequest, spans: Mapping[int, OffsetSpan]) -> None:
    """Select the ledger's rows of this topic, with the span of their partition and their zones."""
    tables.put_spans(spans)
    tables.create(
        "topic_rows", texts={"fresh": request.fresh, "old": request.old}, topic=request.topic, cluster=request.cluster
    )  # fmt: skip


def _read(tables: AuditTables, request: ComparisonRequest, topic: TopicRecords, *, by_sums: bool) -> None:
    ranges = {number: (span.start, span.end) for number, span in request.spans.items()}
    if by_sums:
        tables.add("add_groups", topic.groups(ranges))
        tables.create("log_groups", "merged_groups")
    else:
        tables.add("add_records", topic.ids(ranges))
        tables.create("log_groups")


def _suspects(
    tables: AuditTables,
    request: ComparisonRequest,
    topic: TopicRecords,
    unequal: int,
    *,
    reading: Reading,
    look_up: LookUp | None,
    by_sums: bool,
) -> tuple[int, int]:
    """Select the records of suspects; return the ledger's repeated entries, and the offsets that were read again."""
    compacted = bool(request.compacted)
    tables.put_waiting(request.waiting or ())
    tables.create("ledger_entries", texts={"always": str(_ALWAYS)})
    tables.create("ledger")
    tables.create("differing")
    arithmetic, again = by_sums and not compacted, 0
    tables.create("missing", arithmetic=arithmetic)
    if arithmetic:
        again = _single_records(tables, request, topic, look_up)
    tables.create("read_groups", by_sums=by_sums, compacted=compacted)
    if by_sums:
        again += _second_pass(tables, request, topic, unequal, reading)
    tables.create("seen", by_sums=by_sums)
    return 0 if compacted else tables.row("repeats")[0], again


def _single_records(
    tables: AuditTables, request: ComparisonRequest, topic: TopicRecords, look_up: LookUp | None
) -> int:
    """Fetch the single records that arithmetic names; return the number of offsets read.

    For a few records the Python client is faster than Spark's planning of a read. With too many offsets to read, none
    is read, and their groups are read whole.
    """
    import pyarrow as pa

    tables.create("surplus")
    wanted = tables.arrow("surplus_places")
    if look_up is not None and wanted.num_rows <= MAX_LOOKUPS:
        places = list(zip(wanted["partition"].to_pylist(), wanted["off_min"].to_pylist(), strict=True))
        ids = pa.array(look_up(places), pa.binary())
        found = pa.table({"partition": wanted["partition"], "offset": wanted["off_min"], "id": ids})
        tables.add("add_single_records", [found])
        return len(places)
    ranges = suspects.ranges_to_read(wanted, request.spans)
    if covered(ranges) > _size(request.spans) * _MAX_POINT_SHARE:
        return 0
    tables.add("add_single_records", topic.ids_of(ranges, tables.arrow("surplus_groups")))
    return covered(ranges)


def _second_pass(
    tables: AuditTables, request: ComparisonRequest, topic: TopicRecords, unequal: int, reading: Reading
) -> int:
    """Read the groups whose records decide, and return the number of offsets read."""
    step = max(1, _size(request.spans) // _MAX_INTERVALS) if unequal > _MANY_GROUPS else 1
    ranges = suspects.ranges_to_read(tables.arrow("intervals", step=step), request.spans)
    if ranges:
        with reading(covered(ranges), True):
            tables.add("add_records", topic.ids_of(ranges, tables.arrow("groups_to_read")))
    return covered(ranges)


def _findings(tables: AuditTables, request: ComparisonRequest, after: Mapping[int, OffsetSpan]) -> None:
    """Collect all findings."""
    tables.create("places")
    tables.find("duplicated", "reordered", "unledgered", "pending")
    if not request.compacted:
        tables.find("lost")
        tables.find("unplaced", **unplaced_facts(request, after))


def unplaced_facts(request: ComparisonRequest, after: Mapping[int, OffsetSpan]) -> dict[str, Any]:
    """Return what decides about messages that were acknowledged without an offset and are not in the range."""
    return {
        "hidden": any(span.stable < span.high for span in after.values()),
        "settled": request.started - _SETTLING,
        "whole": all(span.whole for span in after.values()),
        "final": "lost" if all(span.low == 0 for span in after.values()) else "expired",
    }


def _expired(
    tables: AuditTables, request: ComparisonRequest, after: Mapping[int, OffsetSpan]
) -> tuple[tuple[ExpiredRange, ...], int]:
    """Return the expired ranges, and how many of the acknowledgements expired while the range was read."""
    select_rows(tables, request, after)
    found = tables.rows("expired_ranges", incremental=request.waiting is not None, since=request.since)
    return tuple(ExpiredRange(*row[:4]) for row in found), sum(row[4] for row in found)


def _size(spans: Mapping[int, OffsetSpan]) -> int:
    """Return the number of offsets that are read."""
    return sum(span.end - span.start for span in spans.values())
