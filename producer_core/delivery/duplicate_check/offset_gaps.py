"""Record gaps: ranges of offsets between acknowledged records that no acknowledgement reported.

A record that was written twice is acknowledged at its later offset, so its first copy is in a gap. A topic with a single
writer has no other gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from producer_core.metrics.ack_batch import Acknowledgements

_KEPT_TICKS = 3
"""Ticks for which a gap is kept: it is recorded after the epoch rose, and the rise is detected a tick later at most."""
_STRIDE = 4
"""The length at and above which `Acknowledgements.runs` may have skipped records of a run."""

_END = 2**63 - 1

TopicPartition = tuple[str, int]


class OffsetGap(NamedTuple):
    """The offsets from `start` to `end`, exclusive; `start` is None for the offsets before the first acknowledged record.

    `behind` is the id of the record at `end`. A tail is open: it starts after the last acknowledged record, or, in a
    partition without any, at a record that a probe found, whose id is then `behind`.
    """

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
    """The gaps of one partition in ascending order.

    `own` counts the records that were acknowledged after the first gap; the gaps hold no more copies than that. `unlisted`
    counts the offsets of gaps for which there was no room.
    """

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

        The offsets before the first acknowledged record, and after one that a probe found, also contain records of earlier
        processes with the same session and lower sequences. Records of this process start with the one acknowledged first,
        or with the lowest id whose attempt `failed` (by the first 16 bytes of the id), because a probe may have found that
        one on the topic.
        """
        first = self.gaps[0]
        session = message_id[:16]
        if first.is_tail and first.behind:
            return session in failed and message_id >= failed[session]
        if first.start is not None or offset >= first.end:
            return True
        lowest = failed.get(session, first.behind)
        return session == first.behind[:16] and message_id >= min(lowest, first.behind)


class OffsetGaps:
    """Records the gaps in a stream of acknowledgements, at the cost of a comparison for each run of offsets. Not thread-safe.

    `known` is called with the id of each record whose acknowledged offset may be inside a gap.
    """

    def __init__(self, known: Callable[[bytes], None], *, most: int = 10_000) -> None:
        self._known = known
        self._max_gaps = most
        self._highest: dict[TopicPartition, int] = {}
        # The lowest record that a probe found. The prober's thread writes it.
        self._found: dict[TopicPartition, tuple[int, bytes]] = {}
        self._gaps: deque[OffsetGap] = deque()
        self._unlisted: dict[TopicPartition, int] = {}
        self._tick = 0
        self.sessions: set[bytes] = set()
        """The first 16 bytes of the ids that were acknowledged after gaps."""

    def note(self, batch: Acknowledgements) -> None:
        """Record the gaps in a batch of acknowledgements."""
        for first, last in batch.runs():
            if last - first < _STRIDE or _is_one_partition(batch, first, last):
                self._note_run(batch, first, last)
            else:
                for index in range(first, last + 1):
                    self._note_run(batch, index, index)

    def note_found(self, where: TopicPartition, offset: int, message_id: bytes) -> None:
        """Record a message that a probe found. Its copies follow it, even if its partition never acknowledges a record."""
        found = (offset, message_id)
        self._found[where] = min(found, self._found.get(where, found))
        self.sessions.add(message_id[:16])

    def tick(self, kept: Callable[[str], bool]) -> None:
        """Drop old gaps, except those of the topics that are `kept`. Called once a second."""
        self._tick += 1
        if self._gaps and self._gaps[0].tick < self._tick - _KEPT_TICKS:
            oldest = self._tick - _KEPT_TICKS
            self._gaps = deque(gap for gap in self._gaps if gap.tick >= oldest or kept(gap.where[0]))
            partitions = {gap.where for gap in self._gaps}
            self._unlisted = {where: count for where, count in self._unlisted.items() if where in partitions}

    def topics(self) -> set[str]:
        return {gap.where[0] for gap in self._gaps}

    def take(self, topic: str) -> list[PartitionGaps]:
        """Remove and return the gaps of a topic by partition."""
        taken = [gap for gap in self._gaps if gap.where[0] == topic]
        self._gaps = deque(gap for gap in self._gaps if gap.where[0] != topic)
        return self._by_partition(taken)

    def tails(self, topic: str) -> list[PartitionGaps]:
        """Return the offsets after the last acknowledged record of each partition of a topic."""
        tails = [
            OffsetGap(where, highest + 1, _END, b"", self._tick) for where, highest in self._highest.items()
        ]
        tails += [
            OffsetGap(where, offset, _END, message_id, self._tick)
            for where, (offset, message_id) in list(self._found.items())
            if where not in self._highest
        ]
        return self._by_partition(tail for tail in tails if tail.where[0] == topic)

    def _by_partition(self, gaps: Iterable[OffsetGap]) -> list[PartitionGaps]:
        found: dict[TopicPartition, list[OffsetGap]] = {}
        for gap in gaps:
            found.setdefault(gap.where, []).append(gap)
        return [self._partition_gaps(where, each) for where, each in found.items()]

    def _partition_gaps(self, where: TopicPartition, gaps: list[OffsetGap]) -> PartitionGaps:
        unlisted = self._unlisted.pop(where, 0)
        closed = [gap for gap in gaps if not gap.is_tail]
        inside = sum(gap.end - gap.start for gap in closed[1:] if gap.start is not None) + unlisted
        own = max(0, self._highest[where] + 1 - closed[0].end - inside) if closed else 0
        return PartitionGaps(*where, tuple(gaps), own, unlisted)

    def _note_run(self, batch: Acknowledgements, first: int, last: int) -> None:
        """Record consecutive offsets of one partition."""
        lowest, highest = batch.offsets[first], batch.offsets[last]
        if (
            lowest is None or highest is None
        ):  # the broker had the record already and did not return its offset
            self._known(batch.ids[first])
            return
        where = batch.topics[first], batch.partitions[first]
        before = self._highest.get(where)
        if before is None or lowest != before + 1:
            if before is not None and lowest <= before:  # late: these offsets were recorded as a gap
                for index in range(first, last + 1):
                    self._known(batch.ids[index])
                highest = max(highest, before)
            elif before is not None or lowest > 0:
                start = None if before is None else before + 1
                self._add(OffsetGap(where, start, lowest, batch.ids[first], self._tick))
                self.sessions.add(batch.ids[first][:16])
        self._highest[where] = highest

    def _add(self, gap: OffsetGap) -> None:
        if len(self._gaps) < self._max_gaps:
            self._gaps.append(gap)
        elif gap.start is not None:
            self._unlisted[gap.where] = self._unlisted.get(gap.where, 0) + gap.end - gap.start


def _is_one_partition(batch: Acknowledgements, first: int, last: int) -> bool:
    """Return whether all records of a run belong to its partition.

    Records of another partition inside a run hide a gap of the same size: a batch of another partition between two equal
    batches, the second of which was written twice.
    """
    count = last + 1 - first
    return (
        batch.partitions[first : last + 1].count(batch.partitions[first]) == count
        and batch.topics[first : last + 1].count(batch.topics[first]) == count
    )
