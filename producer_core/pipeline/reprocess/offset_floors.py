"""Keep an operation's floors: at or below these offsets there is no record that was sent and is not settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaException

from producer_core.delivery.exactly_once.read_back import ReadBack
from producer_core.delivery.exactly_once.transactional_client import ClientStopped
from producer_core.replay.claims import Floors

REFRESH_INTERVAL = 5.0
"""Seconds between two requests for the ends of the topics; in between, floors rise with this driver's own records."""

Place = tuple[str, int | None, int | None]
"""Topic, partition and offset, as far as they are known."""


class OffsetFloors:
    """Raise the floors; used by one thread. A floor that is too low only makes a read-back longer."""

    def __init__(self, floors: Floors, read_back: Callable[[], ReadBack]) -> None:
        self._floors = _copy(floors)
        self._read_back = read_back
        self._refreshed_at = 0.0

    @property
    def now(self) -> Floors:
        """Return a copy of the floors."""
        return _copy(self._floors)

    def reset(self, floors: Floors) -> None:
        """Set the floors after a read of the topics to their ends."""
        self._floors = _copy(floors)
        self._refreshed_at = time.monotonic()

    def settled(self, places: Iterable[Place]) -> None:
        """Raise the floors after all records of this driver are settled, `places` last.

        No unsettled record is above the last of these places, nor above the topics' current ends. Errors from the
        brokers are ignored, because the outcomes known so far must not be lost.
        """
        last: dict[tuple[str, int], int] = {}
        for topic, partition, offset in places:
            if partition is not None and offset is not None:
                last[topic, partition] = max(last.get((topic, partition), -1), offset)
        for (topic, partition), offset in last.items():  # an offset below the floor: the topic was re-created
            self._floors.setdefault(topic, {})[partition] = offset
        if time.monotonic() - self._refreshed_at >= REFRESH_INTERVAL:
            self._refresh()

    def _refresh(self) -> None:
        starts = {(topic, number): None for topic, parts in self._floors.items() for number in parts}
        try:
            seen = self._read_back()(starts, lambda _: False)
        except (ClientStopped, KafkaException):
            return
        self._refreshed_at = time.monotonic()
        for (topic, number), end in seen.ends.items():
            self._floors[topic][number] = end - 1


def _copy(floors: Floors) -> dict[str, dict[int, int]]:
    return {topic: dict(parts) for topic, parts in floors.items()}
