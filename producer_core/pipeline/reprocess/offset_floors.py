"""The floors of an operation in one driver: at or below them nothing lies that was sent and is not settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaException

from producer_core.delivery.exactly_once.read_back import ReadBack
from producer_core.delivery.exactly_once.transactional_client import ClientStopped
from producer_core.replay.claims import Floors

ENDS = 5.0
"""Seconds between two questions for the ends of the topics; meanwhile floors rise with what we sent ourselves."""

Place = tuple[str, int | None, int | None]
"""Topic, partition and offset, where they are known."""


class OffsetFloors:
    """Used by one thread. Floors that are lower than they could be cost a longer look, and nothing else."""

    def __init__(self, floors: Floors, read_back: Callable[[], ReadBack]) -> None:
        self._floors = _copy(floors)
        self._read_back = read_back
        self._asked = 0.0

    @property
    def now(self) -> Floors:
        """A copy."""
        return _copy(self._floors)

    def are(self, floors: Floors) -> None:
        """As somebody who read the topics to their ends says."""
        self._floors = _copy(floors)
        self._asked = time.monotonic()

    def settled(self, places: Iterable[Place]) -> None:
        """To be called when everything of ours is settled, these places last: nothing of it lies above the last of them,
        nor above the ends as they are now. Best effort: what is known already must not be lost."""
        last: dict[tuple[str, int], int] = {}
        for topic, partition, offset in places:
            if partition is not None and offset is not None:
                last[topic, partition] = max(last.get((topic, partition), -1), offset)
        for (topic, partition), offset in last.items():  # below the floor: the topic was made again
            self._floors.setdefault(topic, {})[partition] = offset
        if time.monotonic() - self._asked >= ENDS:
            self._ask()

    def _ask(self) -> None:
        wheres = {(topic, number): None for topic, parts in self._floors.items() for number in parts}
        try:
            seen = self._read_back()(wheres, lambda _: False)
        except (ClientStopped, KafkaException):
            return
        self._asked = time.monotonic()
        for (topic, number), end in seen.ends.items():
            self._floors[topic][number] = end - 1


def _copy(floors: Floors) -> dict[str, dict[int, int]]:
    return {topic: dict(parts) for topic, parts in floors.items()}
