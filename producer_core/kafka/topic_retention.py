"""How long a topic keeps its records, as its brokers describe it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from producer_core.errors import TokenUnavailable
from producer_core.kafka.clients import admin


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """A topic's `cleanup.policy` and `retention.ms`; -1 keeps records without limit.

    A value is None if it could not be read; `reason` tells why. Brokers delete whole segments, so a record can stay longer,
    and `retention.bytes` can remove it sooner.
    """

    cleanup_policy: str | None = None
    retention_ms: int | None = None
    reason: str = ""

    @property
    def compacts(self) -> bool:
        return "compact" in (self.cleanup_policy or "")


def topic_retentions(
    settings: Mapping[str, Any], topics: Collection[str], timeout: float
) -> dict[str, TopicRetention]:
    """Return the retention of each topic, with one request that takes at most `timeout` seconds. It never raises."""
    if not topics:
        return {}
    try:
        client = admin(settings)
    except TokenUnavailable:
        return dict.fromkeys(topics, TopicRetention(reason="no token was available"))
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    futures = client.describe_configs(resources, request_timeout=timeout)
    deadline = time.monotonic() + timeout + 1
    return {
        resource.name: _retention(future, max(0.0, deadline - time.monotonic()))
        for resource, future in futures.items()
    }


def _retention(future: Future[Any], seconds: float) -> TopicRetention:
    try:
        entries = {entry.name: entry.value for entry in future.result(seconds).values()}
    except KafkaException as error:
        return TopicRetention(reason=_reason(error.args[0]))
    except FutureTimeout:
        return TopicRetention(reason="no response in time")
    policy, limit = entries.get("cleanup.policy"), retention_ms(entries)
    reason = "" if policy is not None and limit is not None else "the broker does not report it"
    return TopicRetention(policy, limit, reason)


def retention_ms(entries: Mapping[str, Any]) -> int | None:
    """Return the value of `retention.ms` among the settings of a topic, or None if it has none."""
    text = str(entries.get("retention.ms") or "")
    return int(text) if text.removeprefix("-").isdigit() else None


def _reason(error: KafkaError) -> str:
    match error.code():
        case KafkaError.UNKNOWN_TOPIC_OR_PART | KafkaError._UNKNOWN_TOPIC:
            return "the topic does not exist"
        case KafkaError.TOPIC_AUTHORIZATION_FAILED | KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return "no permission (grant DESCRIBE_CONFIGS on the topic)"
        case KafkaError._UNSUPPORTED_FEATURE:
            return "this broker does not report its settings"
        case KafkaError._TRANSPORT | KafkaError._TIMED_OUT | KafkaError._ALL_BROKERS_DOWN:
            return "no broker responded"
    return f"the request failed with {error.name()}"
