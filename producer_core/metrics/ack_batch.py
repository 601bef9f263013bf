"""Store a batch of acknowledgements as columns, so that hooks can count whole columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, overload

from producer_core.events import Acknowledged

_from_row: Any = partial(tuple.__new__, Acknowledged)  # for speed: Acknowledged(*row) without a Python call
_STEP = 256
"""Acknowledgements that `runs` skips at once inside a run."""


class TopicSums(NamedTuple):
    """The acknowledgements of one topic: their latencies, the size of their values, and how many had several attempts."""

    latencies: Sequence[float]
    bytes: int
    retried: int


class Acknowledgements(Sequence[Acknowledged]):
    """Holds acknowledgements as columns, and creates an item when it is accessed. Hooks must not change the columns.

    A message costs one entry in each of eight lists, instead of a tuple that the garbage collector visits until it is
    counted.
    """

    __slots__ = ("_runs", "attempts", "ids", "latencies", "offsets", "partitions", "seqs", "sizes", "topics")

    def __init__(
        self,
        topics: Sequence[str],
        partitions: Sequence[int],
        offsets: Sequence[int | None],
        latencies: Sequence[float],
        sizes: Sequence[int],
        attempts: Sequence[int],
        seqs: Sequence[int],
        ids: Sequence[bytes],
    ) -> None:
        self.topics = topics
        self.partitions = partitions
        self.offsets = offsets
        self.latencies = latencies
        self.sizes = sizes
        self.attempts = attempts
        self.seqs = seqs
        self.ids = ids
        self._runs: list[tuple[int, int]] | None = None

    @classmethod
    def of(cls, batch: Sequence[Acknowledged]) -> Acknowledgements:
        """Return a batch as columns."""
        if type(batch) is Acknowledgements:  # isinstance takes an abstract class a call of its own
            return batch
        return cls(*zip(*batch, strict=True)) if batch else cls(*((),) * 8)

    def sums_by_topic(self) -> dict[str, TopicSums]:
        """Sum the batch by topic. With a thousand topics, each may have only a few messages of a batch."""
        topic, count = self.topics[0], len(self.topics)
        if self.topics.count(topic) == count:
            return {topic: TopicSums(self.latencies, sum(self.sizes), count - self.attempts.count(1))}
        latencies: dict[str, list[float]] = {}
        sizes: dict[str, int] = {}
        retried: dict[str, int] = {}
        for topic, latency, size, attempts in zip(
            self.topics, self.latencies, self.sizes, self.attempts, strict=True
        ):
            if topic in sizes:
                latencies[topic].append(latency)
                sizes[topic] += size
            else:
                latencies[topic], sizes[topic] = [latency], size
            if attempts > 1:
                retried[topic] = retried.get(topic, 0) + 1
        return {
            topic: TopicSums(latencies[topic], size, retried.get(topic, 0)) for topic, size in sizes.items()
        }

    def runs(self) -> list[tuple[int, int]]:
        """Return the first and last index of each run of consecutive offsets in one partition.

        An acknowledgement without an offset is a run of its own. The reports of a produce request follow each other.
        Therefore, if the offset rose by as much as the index, the entries in between are not compared: a thousand messages
        cost a dozen comparisons. If a record of another producer fits such a gap by chance, the reader keeps an older
        offset, which is correct as well.
        """
        if self._runs is None:
            self._runs = list(self._find_runs())
        return self._runs

    def _find_runs(self) -> Iterator[tuple[int, int]]:
        topics, partitions, offsets = self.topics, self.partitions, self.offsets
        start, count = 0, len(self)
        while start < count:
            topic, partition, offset = topics[start], partitions[start], offsets[start]
            end, step = start, 1
            while step and offset is not None:
                index = end + step
                if (
                    index < count
                    and offsets[index] == offset + index - start
                    and partitions[index] == partition
                    and topics[index] == topic
                ):
                    end, step = index, _STEP if index == start + 1 else step
                else:
                    step //= 4
            yield start, end
            start = end + 1

    def __len__(self) -> int:
        return len(self.seqs)

    def __iter__(self) -> Iterator[Acknowledged]:
        return map(_from_row, self._rows())

    @overload
    def __getitem__(self, index: int) -> Acknowledged: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Acknowledged]: ...
    def __getitem__(self, index: int | slice) -> Acknowledged | Sequence[Acknowledged]:
        if isinstance(index, slice):
            return Acknowledgements(*(column[index] for column in self._columns()))
        return Acknowledged(*(column[index] for column in self._columns()))

    def __repr__(self) -> str:
        return f"Acknowledgements({list(self)!r})"

    def _columns(self) -> tuple[Sequence[Any], ...]:
        return (
            self.topics, self.partitions, self.offsets, self.latencies, self.sizes, self.attempts, self.seqs, self.ids,
        )  # fmt: skip

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self._columns(), strict=True)
