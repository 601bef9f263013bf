"""A batch of acknowledgements as columns, of which hooks that count read whole ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, overload

from producer_core.events import Acknowledged

_made: Any = partial(tuple.__new__, Acknowledged)  # as Acknowledged(*row), without a Python call
_STEP = 256


class Acknowledgements(Sequence[Acknowledged]):
    """What a hook gets: a sequence whose items are made when somebody asks for one; nobody may change the columns.

    A message costs an entry in eight lists, instead of a tuple that the garbage collector visits until it is counted.
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
        """The columns of a batch, whatever it is kept in."""
        if isinstance(batch, cls):
            return batch
        return cls(*zip(*batch, strict=True)) if batch else cls(*((),) * 8)

    def by_topic(self) -> list[tuple[str, Acknowledgements]]:
        """The same, one for each topic."""
        if self.topics.count(self.topics[0]) == len(self.topics):
            return [(self.topics[0], self)]
        rows: dict[str, list[Any]] = {}
        for row in self._rows():
            rows.setdefault(row[0], []).append(row)
        return [(topic, Acknowledgements(*zip(*found, strict=True))) for topic, found in rows.items()]

    def runs(self) -> list[tuple[int, int]]:
        """Where each stretch of one partition begins and ends; a report without an offset stands alone.

        A produce request's reports follow each other, so that where the offset grew by as much as the place in the
        list, what lies between need not be looked at: a thousand messages cost a dozen comparisons. Should
        somebody else's records fill such a gap by chance, an older mark is kept, which is true as well.
        """
        if self._runs is None:
            self._runs = list(self._found_runs())
        return self._runs

    def _found_runs(self) -> Iterator[tuple[int, int]]:
        topics, partitions, offsets = self.topics, self.partitions, self.offsets
        start, count = 0, len(self)
        while start < count:
            topic, partition, offset = topics[start], partitions[start], offsets[start]
            end, step = start, 1
            while step and offset is not None:
                there = end + step
                if (
                    there < count
                    and offsets[there] == offset + there - start
                    and partitions[there] == partition
                    and topics[there] == topic
                ):
                    end, step = there, _STEP if there == start + 1 else step
                else:
                    step //= 4
            yield start, end
            start = end + 1

    def __len__(self) -> int:
        return len(self.seqs)

    def __iter__(self) -> Iterator[Acknowledged]:
        return map(_made, self._rows())

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
