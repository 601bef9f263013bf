"""The gaps: offsets between our acknowledged records that no acknowledgement named.

A record that was written twice is acknowledged at its later place, so its first copy lies in a gap. A topic that has one
writer has no other gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from producer_core.metrics.ack_batch import Acknowledgements

_KEPT = 3
"""Ticks that a gap is kept for: it is noted after the epoch rose, and the rise is known a tick later at most."""
_STRIDE = 4
"""Records from which on a run may have been found by leaps (`Acknowledgements.runs`)."""

_END = 2**63 - 1

TopicPartition = tuple[str, int]


class OffsetGap(NamedTuple):
    """Offsets from `start` up to, not including, `end`; without a `start` all before our first record there.
    `behind` is the id of the record at `end`. A tail is open: it begins behind our last record and ends with the log."""

    where: TopicPartition
    start: int | None
    end: int
    behind: bytes
    tick: int

    @property
    def is_tail(self) -> bool:
        return self.end == _END


@dataclass(frozen=True)
class PartitionGaps:
    """The gaps of one partition, in their order. `own` counts the records that were acknowledged behind the first gap: no
    more can have a copy in one. `unlisted` counts offsets in gaps for which there was no room."""

    topic: str
    partition: int
    gaps: tuple[OffsetGap, ...]
    own: int
    unlisted: int = 0

    @property
    def where(self) -> TopicPartition:
        return self.topic, self.partition

    def may_hold(self, offset: int, message_id: bytes, failed: Mapping[bytes, bytes]) -> bool:
        """Return whether the record at this offset can be a copy.

        Before our first acknowledgement of a partition are also the records that earlier processes wrote under our
        session, under lower numbers. Ours begin with the one acknowledged first, or with the lowest whose attempt `failed`
        (by the first 16 bytes of its id): a look may have found it on the topic.
        """
        first = self.gaps[0]
        if first.start is not None or offset >= first.end:
            return True
        session = message_id[:16]
        lowest = failed.get(session, first.behind)
        return session == first.behind[:16] and message_id >= min(lowest, first.behind)


class OffsetGaps:
    """Notes gaps while acknowledgements come; costs a comparison for each run of offsets. Not locked.

    `known` hears the id of a record whose own place may be inside a gap.
    """

    def __init__(self, known: Callable[[bytes], None], *, most: int = 10_000) -> None:
        self._known = known
        self._most = most
        self._highest: dict[TopicPartition, int] = {}
        self._gaps: deque[OffsetGap] = deque()
        self._unlisted: dict[TopicPartition, int] = {}
        self._tick = 0
        self.sessions: set[bytes] = set()
        """The first 16 bytes of the ids that were acknowledged behind gaps."""

    def note(self, batch: Acknowledgements) -> None:
        for first, last in batch.runs():
            if last - first < _STRIDE or _is_one_partition(batch, first, last):
                self._run(batch, first, last)
            else:
                for at in range(first, last + 1):
                    self._run(batch, at, at)

    def tick(self, kept: Callable[[str], bool]) -> None:
        """A second has passed: old gaps are forgotten, but for those of the topics that are `kept`."""
        self._tick += 1
        if self._gaps and self._gaps[0].tick < self._tick - _KEPT:
            oldest = self._tick - _KEPT
            self._gaps = deque(gap for gap in self._gaps if gap.tick >= oldest or kept(gap.where[0]))
            places = {gap.where for gap in self._gaps}
            self._unlisted = {where: count for where, count in self._unlisted.items() if where in places}

    def topics(self) -> set[str]:
        return {gap.where[0] for gap in self._gaps}

    def take(self, topic: str, *, tails: bool = False) -> list[PartitionGaps]:
        """Return the gaps of a topic, by partition, and forget them; with `tails` also what follows our last records."""
        if tails:
            for where, highest in self._highest.items():
                if where[0] == topic:
                    self._gaps.append(OffsetGap(where, highest + 1, _END, b"", self._tick))
        found: dict[TopicPartition, list[OffsetGap]] = {}
        for gap in self._gaps:
            if gap.where[0] == topic:
                found.setdefault(gap.where, []).append(gap)
        self._gaps = deque(gap for gap in self._gaps if gap.where[0] != topic)
        return [self._of(where, gaps) for where, gaps in found.items()]

    def _of(self, where: TopicPartition, gaps: list[OffsetGap]) -> PartitionGaps:
        unlisted = self._unlisted.pop(where, 0)
        closed = [gap for gap in gaps if not gap.is_tail]
        inside = sum(gap.end - gap.start for gap in closed[1:] if gap.start is not None) + unlisted
        own = max(0, self._highest[where] + 1 - closed[0].end - inside) if closed else 0
        return PartitionGaps(*where, tuple(gaps), own, unlisted)

    def _run(self, batch: Acknowledgements, first: int, last: int) -> None:
        """Consecutive offsets of one partition."""
        lowest, highest = batch.offsets[first], batch.offsets[last]
        if lowest is None or highest is None:  # the broker had it already and did not say where
            self._known(batch.ids[first])
            return
        where = batch.topics[first], batch.partitions[first]
        before = self._highest.get(where)
        if before is None or lowest != before + 1:
            if before is not None and lowest <= before:  # it came late: its place was noted as a gap
                for at in range(first, last + 1):
                    self._known(batch.ids[at])
                highest = max(highest, before)
            elif before is not None or lowest > 0:
                start = None if before is None else before + 1
                self._add(OffsetGap(where, start, lowest, batch.ids[first], self._tick))
                self.sessions.add(batch.ids[first][:16])
        self._highest[where] = highest

    def _add(self, gap: OffsetGap) -> None:
        if len(self._gaps) < self._most:
            self._gaps.append(gap)
        elif gap.start is not None:
            self._unlisted[gap.where] = self._unlisted.get(gap.where, 0) + gap.end - gap.start


def _is_one_partition(batch: Acknowledgements, first: int, last: int) -> bool:
    """Whether no record of another partition stands within a run. One that does hides a gap of just its size: a batch
    of another partition between two equal batches, the second of which was written twice."""
    count = last + 1 - first
    return (
        batch.partitions[first : last + 1].count(batch.partitions[first]) == count
        and batch.topics[first : last + 1].count(batch.topics[first]) == count
    )
