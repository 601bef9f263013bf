"""Publish dead letters to dead-letter topics. They remain dead letters, with an event for each publication."""

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

from producer_core._internal.lease_watch import LEASE
from producer_core._internal.plural import plural
from producer_core.config import DEFAULT_SERVERS, ClientConfig, client_config, pop_servers
from producer_core.dlq import DeadLetterFilter, DeadLetters, lookup, replay_waves
from producer_core.dlq.codec import OLDEST_FIRST
from producer_core.dlq.topics.origin import WrittenDialect
from producer_core.dlq.topics.write_headers import write
from producer_core.errors import BrokerError, ConfigError, NotAccepted, ReplayError, StoreError
from producer_core.events import DeadLetter
from producer_core.kafka import clients, record_lookup
from producer_core.kafka.topic_config import TopicConfigQuery
from producer_core.store import safe_verdicts
from producer_core.store.lease import Lease
from producer_core.store.merge import insert

if TYPE_CHECKING:
    from producer_core.delivery.reports import ReplayResult
    from producer_core.store import Store

TOPIC = "{topic}-dlt"
"""Spring's name for the dead-letter topic of a topic."""
PUBLISHED = (
    "The message was published to a dead-letter topic, and a reader of that topic may have replayed it."
)
SLICE = 1000
_SLICE_BYTES = 16 * 1024 * 1024
_LISTING_ROWS = 20_000
_QUERY_LIMIT = 60.0  # seconds for listing these rows among ten million
_PROBE_TIMEOUT = 60.0
_MAX_QUOTED_FAILURES = 5
_EVENT_COLUMNS = ("message_id", "happened_at", "what", "who", "origin", "text")
_LISTING = f"""
SELECT message_id, accepted_at, topic, coalesce(value_size, 0) + coalesce(octet_length(key), 0) AS size
FROM dead_letters WHERE {{where}} AND (accepted_at > ? OR (accepted_at = ?
  AND (length(message_id) > ? OR (length(message_id) = ? AND message_id > ?))))
ORDER BY {OLDEST_FIRST} LIMIT ?"""
_EVENTS = """
SELECT message_id, what, text, happened_at FROM letter_events
WHERE message_id IN (SELECT unnest(?::VARCHAR[])) AND what IN ('publishing', 'published') ORDER BY happened_at"""

Progress = Callable[[int, int], None]
"""Called with the number of dead letters processed and the total."""


@dataclass(frozen=True)
class PublishSummary:
    """The result of a publication. `published` were sent now, `already` were published before, and `found` were sent by
    an interrupted run that did not record them."""

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
    """The methods of a producer that publishing needs."""

    def resend(self, dead_letter: DeadLetter, settled: Callable[[ReplayResult], None]) -> None: ...
    def close(self) -> object: ...


OpenProducer = Callable[[str, Mapping[str, Any]], PublishingProducer]
"""Opens a producer for these servers and settings."""


def topic_for(topic: str, name: str = TOPIC) -> str:
    """Return the name with {topic} replaced by the topic."""
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
    dialect: WrittenDialect = "producer_core",
    again: bool = False,
    stopping: Callable[[], bool] = lambda: False,
    progress: Progress = lambda done, total: None,
    clock: Callable[[], float] = time.time,
) -> PublishSummary:
    """Write the matching dead letters to dead-letter topics, the oldest first. They remain dead letters in the store.

    `open_producer` gets the servers and the other settings. Failures are reported here, so its producer must not write
    dead letters to the store. `topic` may contain {topic}. `settings` are a producer's, with `bootstrap.servers`. Key
    and value are written unchanged, with the message id header and the dead-letter headers of `write`. Dead letters that
    were published to the same topic before are left out, unless `again` is set. Events before and after each slice
    record what is sent and where it was written; after a kill, the next run looks on the topic for the records in doubt.

    Raise ConfigError if a topic is missing or compacted; compaction would delete all but one dead letter of each key.
    """
    dead_letters = DeadLetters(store, clock=clock)
    with store.borrow(write=True) as connection:  # what a replay has claimed is not selected as dead
        replay_waves.begin_change(connection)
    selection = dead_letters.frozen(where)
    counts = dead_letters.count_by(selection, "topic")
    properties = dict(settings)
    servers = pop_servers(properties) or DEFAULT_SERVERS[0]
    config = client_config(servers, properties)
    total = sum(counts.values())
    job = _PublishJob(store, selection, topic, config, dialect, again, who, origin, clock, total)
    if live := sorted({topic_for(name, topic) for name in counts} & {*counts}):
        raise ConfigError(
            f"{live[0]} is an original topic; its consumers would read the dead letters as messages.",
            fix="Choose another topic with --to-topic, such as {topic}-dlt, or use dlq replay to send them again.",
        )
    _check_topics({topic_for(name, topic) for name in counts}, config, stopping)
    with job.lease_held(stopping):
        job.audit(0, f"Started to publish {job.total:,} to {topic}.")
        try:
            with contextlib.closing(open_producer(servers, properties)) as producer:
                job.run(producer, stopping, progress)
        except BaseException as error:
            with contextlib.suppress(StoreError):
                summary = job.summary(str(error) or type(error).__name__)
                job.audit(summary.published + summary.found, summary.text)
            raise
        summary = job.summary("the command was stopped" if stopping() else job.problem)
        job.audit(summary.published + summary.found, summary.text)
    return summary


@dataclass
class _PublishJob:
    store: Store
    where: DeadLetterFilter
    name: str
    config: ClientConfig
    dialect: WrittenDialect
    again: bool
    who: str
    origin: str
    clock: Callable[[], float]
    total: int
    published: Counter[str] = field(default_factory=Counter)
    found: int = 0
    already: int = 0
    failed: int = 0
    failures: dict[str, None] = field(default_factory=dict)
    problem: str = ""
    lease: Lease | None = None

    @contextlib.contextmanager
    def lease_held(self, stopping: Callable[[], bool]) -> Iterator[None]:
        """Hold the lease with which only one process publishes from a store. The lease of a dead process expires."""
        self.lease = Lease(self.store, "dlq publish", uuid.uuid4().hex)
        deadline = time.monotonic() + LEASE + 5
        while not self.lease.hold(self.clock()):
            if time.monotonic() > deadline or stopping():
                raise ReplayError(
                    "Another process is publishing dead letters from this store.",
                    fix="Wait until it has finished.",
                )
            threading.Event().wait(0.5)
        try:
            yield
        finally:
            with contextlib.suppress(StoreError):
                self.lease.drop()

    def run(self, producer: PublishingProducer, stopping: Callable[[], bool], progress: Progress) -> None:
        processed = 0
        for slice_ in _slices(self.store, self.where, self.clock()):
            if stopping() or self.problem:
                return
            self._renew_lease()
            failed_before = self.failed
            self._publish_slice(producer, slice_)
            processed += len(slice_)
            progress(processed, max(processed, self.total))
            if self.failed - failed_before == len(slice_) > 1:
                self.problem = f"none of {len(slice_):,} could be published"

    def _publish_slice(self, producer: PublishingProducer, slice_: Sequence[_Listed]) -> None:
        targets = {one.message_id: topic_for(one.topic, self.name) for one in slice_}
        earlier = _earlier_publications(self.store, targets)
        with self.store.borrow(write=True) as connection:  # of a replay that started after the publication
            replay_waves.begin_change(connection)
        dead_letters = [
            dead_letter
            for dead_letter in DeadLetters(self.store).bodies(list(targets))
            if dead_letter.state not in ("purged", "replaying")
            and (self.again or dead_letter.message_id not in earlier.published)
        ]
        self.already += len(slice_) - len(dead_letters)
        dead_letters = self._without_sent(dead_letters, earlier.started, targets)
        if dead_letters:
            self._add_events(
                "publishing", {one.message_id: f"to {targets[one.message_id]}" for one in dead_letters}
            )
            self._revoke_safe_verdicts(dead_letters)
            self._settle(self._send(producer, dead_letters, targets), targets)

    def _revoke_safe_verdicts(self, dead_letters: Sequence[DeadLetter]) -> None:
        selected = lookup.id_in([one.message_id for one in dead_letters])
        with self.store.borrow(write=True) as connection:
            safe_verdicts.revoke(connection, PUBLISHED, *selected)

    def _without_sent(
        self, dead_letters: Sequence[DeadLetter], started: Mapping[str, float], targets: Mapping[str, str]
    ) -> list[DeadLetter]:
        """Look on the topics for dead letters whose publication an earlier run started but did not record. Return those
        to send."""
        ids_by_topic: dict[str, list[str]] = defaultdict(list)
        for dead_letter in dead_letters:
            if dead_letter.message_id in started:
                ids_by_topic[targets[dead_letter.message_id]].append(dead_letter.message_id)
        results: dict[str, record_lookup.ProbeResult] = {}
        for topic, ids in ids_by_topic.items():
            since_ms = int(min(started[message_id] for message_id in ids) * 1000)
            results |= record_lookup.find_records(
                self.config.settings,
                topic,
                ids,
                since_ms=since_ms,
                timeout=_PROBE_TIMEOUT,
                max_records=2_000_000,
            )
        found = {one: result for one, result in results.items() if result.outcome == "found"}
        self._add_events(
            "published",
            {one: _at(targets[one], result.partition, result.offset) for one, result in found.items()},
        )
        self.found += len(found)
        unknown = {one: result for one, result in results.items() if result.outcome == "inconclusive"}
        if not self.again:
            for result in unknown.values():
                self._add_failure(f"an earlier run may have published it ({result.text})")
        left_out = found.keys() | (set() if self.again else unknown.keys())
        return [dead_letter for dead_letter in dead_letters if dead_letter.message_id not in left_out]

    def _send(
        self, producer: PublishingProducer, dead_letters: Sequence[DeadLetter], targets: Mapping[str, str]
    ) -> list[ReplayResult]:
        reports: queue.SimpleQueue[ReplayResult] = queue.SimpleQueue()
        results: list[ReplayResult] = []
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
                except ValueError as error:  # this record can never be sent
                    self._add_failure(str(error))
                except NotAccepted:
                    if len(results) == sent:
                        raise
                    results.append(self._next_result(reports))
                    continue
                break
        while len(results) < sent:
            results.append(self._next_result(reports))
        return results

    def _next_result(self, reports: queue.SimpleQueue[ReplayResult]) -> ReplayResult:
        """Wait for the next result. Each delivery ends within the delivery timeout."""
        while True:
            with contextlib.suppress(queue.Empty):
                return reports.get(timeout=1.0)
            self._renew_lease()

    def _settle(self, results: Iterable[ReplayResult], targets: Mapping[str, str]) -> None:
        places: dict[str, str] = {}
        for one in results:
            if one.outcome == "acknowledged":
                places[one.message_id] = _at(targets[one.message_id], one.partition, one.offset)
                self.published[targets[one.message_id]] += 1
            else:
                self._add_failure(
                    one.text or (one.dead_letter.error_text if one.dead_letter else "no reason given")
                )
        self._add_events("published", places)

    def _add_events(self, what: str, texts: Mapping[str, str]) -> None:
        """Add an event for each dead letter, with the text for its id."""
        if texts:
            now = self.clock()
            rows = [(one, now, what, self.who, self.origin, text) for one, text in texts.items()]
            with self.store.borrow(write=True) as connection:
                insert(connection, "letter_events", _EVENT_COLUMNS, rows)

    def _renew_lease(self) -> None:
        if self.lease is not None and not self.lease.hold(self.clock()):
            raise ReplayError("The lease expired, and another process is publishing.")

    def _add_failure(self, text: str) -> None:
        self.failed += 1
        if len(self.failures) < _MAX_QUOTED_FAILURES:
            self.failures[text] = None

    def summary(self, problem: str = "") -> PublishSummary:
        published = self.published.total()
        left = max(0, self.total - published - self.found - self.already - self.failed)
        stay = "it remains a dead letter" if published == 1 else "they remain dead letters"
        where = f"; {stay} in this store" if published else ""
        sentences = [
            f"Published {plural(published, 'dead letter')}{_counts_by_topic(self.published)}{where}."
        ]
        if self.found:
            sentences.append(f"{self.found:,} already published by an interrupted run.")
        if self.already:
            sentences.append(f"{self.already:,} left out: already published there.")
        if self.failed:
            sentences.append(f"{self.failed:,} failed: {'; '.join(self.failures)}.")
        if left:
            sentences.append(
                f"{left:,} left{f': {problem}' if problem else ''}. Run the same command to continue."
            )
        return PublishSummary(
            published,
            self.found,
            self.already,
            self.failed,
            left,
            dict(self.published),
            tuple(self.failures),
            " ".join(sentences),
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
class _EarlierPublications:
    """The events of earlier runs: ids published to the same topic, and the start times of unfinished publications."""

    published: frozenset[str]
    started: Mapping[str, float]


def _earlier_publications(store: Store, targets: Mapping[str, str]) -> _EarlierPublications:
    published: set[str] = set()
    started: dict[str, float] = {}
    with store.borrow(limit=_QUERY_LIMIT) as connection:
        rows = connection.execute(_EVENTS, [list(targets)]).fetchall()
    for message_id, what, text, at in rows:
        if what == "published" and str(text).startswith(f"at {targets[message_id]}["):
            published.add(message_id)
            started.pop(message_id, None)
        elif what == "publishing" and text == f"to {targets[message_id]}":
            started.setdefault(message_id, at)
    return _EarlierPublications(frozenset(published), started)


def _slices(store: Store, where: DeadLetterFilter, until: float) -> Iterator[list[_Listed]]:
    """Yield the matching dead letters accepted until then, the oldest first, so that those of a key keep their order."""
    condition, parameters = where.where()
    at, last = float("-inf"), ""
    while True:
        with store.borrow(limit=_QUERY_LIMIT) as connection:
            sql = _LISTING.format(where=condition)
            rows = connection.execute(
                sql, [*parameters, at, at, len(last), len(last), last, _LISTING_ROWS]
            ).fetchall()
        listed = [_Listed(*row) for row in rows]
        yield from _by_size([one for one in listed if one.accepted_at <= until])
        if len(listed) < _LISTING_ROWS:
            return
        at, last = listed[-1].accepted_at, listed[-1].message_id


def _by_size(listed: Sequence[_Listed]) -> Iterator[list[_Listed]]:
    slice_: list[_Listed] = []
    size = 0
    for one in listed:
        if slice_ and (len(slice_) == SLICE or size + one.size > _SLICE_BYTES):
            yield slice_
            slice_, size = [], 0
        slice_.append(one)
        size += one.size
    if slice_:
        yield slice_


def _check_topics(topics: set[str], config: ClientConfig, stopping: Callable[[], bool]) -> None:
    """Raise ConfigError if a topic is missing or compacted."""
    client_errors: list[KafkaError] = []
    with clients.reader(config.settings, name="publish", on_error=client_errors.append) as handle:
        query = TopicConfigQuery(config.settings, handle, 30.0, stopping, client_errors)
        for topic in sorted(topics):
            facts = query.facts(topic)
            if facts.partitions is None:
                raise ConfigError(
                    f"The topic {topic} does not exist.", fix="Create it, or choose another with --to-topic."
                )
            if facts.partitions == 0:
                raise BrokerError(f"The configuration of {topic} cannot be read: {facts.trouble}.")
            if facts.compacted:
                raise ConfigError(
                    f"{topic} is compacted and would keep only the last dead letter of each key.",
                    fix="Choose a topic with cleanup.policy=delete.",
                )


def _at(topic: str, partition: int | None, offset: int | None) -> str:
    return f"at {topic}[{'?' if partition is None else partition}]@{'?' if offset is None else offset}"


def _counts_by_topic(published: Mapping[str, int]) -> str:
    return (
        f" to {', '.join(f'{topic} ({count:,})' for topic, count in sorted(published.items()))}"
        if published
        else ""
    )
