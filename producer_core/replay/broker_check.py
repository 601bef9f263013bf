"""What a replay would meet on the broker: records too large, topics that are gone, keys with a newer record."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import orjson
from confluent_kafka import KafkaError

from producer_core.kafka import newer_keys
from producer_core.kafka.clients import reader
from producer_core.kafka.newer_keys import KeyIndex, KeyScan, scan_topic
from producer_core.kafka.topic_config import TimeLimit, TopicConfig, TopicConfigQuery

Flag = Literal["too_large", "newer_key", "no_topic"]
Which = Literal["all", "compacted", "none"]

_ENVELOPE = 61 + 9 + 4 + 31 + 36
"""Bytes of a record beside its key and value: the batch's head, its own with lengths of up to 4 bytes, our two headers.
The headers of others are not counted."""


class ListedRecord(NamedTuple):
    """A dead letter as far as a check must know it. `partition` is the one asked for, `value_size` None: a tombstone."""

    message_id: str
    topic: str
    partition: int | None
    key: bytes | None
    value_size: int | None
    accepted_at: float
    failed_at: float

    @property
    def size(self) -> int:
        return (self.value_size or 0) + len(self.key or b"")


@dataclass(frozen=True, slots=True)
class TopicCheck:
    """One topic: `partitions` None means that there is no such topic, 0 that nobody could say.

    `newer_keys` are dead letters whose key has a newer record, among the `looked_at` records that were read; `complete`
    says that every record that could be one was read, or that nothing was asked. `lost_partitions` are dead letters that
    ask for a partition that the topic has not.
    """

    topic: str
    records: int
    bytes: int
    partitions: int | None
    max_message_bytes: int | None
    cleanup_policy: str | None
    too_large: int
    newer_keys: int
    looked_at: int
    complete: bool
    text: str
    lost_partitions: int = 0

    @property
    def compacted(self) -> bool:
        """An old value that is replayed over a newer one replaces it here, for good."""
        return "compact" in (self.cleanup_policy or "")

    @property
    def may_be_compacted(self) -> bool:
        """Nobody can tell that it is not."""
        return self.compacted or self.cleanup_policy is None


@dataclass(frozen=True, slots=True)
class BrokerCheck:
    """What was found, by topic, and when (seconds since 1970). `stopped`: nobody looked at the last letter.

    `delivery` is the guarantee with which who looked would send (None: he cannot say), `why` the reason why it is not
    exactly once.
    """

    topics: tuple[TopicCheck, ...]
    at: float
    stopped: bool = False
    delivery: str | None = None
    why: str = ""

    @property
    def complete(self) -> bool:
        return not self.stopped and all(topic.complete for topic in self.topics)

    def to_json(self) -> str:
        return orjson.dumps(dataclasses.asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> BrokerCheck:
        """What `to_json` wrote; fields that a later version added are left out."""
        found = orjson.loads(text)
        known = {one.name for one in dataclasses.fields(TopicCheck)}
        topics = (
            {name: value for name, value in topic.items() if name in known} for topic in found["topics"]
        )
        return cls(
            tuple(TopicCheck(**topic) for topic in topics),
            found["at"],
            found.get("stopped", False),
            found.get("delivery"),
            found.get("why", ""),
        )


def check(
    settings: Mapping[str, Any],
    dead_letters: Iterable[ListedRecord],
    *,
    timeout: float = 20.0,
    max_records: int = 1_000_000,
    stopping: Callable[[], bool] = lambda: False,
    newer: Which = "all",
    sends_at_most: int | None = None,
    clock: Callable[[], float] = time.time,
) -> tuple[BrokerCheck, dict[str, Flag]]:
    """Looks ahead for these dead letters: asks and reads for about `timeout` seconds (going through `dead letters`, once, is not
    counted) and at most `max_records` records of their topics.

    `settings` are a client's in librdkafka's names; only connection and security are used. `newer` says for which
    topics keys are looked up. `sends_at_most` is the largest message that the sending client takes. The flags are by
    message id, the worst one each. Never raises for what a broker answers: what could not be learned is said in the
    texts.
    """
    complaints: list[KafkaError] = []
    with reader(settings, {"isolation.level": "read_uncommitted"}, on_error=complaints.append) as handle:
        asking = TopicConfigQuery(settings, handle, timeout / 2, stopping, complaints)
        found = _Found(asking, newer, sends_at_most)
        stopped = False
        for place, dead_letter in enumerate(dead_letters):
            if stopped := place % 1_000 == 0 and stopping():
                break
            found.add(dead_letter)
        bound = TimeLimit(timeout - asking.spent, stopping)
        found.look(lambda topic, share, most: _look(settings, handle, topic, share, most), bound, max_records)
    return BrokerCheck(tuple(topic.said() for topic in found.topics.values()), clock(), stopped), found.flags


def _look(settings: Mapping[str, Any], handle: Any, topic: _Topic, bound: TimeLimit, most: int) -> KeyScan:
    assert topic.facts.partitions
    return scan_topic(
        settings, handle, topic.name, topic.facts.partitions, topic.keys, limit=bound, max_records=most
    )


class _Found:
    """The topics of a check in progress, in the order in which the dead letters name them."""

    def __init__(self, asking: TopicConfigQuery, newer: Which, sends_at_most: int | None) -> None:
        self.topics: dict[str, _Topic] = {}
        self.flags: dict[str, Flag] = {}
        self._asking = asking
        self._newer = newer
        self._sends_at_most = sends_at_most
        self._keys = 0

    def add(self, dead_letter: ListedRecord) -> None:
        topic = self.topics.get(dead_letter.topic)
        if topic is None:
            facts = self._asking.facts(dead_letter.topic)
            wanted = self._newer == "all" or (self._newer == "compacted" and facts.may_be_compacted)
            topic = self.topics[dead_letter.topic] = _Topic(
                dead_letter.topic, facts, wanted, self._sends_at_most
            )
        if (flag := topic.add(dead_letter)) is not None:
            self.flags[dead_letter.message_id] = flag
        elif topic.wanted and topic.facts.partitions and dead_letter.key is not None:
            self._seek(topic, dead_letter.message_id, dead_letter.key, dead_letter.accepted_at)

    def _seek(self, topic: _Topic, message_id: str, key: bytes, accepted_at: float) -> None:
        if self._keys < newer_keys.MOST_KEYS:
            topic.keys.add(message_id, key, accepted_at)
            self._keys += 1
        else:
            topic.unsought += 1

    def look(self, one: Callable[[_Topic, TimeLimit, int], KeyScan], bound: TimeLimit, most: int) -> None:
        """Compacted topics first: there it matters most. Each has an even share of what is left."""
        asked = [topic for topic in self.topics.values() if len(topic.keys)]
        asked.sort(key=lambda topic: not topic.facts.compacted)
        for place, topic in enumerate(asked):
            others = len(asked) - place
            share = TimeLimit(bound.left() / others, lambda: not bound.left())
            topic.look = one(topic, share, most // others)
            most -= topic.look.looked_at
            ids = dict.fromkeys(topic.keys.newer())
            topic.newer = len(ids)
            self.flags |= dict.fromkeys(ids, "newer_key")


@dataclass
class _Topic:
    """What is known of one topic so far."""

    name: str
    facts: TopicConfig
    wanted: bool  # whether its keys are looked up
    sends_at_most: int | None
    keys: KeyIndex = field(default_factory=KeyIndex)
    look: KeyScan | None = None
    records: int = 0
    bytes: int = 0
    too_large: int = 0
    largest: int = 0
    lost: int = 0
    newer: int = 0
    unsought: int = 0

    def add(self, dead_letter: ListedRecord) -> Flag | None:
        size = dead_letter.size
        self.records += 1
        self.bytes += size
        if self.facts.partitions is None:
            return "no_topic"
        if self.facts.partitions and (dead_letter.partition or 0) >= self.facts.partitions:
            self.lost += 1
        if self.limit is not None and size + _ENVELOPE > self.limit:
            self.too_large += 1
            self.largest = max(self.largest, size)
            return "too_large"
        return None

    @cached_property
    def limit(self) -> int | None:
        """The smaller of what the topic and the sending client take."""
        known = [one for one in (self.facts.max_message_bytes, self.sends_at_most) if one is not None]
        return min(known, default=None)

    def said(self) -> TopicCheck:
        return TopicCheck(
            topic=self.name,
            records=self.records,
            bytes=self.bytes,
            partitions=self.facts.partitions,
            max_message_bytes=self.facts.max_message_bytes,
            cleanup_policy=self.facts.cleanup_policy,
            too_large=self.too_large,
            newer_keys=self.newer,
            looked_at=self.look.looked_at if self.look else 0,
            complete=self.facts.partitions != 0
            and not self.unsought
            and (not self.look or self.look.complete),
            text=" ".join(self._sentences()),
            lost_partitions=self.lost,
        )

    def _sentences(self) -> list[str]:
        if self.facts.partitions is None:
            return [f"There is no topic {self.name}."]
        if not self.facts.partitions:
            return [f"Nobody could look at {self.name}: {self.facts.trouble}."]
        return [*self._sizes(), *self._partitions(), *self._newer(), *self._how_far()] or [
            f"{self.name} takes them."
        ]

    def _sizes(self) -> list[str]:
        said = []
        if self.too_large:
            who = self.name if self.limit == self.facts.max_message_bytes else "the sending client"
            said.append(
                f"{self.too_large:,} of {self.records:,} are larger than the {self.limit:,} bytes that {who} takes "
                f"(the largest {self.largest:,}, before compression)."
            )
        if self.facts.unread:
            said.append(
                f"Its settings cannot be read, so nobody knows what size it takes or whether it is compacted: {self.facts.unread}."
            )
        return said

    def _partitions(self) -> list[str]:
        if not self.lost:
            return []
        return [
            f"{self.lost:,} ask for a partition that it does not have (it has {self.facts.partitions:,})."
        ]

    def _newer(self) -> list[str]:
        if not self.newer:
            return []
        what = "has a key" if self.newer == 1 else "have keys"
        return [f"{self.newer:,} of {self.records:,} {what} for which a newer record was written since."]

    def _how_far(self) -> list[str]:
        if self.look is None:
            return []
        since = _minute(self.keys.oldest)
        if self.look.complete:
            said = [f"Every record written since {since} was looked at ({self.look.looked_at:,})."]
        else:
            there = f" of about {self.look.there:,}" if self.look.there else ""
            said = [
                f"Only {self.look.looked_at:,}{there} records written since {since} were looked at for newer keys: "
                f"{self.look.trouble or 'its end was not reached'}."
            ]
        if self.look.gone:
            said.append("Records of that time are gone (retention), and nobody knows what keys they had.")
        if self.unsought:
            said.append(f"{self.unsought:,} more keys were not looked for: {newer_keys.MOST_KEYS:,} at once.")
        return said


def _minute(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
