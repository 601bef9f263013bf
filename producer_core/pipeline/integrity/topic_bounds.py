"""Ask the brokers for the bounds of a topic's partitions with the Python client; Spark does not expose them."""

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
_MAX_OFFSET = 1 << 62


@dataclass(frozen=True)
class TopicFacts:
    """Describe a topic.

    `incarnation` is the topic's id: another one means that the topic was deleted and re-created. `policy` is its
    cleanup.policy, empty when it cannot be read.
    """

    name: str
    incarnation: str
    partitions: tuple[int, ...]
    policy: str

    @property
    def compacted(self) -> bool | None:
        return "compact" in self.policy if self.policy else None


def facts(admin: AdminClient, topic: str) -> TopicFacts:
    """Return the topic's current facts; raise BrokerError when it is absent or cannot be described."""
    try:
        found = admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT)[topic].result(
            _TIMEOUT
        )
    except (KafkaException, FutureTimeout) as error:
        raise BrokerError(
            f"Topic {topic!r} cannot be described: {_text(error)}.",
            fix="Check its name and the DESCRIBE permission.",
        ) from error
    policy = _setting(admin, topic, "cleanup.policy")
    numbers = tuple(sorted(partition.id for partition in found.partitions))
    return TopicFacts(topic, str(found.topic_id or uuid.UUID(int=0)), numbers, policy)


def bounds(admin: AdminClient, topic: TopicFacts) -> dict[int, PartitionBounds]:
    """Return the first, last stable and end offset of each partition; the stable ones are requested first."""
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
    """Return per partition the first offset with a timestamp at or after `moment`; None when there is none."""
    found = _offsets(admin, topic, OffsetSpec.for_timestamp(round(moment * 1000)))
    return {number: offset if offset >= 0 else None for number, (offset, _) in found.items()}


def begin_since(first: Mapping[int, int | None]) -> dict[int, int]:
    """Return where to begin: at those offsets, and after the end of a partition without such an offset."""
    return {number: _MAX_OFFSET if offset is None else offset for number, offset in first.items()}


def latest_timestamps(admin: AdminClient, topic: TopicFacts) -> dict[int, float]:
    """Return per partition the highest timestamp of a record; empty partitions are left out."""
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
    """Return (offset, timestamp) per partition."""
    specs = {TopicPartition(topic.name, number): spec for number in topic.partitions}

    def request() -> dict[int, Any]:
        futures = admin.list_offsets(specs, isolation_level=isolation, request_timeout=_TIMEOUT)
        return {place.partition: future.result(_TIMEOUT + 1) for place, future in futures.items()}

    try:
        answers = retry_transient(request)
    except (KafkaException, FutureTimeout) as error:
        raise BrokerError(
            f"The offsets of topic {topic.name!r} cannot be read: {_text(error)}.",
            fix="Check that every partition has a leader and that DESCRIBE is granted on the topic.",
        ) from error
    return {number: (answer.offset, answer.timestamp) for number, answer in answers.items()}


def _setting(admin: AdminClient, topic: str, name: str) -> str:
    """Return a setting of the topic; empty when it cannot be read."""
    futures = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)], request_timeout=_TIMEOUT)
    try:
        (answer,) = [future.result(_TIMEOUT + 1) for future in futures.values()]
    except (KafkaException, FutureTimeout):
        return ""
    return str(answer[name].value) if name in answer else ""


def _text(error: Exception) -> str:
    return (
        str(error.args[0].str()).rstrip(".") if isinstance(error, KafkaException) else "no response in time"
    )
