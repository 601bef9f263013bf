"""The questions to the broker: where a log begins and ends, and whose record is at an offset."""

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
from producer_core.kafka.record_lookup import look
from producer_core.messages import record_id

_READER: Mapping[str, Any] = {
    "isolation.level": "read_uncommitted",  # else the watermark stops at somebody's open transaction
    "auto.offset.reset": "error",
    "fetch.message.max.bytes": 65_536,  # one record is enough; a larger one comes all the same
    "queued.max.messages.kbytes": 4_096,
}
_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_REFUSED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
_RECENT = 600.0
_NO_ID = "A" * 22
"""How a broker without topic ids writes one: sixteen zero bytes."""


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """A question: the record at this offset (None: only the ends), and this message where one is in doubt."""

    topic: str
    partition: int
    offset: int | None
    message_id: str | None = None


class BrokerQueries(Protocol):
    """Who asks the broker; never raises for what it answers, and ends within the timeout in seconds."""

    def topic_ids(self, topics: Iterable[str], timeout: float) -> dict[str, str]:
        """The ids of those topics that have one."""

    def look(self, wanted: Sequence[RecordQuery], timeout: float) -> list[BrokerView]:
        """One answer a question, in their order."""


class KafkaBrokerQueries:
    """Asks a real cluster, with the connection and security settings of a client (librdkafka's names).

    Each call makes its clients and drops them: for a look now and then a kept connection costs more.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)

    def topic_ids(self, topics: Iterable[str], timeout: float) -> dict[str, str]:
        described = self._describe(sorted(topics), _Bound(timeout))
        return {topic: seen.topic_id for topic, seen in described.items() if seen.topic_id is not None}

    def look(self, wanted: Sequence[RecordQuery], timeout: float) -> list[BrokerView]:
        if not wanted:
            return []
        bound = _Bound(timeout)
        topics = self._describe(sorted({item.topic for item in wanted}), bound)
        looks = [topics[item.topic] for item in wanted]
        try:
            with self._reader() as consumer:
                looks = [_ends(consumer, *pair, bound) for pair in zip(wanted, looks, strict=True)]
                looks = _records(consumer, wanted, looks, bound)
        except KafkaException as error:
            looks = [_troubled(seen, error.args[0]) for seen in looks]
        looks = self._compacted(wanted, looks, bound)
        return [self._landing(*pair, bound) for pair in zip(wanted, looks, strict=True)]

    def _describe(self, topics: Sequence[str], bound: _Bound) -> dict[str, BrokerView]:
        """Whether each topic exists, and its id."""
        asking = admin(self._config)  # kept: its answers end with it
        try:
            asked = asking.describe_topics(TopicCollection(list(topics)), request_timeout=bound.left())
            return {topic: _described(future, bound) for topic, future in asked.items()}
        except KafkaException as error:
            return {topic: _troubled(BrokerView(), error.args[0]) for topic in topics}

    def _compacted(
        self, wanted: Sequence[RecordQuery], looks: list[BrokerView], bound: _Bound
    ) -> list[BrokerView]:
        """The cleanup policy, asked only where a record is missing: elsewhere it does not matter."""
        topics = {
            item.topic
            for item, seen in zip(wanted, looks, strict=True)
            if seen.found_at is not None and seen.found_at != item.offset
        }
        if not topics:
            return looks
        policies = {topic: self._is_compacted(topic, bound) for topic in topics}
        return [
            replace(seen, compacted=policies[item.topic]) if item.topic in policies else seen
            for item, seen in zip(wanted, looks, strict=True)
        ]

    def _is_compacted(self, topic: str, bound: _Bound) -> bool | None:
        resource, asking = ConfigResource(ResourceType.TOPIC, topic), admin(self._config)
        try:
            asked = asking.describe_configs([resource], request_timeout=bound.left())
            (answer,) = [future.result(bound.left()) for future in asked.values()]
        except (KafkaException, FutureTimeout):
            return None
        policy = answer.get("cleanup.policy")
        return None if policy is None else "compact" in (policy.value or "")

    def _landing(self, item: RecordQuery, seen: BrokerView, bound: _Bound) -> BrokerView:
        """The message itself: among the last minutes' records first, then among all of its partition."""
        if item.message_id is None:
            return seen
        recently = int((time.time() - _RECENT) * 1000)
        for since in (recently, None):  # a message may carry an older timestamp of its owner's
            found = look(
                self._config,
                item.topic,
                [item.message_id],
                partition=item.partition,
                since_ms=since,
                timeout=bound.left(),
            )[item.message_id]
            if found.outcome == "found":
                break
        return replace(seen, landing=found)

    def _reader(self) -> AbstractContextManager[Consumer]:
        return reader(self._config, _READER, name="standing")


class _Bound:
    """The time that a round of questions may take together."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def left(self) -> float:
        """Never 0, which librdkafka takes for «as long as it lasts»."""
        return max(0.05, self._until - time.monotonic())

    def over(self) -> bool:
        return time.monotonic() >= self._until


def _described(future: Future[Any], bound: _Bound) -> BrokerView:
    try:
        answer = future.result(bound.left() + 0.5)
    except FutureTimeout:
        return BrokerView(trouble="nobody answered in time")
    except KafkaException as error:
        if error.args[0].code() in _NO_TOPIC:
            return BrokerView(exists=False)
        return _troubled(BrokerView(), error.args[0])
    topic_id = str(answer.topic_id)
    return BrokerView(exists=True, topic_id=None if topic_id == _NO_ID else topic_id)


def _ends(consumer: Consumer, item: RecordQuery, seen: BrokerView, bound: _Bound) -> BrokerView:
    """Both ends of the log: two small requests to the partition's leader."""
    if seen.trouble or seen.exists is False:
        return seen
    if bound.over():
        return replace(seen, trouble="nobody answered in time")
    try:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(item.topic, item.partition), timeout=bound.left(), cached=False
        )
    except KafkaException as error:
        return _troubled(seen, error.args[0])
    return replace(seen, low=low, high=high)


def _records(
    consumer: Consumer, wanted: Sequence[RecordQuery], looks: Sequence[BrokerView], bound: _Bound
) -> list[BrokerView]:
    """The first record at or after each offset that is still within its log."""
    result = list(looks)
    waiting = {
        (item.topic, item.partition): (place, item.offset)
        for place, (item, seen) in enumerate(zip(wanted, looks, strict=True))
        if item.offset is not None
        and seen.low is not None
        and seen.high is not None
        and seen.low <= item.offset < seen.high
    }
    if not waiting:
        return result
    consumer.assign([TopicPartition(*key, offset) for key, (_, offset) in waiting.items()])
    while waiting and not bound.over():
        for message in consumer.consume(100, timeout=min(0.2, bound.left())):
            key = (message.topic(), message.partition())
            if (error := message.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
                _complain(result, waiting, key, error)
            elif key in waiting:
                place, _ = waiting.pop(key)
                found = None if error is not None else record_id(message.headers())
                result[place] = replace(result[place], found_at=message.offset(), found_id=found, trouble="")
                consumer.incremental_unassign([TopicPartition(*key)])
    for place, _ in waiting.values():
        if not result[place].trouble:
            result[place] = replace(result[place], trouble="the record was not read in time")
    return result


def _complain(
    result: list[BrokerView],
    waiting: dict[tuple[str, int], tuple[int, int]],
    key: tuple[str | None, int | None],
    error: KafkaError,
) -> None:
    """A refusal ends its partition's look, or all of them; a broker that went away may come back in time."""
    for each in list(waiting):
        if each == key or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            place, _ = waiting[each]
            result[place] = _troubled(result[place], error)
            if result[place].refused:
                del waiting[each]


def _troubled(seen: BrokerView, error: KafkaError) -> BrokerView:
    refused = error.code() in _REFUSED
    return replace(seen, trouble=_words(error), refused=refused)


def _words(error: KafkaError) -> str:
    match error.code():
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return "no permission to read the topic (grant READ and DESCRIBE on it)"
        case KafkaError.GROUP_AUTHORIZATION_FAILED:
            return "no permission to read with this group (grant READ on the group «producer-core-landing*»)"
    return f"{error.name()}: {error.str()}"
