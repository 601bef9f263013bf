"""Weighted choices from one random source, fast enough for thousands of records per second."""

from __future__ import annotations

import uuid
from bisect import bisect
from collections.abc import Iterable, Mapping
from itertools import accumulate
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


class WeightedChoice(Generic[T]):
    """Draws with fixed weights, which need not sum to 1."""

    def __init__(self, options: Mapping[T, float] | Iterable[tuple[T, float]]) -> None:
        pairs: list[tuple[T, float]] = list(options.items() if isinstance(options, Mapping) else options)
        self.options = [option for option, _ in pairs]
        self._sums = list(accumulate(weight for _, weight in pairs))

    def draw(self, rng: Random) -> T:
        place = bisect(self._sums, rng.random() * self._sums[-1])
        return self.options[min(place, len(self.options) - 1)]


def source(seed: int | str | None, name: str) -> Random:
    """Return a random source for one purpose: always the same with a seed, a different one each time without."""
    return Random() if seed is None else Random(f"{seed}/{name}")


def identifier(rng: Random) -> str:
    """Return a UUID (version 4) from this source, so that a seed gives the same ids again."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def words(text: str) -> list[str]:
    """Return a list of words from one text."""
    return text.split()
