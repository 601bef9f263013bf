"""Publish dead letters to dead-letter topics. They remain dead letters, with an event for each publication."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from producer_core._internal.lease_watch import LEASE
from producer_core._internal.plural import plural
from producer_core.config import DEFAULT_SERVERS, ClientConfig, client_config, pop_servers
from producer_core.dlq import DeadLetterFilter, DeadLetters, replay_waves
from producer_core.dlq.codec import OLDEST_FIRST
from producer_core.dlq.topics.confirmed_lookup import ConfirmedLookup
from producer_core.dlq.topics.origin import WrittenDialect
from producer_core.dlq.topics.slice_publisher import PublicationEvents, SlicePublisher
from producer_core.dlq.topics.topic_sender import PublishingProducer, TopicSender, prober
from producer_core.errors import BrokerError, ConfigError, ReplayError, StoreError
from producer_core.kafka import clients
from producer_core.kafka.topic_config import TopicConfigQuery
from producer_core.roles.role_check import check_operator
from producer_core.store.lease import Lease

if TYPE_CHECKING:
    from producer_core.store import Store

TOPIC = "{topic}-dlt"
"""Spring's name for the dead-letter topic of a topic."""
LEASE_NAME = "dlq publish"
"""The lease with which only one process publishes from a store."""
SLICE = 1000
_SLICE_BYTES = 16 * 1024 * 1024
_LISTING_ROWS = 20_000
_QUERY_LIMIT = 60.0  # seconds for listing these rows among ten million
_MAX_QUOTED_FAILURES = 5
_LISTING = f"""
SELECT message_id, accepted_at, topic, coalesce(value_size, 0) + coalesce(octet_length(key), 0) AS size
FROM dead_letters WHERE {{where}} AND (accepted_at > ? OR (accepted_at = ?
  AND (length(message_id) > ? OR (length(message_id) = ? AND message_id > ?))))
ORDER BY {OLDEST_FIRST} LIMIT ?"""

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
class Listed:
    message_id: str
    accepted_at: float
    topic: str
    size: int


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

    Raise ConfigError if a topic is missing or compacted; compaction would delete all but one dead letter of each key;
    NotPermitted if the approval policy does not let this person act.
    """
    dead_letters = DeadLetters(store, clock=clock)
    with store.borrow(write=True) as connection:  # what a replay has claimed is not selected as dead
        check_operator(store, who=who, origin=origin, now=clock(), act="publish dead letters")
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
    check_topics({topic_for(name, topic) for name in counts}, config, stopping)
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
        self.lease = Lease(self.store, LEASE_NAME, uuid.uuid4().hex)
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
        events = PublicationEvents(self.store, who=self.who, origin=self.origin, clock=self.clock)
        probe = ConfirmedLookup(prober(self.config.settings), self._renew_lease)
        sender = TopicSender(self.dialect, probe=probe, while_waiting=self._renew_lease)
        publisher = SlicePublisher(events, sender, only_dead=self.where.state == "dead", again=self.again)
        processed = 0
        for slice_ in _slices(self.store, self.where, self.clock()):
            if stopping() or self.problem:
                return
            self._renew_lease()
            failed_before = self.failed
            self._publish_slice(publisher, producer, slice_)
            processed += len(slice_)
            progress(processed, max(processed, self.total))
            if self.failed - failed_before == len(slice_) > 1:
                self.problem = f"none of {len(slice_):,} could be published"

    def _publish_slice(
        self, publisher: SlicePublisher, producer: PublishingProducer, slice_: Sequence[Listed]
    ) -> None:
        result = publisher.publish(
            producer, {one.message_id: topic_for(one.topic, self.name) for one in slice_}
        )
        self.published.update(result.published.values())
        self.found += len(result.found)
        self.already += len(result.left_out)
        for text in result.failures:
            self._add_failure(text)
        if result.error is not None:
            raise result.error

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


def _slices(store: Store, where: DeadLetterFilter, until: float) -> Iterator[list[Listed]]:
    """Yield the matching dead letters accepted until then, the oldest first, so that those of a key keep their order."""
    condition, parameters = where.where()
    at, last = float("-inf"), ""
    while True:
        with store.borrow(limit=_QUERY_LIMIT) as connection:
            sql = _LISTING.format(where=condition)
            rows = connection.execute(
                sql, [*parameters, at, at, len(last), len(last), last, _LISTING_ROWS]
            ).fetchall()
        listed = [Listed(*row) for row in rows]
        yield from by_size([one for one in listed if one.accepted_at <= until])
        if len(listed) < _LISTING_ROWS:
            return
        at, last = listed[-1].accepted_at, listed[-1].message_id


def by_size(listed: Sequence[Listed]) -> Iterator[list[Listed]]:
    slice_: list[Listed] = []
    size = 0
    for one in listed:
        if slice_ and (len(slice_) == SLICE or size + one.size > _SLICE_BYTES):
            yield slice_
            slice_, size = [], 0
        slice_.append(one)
        size += one.size
    if slice_:
        yield slice_


def check_topics(topics: set[str], config: ClientConfig, stopping: Callable[[], bool]) -> dict[str, int]:
    """Return the number of partitions of each topic. Raise ConfigError if a topic is missing or compacted."""
    partitions: dict[str, int] = {}
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
            partitions[topic] = facts.partitions
    return partitions


def _counts_by_topic(published: Mapping[str, int]) -> str:
    return (
        f" to {', '.join(f'{topic} ({count:,})' for topic, count in sorted(published.items()))}"
        if published
        else ""
    )
