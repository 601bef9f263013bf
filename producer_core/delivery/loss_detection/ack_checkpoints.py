"""The memory of what each partition acknowledged last."""

from __future__ import annotations

from dataclasses import dataclass

from producer_core.delivery.loss_detection.evidence import Checkpoint

Key = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class _Earlier:
    """Marks of one partition that newer ones replaced; see `CheckpointTrail`."""

    window: int
    last: Checkpoint
    before_pause: Checkpoint
    pause: float
    pause_window: int


class CheckpointTrail:
    """Up to two earlier marks of each partition: acknowledged before its leader changed, whenever that is seen.

    A window is the time between two statistics. The trail keeps the last mark of an earlier window, and the mark
    before the longest pause within this window and the previous one: a change of the leader makes such a pause.
    Not locked: its owner is.
    """

    def __init__(self) -> None:
        self._window = 0
        self._earlier: dict[Key, _Earlier] = {}

    def next_window(self) -> None:
        self._window += 1

    def replaced(self, key: Key, mark: Checkpoint, now: float) -> None:
        """A newer mark, of now, took this one's place."""
        pause, known = now - mark.at, self._earlier.get(key)
        if known is None:
            self._earlier[key] = _Earlier(self._window, mark, mark, pause, self._window)
            return
        if known.window != self._window:
            known.window, known.last = self._window, mark
        if pause > known.pause or known.pause_window < self._window - 1:
            known.before_pause, known.pause, known.pause_window = mark, pause, self._window

    def of(self, key: Key) -> tuple[Checkpoint, ...]:
        known = self._earlier.get(key)
        return () if known is None else (known.last, known.before_pause)

    def drop(self, key: Key) -> None:
        self._earlier.pop(key, None)


class PartitionCheckpoints:
    """The highest acknowledged record of each partition, at most `limit` of them: the longest known go first.

    Not locked: its owner is.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._highest: dict[str, dict[int, Checkpoint]] = {}
        self._below: dict[Key, Checkpoint] = {}  # the newest one, where it is below the highest
        self._count = 0
        self._trail = CheckpointTrail()
        self.forgotten = False

    def get(self, topic: str, partition: int) -> Checkpoint | None:
        return self._highest.get(topic, {}).get(partition)

    def around_a_change(self, key: Key) -> list[Checkpoint]:
        """The marks to read back after the partition's leader changed, the highest first."""
        highest = self.get(*key)
        if highest is None:
            return []
        marks = {mark.offset: mark for mark in (*self._trail.of(key), highest)}
        return [marks[offset] for offset in sorted(marks, reverse=True)]

    def before_pause(self, key: Key) -> tuple[Checkpoint, ...]:
        """The mark before the longest pause of the last seconds, where there is one."""
        return self._trail.of(key)[1:]

    def next_window(self) -> None:
        """The client told its statistics, and with them the leaders."""
        self._trail.next_window()

    def of(self, topic: str) -> dict[int, Checkpoint]:
        return dict(self._highest.get(topic, {}))

    def topics(self) -> list[str]:
        return list(self._highest)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, topic: object) -> bool:
        return topic in self._highest

    def put(self, topic: str, partition: int, mark: Checkpoint) -> Checkpoint | None:
        """Remember an acknowledgement; returns the mark that stood before it."""
        partitions = self._highest.get(topic)
        if partitions is None:
            partitions = self._highest[topic] = {}
        known = partitions.get(partition)
        if known is None:
            self._count += 1
            partitions[partition] = mark
            if self._count > self._limit:
                self._forget_one(topic)
        elif mark.offset > known.offset:
            partitions[partition] = mark
            self._trail.replaced((topic, partition), known, mark.at)
        else:
            self._below[topic, partition] = mark
        return known

    def lost(self, topic: str, partition: int, mark: Checkpoint) -> None:
        """This mark does not hold any more: what was acknowledged below it since is what there is."""
        newest = self._below.pop((topic, partition), None)
        self._trail.drop((topic, partition))
        if self.get(topic, partition) == mark:
            self._drop(topic, partition)
            if newest is not None and newest.at > mark.at:
                self.put(topic, partition, newest)

    def drop(self, topic: str) -> None:
        """Everything of a topic."""
        for partition in list(self._highest.get(topic, ())):
            self._below.pop((topic, partition), None)
            self._drop(topic, partition)

    def _drop(self, topic: str, partition: int) -> None:
        self._trail.drop((topic, partition))
        if self._highest.get(topic, {}).pop(partition, None) is not None:
            self._count -= 1
            if not self._highest[topic]:
                del self._highest[topic]

    def _forget_one(self, newest: str) -> None:
        """The first partition of the first topic: it has been known for longest."""
        topic = next((name for name in self._highest if name != newest), newest)
        partition = next(iter(self._highest[topic]))
        self._below.pop((topic, partition), None)
        self._drop(topic, partition)
        self.forgotten = True
