"""A batch of acknowledgements as columns, of which hooks that count read whole ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, overload

from producer_core.events import Acknowledged

_made: Any = partial(tuple.__new__, Acknowledged)  # as Acknowledged(*row), without a Python call


class Acknowledgements(Sequence[Acknowledged]):
    """What a hook gets: a sequence whose items are made when somebody asks for one; nobody may change the columns.

    A message costs an entry in eight lists, instead of a tuple that the garbage collector visits until it is counted.
    """

    __slots__ = ("attempts", "ids", "latencies", "offsets", "partitions", "seqs", "sizes", "topics")

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
