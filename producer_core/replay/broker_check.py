"""Check a replay against the brokers: records too large, missing topics, keys with a newer record."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import orjson
from confluent_kafka import KafkaError

from producer_core._internal.plural import plural
from producer_core._internal.utc_time import utc_minute
from producer_core.kafka import newer_keys
from producer_core.kafka.clients import reader
from producer_core.kafka.newer_keys import KeyIndex, KeyScan, scan_topic
from producer_core.kafka.topic_config import TimeLimit, TopicConfig, TopicConfigQuery
from producer_core.replay.open_records import ListedRecord, OpenRecords

Flag = Literal["too_large", "newer_key", "no_topic"]
Which = Literal["all", "compacted", "none"]

_ENVELOPE = 61 + 9 + 4 + 31 + 36
"""Bytes of a record besides its key and value: batch header, record header, and the producer's two own headers. Headers
set by the application are not counted."""


@dataclass(frozen=True, slots=True)
class TopicCheck:
    """One topic: `partitions` is None if the topic does not exist, 0 if the count is unknown.

    `newer_keys` counts the dead letters whose key has a newer record among the `looked_at` records that were read.
    `complete` says that all relevant records were read, or that no scan was requested. `lost_partitions` counts the
    dead letters that request a partition that the topic does not have. `scanned` says whether keys were looked up. `retention_ms`
    is the topic's retention.ms; -1 keeps records without limit, None means that it was not read.
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
    scanned: bool = True
    retention_ms: int | None = None

    @property
    def compacted(self) -> bool:
        """Whether a replayed old value permanently replaces a newer one on this topic."""
        return "compact" in (self.cleanup_policy or "")

    @property
    def may_be_compacted(self) -> bool:
        """Whether the topic is compacted or its cleanup policy is unknown."""
        return self.compacted or self.cleanup_policy is None


@dataclass(frozen=True, slots=True)
class BrokerCheck:
    """The result by topic, and its time (seconds since 1970). `stopped`: the check ended before the last record.

    `delivery` is the guarantee of the runner that made the check (None: unknown), `why` tells why it is not exactly once.
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
        """Read the output of `to_json`; unknown fields of later versions are ignored."""
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
    dead_letters: OpenRecords | Iterable[ListedRecord],
    *,
    timeout: float = 20.0,
    max_records: int = 1_000_000,
    stopping: Callable[[], bool] = lambda: False,
    newer: Which = "all",
    sends_at_most: int | None = None,
    clock: Callable[[], float] = time.time,
) -> tuple[BrokerCheck, dict[str, Flag]]:
    """Check the topics of the dead letters and return the result with the most serious flag of each message id.

    The check queries and reads for about `timeout` seconds (iterating over `dead_letters` not included) and reads at most
    `max_records` records. `settings` are client settings in librdkafka's names; only connection and security are used.
    `newer` selects the topics whose keys are looked up. `sends_at_most` is the largest message that the sending client
    accepts. Broker errors do not raise: the texts say what could not be checked.
    """
    complaints: list[KafkaError] = []
    with reader(settings, {"isolation.level": "read_uncommitted"}, on_error=complaints.append) as handle:
        config_query = TopicConfigQuery(settings, handle, timeout / 2, stopping, complaints)
        topics = _TopicChecks(config_query, newer, sends_at_most)
        stopped = topics.add_all(dead_letters, stopping)
        limit = TimeLimit(timeout - config_query.spent, stopping)
        topics.scan(
            lambda topic, share, most: _scan(settings, handle, topic, share, most), limit, max_records
        )
    results = tuple(topic.result() for topic in topics.by_name.values())
    return BrokerCheck(results, clock(), stopped), topics.flags


def _scan(settings: Mapping[str, Any], handle: Any, topic: _Topic, limit: TimeLimit, most: int) -> KeyScan:
    assert topic.facts.partitions
    return scan_topic(
        settings, handle, topic.name, topic.facts.partitions, topic.keys, limit=limit, max_records=most
    )


class _TopicChecks:
    """The topics of a check in progress, in the order of the dead letters."""

    def __init__(self, config_query: TopicConfigQuery, newer: Which, sends_at_most: int | None) -> None:
        self.by_name: dict[str, _Topic] = {}
        self.flags: dict[str, Flag] = {}
        self._config_query = config_query
        self._newer = newer
        self._sends_at_most = sends_at_most
        self._keys = 0

    def add_all(
        self, dead_letters: OpenRecords | Iterable[ListedRecord], stopping: Callable[[], bool]
    ) -> bool:
        """Add the dead letters; return whether it stopped before the last one."""
        if not isinstance(dead_letters, OpenRecords):
            return self._add_each(dead_letters, stopping)
        for name in dead_letters.topics():
            if stopping():
                return True
            if not self._topic(name).add_totals(dead_letters) and self._add_each(
                dead_letters.of(name), stopping
            ):
                return True
        return False

    def _add_each(self, dead_letters: Iterable[ListedRecord], stopping: Callable[[], bool]) -> bool:
        for place, dead_letter in enumerate(dead_letters):
            if place % 1_000 == 0 and stopping():
                return True
            self._add(dead_letter)
        return False

    def _topic(self, name: str) -> _Topic:
        topic = self.by_name.get(name)
        if topic is None:
            facts = self._config_query.facts(name)
            scan_keys = self._newer == "all" or (self._newer == "compacted" and facts.may_be_compacted)
            topic = self.by_name[name] = _Topic(name, facts, scan_keys, self._sends_at_most)
        return topic

    def _add(self, dead_letter: ListedRecord) -> None:
        topic = self._topic(dead_letter.topic)
        if (flag := topic.add(dead_letter)) is not None:
            self.flags[dead_letter.message_id] = flag
        elif topic.scan_keys and topic.facts.partitions and dead_letter.key is not None:
            self._add_key(topic, dead_letter.message_id, dead_letter.key, dead_letter.accepted_at)

    def _add_key(self, topic: _Topic, message_id: str, key: bytes, accepted_at: float) -> None:
        if self._keys < newer_keys.MOST_KEYS:
            topic.keys.add(message_id, key, accepted_at)
            self._keys += 1
        else:
            topic.unscanned += 1

    def scan(
        self, scan_one: Callable[[_Topic, TimeLimit, int], KeyScan], limit: TimeLimit, most: int
    ) -> None:
        """Scan compacted topics first, where newer keys matter most; each gets an equal share of the remaining time."""
        to_scan = [topic for topic in self.by_name.values() if len(topic.keys)]
        to_scan.sort(key=lambda topic: not topic.facts.compacted)
        for place, topic in enumerate(to_scan):
            remaining = len(to_scan) - place
            share = TimeLimit(limit.left() / remaining, lambda: not limit.left())
            topic.scan = scan_one(topic, share, most // remaining)
            most -= topic.scan.looked_at
            ids = dict.fromkeys(topic.keys.newer())
            topic.newer = len(ids)
            self.flags |= dict.fromkeys(ids, "newer_key")


@dataclass
class _Topic:
    """The check of one topic so far."""

    name: str
    facts: TopicConfig
    scan_keys: bool
    sends_at_most: int | None
    keys: KeyIndex = field(default_factory=KeyIndex)
    scan: KeyScan | None = None
    records: int = 0
    bytes: int = 0
    too_large: int = 0
    largest: int = 0
    lost: int = 0
    newer: int = 0
    unscanned: int = 0

    def add_totals(self, open_records: OpenRecords) -> bool:
        """Add the topic's records by their totals; return False if the check needs each record, and add none then."""
        if self.facts.partitions is None or (self.scan_keys and self.facts.partitions):
            return False
        found = open_records.totals(
            self.name,
            partitions=self.facts.partitions or None,
            max_size=None if self.limit is None else self.limit - _ENVELOPE,
        )
        if found.too_large:
            return False
        self.records, self.bytes, self.lost = found.records, found.bytes, found.lost
        return True

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
        """The smaller of the topic's and the sending client's size limits."""
        known = [one for one in (self.facts.max_message_bytes, self.sends_at_most) if one is not None]
        return min(known, default=None)

    def result(self) -> TopicCheck:
        return TopicCheck(
            topic=self.name,
            records=self.records,
            bytes=self.bytes,
            partitions=self.facts.partitions,
            max_message_bytes=self.facts.max_message_bytes,
            cleanup_policy=self.facts.cleanup_policy,
            too_large=self.too_large,
            newer_keys=self.newer,
            looked_at=self.scan.looked_at if self.scan else 0,
            complete=self.facts.partitions != 0
            and not self.unscanned
            and (not self.scan or self.scan.complete),
            text=" ".join(self._sentences()),
            lost_partitions=self.lost,
            scanned=self.scan is not None,
            retention_ms=self.facts.retention_ms,
        )

    def _sentences(self) -> list[str]:
        if self.facts.partitions is None:
            return [f"The topic {self.name} does not exist."]
        if not self.facts.partitions:
            return [f"The topic {self.name} could not be checked: {self.facts.trouble}."]
        return [*self._sizes(), *self._partitions(), *self._newer(), *self._coverage()] or [
            f"No problem found on {self.name}."
        ]

    def _sizes(self) -> list[str]:
        sentences = []
        if self.too_large:
            limited_by = self.name if self.limit == self.facts.max_message_bytes else "the sending client"
            verb = "is" if self.too_large == 1 else "are"
            sentences.append(
                f"{self.too_large:,} of {self.records:,} {verb} larger than the {self.limit:,} bytes that {limited_by} allows "
                f"(the largest has {self.largest:,}, before compression)."
            )
        if self.facts.unread:
            sentences.append(
                f"The topic's settings cannot be read, so its size limit and cleanup policy are unknown: {self.facts.unread}."
            )
        return sentences

    def _partitions(self) -> list[str]:
        if not self.lost:
            return []
        verb = "requests" if self.lost == 1 else "request"
        return [
            f"{self.lost:,} {verb} a partition that the topic does not have (it has {self.facts.partitions:,})."
        ]

    def _newer(self) -> list[str]:
        if not self.newer:
            return []
        verb = "has" if self.newer == 1 else "have"
        return [f"{self.newer:,} of {self.records:,} {verb} a newer record with the same key."]

    def _coverage(self) -> list[str]:
        if self.scan is None:
            return []
        sentences = [self._scanned(self.scan)]
        if self.scan.gone:
            sentences.append("Retention removed records from that time, so their keys are unknown.")
        if self.unscanned:
            keys = plural(self.unscanned, "more key was", "more keys were")
            sentences.append(f"{keys} not looked up: the limit is {newer_keys.MOST_KEYS:,} keys.")
        return sentences

    def _scanned(self, scan: KeyScan) -> str:
        """Return how many of the records that may have a newer key were read."""
        were, since = "was" if scan.looked_at == 1 else "were", utc_minute(self.keys.oldest)
        if scan.complete:
            written = "The only record" if scan.looked_at == 1 else f"All {scan.looked_at:,} records"
            return f"{written} written since {since} {were} scanned."
        estimate = f" of about {scan.there:,}" if scan.there else ""
        records = "record" if scan.looked_at == 1 and not estimate else "records"
        return (
            f"Only {scan.looked_at:,}{estimate} {records} written since {since} {were} scanned for keys with newer records: "
            f"{scan.trouble or 'the end of the topic was not reached'}."
        )
