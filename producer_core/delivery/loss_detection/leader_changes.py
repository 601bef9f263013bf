"""Detect changes of partition leaders in the client's statistics. `investigation.py:leader_changed` reacts to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The leader and leader epoch of a partition before and after a change. An epoch of -1 is unknown."""

    broker_before: int
    epoch_before: int
    broker: int
    epoch: int

    def __str__(self) -> str:
        if self.broker_before == self.broker:
            text = f"Its leader, broker {self.broker}, was re-elected"
        else:
            text = f"Its leader changed from broker {self.broker_before} to broker {self.broker}"
        return text if self.epoch < 0 else f"{text} (leader epoch {self.epoch_before} to {self.epoch})"

    def since(self, earlier: LeaderChange) -> LeaderChange:
        """Return both changes as one."""
        return LeaderChange(earlier.broker_before, earlier.epoch_before, self.broker, self.epoch)


class Leaders:
    """Keep the last known leader of at most `limit` partitions. Not thread-safe; the owner holds a lock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[tuple[str, int], tuple[int, int]] = {}

    def statistics(self, topics: Mapping[str, Any]) -> Iterator[tuple[tuple[str, int], LeaderChange]]:
        """Yield partitions whose leader or leader epoch changed. Partitions without a leader are skipped until they have one."""
        known = self._known
        for topic, topic_statistics in topics.items():
            for partition in topic_statistics.get("partitions", {}).values():
                broker = partition.get("leader", -1)
                if broker < 0:
                    continue
                key, current = (topic, partition["partition"]), (broker, partition.get("leader_epoch", -1))
                previous = known.get(key)
                if previous == current or key[1] < 0:
                    continue
                if previous is not None or len(known) < self._limit:
                    known[key] = current
                if previous is not None:
                    yield key, LeaderChange(*previous, *current)
