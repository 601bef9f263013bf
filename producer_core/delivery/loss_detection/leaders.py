"""Track the leader of each partition from the client's statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from producer_core.delivery.loss_detection.ack_checkpoints import PartitionId
from producer_core.delivery.loss_detection.leader_change import LeaderChange


class Leaders:
    """Keep the last known leader of at most `limit` partitions. Not thread-safe; the owner holds a lock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[PartitionId, tuple[int, int]] = {}

    def statistics(self, topics: Mapping[str, Any]) -> Iterator[tuple[PartitionId, LeaderChange]]:
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
