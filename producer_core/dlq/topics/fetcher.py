"""The fetching of a dead-letter topic into a store: from its start to its end as it is when it begins."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition

from producer_core.dlq import DeadLetters
from producer_core.dlq.lookup import fetch as rows_by_id
from producer_core.dlq.topics.from_record import (
    QUARANTINE_AFTER,
    DeadLetterRecord,
    RecordPlace,
    dead_letter_of,
)
from producer_core.dlq.topics.origin import NAMES, Dialect
from producer_core.dlq.topics.read_headers import END_OF_TIME, read
from producer_core.errors import BrokerUnreachable, ConfigError, StoreError
from producer_core.events import DeadLetter
from producer_core.kafka import clients
from producer_core.store.merge import insert

if TYPE_CHECKING:
    from producer_core.store import Store

SLICE = 1000
_SLICE_BYTES = 16 * 1024 * 1024
_HELD_BACK = 3.0  # seconds at an end that an open transaction makes
_ANSWER = 10.0  # seconds for one question
_EARLIEST, _LATEST = -2, -1  # in the place of a time, as the protocol has it
_NO_IDS = (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION)
_EVENT = ("message_id", "happened_at", "what", "who", "origin", "text")
_HERE = ("message_id", "state", "replayable")


class NotDeadLetters(ConfigError):
    """No record of the topic carries the headers of a dead letter."""


Progress = Callable[[int, int], None]
"""Hears how many records of how many were read."""


@dataclass(frozen=True)
class FetchSummary:
    """What became of a topic's records. `known` were here already and stay as they are; `left` could not be read."""

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
    patience: float = 60.0,
    stopping: Callable[[], bool] = lambda: False,
    progress: Progress = lambda done, of: None,
    clock: Callable[[], float] = time.time,
) -> FetchSummary:
    """Bring the records of a dead-letter topic in as dead letters. The topic is only read.

    `settings` are a client's in librdkafka's names; only connection and security are used. It goes on where the last
    fetch of this topic ended; with `again` it begins at the start, with `since` at that time. Each slice is taken in
    together with the place where the next begins, and a record's message id is the same each time (its own, or one
    made of its place), so a fetch that was killed is repeated, and nothing comes in twice. What this store knows
    stays as it is, but for a dead letter that could not be replayed, and now can. Without `unmarked` a topic of which none of
    the first records has headers of any dialect is refused, NotDeadLetters, before anything is taken in: it is an
    ordinary topic, most likely. One that was fetched before was let through then.

    It ends when nothing was heard for `patience` seconds, and says what is left. BrokerUnreachable when nobody
    answers at all, ConfigError when there is no such topic.
    """
    complaints: list[KafkaError] = []
    uncommitted = {"isolation.level": "read_uncommitted"}
    with clients.reader(settings, uncommitted, name="fetch", on_error=complaints.append) as handle:
        place, partitions = _place(settings, handle, topic, complaints)
        job = _FetchJob(store, place, who, origin, original_topic, clock)
        job.doubts = not unmarked and not job.marks()
        job.audit(0, f"Began to fetch {topic}.", since)
        try:
            spans = _spans(handle, place, partitions, job.marks(), since, again)
            job.read(settings, spans, patience, stopping, progress)
        except KafkaException as error:
            job.trouble = f"{error.args[0].name()}: {error.args[0].str()}"
        except BaseException as error:
            with contextlib.suppress(StoreError):
                job.audit(job.new, f"{job.done().text} Stopped there: {error or type(error).__name__}", since)
            raise
    done = job.done()
    job.audit(done.new, done.text, since)
    return done


@dataclass
class _OffsetSpan:
    """The part of a partition to read: from `start` up to, not including, `end`. `mark`: up to where earlier fetches
    have read without a gap; `moves` says that this one goes on there."""

    partition: int
    start: int
    end: int
    mark: int
    moves: bool
    next: int = 0

    @property
    def left(self) -> int:
        return max(0, self.end - max(self.start, self.next))


@dataclass
class _FetchJob:
    """One fetch: what it has read and not yet written, and what came of the rest."""

    store: Store
    place: RecordPlace
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
    trouble: str = ""
    spans: dict[int, _OffsetSpan] = field(default_factory=dict)
    waiting: list[DeadLetterRecord] = field(default_factory=list)
    bytes: int = 0
    doubts: bool = False  # whether these are dead letters at all

    @property
    def setting(self) -> str:
        """Where the places reached are kept: of this topic, not of a later one with its name."""
        return f"fetched.{self.place.cluster_id}.{self.place.topic}.{self.place.topic_id}"

    def marks(self) -> dict[int, int]:
        return {int(number): offset for number, offset in self.store.get_setting(self.setting, {}).items()}

    def read(
        self,
        settings: Mapping[str, Any],
        spans: Sequence[_OffsetSpan],
        patience: float,
        stopping: Callable[[], bool],
        progress: Progress,
    ) -> None:
        self.spans = {span.partition: span for span in spans}
        open_ones = {span.partition: span for span in spans if span.left}
        of = sum(span.left for span in spans)
        if open_ones:
            with clients.reader(settings, name="fetch") as consumer:
                consumer.assign(
                    [TopicPartition(self.place.topic, one.partition, one.start) for one in open_ones.values()]
                )
                self._read(consumer, open_ones, patience, stopping, lambda: progress(self.looked_at, of))
        self._take_in()

    def _read(
        self,
        consumer: Consumer,
        waiting: dict[int, _OffsetSpan],
        patience: float,
        stopping: Callable[[], bool],
        said: Callable[[], None],
    ) -> None:
        heard, ends = time.monotonic(), set[int]()
        while waiting and not self.trouble:
            if stopping():
                self.trouble = "it was stopped"
                return
            for message in consumer.consume(500, timeout=0.5):
                span, error = waiting.get(message.partition()), message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    self._refused(error)
                elif span is None:
                    continue
                elif error is not None:
                    # Only an end at or past the watermark counts: an open transaction makes an earlier one.
                    ends.add(span.partition)
                    self._reached(span, message.offset(), waiting)
                else:
                    heard = time.monotonic()
                    self._record(message)
                    self._reached(span, message.offset() + 1, waiting)
            if len(self.waiting) >= SLICE or self.bytes >= _SLICE_BYTES:
                self._take_in()
                said()
            silent = time.monotonic() - heard
            if waiting.keys() <= ends and silent > _HELD_BACK:
                self.trouble = self.trouble or "a transaction that has not ended holds the rest back"
            elif silent > patience:
                self.trouble = self.trouble or f"nothing was heard for {patience:.0f} s"

    def _reached(self, span: _OffsetSpan, offset: int, waiting: dict[int, _OffsetSpan]) -> None:
        span.next = max(span.next, offset)
        if offset >= span.end:
            del waiting[span.partition]

    def _record(self, message: Message) -> None:
        kind, at = message.timestamp()
        key, value = message.key(), message.value()
        headers = tuple((name, raw) for name, raw in message.headers() or ())
        known = kind != 0 and 0 <= at <= END_OF_TIME
        self.waiting.append(
            DeadLetterRecord(
                message.partition(), message.offset(), key, value, headers, at if known else None
            )
        )
        self.bytes += len(key or b"") + len(value or b"") + sum(len(raw or b"") for _, raw in headers)
        self.looked_at += 1

    def _refused(self, error: KafkaError) -> None:
        """A refusal ends the fetch; a broker that went away may come back."""
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self.trouble = f"no permission to read {self.place.topic} (grant READ on the topic)"
        elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            self.trouble = "the topic is gone"

    def _take_in(self) -> None:
        """The slice and the place where the next begins, in one transaction."""
        if self.doubts and self.waiting:
            self._must_be_marked()
        now = self.clock()
        quarantine_after = self.store.get_setting("replay.quarantine_after", QUARANTINE_AFTER)
        dead_letters = [
            dead_letter_of(
                record,
                self.place,
                now=now,
                original_topic=self.original_topic,
                quarantine_after=quarantine_after,
            )
            for record in self.waiting
        ]
        with self.store.borrow(write=True) as connection:
            here = rows_by_id(
                connection, "dead_letters", _HERE, [dead_letter.message_id for dead_letter in dead_letters]
            )
            taken = [
                one if one.message_id not in here else replace(one, failed_at=now)
                for one in _first_of_each(dead_letters)
                if one.message_id not in here or _better(one, here[one.message_id])
            ]
            DeadLetters(self.store, clock=self.clock).add(taken)
            # The place alone: a source may quote headers, and a purge takes it away.
            places = {one.message_id: (one.source or "").partition(" (")[0] for one in taken}
            events = [
                (message_id, now, "fetched", self.who, self.origin, f"from {place}")
                for message_id, place in places.items()
            ]
            insert(connection, "letter_events", _EVENT, events)
            self._write_marks()
        self._count(taken, len(dead_letters))
        self.waiting, self.bytes = [], 0

    def _must_be_marked(self) -> None:
        self.doubts = False
        if not any(read(record.headers).dialect for record in self.waiting):
            looked = (
                "its only record"
                if len(self.waiting) == 1
                else f"the {len(self.waiting):,} records looked at"
            )
            raise NotDeadLetters(
                f"{self.place.topic} does not look like a dead-letter topic: {looked} carry no headers of any dialect, "
                "and each record would become a dead letter here.",
                fix="Check the topic's name; if its records are dead letters all the same, say so (--yes).",
            )

    def _write_marks(self) -> None:
        reached = {span.partition: max(span.mark, span.next) for span in self.spans.values() if span.moves}
        marks = self.marks()
        if any(marks.get(number, 0) < offset for number, offset in reached.items()):
            marks |= {number: max(offset, marks.get(number, 0)) for number, offset in reached.items()}
            self.store.set_setting(self.setting, {str(number): offset for number, offset in marks.items()})

    def _count(self, taken: Sequence[DeadLetter], read_now: int) -> None:
        self.new += len(taken)
        self.known += read_now - len(taken)
        self.not_replayable += sum(not one.replayable for one in taken)
        self.by_verdict.update(one.verdict for one in taken)
        self.by_dialect.update(read(record.headers).dialect for record in self.waiting)

    def done(self) -> FetchSummary:
        left = sum(span.left for span in self.spans.values())
        return FetchSummary(
            self.place.topic,
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
        count = "1 record" if self.looked_at == 1 else f"{self.looked_at:,} records"
        kinds = ", ".join(
            f"{number:,} {NAMES[name] if name else 'of no dialect that we know'}"
            for name, number in self.by_dialect.most_common()
        )
        said = [
            f"Read {count} of {self.place.topic}{f' ({kinds})' if kinds else ''}: {self.new:,} new, {self.known:,} known."
        ]
        if found := self.by_verdict.get("found"):
            said.append(
                f"{found:,} were given up by a consumer: the {'original is' if found == 1 else 'originals are'} on the "
                "topic, and a replay writes a second copy."
            )
        if self.not_replayable:
            said.append(f"{self.not_replayable:,} cannot be replayed; their source says why.")
        if left or self.trouble:
            said.append(
                f"Up to {left:,} are left: {self.trouble or 'they were not read'}. The same command goes on."
            )
        return said

    def audit(self, count: int, outcome: str, since: float | None) -> None:
        selection = {"topic": self.place.topic, "cluster_id": self.place.cluster_id, "since": since}
        self.store.audit(
            who=self.who,
            origin=self.origin,
            action="fetch",
            selection=selection,
            count=count,
            outcome=outcome,
        )


def _first_of_each(dead_letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    first: dict[str, DeadLetter] = {}
    for dead_letter in dead_letters:
        first.setdefault(dead_letter.message_id, dead_letter)
    return list(first.values())


def _better(dead_letter: DeadLetter, here: Mapping[str, Any]) -> bool:
    return dead_letter.replayable and not here["replayable"] and here["state"] == "dead"


def _place(
    settings: Mapping[str, Any], handle: Consumer, topic: str, complaints: Sequence[KafkaError]
) -> tuple[RecordPlace, int]:
    """The topic as the cluster knows it, and how many partitions it has."""
    try:
        described = handle.list_topics(topic, timeout=_ANSWER).topics[topic]
    except KafkaException as error:
        told = complaints[-1] if complaints else error.args[0]
        raise BrokerUnreachable(f"No broker answers: {told.str()}.") from error
    if described.error is not None:
        raise ConfigError(f"{topic} cannot be read: {described.error.str()}.", fix="Check the topic's name.")
    cluster = clients.cluster_id(settings, topic, _ANSWER)
    if cluster is None:
        raise BrokerUnreachable("The cluster does not say its id.")
    return RecordPlace(cluster, topic, _topic_id(settings, topic)), len(described.partitions)


def _topic_id(settings: Mapping[str, Any], topic: str) -> str:
    """The id that a topic has since Kafka 2.8; "" where the broker tells none."""
    client = clients.admin(settings)  # kept until it has answered
    asked = client.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER)
    try:
        told = asked[topic].result(_ANSWER + 1).topic_id
    except TimeoutError as error:
        raise BrokerUnreachable(f"Nobody told the id of {topic} in time.") from error
    except KafkaException as error:
        if error.args[0].code() not in _NO_IDS:  # without it the same record would have another id
            raise BrokerUnreachable(f"Nobody told the id of {topic}: {error.args[0].str()}.") from error
        return ""
    return clients.topic_id(told)


def _spans(
    handle: Consumer,
    place: RecordPlace,
    partitions: int,
    marks: Mapping[int, int],
    since: float | None,
    again: bool,
) -> list[_OffsetSpan]:
    lows, ends = (
        _offsets(handle, place.topic, partitions, _EARLIEST),
        _offsets(handle, place.topic, partitions, _LATEST),
    )
    young = {} if since is None else _offsets(handle, place.topic, partitions, max(0, int(since * 1000)))
    spans = []
    for number in range(partitions):
        low, end = lows.get(number, 0), ends.get(number, 0)
        mark = marks.get(number, 0) if marks.get(number, 0) <= end else 0
        start = low if again else max(low, mark)
        if since is not None:
            first = young.get(number, -1)
            start = max(low, first) if first >= 0 else end
        spans.append(_OffsetSpan(number, start, end, mark, moves=start <= max(mark, low)))
    return spans


def _offsets(handle: Consumer, topic: str, partitions: int, moment: int) -> dict[int, int]:
    asked = [TopicPartition(topic, number, moment) for number in range(partitions)]
    answers = handle.offsets_for_times(asked, timeout=_ANSWER)
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return {answer.partition: answer.offset for answer in answers}
