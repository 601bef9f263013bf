"""A compact set of integers that are mostly consecutive."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise


class Ranges:
    """Keep disjoint half-open ranges in order. An add at the end takes constant time, elsewhere one bisection."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._count = 0
        self._changes = 0
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> int:
        """Add the numbers from `start` up to but not including `end`. Return how many are new.

        A signal handler of the same thread may add others in between: no call separates the changes from their check.
        """
        starts, ends = self._starts, self._ends
        while True:
            if starts and start == ends[-1]:  # the common case
                ends[-1] = end
                new = end - start
                self._count += new
                self._changes += 1
                return new
            changes = self._changes
            first, last = bisect_left(ends, start), bisect_right(starts, end)
            low, high = min((start, *starts[first:last])), max((end, *ends[first:last]))
            new = high - low - sum(ends[first:last]) + sum(starts[first:last])
            if changes == self._changes:
                starts[first:last], ends[first:last] = [low], [high]
                self._count += new
                self._changes += 1
                return new

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._ends[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __len__(self) -> int:
        """Return the count of numbers."""
        return self._count

    def overlap(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of `start` to `end` that the set contains."""
        index = max(0, bisect_right(self._starts, start) - 1)
        found = []
        for low, high in zip(self._starts[index:], self._ends[index:], strict=True):
            if low >= end:
                break
            if high > start:
                found.append((max(low, start), min(high, end)))
        return found

    @property
    def highest(self) -> int:
        """Return the highest number, or -1 when the set is empty."""
        return self._ends[-1] - 1 if self._ends else -1


def ranges_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ranges that cover these numbers, which may be in any order."""
    ordered = sorted(set(numbers))
    if not ordered:
        return []
    if ordered[-1] - ordered[0] == len(ordered) - 1:  # the usual case
        return [(ordered[0], ordered[-1] + 1)]
    gaps = [(low, high) for low, high in pairwise(ordered) if high - low > 1]
    starts = [ordered[0], *(high for _, high in gaps)]
    ends = [*(low + 1 for low, _ in gaps), ordered[-1] + 1]
    return list(zip(starts, ends, strict=True))
