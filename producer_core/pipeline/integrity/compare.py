"""Compare a topic's records with the ledger's rows: first as groups, then the suspects message by message.

The rules are SQL (`sql/comparison.sql`, `sql/verdicts.sql`); this module orders them, and reads what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core.pipeline.integrity import suspects
from producer_core.pipeline.integrity.audit_tables import AuditTables
from producer_core.pipeline.integrity.comparison import ComparisonRequest, ComparisonResult, Counts
from producer_core.pipeline.integrity.offset_lookup import MAX_LOOKUPS
from producer_core.pipeline.integrity.outcome import ExpiredRange
from producer_core.pipeline.integrity.ranges import covered
from producer_core.pipeline.integrity.spans import OffsetSpan, PartitionBounds, refreshed
from producer_core.pipeline.integrity.topic_records import TopicRecords

if TYPE_CHECKING:
    import pyarrow

Reading = Callable[[int, bool], AbstractContextManager[None]]
"""Returns a context for a read of this many records; the flag marks the second pass."""
LookUp = Callable[[Sequence[tuple[int, int]]], Sequence[bytes | None]]
"""Returns the message ids at some places, each a partition and an offset (`offset_lookup.ids_at`)."""

MAX_IDS = 50_000_000
"""Records whose ids are fetched; for a longer range, Spark sums windows first, and the ids of suspects follow."""

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
    read_ledgers: Callable[[], object] = lambda: None,
    reading: Reading = lambda records, again: nullcontext(),
    look_up: LookUp | None = None,
) -> ComparisonResult:
    """Read everything once, as ids or as sums, and after sums the suspects again.

    `read_ledgers` adds the ledgers to the tables, unless they are there already.
    `bounds_now` requests the topic's bounds again after everything was read; without `look_up`, Spark reads single
    offsets, too. The findings stay in `tables`.
    """
    return _Comparison(tables, request, topic, bounds_now, read_ledgers, reading, look_up).run()


@dataclass(frozen=True)
class _Comparison:
    """Order the rules and the reads of one comparison; the arguments are those of `run_comparison`."""

    tables: AuditTables
    request: ComparisonRequest
    topic: TopicRecords
    bounds_now: Callable[[], Mapping[int, PartitionBounds]]
    read_ledgers: Callable[[], object]
    reading: Reading
    look_up: LookUp | None

    @property
    def by_sums(self) -> bool:
        return self.size > MAX_IDS

    @property
    def size(self) -> int:
        """Return the number of offsets that are read."""
        return sum(span.end - span.start for span in self.request.spans.values())

    def run(self) -> ComparisonResult:
        tables, before = self.tables, self.request.spans
        counts = self._first_pass()
        zones = {zone for (zone,) in tables.rows("zones")}
        suspicious = bool(counts.unequal or counts.doubtful or zones & {*_ALWAYS})
        repeats, read_again = self._suspects(counts.unequal) if suspicious else (0, 0)
        after = refreshed(before, self.bounds_now())
        beyond = self._decide(after) if suspicious else 0
        low_moved = any(span.low > before[number].low for number, span in after.items())
        has_expired = low_moved or zones & _BELOW_RANGE
        expired, taken = _expired(tables, self.request, after) if has_expired else ((), 0)
        return ComparisonResult(
            records=counts.records, foreign=counts.foreign, read_again=read_again, suspicious=suspicious,
            acknowledged=max(0, counts.acknowledged - taken - repeats) + beyond, expired=expired, spans=after,
        )  # fmt: skip

    def _first_pass(self) -> Counts:
        """Read everything, as ids or as sums, and compare the groups of both sides."""
        ranges = {number: (span.start, span.end) for number, span in self.request.spans.items()}
        start = self.topic.groups if self.by_sums else self.topic.ids
        with self.reading(self.size, False):
            with closing(start(ranges)) as records:
                self._add_ledgers()  # while Spark reads the topic
                if self.by_sums:
                    self.tables.add("add_groups", records)
                else:
                    self.tables.add_records("add_records", records)
        self.tables.create("log_groups", "merged_groups" if self.by_sums else None)
        self.tables.create("compared", compacted=bool(self.request.compacted))
        return Counts(*self.tables.row("counts"))

    def _add_ledgers(self) -> None:
        """Read the ledgers, and find what is uncertain in them alone."""
        self.read_ledgers()
        select_rows(self.tables, self.request, self.request.spans)
        self.tables.create("rows_in_doubt")
        self.tables.create("doubled")

    def _suspects(self, unequal: int) -> tuple[int, int]:
        """Select the records of suspects; return the ledger's repeated entries, and the offsets that were read again."""
        tables, compacted = self.tables, bool(self.request.compacted)
        tables.put_waiting(self.request.waiting or ())
        tables.create("ledger_entries", texts={"always": str(_ALWAYS)})
        tables.create("ledger")
        tables.create("differing")
        arithmetic = self.by_sums and not compacted
        tables.create("missing", arithmetic=arithmetic)
        again = self._single_records() if arithmetic else 0
        tables.create("read_groups", by_sums=self.by_sums, compacted=compacted)
        again += self._second_pass(unequal) if self.by_sums else 0
        tables.create("seen", by_sums=self.by_sums)
        tables.create("ledger_entries", "entries_in_question")
        return 0 if compacted else tables.row("repeats")[0], again

    def _single_records(self) -> int:
        """Fetch the single records that arithmetic names; return the number of offsets read.

        For a few records the Python client is faster than Spark's planning of a read. With too many offsets to read,
        none is read, and their groups are read whole.
        """
        self.tables.create("surplus")
        wanted = self.tables.arrow("surplus_places")
        if self.look_up is not None and wanted.num_rows <= MAX_LOOKUPS:
            self.tables.add_records("add_single_records", [looked_up(wanted, self.look_up)])
            return int(wanted.num_rows)
        ranges = suspects.ranges_to_read(wanted, self.request.spans)
        if covered(ranges) > self.size * _MAX_POINT_SHARE:
            return 0
        self.tables.add_records(
            "add_single_records", self.topic.ids_of(ranges, self.tables.arrow("surplus_groups"))
        )
        return covered(ranges)

    def _second_pass(self, unequal: int) -> int:
        """Read the groups whose records decide, and return the number of offsets read."""
        step = max(1, self.size // _MAX_INTERVALS) if unequal > _MANY_GROUPS else 1
        ranges = suspects.ranges_to_read(self.tables.arrow("intervals", step=step), self.request.spans)
        if ranges:
            with self.reading(covered(ranges), True):
                self.tables.add_records(
                    "add_records", self.topic.ids_of(ranges, self.tables.arrow("groups_to_read"))
                )
        return covered(ranges)

    def _decide(self, after: Mapping[int, OffsetSpan]) -> int:
        """Collect the findings; return the number of messages acknowledged above the log's end."""
        self.tables.put_spans(after)
        self.tables.create("ledger")
        _findings(self.tables, self.request, after)
        return int(self.tables.row("beyond")[0])


def select_rows(tables: AuditTables, request: ComparisonRequest, spans: Mapping[int, OffsetSpan]) -> None:
    """Select the ledger's rows of this topic, with the span of their partition and their zones."""
    tables.put_spans(spans)
    tables.create(
        "topic_rows", texts={"fresh": request.fresh, "old": request.old}, topic=request.topic, cluster=request.cluster
    )  # fmt: skip


def looked_up(wanted: pyarrow.Table, look_up: LookUp) -> pyarrow.Table:
    """Return the records at the first offsets of some intervals."""
    import pyarrow as pa

    places = list(zip(wanted["partition"].to_pylist(), wanted["off_min"].to_pylist(), strict=True))
    ids = pa.array(look_up(places), pa.binary())
    return pa.table({"partition": wanted["partition"], "offset": wanted["off_min"], "id": ids})


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
