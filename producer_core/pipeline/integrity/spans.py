"""Define which offsets of each partition an audit covers, and how offsets below and above them are classified."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from producer_core.errors import ConfigError

Isolation = Literal["read_committed", "read_uncommitted"]

NEVER = 1 << 62
"""An offset above the end of every log."""


@dataclass(frozen=True)
class PartitionBounds:
    """Hold a partition's first offset, last stable offset and end, as its leader reports them."""

    low: int
    stable: int
    high: int


@dataclass(frozen=True)
class OffsetSpan:
    """Hold the audited offsets of a partition, from `start` to before `end`, and the bounds around them.

    Messages acknowledged from `floor` to before `low` expired unaudited. From `stable` to before `high` an open
    transaction hides records; for read_uncommitted `stable` is `high`. At `after` or above there are no records,
    although the ledger was read before `after` was requested. Ledger rows about offsets from `judged` on that are
    `old` belong to an earlier audit: it judged them as lost, or they were written long before the start of this
    audit's time range.
    """

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
        """Return whether the span covers every record that the reader can see."""
        return self.start <= self.low and self.end >= self.stable


def spans(
    bounds: Mapping[int, PartitionBounds],
    *,
    isolation: Isolation = "read_committed",
    begin: Mapping[int, int] | None = None,
    until: Mapping[int, int | None] | None = None,
    floor_is_begin: bool = True,
) -> dict[int, OffsetSpan]:
    """Return the spans from `begin` (default: the first offset) to the end of what a reader of this isolation sees.

    A partition that is not in `begin` is audited from its first offset; `until` holds the first offset that is too
    late (None: there is none). With `floor_is_begin=False` all expired messages count, because the offset of an
    expired time is unknown.
    """
    check_partitions(begin or {}, bounds)
    found = {}
    for partition, bound in bounds.items():
        asked = (begin or {}).get(partition, 0)
        stable = bound.high if isolation == "read_uncommitted" else bound.stable
        latest = (until or {}).get(partition)
        end = stable if latest is None else min(stable, latest)
        start = min(max(asked, bound.low), max(end, bound.low))
        found[partition] = OffsetSpan(
            start,
            max(start, end),
            bound.low,
            stable,
            bound.high,
            bound.high,
            asked if floor_is_begin else 0,
        )
    return found


def check_partitions(wanted: Iterable[int], existing: Collection[int]) -> None:
    """Raise ConfigError when a wanted partition does not exist."""
    if unknown := sorted({*wanted} - {*existing}):
        raise ConfigError(
            f"The topic has no partition {unknown[0]}; "
            + (
                "it has only partition 0."
                if len(existing) == 1
                else f"its partitions are 0 to {len(existing) - 1}."
            ),
            fix="Specify only partitions that it has.",
        )


def refreshed(
    before: Mapping[int, OffsetSpan], bounds: Mapping[int, PartitionBounds]
) -> dict[int, OffsetSpan]:
    """Return the spans with bounds that were requested again: logs have grown, and retention may have removed records.

    A partition that was added in the meantime is not audited; everything acknowledged there is newer.
    """
    grown = {
        partition: replace(span, after=bounds[partition].high, low=max(span.low, bounds[partition].low))
        if partition in bounds
        else span
        for partition, span in before.items()
    }
    return grown | {partition: _NEW for partition in bounds if partition not in before}


_NEW = OffsetSpan(0, 0, 0, 0, 0, after=NEVER)


def lowered(before: Mapping[int, OffsetSpan], starts: Mapping[int, int]) -> dict[int, OffsetSpan]:
    """Return the spans with the earlier starts in `starts`: a ledger got late rows about those offsets."""
    return {
        partition: replace(span, start=max(span.low, min(span.start, starts.get(partition, span.start))))
        for partition, span in before.items()
    }


def above_low(before: Mapping[int, OffsetSpan]) -> dict[int, OffsetSpan]:
    """Return the spans cut at the low watermarks, before anything is read."""
    return {
        partition: replace(span, start=max(span.start, span.low), end=max(span.end, span.low))
        for partition, span in before.items()
    }


def judged_from(
    before: Mapping[int, OffsetSpan], ends: Mapping[int, int], others: int = NEVER
) -> dict[int, OffsetSpan]:
    """Return the spans with the offsets that an earlier audit has judged; `others` where none is known."""
    return {
        partition: replace(span, judged=ends.get(partition, others)) for partition, span in before.items()
    }


def cut_back(verified: Mapping[int, int], bounds: Mapping[int, PartitionBounds]) -> list[int]:
    """Return partitions whose log ends below the audited offset: the topic was re-created or truncated."""
    return sorted(
        partition
        for partition, mark in verified.items()
        if partition in bounds and bounds[partition].high < mark
    )
