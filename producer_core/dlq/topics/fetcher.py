"""Fetch the records of a dead-letter topic into a store, up to the end of the topic when the fetch starts."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition

from producer_core._internal.plural import plural
from producer_core.dlq import DeadLetters
from producer_core.dlq.lookup import fetch as rows_by_id
from producer_core.dlq.revisions import fetched_edits
from producer_core.dlq.topics.from_record import (
    QUARANTINE_AFTER,
    DeadLetterRecord,
    SourceTopic,
    dead_letter_of,
)
from producer_core.dlq.topics.origin import NAMES, Dialect
from producer_core.dlq.topics.read_headers import MAX_TIMESTAMP_MS, read
from producer_core.errors import BrokerUnreachable, ConfigError, StoreError
from producer_core.events import DeadLetter
from producer_core.kafka import clients
from producer_core.roles.role_check import check_operator
from producer_core.store.merge import insert

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicMetadata

    from producer_core.store import Store

SLICE = 1000
_SLICE_BYTES = 16 * 1024 * 1024
_OPEN_TRANSACTION_WAIT = 3.0  # seconds without records at the last stable offset
_REQUEST_TIMEOUT = 10.0
_EARLIEST, _LATEST = -2, -1  # special timestamps of the ListOffsets request
_NO_TOPIC_IDS = (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION)
_EVENT_COLUMNS = ("message_id", "happened_at", "what", "who", "origin", "text")
_STORED_COLUMNS = ("message_id", "state", "replayable")


class NotDeadLetters(ConfigError):
    """None of the topic's first records has dead-letter headers."""


Progress = Callable[[int, int], None]
"""Called with the number of records read and the total."""


@dataclass(frozen=True)
class FetchSummary:
    """The result of a fetch. `known` records were already in the store; `left` were not read."""

    topic: str
    looked_at: int
    new: int
    known: int
    not_replayable: int
    left: int
    by_dialect: Mapping[str, int]
    by_verdict: Mapping[str, int]
    text: str


def fetch(
    settings: Mapping[str, Any],
    topic: str,
    store: Store,
    *,
    who: str,
    origin: str,
    since: float | None = None,
    original_topic: str | None = None,
    again: bool = False,
    unmarked: bool = True,
    idle_timeout: float = 60.0,
    stopping: Callable[[], bool] = lambda: False,
    progress: Progress = lambda done, of: None,
    clock: Callable[[], float] = time.time,
) -> FetchSummary:
    """Store the records of a dead-letter topic as dead letters. The topic is not changed.

    `settings` are librdkafka client properties; only connection and security are used. The fetch continues where the
    last one of this topic ended; with `again` it starts at the beginning, with `since` at that time. Each slice is
    stored together with the next offset, and a record always gets the same message id (its own, or one derived from its
    offset), so a killed fetch can be repeated without duplicates. Dead letters that the store already has stay
    unchanged, unless one was not replayable and now is. Without `unmarked`, a topic whose first records have no
    dead-letter headers is rejected with NotDeadLetters before anything is stored, because it is probably an ordinary
    topic. A topic that was fetched before is not checked again.

    The fetch ends after `idle_timeout` seconds without a record, and the summary says how many are left. Raise
    BrokerUnreachable if no broker responds, ConfigError if the topic does not exist, NotPermitted if the approval policy
    does not let this person change dead letters.
    """
    with store.borrow(write=True):
        check_operator(store, who=who, origin=origin, now=clock())
    client_errors: list[KafkaError] = []
    uncommitted = {"isolation.level": "read_uncommitted"}
    with clients.reader(settings, uncommitted, name="fetch", on_error=client_errors.append) as handle:
        source_topic, partitions = _source_topic(settings, handle, topic, client_errors)
        job = _FetchJob(store, source_topic, who, origin, original_topic, clock)
        job.check_headers = not unmarked and not job.stored_offsets()
        job.audit(0, f"Started to fetch {topic}.", since)
        try:
            ranges = _ranges(handle, source_topic, partitions, job.stored_offsets(), since, again)
            job.read(settings, ranges, idle_timeout, stopping, progress)
        except KafkaException as error:
            job.problem = f"{error.args[0].name()}: {error.args[0].str()}"
        except BaseException as error:
            with contextlib.suppress(StoreError):
                failure = f"{job.summary().text} The fetch failed: {error or type(error).__name__}"
                job.audit(job.new, failure, since)
            raise
    summary = job.summary()
    job.audit(summary.new, summary.text, since)
    return summary


def check_topic(settings: Mapping[str, Any], topic: str) -> None:
    """Raise BrokerUnreachable if no broker responds, ConfigError if the topic does not exist or cannot be read."""
    client_errors: list[KafkaError] = []
    with clients.reader(settings, {}, name="fetch", on_error=client_errors.append) as handle:
        _described(settings, handle, topic, client_errors)


@dataclass
class _OffsetRange:
    """The offsets of a partition to read, from `start` up to but not including `end`. Earlier fetches have read all
    offsets before `stored_offset`; `is_contiguous` says that this fetch continues there without a gap."""

    partition: int
    start: int
    end: int
    stored_offset: int
    is_contiguous: bool
    next: int = 0

    @property
    def left(self) -> int:
        return max(0, self.end - max(self.start, self.next))


@dataclass
class _FetchJob:
    """One fetch: the records read and not yet stored, and the counts of the others."""

    store: Store
    source_topic: SourceTopic
    who: str
    origin: str
    original_topic: str | None
    clock: Callable[[], float]
    new: int = 0
    known: int = 0
    looked_at: int = 0
    not_replayable: int = 0
    by_dialect: Counter[Dialect | None] = field(default_factory=Counter)
    by_verdict: Counter[str] = field(default_factory=Counter)
    problem: str = ""
    ranges: dict[int, _OffsetRange] = field(default_factory=dict)
    pending: list[DeadLetterRecord] = field(default_factory=list)
    bytes: int = 0
    check_headers: bool = False

    @property
    def setting(self) -> str:
        """The store setting for the offsets reached. It has the topic id, so a new topic of the same name starts at 0."""
        topic = self.source_topic
        return f"fetched.{topic.cluster_id}.{topic.topic}.{topic.topic_id}"

    def stored_offsets(self) -> dict[int, int]:
        return {int(number): offset for number, offset in self.store.get_setting(self.setting, {}).items()}

    def read(
        self,
        settings: Mapping[str, Any],
        ranges: Sequence[_OffsetRange],
        idle_timeout: float,
        stopping: Callable[[], bool],
        progress: Progress,
    ) -> None:
        self.ranges = {one.partition: one for one in ranges}
        unread = {one.partition: one for one in ranges if one.left}
        total = sum(one.left for one in ranges)
        if unread:
            with clients.reader(settings, name="fetch") as consumer:
                consumer.assign(
                    [
                        TopicPartition(self.source_topic.topic, one.partition, one.start)
                        for one in unread.values()
                    ]
                )
                self._read(consumer, unread, idle_timeout, stopping, lambda: progress(self.looked_at, total))
        self._store_slice()

    def _read(
        self,
        consumer: Consumer,
        unread: dict[int, _OffsetRange],
        idle_timeout: float,
        stopping: Callable[[], bool],
        report: Callable[[], None],
    ) -> None:
        last_record, at_end = time.monotonic(), set[int]()
        while unread and not self.problem:
            if stopping():
                self.problem = "the fetch was stopped"
                return
            for message in consumer.consume(500, timeout=0.5):
                offsets, error = unread.get(message.partition()), message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    self._check_fatal(error)
                elif offsets is None:
                    continue
                elif error is not None:
                    # An open transaction ends the partition before its watermark, so only a later end completes it.
                    at_end.add(offsets.partition)
                    self._advance(offsets, message.offset(), unread)
                else:
                    last_record = time.monotonic()
                    self._add(message)
                    self._advance(offsets, message.offset() + 1, unread)
            if len(self.pending) >= SLICE or self.bytes >= _SLICE_BYTES:
                self._store_slice()
                report()
            idle = time.monotonic() - last_record
            if unread.keys() <= at_end and idle > _OPEN_TRANSACTION_WAIT:
                self.problem = self.problem or "an open transaction blocks the remaining records"
            elif idle > idle_timeout:
                self.problem = self.problem or f"no record arrived for {idle_timeout:.0f} s"

    def _advance(self, offsets: _OffsetRange, next_offset: int, unread: dict[int, _OffsetRange]) -> None:
        offsets.next = max(offsets.next, next_offset)
        if next_offset >= offsets.end:
            del unread[offsets.partition]

    def _add(self, message: Message) -> None:
        kind, at = message.timestamp()
        key, value = message.key(), message.value()
        headers = tuple((name, raw) for name, raw in message.headers() or ())
        valid = kind != 0 and 0 <= at <= MAX_TIMESTAMP_MS
        self.pending.append(
            DeadLetterRecord(
                message.partition(), message.offset(), key, value, headers, at if valid else None
            )
        )
        self.bytes += len(key or b"") + len(value or b"") + sum(len(raw or b"") for _, raw in headers)
        self.looked_at += 1

    def _check_fatal(self, error: KafkaError) -> None:
        """End the fetch if the topic is missing or not readable. The client retries after all other errors."""
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self.problem = f"no permission to read {self.source_topic.topic} (grant READ on the topic)"
        elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            self.problem = "the topic was deleted"

    def _store_slice(self) -> None:
        """Store the pending records and the offsets reached in one transaction."""
        if self.check_headers and self.pending:
            self._require_headers()
        now = self.clock()
        quarantine_after = self.store.get_setting("replay.quarantine_after", QUARANTINE_AFTER)
        dead_letters = [
            dead_letter_of(
                record,
                self.source_topic,
                now=now,
                original_topic=self.original_topic,
                quarantine_after=quarantine_after,
            )
            for record in self.pending
        ]
        with self.store.borrow(write=True) as connection:
            ids = [dead_letter.message_id for dead_letter in dead_letters]
            stored = rows_by_id(connection, "dead_letters", _STORED_COLUMNS, ids)
            added = [
                one if one.message_id not in stored else replace(one, failed_at=now)
                for one in _without_repeated_ids(dead_letters)
                if one.message_id not in stored or _is_now_replayable(one, stored[one.message_id])
            ]
            DeadLetters(self.store, clock=self.clock).add(added)
            fetched_edits.note(connection, added, now=now, who=self.who, origin=self.origin)
            # Only topic and offset: the rest of a source may quote headers, which a purge must remove.
            places = {one.message_id: (one.source or "").partition(" (")[0] for one in added}
            events = [
                (message_id, now, "fetched", self.who, self.origin, f"from {place}")
                for message_id, place in places.items()
            ]
            insert(connection, "letter_events", _EVENT_COLUMNS, events)
            self._store_offsets()
        self._count(added, len(dead_letters))
        self.pending, self.bytes = [], 0

    def _require_headers(self) -> None:
        self.check_headers = False
        if not any(read(record.headers).dialect for record in self.pending):
            checked = (
                "its only record has"
                if len(self.pending) == 1
                else f"its first {len(self.pending):,} records have"
            )
            raise NotDeadLetters(
                f"{self.source_topic.topic} does not look like a dead-letter topic: {checked} no dead-letter headers. "
                "A fetch would store each of its records as a dead letter.",
                fix="Check the topic name. To fetch the records anyway, use --yes.",
            )

    def _store_offsets(self) -> None:
        reached = {
            one.partition: max(one.stored_offset, one.next)
            for one in self.ranges.values()
            if one.is_contiguous
        }
        offsets = self.stored_offsets()
        if any(offsets.get(number, 0) < offset for number, offset in reached.items()):
            offsets |= {number: max(offset, offsets.get(number, 0)) for number, offset in reached.items()}
            self.store.set_setting(self.setting, {str(number): offset for number, offset in offsets.items()})

    def _count(self, added: Sequence[DeadLetter], read_now: int) -> None:
        self.new += len(added)
        self.known += read_now - len(added)
        self.not_replayable += sum(not one.replayable for one in added)
        self.by_verdict.update(one.verdict for one in added)
        self.by_dialect.update(read(record.headers).dialect for record in self.pending)

    def summary(self) -> FetchSummary:
        left = sum(one.left for one in self.ranges.values())
        return FetchSummary(
            self.source_topic.topic,
            self.looked_at,
            self.new,
            self.known,
            self.not_replayable,
            left,
            {name or "unknown": number for name, number in self.by_dialect.most_common()},
            dict(self.by_verdict.most_common()),
            " ".join(self._sentences(left)),
        )

    def _sentences(self, left: int) -> list[str]:
        kinds = ", ".join(
            f"{number:,} {NAMES[name] if name else 'unknown dialect'}"
            for name, number in self.by_dialect.most_common()
        )
        sentences = [
            f"Read {plural(self.looked_at, 'record')} from {self.source_topic.topic}{f' ({kinds})' if kinds else ''}: {self.new:,} new, "
            f"{self.known:,} known."
        ]
        if found := self.by_verdict.get("found"):
            sentences.append(
                f"{found:,} failed in a consumer: the {'original is' if found == 1 else 'originals are'} on the topic, "
                "and a replay writes a second copy."
            )
        if self.not_replayable:
            record = "that record" if self.not_replayable == 1 else "each record"
            sentences.append(f"{self.not_replayable:,} cannot be replayed; see the `source` of {record}.")
        if left or self.problem:
            sentences.append(
                f"Up to {left:,} left: {self.problem or 'not read'}. Run the same command to continue."
            )
        return sentences

    def audit(self, count: int, outcome: str, since: float | None) -> None:
        topic = self.source_topic
        selection = {"topic": topic.topic, "cluster_id": topic.cluster_id, "since": since}
        self.store.audit(
            who=self.who,
            origin=self.origin,
            action="fetch",
            selection=selection,
            count=count,
            outcome=outcome,
        )


def _without_repeated_ids(dead_letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    first: dict[str, DeadLetter] = {}
    for dead_letter in dead_letters:
        first.setdefault(dead_letter.message_id, dead_letter)
    return list(first.values())


def _is_now_replayable(dead_letter: DeadLetter, stored: Mapping[str, Any]) -> bool:
    return dead_letter.replayable and not stored["replayable"] and stored["state"] == "dead"


def _source_topic(
    settings: Mapping[str, Any], handle: Consumer, topic: str, client_errors: Sequence[KafkaError]
) -> tuple[SourceTopic, int]:
    """Return the topic with its ids, and the number of its partitions."""
    described = _described(settings, handle, topic, client_errors)
    cluster_id = clients.cluster_id(settings, topic, _REQUEST_TIMEOUT)
    if cluster_id is None:
        raise BrokerUnreachable("The brokers did not return a cluster id.")
    return SourceTopic(cluster_id, topic, _topic_id(settings, topic)), len(described.partitions)


def _described(
    settings: Mapping[str, Any], handle: Consumer, topic: str, client_errors: Sequence[KafkaError]
) -> TopicMetadata:
    try:
        described = handle.list_topics(topic, timeout=_REQUEST_TIMEOUT).topics[topic]
    except KafkaException as error:
        cause = client_errors[-1] if client_errors else error.args[0]
        raise BrokerUnreachable(
            f"No broker responded at {settings.get('bootstrap.servers')}: {cause.str()}.",
            fix="Check the address (-b) and the settings (--config). producer-core doctor shows details.",
        ) from error
    if described.error is not None:
        raise ConfigError(f"{topic} cannot be read: {described.error.str()}.", fix="Check the topic name.")
    return described


def _topic_id(settings: Mapping[str, Any], topic: str) -> str:
    """Return the topic id, or "" if the brokers are older than Kafka 2.8 and have none."""
    client = clients.admin(settings)  # a reference keeps the client alive until the response
    futures = client.describe_topics(TopicCollection([topic]), request_timeout=_REQUEST_TIMEOUT)
    try:
        topic_id = futures[topic].result(_REQUEST_TIMEOUT + 1).topic_id
    except TimeoutError as error:
        raise BrokerUnreachable(f"The request for the topic id of {topic} timed out.") from error
    except KafkaException as error:
        if (
            error.args[0].code() not in _NO_TOPIC_IDS
        ):  # without the topic id, derived message ids would differ
            raise BrokerUnreachable(f"The topic id of {topic} is unknown: {error.args[0].str()}.") from error
        return ""
    return clients.topic_id(topic_id)


def _ranges(
    handle: Consumer,
    source_topic: SourceTopic,
    partitions: int,
    stored_offsets: Mapping[int, int],
    since: float | None,
    again: bool,
) -> list[_OffsetRange]:
    topic = source_topic.topic
    lows = _offsets(handle, topic, partitions, _EARLIEST)
    ends = _offsets(handle, topic, partitions, _LATEST)
    firsts = {} if since is None else _offsets(handle, topic, partitions, max(0, int(since * 1000)))
    ranges = []
    for number in range(partitions):
        low, end = lows.get(number, 0), ends.get(number, 0)
        stored = stored_offsets.get(number, 0) if stored_offsets.get(number, 0) <= end else 0
        start = low if again else max(low, stored)
        if since is not None:
            first = firsts.get(number, -1)
            start = max(low, first) if first >= 0 else end
        ranges.append(_OffsetRange(number, start, end, stored, is_contiguous=start <= max(stored, low)))
    return ranges


def _offsets(handle: Consumer, topic: str, partitions: int, timestamp_ms: int) -> dict[int, int]:
    requests = [TopicPartition(topic, number, timestamp_ms) for number in range(partitions)]
    found = handle.offsets_for_times(requests, timeout=_REQUEST_TIMEOUT)
    for one in found:
        if one.error is not None:
            raise KafkaException(one.error)
    return {one.partition: one.offset for one in found}
