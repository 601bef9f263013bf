"""The memory of what each partition acknowledged last."""

from __future__ import annotations

from producer_core.standing.evidence import Mark

Key = tuple[str, int]
"""Topic and partition."""


class Marks:
    """The highest acknowledged record of each partition, at most `limit` of them: the longest known go first.

    Not locked: its owner is.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._highest: dict[str, dict[int, Mark]] = {}
        self._below: dict[Key, Mark] = {}  # the newest one, where it is below the highest
        self._count = 0
        self.forgotten = False

    def get(self, topic: str, partition: int) -> Mark | None:
        return self._highest.get(topic, {}).get(partition)

    def of(self, topic: str) -> dict[int, Mark]:
        return dict(self._highest.get(topic, {}))

    def topics(self) -> list[str]:
        return list(self._highest)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, topic: object) -> bool:
        return topic in self._highest

    def put(self, topic: str, partition: int, mark: Mark) -> Mark | None:
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
        else:
            self._below[topic, partition] = mark
        return known

    def lost(self, topic: str, partition: int, mark: Mark) -> None:
        """This mark does not hold any more: what was acknowledged below it since is what there is."""
        newest = self._below.pop((topic, partition), None)
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
