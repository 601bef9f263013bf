"""Spans: which offsets of each partition an audit is about, and what lies below and above them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from producer_core.errors import ConfigError

Isolation = Literal["read_committed", "read_uncommitted"]

NEVER = 1 << 62
"""An offset that no log reaches."""


@dataclass(frozen=True)
class PartitionBounds:
    """A partition as its leader describes it: the first offset, the last stable one, and the end of the log."""

    low: int
    stable: int
    high: int


@dataclass(frozen=True)
class OffsetSpan:
    """Audited is from `start` to before `end`. What was acknowledged from `floor` to before `low` expired unaudited;
    from `stable` to before `high` an open transaction hides it (nothing is hidden from a reader of what is uncommitted:
    there `stable` is `high`); at `after` or above there is nothing, although the ledger was read before `after` was
    asked for. What was told of offsets from `judged` on before is none of this audit's: an audit before it has judged it,
    as lost, or it was told long before the moment from which on this one is."""

    start: int
    end: int
    low: int
    stable: int
    high: int
    after: int
    floor: int = 0
    judged: int = NEVER

    @property
    def whole(self) -> bool:
        """Everything that this reader can see is in it."""
        return self.start <= self.low and self.end >= self.stable


def spans(
    edges: Mapping[int, PartitionBounds],
    *,
    isolation: Isolation = "read_committed",
    begin: Mapping[int, int] | None = None,
    until: Mapping[int, int | None] | None = None,
    floor_is_begin: bool = True,
) -> dict[int, OffsetSpan]:
    """The spans from `begin` (default: everything there is) to the end of what a reader of this isolation sees.

    A partition that `begin` leaves out is audited from its first offset; `until` gives the first offset that is too
    late (None: none is). With `floor_is_begin=False` whatever expired counts: nobody knows the offset of a moment
    that has expired.
    """
    check_partitions(begin or {}, edges)
    found = {}
    for partition, edge in edges.items():
        asked = (begin or {}).get(partition, 0)
        stable = edge.high if isolation == "read_uncommitted" else edge.stable
        latest = (until or {}).get(partition)
        end = stable if latest is None else min(stable, latest)
        start = min(max(asked, edge.low), max(end, edge.low))
        found[partition] = OffsetSpan(
            start,
            max(start, end),
            edge.low,
            stable,
            edge.high,
            edge.high,
            asked if floor_is_begin else 0,
        )
    return found


def check_partitions(asked: Iterable[int], there: Collection[int]) -> None:
    """ConfigError where one of them is not there."""
    if unknown := sorted({*asked} - {*there}):
        raise ConfigError(
            f"The topic has no partition {unknown[0]}; it has {len(there)}, from 0.",
            fix="Name only partitions that it has.",
        )


def seen_after(
    before: Mapping[int, OffsetSpan], edges: Mapping[int, PartitionBounds]
) -> dict[int, OffsetSpan]:
    """The same spans, once the ends were asked for again: logs have grown, and retention may have taken their starts.

    A partition that was added meanwhile is not audited, and whatever is acknowledged there is newer.
    """
    grown = {
        partition: replace(span, after=edges[partition].high, low=max(span.low, edges[partition].low))
        if partition in edges
        else span
        for partition, span in before.items()
    }
    return grown | {partition: _NEW for partition in edges if partition not in before}


_NEW = OffsetSpan(0, 0, 0, 0, 0, after=NEVER)


def lowered(before: Mapping[int, OffsetSpan], starts: Mapping[int, int]) -> dict[int, OffsetSpan]:
    """The same spans, begun earlier where `starts` says so: a ledger told late of what stands there."""
    return {
        partition: replace(span, start=max(span.low, min(span.start, starts.get(partition, span.start))))
        for partition, span in before.items()
    }


def left_of(before: Mapping[int, OffsetSpan]) -> dict[int, OffsetSpan]:
    """The same spans, begun where retention has left something: nothing is read yet."""
    return {
        partition: replace(span, start=max(span.start, span.low), end=max(span.end, span.low))
        for partition, span in before.items()
    }


def judged_from(
    before: Mapping[int, OffsetSpan], ends: Mapping[int, int], others: int = NEVER
) -> dict[int, OffsetSpan]:
    """The same spans, with what an audit before this one has judged; `others` where nothing is known."""
    return {
        partition: replace(span, judged=ends.get(partition, others)) for partition, span in before.items()
    }


def anew(verified: Mapping[int, int], edges: Mapping[int, PartitionBounds]) -> list[int]:
    """Partitions whose log ends below what was audited before: the topic was made anew, or its log was cut."""
    return sorted(
        partition
        for partition, mark in verified.items()
        if partition in edges and edges[partition].high < mark
    )


def zone(offset: str) -> str:
    """SQL: the zone of an acknowledged offset, beside the columns of its partition's span (null where the topic has none
    such) and `old`: whether it was told before what this audit is about.

    `unplaced`: nobody knows its offset; `judged`: told to an audit that judged it; `beyond`: above the log's end; `before`:
    audited before; `expired` unaudited; `gone`: expired below what was asked for; `inside` the range; `taken` from it by
    retention while it was read; `outside`: above what was asked for; `pending`: hidden by an open transaction; `newer`:
    written since.
    """
    return f"""case
        when {offset} < 0 then 'unplaced'
        when old and {offset} >= coalesce(span_judged, 0) and {offset} >= coalesce(span_start, 0) then 'judged'
        when span_start is null or ({offset} >= span_after and {offset} >= span_end) then 'beyond'
        when {offset} < span_start then case when {offset} >= span_low then 'before'
                                             when {offset} >= span_floor then 'expired' else 'gone' end
        when {offset} < span_end then case when {offset} < span_low then 'taken' else 'inside' end
        when {offset} < span_stable then 'outside'
        when {offset} < span_high then 'pending'
        else 'newer' end"""
