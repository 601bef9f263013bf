"""Checkpoints: the last acknowledged records of each partition."""

from __future__ import annotations

from dataclasses import dataclass

from producer_core.delivery.loss_detection.evidence import Checkpoint

PartitionId = tuple[str, int]
"""A partition as (topic, number)."""


@dataclass(slots=True)
class _EarlierCheckpoints:
    """Earlier checkpoints of one partition that newer ones replaced; see `CheckpointTrail`."""

    window: int
    last: Checkpoint
    before_pause: Checkpoint
    pause: float
    pause_window: int


class CheckpointTrail:
    """Keep up to two earlier checkpoints of each partition, acknowledged before a change of its leader is detected.

    A window is the time between two statistics events. The trail keeps the last checkpoint of an earlier window, and
    the one before the longest pause within this window and the previous one, because a leader change causes such a
    pause. Not thread-safe; the owner holds a lock.
    """

    def __init__(self) -> None:
        self._window = 0
        self._earlier: dict[PartitionId, _EarlierCheckpoints] = {}

    def next_window(self) -> None:
        self._window += 1

    def add(self, key: PartitionId, checkpoint: Checkpoint, now: float) -> None:
        """Add a checkpoint that a newer one replaces at the time `now`."""
        pause, earlier = now - checkpoint.at, self._earlier.get(key)
        if earlier is None:
            self._earlier[key] = _EarlierCheckpoints(
                self._window, checkpoint, checkpoint, pause, self._window
            )
            return
        if earlier.window != self._window:
            earlier.window, earlier.last = self._window, checkpoint
        if pause > earlier.pause or earlier.pause_window < self._window - 1:
            earlier.before_pause, earlier.pause, earlier.pause_window = checkpoint, pause, self._window

    def of(self, key: PartitionId) -> tuple[Checkpoint, ...]:
        earlier = self._earlier.get(key)
        return () if earlier is None else (earlier.last, earlier.before_pause)

    def drop(self, key: PartitionId) -> None:
        self._earlier.pop(key, None)


class PartitionCheckpoints:
    """Keep the highest acknowledged record of each partition. Above `limit` partitions, the oldest ones are evicted.

    Not thread-safe; the owner holds a lock.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._highest: dict[str, dict[int, Checkpoint]] = {}
        self._newest_below: dict[PartitionId, Checkpoint] = {}  # the newest one, when it is below the highest
        self._count = 0
        self._trail = CheckpointTrail()
        self.evicted = False

    def get(self, topic: str, partition: int) -> Checkpoint | None:
        return self._highest.get(topic, {}).get(partition)

    def after_leader_change(self, key: PartitionId) -> list[Checkpoint]:
        """Return the checkpoints to read back after a leader change, the highest first."""
        highest = self.get(*key)
        if highest is None:
            return []
        checkpoints = {checkpoint.offset: checkpoint for checkpoint in (*self._trail.of(key), highest)}
        return [checkpoints[offset] for offset in sorted(checkpoints, reverse=True)]

    def before_pause(self, key: PartitionId) -> tuple[Checkpoint, ...]:
        """Return the checkpoint before the longest pause of the last few seconds, if there is one."""
        return self._trail.of(key)[1:]

    def next_window(self) -> None:
        """Start a new window. Called when the client emits statistics, which include the leaders."""
        self._trail.next_window()

    def of(self, topic: str) -> dict[int, Checkpoint]:
        return dict(self._highest.get(topic, {}))

    def topics(self) -> list[str]:
        return list(self._highest)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, topic: object) -> bool:
        return topic in self._highest

    def put(self, topic: str, partition: int, checkpoint: Checkpoint) -> Checkpoint | None:
        """Add an acknowledged record. Return the previous checkpoint of the partition."""
        partitions = self._highest.get(topic)
        if partitions is None:
            partitions = self._highest[topic] = {}
        earlier = partitions.get(partition)
        if earlier is None:
            self._count += 1
            partitions[partition] = checkpoint
            if self._count > self._limit:
                self._evict_one(topic)
        elif checkpoint.offset > earlier.offset:
            partitions[partition] = checkpoint
            self._trail.add((topic, partition), earlier, checkpoint.at)
        else:
            self._newest_below[topic, partition] = checkpoint
        return earlier

    def mark_lost(self, topic: str, partition: int, checkpoint: Checkpoint) -> None:
        """Replace a checkpoint whose record is lost with the newest one acknowledged since then."""
        newest = self._newest_below.pop((topic, partition), None)
        self._trail.drop((topic, partition))
        if self.get(topic, partition) == checkpoint:
            self._drop(topic, partition)
            if newest is not None and newest.at > checkpoint.at:
                self.put(topic, partition, newest)

    def drop(self, topic: str) -> None:
        """Remove all checkpoints of a topic."""
        for partition in list(self._highest.get(topic, ())):
            self._newest_below.pop((topic, partition), None)
            self._drop(topic, partition)

    def _drop(self, topic: str, partition: int) -> None:
        self._trail.drop((topic, partition))
        if self._highest.get(topic, {}).pop(partition, None) is not None:
            self._count -= 1
            if not self._highest[topic]:
                del self._highest[topic]

    def _evict_one(self, newest: str) -> None:
        """Evict the first partition of the first topic: it has been in memory longest."""
        topic = next((name for name in self._highest if name != newest), newest)
        partition = next(iter(self._highest[topic]))
        self._newest_below.pop((topic, partition), None)
        self._drop(topic, partition)
        self.evicted = True
