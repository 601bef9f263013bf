"""Query the broker for the start and end of a log and for the record at an offset."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from producer_core.delivery.loss_detection.evidence import BrokerView
from producer_core.kafka.clients import admin, reader
from producer_core.kafka.record_lookup import find_records
from producer_core.messages import record_id

_READER: Mapping[str, Any] = {
    "isolation.level": "read_uncommitted",  # otherwise the end is the last stable offset
    "auto.offset.reset": "error",
    "fetch.message.max.bytes": 65_536,  # enough for one record; a larger record is still returned
    "queued.max.messages.kbytes": 4_096,
}
_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
_RECENT_S = 600.0
_NO_ID = "A" * 22
"""The topic id that brokers without topic ids return: 16 zero bytes in base64."""


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """A query for the record at an offset (None: only the watermarks), and for an ambiguous message if there is one."""

    topic: str
    partition: int
    offset: int | None
    message_id: str | None = None


class BrokerQueries(Protocol):
    """Query the broker. Calls return within the timeout in seconds and never raise because of a broker's response."""

    def topic_ids(self, topics: Iterable[str], timeout: float) -> dict[str, str]:
        """Return the ids of those topics that have one."""

    def query(self, queries: Sequence[RecordQuery], timeout: float) -> list[BrokerView]:
        """Return one view per query, in the same order."""


class KafkaBrokerQueries:
    """Query a real cluster with the connection and security settings of a client (librdkafka names).

    Each call creates its clients and closes them: for occasional queries, an idle connection costs more.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)

    def topic_ids(self, topics: Iterable[str], timeout: float) -> dict[str, str]:
        described = self._describe(sorted(topics), _Deadline(timeout))
        return {topic: view.topic_id for topic, view in described.items() if view.topic_id is not None}

    def query(self, queries: Sequence[RecordQuery], timeout: float) -> list[BrokerView]:
        if not queries:
            return []
        deadline = _Deadline(timeout)
        topics = self._describe(sorted({item.topic for item in queries}), deadline)
        views = [topics[item.topic] for item in queries]
        try:
            with self._reader() as consumer:
                views = [_ends(consumer, *pair, deadline) for pair in zip(queries, views, strict=True)]
                views = _records(consumer, queries, views, deadline)
        except KafkaException as error:
            views = [_with_error(view, error.args[0]) for view in views]
        views = self._compacted(queries, views, deadline)
        return [self._probe_message(*pair, deadline) for pair in zip(queries, views, strict=True)]

    def _describe(self, topics: Sequence[str], deadline: _Deadline) -> dict[str, BrokerView]:
        """Return whether each topic exists, and its id."""
        try:
            client = admin(self._config)  # keep a reference: the futures need the client
            futures = client.describe_topics(
                TopicCollection(list(topics)), request_timeout=deadline.remaining()
            )
            return {topic: _described(future, deadline) for topic, future in futures.items()}
        except KafkaException as error:
            return {topic: _with_error(BrokerView(), error.args[0]) for topic in topics}

    def _compacted(
        self, queries: Sequence[RecordQuery], views: list[BrokerView], deadline: _Deadline
    ) -> list[BrokerView]:
        """Add the cleanup policy for topics with a missing record; elsewhere it is not needed."""
        topics = {
            item.topic
            for item, view in zip(queries, views, strict=True)
            if view.found_at is not None and view.found_at != item.offset
        }
        if not topics:
            return views
        policies = {topic: self._is_compacted(topic, deadline) for topic in topics}
        return [
            replace(view, compacted=policies[item.topic]) if item.topic in policies else view
            for item, view in zip(queries, views, strict=True)
        ]

    def _is_compacted(self, topic: str, deadline: _Deadline) -> bool | None:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            client = admin(self._config)
            futures = client.describe_configs([resource], request_timeout=deadline.remaining())
            (answer,) = [future.result(deadline.remaining()) for future in futures.values()]
        except (KafkaException, FutureTimeout):
            return None
        policy = answer.get("cleanup.policy")
        return None if policy is None else "compact" in (policy.value or "")

    def _probe_message(self, item: RecordQuery, view: BrokerView, deadline: _Deadline) -> BrokerView:
        """Look up the ambiguous message, first in the records of the last few minutes, then in the whole partition."""
        if item.message_id is None:
            return view
        recently = int((time.time() - _RECENT_S) * 1000)
        for since in (recently, None):  # the user may have set an older timestamp
            found = find_records(
                self._config,
                item.topic,
                [item.message_id],
                partition=item.partition,
                since_ms=since,
                timeout=deadline.remaining(),
            )[item.message_id]
            if found.outcome == "found":
                break
        return replace(view, probe=found)

    def _reader(self) -> AbstractContextManager[Consumer]:
        return reader(self._config, _READER, name="loss-detection")


class _Deadline:
    """The time limit of one round of queries."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def remaining(self) -> float:
        """Return the seconds left, never 0, because librdkafka treats 0 as unlimited."""
        return max(0.05, self._until - time.monotonic())

    def expired(self) -> bool:
        return time.monotonic() >= self._until


def _described(future: Future[Any], deadline: _Deadline) -> BrokerView:
    try:
        answer = future.result(deadline.remaining() + 0.5)
    except FutureTimeout:
        return BrokerView(problem="no broker responded in time")
    except KafkaException as error:
        if error.args[0].code() in _NO_TOPIC:
            return BrokerView(exists=False)
        return _with_error(BrokerView(), error.args[0])
    topic_id = str(answer.topic_id)
    return BrokerView(exists=True, topic_id=None if topic_id == _NO_ID else topic_id)


def _ends(consumer: Consumer, item: RecordQuery, view: BrokerView, deadline: _Deadline) -> BrokerView:
    """Add both watermarks: two small requests to the partition's leader."""
    if view.problem or view.exists is False:
        return view
    if deadline.expired():
        return replace(view, problem="no broker responded in time")
    try:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(item.topic, item.partition), timeout=deadline.remaining(), cached=False
        )
    except KafkaException as error:
        return _with_error(view, error.args[0])
    return replace(view, low=low, high=high)


def _records(
    consumer: Consumer, queries: Sequence[RecordQuery], views: Sequence[BrokerView], deadline: _Deadline
) -> list[BrokerView]:
    """Add the first record at or after each offset that is within its log."""
    result = list(views)
    waiting = {
        (item.topic, item.partition): (index, item.offset)
        for index, (item, view) in enumerate(zip(queries, views, strict=True))
        if item.offset is not None
        and view.low is not None
        and view.high is not None
        and view.low <= item.offset < view.high
    }
    if not waiting:
        return result
    consumer.assign([TopicPartition(*key, offset) for key, (_, offset) in waiting.items()])
    while waiting and not deadline.expired():
        for message in consumer.consume(100, timeout=min(0.2, deadline.remaining())):
            key = (message.topic(), message.partition())
            if (error := message.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
                _on_partition_error(result, waiting, key, error)
            elif key in waiting:
                index, _ = waiting.pop(key)
                found = None if error is not None else record_id(message.headers())
                result[index] = replace(result[index], found_at=message.offset(), found_id=found, problem="")
                consumer.incremental_unassign([TopicPartition(*key)])
    for index, _ in waiting.values():
        if not result[index].problem:
            result[index] = replace(result[index], problem="the record was not read in time")
    return result


def _on_partition_error(
    result: list[BrokerView],
    waiting: dict[tuple[str, int], tuple[int, int]],
    key: tuple[str | None, int | None],
    error: KafkaError,
) -> None:
    """Record an error. Missing permissions end the query; an unavailable broker may return in time."""
    for waiting_key in list(waiting):
        if waiting_key == key or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            index, _ = waiting[waiting_key]
            result[index] = _with_error(result[index], error)
            if result[index].denied:
                del waiting[waiting_key]


def _with_error(view: BrokerView, error: KafkaError) -> BrokerView:
    denied = error.code() in _DENIED
    return replace(view, problem=_describe_error(error), denied=denied)


def _describe_error(error: KafkaError) -> str:
    match error.code():
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return "no permission to read the topic (grant READ and DESCRIBE on it)"
        case KafkaError.GROUP_AUTHORIZATION_FAILED:
            return "no permission to read with this group (grant READ on the group `producer-core-landing*`)"
    return f"{error.name()}: {error.str()}"
