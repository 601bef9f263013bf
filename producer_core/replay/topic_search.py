"""The search for the records of a replay on their topics, above the offsets at which it can have written."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaError

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.delivery.exactly_once.batch_reports import BatchReports
from producer_core.delivery.exactly_once.read_back import ReadBack, ReadBackResult
from producer_core.delivery.record_batch import RecordBatch
from producer_core.kafka.newer_keys import KeyIndex
from producer_core.kafka.partitioner import metadata_count
from producer_core.messages import id_text, parse_id
from producer_core.replay.claims import Floors
from producer_core.replay.probe_outcome import ProbeOutcome

_METADATA_TIMEOUT = 5.0
_DELETED_AFTER = 20.0
"""Seconds after which an unknown topic counts as deleted; a restarting broker may not know its topics yet."""


class TopicSearch:
    """The floors of one operation and the topics that no longer exist (`gone`). `wait` raises ClientStopped.

    On a topic that may be compacted, the search also returns the records with a newer record of their key. With `newer`
    "send" only replayed records count as newer.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        floors: Floors,
        *,
        newer: str | None,
        say: Callable[[str], None],
        wait: Callable[[float], None],
        connection_error: Callable[[KafkaError], None],
    ) -> None:
        self.floors = {topic: dict(partitions) for topic, partitions in floors.items()}
        self.gone: set[str] = set()
        self._newer = newer
        self._say, self._wait = say, wait
        self._count = metadata_count(settings)
        self._read_back = ReadBack(settings, wait, lambda _, text: say(text), connection_error)

    def begin(self, topics: Sequence[str]) -> None:
        """Use the end offsets of topics without floors as their floors."""
        new = [topic for topic in topics if topic not in self.floors]
        seen = self._read_back(
            {(topic, number): None for topic in new for number in self._numbers(topic)}, _none
        )
        for topic in new:  # a topic created later is read from its first record
            self.floors.setdefault(topic, {})
        for (topic, partition), end in seen.ends.items():
            self.floors[topic][partition] = end - 1

    def raise_to(self, topic: str, partition: int, offset: int) -> None:
        """Raise the floor of a partition to the offset of a committed record."""
        floors = self.floors.setdefault(topic, {})
        floors[partition] = max(floors.get(partition, -1), offset)

    def raise_to_reports(self, batch: RecordBatch, reports: BatchReports) -> None:
        """Raise the floors to the offset of the last record in each partition, which has the highest one."""
        topics = repeat(*batch.topics) if len(batch.topics) == 1 else batch.table["topic"].to_pylist()
        places = zip(topics, reports.partitions, strict=False)
        for (topic, partition), offset in dict(zip(places, reports.offsets, strict=True)).items():
            if offset is not None:
                self.raise_to(topic, partition, offset)

    def search(self, dead_letters: Sequence[ReplayRecord]) -> ProbeOutcome:
        """Look for the records above the floors of their topics; call it only after a fence."""
        topics = {dead_letter.topic for dead_letter in dead_letters}
        if not topics:
            return ProbeOutcome({})
        missing = {topic for topic in topics if topic in self.gone or self._is_gone(topic)}
        removed = {(topic, number) for topic in missing for number in self.floors.get(topic, {})}
        self.floors.update({topic: {} for topic in missing})
        self.gone |= missing
        offsets = {
            (topic, number): self.floors.get(topic, {}).get(number, -1)
            for topic in topics - missing
            for number in self._numbers(topic)
        }
        wanted = {parse_id(dead_letter.message_id) for dead_letter in dead_letters}
        keys = self._keys(dead_letters)
        seen = self._read_back(offsets, wanted.__contains__, keys)
        self._raise_to_ends(seen)
        newer = frozenset(one for some in keys.values() for one in some.newer())
        found = {
            id_text(id): (place.partition, place.offset)
            for places in seen.found.values()
            for id, place in places
        }
        return ProbeOutcome(found, frozenset({*removed, *seen.removed, *seen.gone}), newer)

    def _keys(self, dead_letters: Sequence[ReplayRecord]) -> dict[str, KeyIndex]:
        """Return the keys of the dead letters by topic, to compare them with the records read."""
        keys: dict[str, KeyIndex] = {}
        for dead_letter in dead_letters:
            if dead_letter.key is not None:
                of_topic = keys.setdefault(dead_letter.topic, KeyIndex(replays_only=self._newer == "send"))
                of_topic.add(
                    dead_letter.message_id,
                    dead_letter.key,
                    dead_letter.accepted_at,
                    partition=dead_letter.partition,
                )
        return keys

    def _raise_to_ends(self, seen: ReadBackResult) -> None:
        """Raise the floors to the end offsets read: after a fence no record of this operation is in flight."""
        for (topic, partition), end in seen.ends.items():
            self.floors.setdefault(topic, {})[partition] = end - 1

    def _is_gone(self, topic: str) -> bool:
        began = time.monotonic()
        while not self._numbers(topic):
            if time.monotonic() - began > _DELETED_AFTER:
                return True
            self._say(f"Waiting for the topic {topic}, which the brokers do not know.")
            self._wait(0.5)
        return False

    def _numbers(self, topic: str) -> range:
        """Return the topic's partitions; none if the topic does not exist."""
        while (count := self._count(topic, _METADATA_TIMEOUT)) is None:
            self._say(f"Waiting for the brokers: the partitions of {topic} are not known yet.")
            self._wait(0.2)
        return range(count)


def _none(_: bytes) -> bool:
    return False
