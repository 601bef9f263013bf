"""Edges: what the brokers say of a topic's partitions, asked by our own client; Spark does not tell it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from producer_core.errors import BrokerError
from producer_core.kafka.clients import retry_transient
from producer_core.pipeline.integrity.spans import PartitionBounds

_TIMEOUT = 15.0
_BIGGEST = 1 << 62


@dataclass(frozen=True)
class TopicFacts:
    """`incarnation` is the topic's own id: another one means that it was deleted and made anew. `policy` is its
    cleanup.policy, empty where we may not read it."""

    name: str
    incarnation: str
    partitions: tuple[int, ...]
    policy: str

    @property
    def compacted(self) -> bool | None:
        return "compact" in self.policy if self.policy else None


def facts(admin: AdminClient, topic: str) -> TopicFacts:
    """The topic as it is now; BrokerError when it is gone or may not be described."""
    try:
        found = admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT)[topic].result(
            _TIMEOUT
        )
    except (KafkaException, FutureTimeout) as error:
        raise BrokerError(
            f"Topic {topic!r} cannot be described: {_text(error)}.", fix="Check its name and DESCRIBE on it."
        ) from error
    policy = _setting(admin, topic, "cleanup.policy")
    numbers = tuple(sorted(partition.id for partition in found.partitions))
    return TopicFacts(topic, str(found.topic_id or uuid.UUID(int=0)), numbers, policy)


def edges(admin: AdminClient, topic: TopicFacts) -> dict[int, PartitionBounds]:
    """First, last stable and end offset of each partition, the stable ones asked for first."""
    stable = _offsets(admin, topic, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
    high = _offsets(admin, topic, OffsetSpec.latest())
    low = _offsets(admin, topic, OffsetSpec.earliest())
    return {
        number: PartitionBounds(
            low[number][0], max(stable[number][0], low[number][0]), max(high[number][0], low[number][0])
        )
        for number in topic.partitions
    }


def first_since(admin: AdminClient, topic: TopicFacts, moment: float) -> dict[int, int | None]:
    """By partition the first offset with a timestamp at or after the moment; None where there is none."""
    found = _offsets(admin, topic, OffsetSpec.for_timestamp(round(moment * 1000)))
    return {number: offset if offset >= 0 else None for number, (offset, _) in found.items()}


def begin_since(first: Mapping[int, int | None]) -> dict[int, int]:
    """Where to begin: at those offsets, and behind everything where nothing is that new."""
    return {number: _BIGGEST if offset is None else offset for number, offset in first.items()}


def latest_timestamps(admin: AdminClient, topic: TopicFacts) -> dict[int, float]:
    """By partition the highest timestamp of a record; nothing where there are no records."""
    found = _offsets(admin, topic, OffsetSpec.max_timestamp())
    return {
        number: moment / 1000 for number, (offset, moment) in found.items() if offset >= 0 and moment >= 0
    }


def _offsets(
    admin: AdminClient,
    topic: TopicFacts,
    spec: Any,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[int, tuple[int, int]]:
    """(offset, timestamp) by partition."""
    asked = {TopicPartition(topic.name, number): spec for number in topic.partitions}

    def ask() -> dict[int, Any]:
        futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=_TIMEOUT)
        return {place.partition: future.result(_TIMEOUT + 1) for place, future in futures.items()}

    try:
        answers = retry_transient(ask)
    except (KafkaException, FutureTimeout) as error:
        raise BrokerError(
            f"The offsets of topic {topic.name!r} are not told: {_text(error)}.",
            fix="Check that every partition has a leader, and DESCRIBE on the topic.",
        ) from error
    return {number: (answer.offset, answer.timestamp) for number, answer in answers.items()}


def _setting(admin: AdminClient, topic: str, name: str) -> str:
    """A setting of the topic; empty where we may not read it."""
    asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)], request_timeout=_TIMEOUT)
    try:
        (answer,) = [future.result(_TIMEOUT + 1) for future in asked.values()]
    except (KafkaException, FutureTimeout):
        return ""
    return str(answer[name].value) if name in answer else ""


def _text(error: Exception) -> str:
    return str(error.args[0].str()).rstrip(".") if isinstance(error, KafkaException) else "no answer in time"
