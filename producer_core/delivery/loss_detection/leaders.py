"""The leader of each partition, as the client's statistics show it, and what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from producer_core.delivery.loss_detection.ack_checkpoints import Key
from producer_core.delivery.loss_detection.leader_change import LeaderChange


class Leaders:
    """The last known leader of at most `limit` partitions. Not locked: its owner is."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[Key, tuple[int, int]] = {}

    def statistics(self, topics: Mapping[str, Any]) -> Iterator[tuple[Key, LeaderChange]]:
        """The partitions whose leader or leader epoch changed; one without a leader stays as it was until it has one."""
        known = self._known
        for topic, shown in topics.items():
            for partition in shown.get("partitions", {}).values():
                broker = partition.get("leader", -1)
                if broker < 0:
                    continue
                key, now = (topic, partition["partition"]), (broker, partition.get("leader_epoch", -1))
                before = known.get(key)
                if before == now or key[1] < 0:
                    continue
                if before is not None or len(known) < self._limit:
                    known[key] = now
                if before is not None:
                    yield key, LeaderChange(*before, *now)
