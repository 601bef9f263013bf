"""The publishing of dead letters to a dead-letter topic: they stay dead letters, and each remembers where it went."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaError

from producer_core.alerts.lease import LEASE, Lease
from producer_core.config import DEFAULT_SERVERS, ClientConfig, client_config, pop_servers
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.codec import OLDEST_FIRST
from producer_core.dlq.topics.origin import Written
from producer_core.dlq.topics.write_headers import write
from producer_core.errors import BrokerError, ConfigError, NotAccepted, ReplayError, StoreError
from producer_core.events import DeadLetter
from producer_core.kafka import clients, record_lookup
from producer_core.kafka.topic_config import TopicConfigQuery
from producer_core.store.merge import insert

if TYPE_CHECKING:
    from producer_core.delivery.reports import ReplayResult
    from producer_core.store import Store

TOPIC = "{topic}-dlt"
"""The dead-letter topic of a topic, as Spring names it."""
SLICE = 1000
_SLICE_BYTES = 16 * 1024 * 1024
_LISTED = 20_000
_LIMIT = 60.0  # seconds for the listing of so many of ten million
_LOOK = 60.0
_SAID = 5  # failures that are quoted
_EVENT = ("message_id", "happened_at", "what", "who", "origin", "text")
_LISTING = f"""
SELECT message_id, accepted_at, topic, coalesce(value_size, 0) + coalesce(octet_length(key), 0) AS size
FROM dead_letters WHERE {{where}} AND (accepted_at > ? OR (accepted_at = ?
  AND (length(message_id) > ? OR (length(message_id) = ? AND message_id > ?))))
ORDER BY {OLDEST_FIRST} LIMIT ?"""
_EVENTS = """
SELECT message_id, what, text, happened_at FROM letter_events
WHERE message_id IN (SELECT unnest(?::VARCHAR[])) AND what IN ('publishing', 'published') ORDER BY happened_at"""

Progress = Callable[[int, int], None]
"""Hears how many of how many were seen to."""


@dataclass(frozen=True)
class PublishSummary:
    """`published` went there now, `found` an earlier run had sent and not written down, `already` were there before."""

    published: int
    found: int
    already: int
    failed: int
    left: int
    by_topic: Mapping[str, int]
    failures: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class _Listed:
    message_id: str
    accepted_at: float
    topic: str
    size: int


class PublishingProducer(Protocol):
    """The part of a producer that publishing needs."""

    def resend(self, dead_letter: DeadLetter, settled: Callable[[ReplayResult], None]) -> None: ...
    def close(self) -> object: ...


OpenProducer = Callable[[str, Mapping[str, Any]], PublishingProducer]
"""Open a producer for these servers and settings."""


def topic_for(topic: str, name: str = TOPIC) -> str:
    """The dead-letter topic of a topic: a name, in which {topic} stands for the topic."""
    return name.replace("{topic}", topic)


def publish(
    store: Store,
    where: DeadLetterFilter,
    topic: str,
    settings: Mapping[str, Any],
    *,
    open_producer: OpenProducer,
    who: str,
    origin: str,
    dialect: Written = "producer_core",
    again: bool = False,
    stopping: Callable[[], bool] = lambda: False,
    progress: Progress = lambda done, of: None,
    clock: Callable[[], float] = time.time,
) -> PublishSummary:
    """Write what the filter matches to dead-letter topics, the oldest first, and leave it dead here.

    `open_producer` gets the servers and the other settings; a failed publication is reported here, so its producer must
    not write dead letters to the store. `topic` may hold {topic}: `TOPIC` is the default of the command. `settings` are a producer's, with
    `bootstrap.servers`. Key and value go as they are, the message id in our header, the story in `write`'s headers.
    What was published to the same topic before is left out, unless `again`. Before a slice is sent that is written
    down, and after it where each record went; so after a kill the next run looks on the topic for what may be there.

    ConfigError when a topic is missing, or compacted: dead letters of one key would delete one another there.
    """
    dead = DeadLetters(store, clock=clock)
    chosen = dead.frozen(where)
    counts = dead.count_by(chosen, "topic")
    given = dict(settings)
    servers = pop_servers(given) or DEFAULT_SERVERS[0]
    config = client_config(servers, given)
    job = _PublishJob(store, chosen, topic, config, dialect, again, who, origin, clock, sum(counts.values()))
    if live := sorted({topic_for(name, topic) for name in counts} & {*counts}):
        raise ConfigError(
            f"{live[0]} is a topic of these dead letters: its consumers would read them as messages.",
            fix="Choose a topic for dead letters with --to-topic, such as {TOPIC}, or send them again: dlq replay.",
        )
    _check({topic_for(name, topic) for name in counts}, config, stopping)
    with job.alone(stopping):
        job.audit(0, f"Began to publish {job.of:,} to {topic}.")
        try:
            with contextlib.closing(open_producer(servers, given)) as producer:
                job.run(producer, stopping, progress)
        except BaseException as error:
            with contextlib.suppress(StoreError):
                done = job.done(str(error) or type(error).__name__)
                job.audit(done.published + done.found, done.text)
            raise
        done = job.done("it was stopped" if stopping() else job.trouble)
        job.audit(done.published + done.found, done.text)
    return done


@dataclass
class _PublishJob:
    store: Store
    where: DeadLetterFilter
    name: str
    config: ClientConfig
    dialect: Written
    again: bool
    who: str
    origin: str
    clock: Callable[[], float]
    of: int
    published: Counter[str] = field(default_factory=Counter)
    found: int = 0
    already: int = 0
    failed: int = 0
    failures: dict[str, None] = field(default_factory=dict)
    trouble: str = ""
    lease: Lease | None = None

    @contextlib.contextmanager
    def alone(self, stopping: Callable[[], bool]) -> Iterator[None]:
        """One process at a time publishes from a store; a dead one's turn ends by itself."""
        self.lease = Lease(self.store, "dlq publish", uuid.uuid4().hex)
        deadline = time.monotonic() + LEASE + 5
        while not self.lease.hold(self.clock()):
            if time.monotonic() > deadline or stopping():
                raise ReplayError(
                    "Another process publishes dead letters of this store now.",
                    fix="Wait until it has ended.",
                )
            threading.Event().wait(0.5)
        try:
            yield
        finally:
            with contextlib.suppress(StoreError):
                self.lease.drop()

    def run(self, producer: PublishingProducer, stopping: Callable[[], bool], progress: Progress) -> None:
        seen = 0
        for some in _slices(self.store, self.where, self.clock()):
            if stopping() or self.trouble:
                return
            self._still_ours()
            before = self.failed
            self._slice(producer, some)
            seen += len(some)
            progress(seen, max(seen, self.of))
            if self.failed - before == len(some) > 1:
                self.trouble = f"none of {len(some):,} could be published"

    def _slice(self, producer: PublishingProducer, some: Sequence[_Listed]) -> None:
        targets = {one.message_id: topic_for(one.topic, self.name) for one in some}
        before = _before(self.store, targets)
        dead_letters = [
            dead_letter
            for dead_letter in DeadLetters(self.store).bodies(list(targets))
            if dead_letter.state != "purged"
            and (self.again or dead_letter.message_id not in before.published)
        ]
        self.already += len(some) - len(dead_letters)
        dead_letters = self._not_there_yet(dead_letters, before.begun, targets)
        if dead_letters:
            self._write(
                "publishing", {one.message_id: f"to {targets[one.message_id]}" for one in dead_letters}
            )
            self._settle(self._send(producer, dead_letters, targets), targets)

    def _not_there_yet(
        self, dead_letters: Sequence[DeadLetter], begun: Mapping[str, float], targets: Mapping[str, str]
    ) -> list[DeadLetter]:
        """Those that an earlier run has not sent: it wrote down that it would, and not where they went."""
        asked: dict[str, list[str]] = defaultdict(list)
        for dead_letter in dead_letters:
            if dead_letter.message_id in begun:
                asked[targets[dead_letter.message_id]].append(dead_letter.message_id)
        answers: dict[str, record_lookup.ProbeResult] = {}
        for topic, ids in asked.items():
            since = int(min(begun[one] for one in ids) * 1000)
            answers |= record_lookup.find_records(
                self.config.settings, topic, ids, since_ms=since, timeout=_LOOK, max_records=2_000_000
            )
        found = {one: answer for one, answer in answers.items() if answer.outcome == "found"}
        self._write(
            "published",
            {one: _at(targets[one], answer.partition, answer.offset) for one, answer in found.items()},
        )
        self.found += len(found)
        unknown = {one: answer for one, answer in answers.items() if answer.outcome == "inconclusive"}
        if not self.again:
            for answer in unknown.values():
                self._fails(f"nobody can say whether an earlier run published it ({answer.text})")
        left_out = found.keys() | (set() if self.again else unknown.keys())
        return [dead_letter for dead_letter in dead_letters if dead_letter.message_id not in left_out]

    def _send(
        self, producer: PublishingProducer, dead_letters: Sequence[DeadLetter], targets: Mapping[str, str]
    ) -> list[ReplayResult]:
        reports: queue.SimpleQueue[ReplayResult] = queue.SimpleQueue()
        ended: list[ReplayResult] = []
        sent = 0
        for dead_letter in dead_letters:
            record = replace(
                dead_letter,
                topic=targets[dead_letter.message_id],
                headers=write(dead_letter, self.dialect),
                partition=None,
            )
            while True:
                try:
                    producer.resend(record, reports.put)
                    sent += 1
                except ValueError as error:  # it can never be sent as it is
                    self._fails(str(error))
                except NotAccepted:
                    if len(ended) == sent:
                        raise
                    ended.append(self._next(reports))
                    continue
                break
        while len(ended) < sent:
            ended.append(self._next(reports))
        return ended

    def _next(self, reports: queue.SimpleQueue[ReplayResult]) -> ReplayResult:
        """The next report; a delivery always ends, within the delivery timeout."""
        while True:
            with contextlib.suppress(queue.Empty):
                return reports.get(timeout=1.0)
            self._still_ours()

    def _settle(self, ended: Iterable[ReplayResult], targets: Mapping[str, str]) -> None:
        went: dict[str, str] = {}
        for one in ended:
            if one.outcome == "acknowledged":
                went[one.message_id] = _at(targets[one.message_id], one.partition, one.offset)
                self.published[targets[one.message_id]] += 1
            else:
                self._fails(
                    one.text or (one.dead_letter.error_text if one.dead_letter else "no reason given")
                )
        self._write("published", went)

    def _write(self, what: str, texts: Mapping[str, str]) -> None:
        """A line in the life of each letter."""
        if texts:
            now = self.clock()
            rows = [(one, now, what, self.who, self.origin, text) for one, text in texts.items()]
            with self.store.borrow(write=True) as connection:
                insert(connection, "letter_events", _EVENT, rows)

    def _still_ours(self) -> None:
        if self.lease is not None and not self.lease.hold(self.clock()):
            raise ReplayError("Another process has taken over the publishing.")

    def _fails(self, text: str) -> None:
        self.failed += 1
        if len(self.failures) < _SAID:
            self.failures[text] = None

    def done(self, trouble: str = "") -> PublishSummary:
        now = self.published.total()
        left = max(0, self.of - now - self.found - self.already - self.failed)
        said = [
            f"Published {_dead_letters(now)}{_where(self.published)}; {'it stays' if now == 1 else 'they stay'} dead letters here."
        ]
        if self.found:
            said.append(f"{self.found:,} an earlier run had published already.")
        if self.already:
            said.append(f"{self.already:,} were published there before, and are left out.")
        if self.failed:
            said.append(f"{self.failed:,} failed: {'; '.join(self.failures)}.")
        if left:
            said.append(f"{left:,} are left{f': {trouble}' if trouble else ''}. The same command goes on.")
        return PublishSummary(
            now,
            self.found,
            self.already,
            self.failed,
            left,
            dict(self.published),
            tuple(self.failures),
            " ".join(said),
        )

    def audit(self, count: int, outcome: str) -> None:
        selection = self.where.to_query() | {"to_topic": self.name, "dialect": self.dialect}
        self.store.audit(
            who=self.who,
            origin=self.origin,
            action="publish",
            selection=selection,
            count=count,
            outcome=outcome,
        )


@dataclass(frozen=True)
class _Before:
    """What earlier runs wrote down: what they published to the same topic, and what they may have (with the time)."""

    published: frozenset[str]
    begun: Mapping[str, float]


def _before(store: Store, targets: Mapping[str, str]) -> _Before:
    published: set[str] = set()
    begun: dict[str, float] = {}
    with store.borrow(limit=_LIMIT) as connection:
        rows = connection.execute(_EVENTS, [list(targets)]).fetchall()
    for message_id, what, text, at in rows:
        if what == "published" and str(text).startswith(f"at {targets[message_id]}["):
            published.add(message_id)
            begun.pop(message_id, None)
        elif what == "publishing" and text == f"to {targets[message_id]}":
            begun.setdefault(message_id, at)
    return _Before(frozenset(published), begun)


def _slices(store: Store, where: DeadLetterFilter, until: float) -> Iterator[list[_Listed]]:
    """What the filter matches and was accepted by then, the oldest first, so that a key's dead letters keep their order."""
    condition, parameters = where.where()
    at, last = float("-inf"), ""
    while True:
        with store.borrow(limit=_LIMIT) as connection:
            sql = _LISTING.format(where=condition)
            rows = connection.execute(
                sql, [*parameters, at, at, len(last), len(last), last, _LISTED]
            ).fetchall()
        listed = [_Listed(*row) for row in rows]
        yield from _cut([one for one in listed if one.accepted_at <= until])
        if len(listed) < _LISTED:
            return
        at, last = listed[-1].accepted_at, listed[-1].message_id


def _cut(listed: Sequence[_Listed]) -> Iterator[list[_Listed]]:
    some: list[_Listed] = []
    size = 0
    for one in listed:
        if some and (len(some) == SLICE or size + one.size > _SLICE_BYTES):
            yield some
            some, size = [], 0
        some.append(one)
        size += one.size
    if some:
        yield some


def _check(topics: set[str], config: ClientConfig, stopping: Callable[[], bool]) -> None:
    """Every topic is there, and keeps all records."""
    complaints: list[KafkaError] = []
    with clients.reader(config.settings, name="publish", on_error=complaints.append) as handle:
        cluster = TopicConfigQuery(config.settings, handle, 30.0, stopping, complaints)
        for topic in sorted(topics):
            facts = cluster.facts(topic)
            if facts.partitions is None:
                raise ConfigError(
                    f"There is no topic {topic}.", fix="Create it, or choose another with --to-topic."
                )
            if facts.partitions == 0:
                raise BrokerError(f"{topic} cannot be asked about: {facts.trouble}.")
            if facts.compacted:
                raise ConfigError(
                    f"{topic} is compacted: of dead letters with one key only the last would stay.",
                    fix="Choose a topic with cleanup.policy=delete.",
                )


def _at(topic: str, partition: int | None, offset: int | None) -> str:
    return f"at {topic}[{'?' if partition is None else partition}]@{'?' if offset is None else offset}"


def _where(published: Mapping[str, int]) -> str:
    return (
        f" to {', '.join(f'{topic} ({count:,})' for topic, count in sorted(published.items()))}"
        if published
        else ""
    )


def _dead_letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"
