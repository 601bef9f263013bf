"""The partitions and settings of a topic as its brokers describe them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from producer_core.errors import TokenUnavailable
from producer_core.kafka.clients import admin
from producer_core.kafka.topic_retention import retention_ms

_NO_SUCH = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_UNAVAILABLE = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's configuration. `partitions` is None if it does not exist, and 0 if unknown (`trouble` has the reason).

    Settings that cannot be read are None (`unread` has the reason).
    """

    partitions: int | None
    max_message_bytes: int | None = None
    cleanup_policy: str | None = None
    retention_ms: int | None = None
    trouble: str = ""
    unread: str = ""

    @property
    def compacted(self) -> bool:
        return "compact" in (self.cleanup_policy or "")

    @property
    def may_be_compacted(self) -> bool:
        return may_compact(self.cleanup_policy)


def may_compact(cleanup_policy: str | None) -> bool:
    """Return whether a topic with this policy may be compacted. None means that the policy is unknown."""
    return cleanup_policy is None or "compact" in cleanup_policy


class TimeLimit:
    """A limit of a few seconds, or until `stopping` returns true."""

    def __init__(self, seconds: float, stopping: Callable[[], bool] = lambda: False) -> None:
        self._until = time.monotonic() + seconds
        self._stopping = stopping

    def left(self) -> float:
        return 0.0 if self._stopping() else max(0.0, self._until - time.monotonic())

    def question(self, most: float = 10.0) -> float:
        """Return the timeout of one request, never 0, because librdkafka treats 0 as unlimited."""
        return max(0.05, min(most, self.left()))


class TopicConfigQuery:
    """Query topics through `handle`. Once no broker has responded, no further request is sent.

    `seconds` limits all requests together; only the time of the requests counts. `complaints` are the connection errors
    of the handle.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        handle: Consumer,
        seconds: float,
        stopping: Callable[[], bool],
        complaints: Sequence[KafkaError],
    ) -> None:
        self._admin = admin(settings)
        self._handle = handle
        self._seconds = seconds
        self._stopping = stopping
        self._bound = TimeLimit(seconds, stopping)
        self._complaints = complaints
        self.spent = 0.0
        self.silent = ""

    def facts(self, topic: str) -> TopicConfig:
        started = time.monotonic()
        self._bound = TimeLimit(self._seconds - self.spent, self._stopping)
        if not self.silent and not self._bound.left():
            self.silent = "no time was left for the query"
        if self.silent:
            return TopicConfig(0, trouble=self.silent)
        config = self._described(topic)
        self.spent += time.monotonic() - started
        return config

    def _described(self, topic: str) -> TopicConfig:
        try:
            described = self._handle.list_topics(topic, timeout=self._bound.question()).topics[topic]
        except KafkaException as error:
            return TopicConfig(0, trouble=self._request_failed(error.args[0], topic))
        if described.error is not None:
            missing = described.error.code() in _NO_SUCH
            return TopicConfig(None if missing else 0, trouble=describe_error(described.error, topic))
        return self._settings(topic, len(described.partitions))

    def _request_failed(self, error: KafkaError, topic: str) -> str:
        if error.code() in _UNAVAILABLE:
            specific = [one for one in self._complaints if one.code() != KafkaError._ALL_BROKERS_DOWN]
            self.silent = f"no broker responded ({connection_problem(specific[-1] if specific else error)})"
            return self.silent
        return describe_error(error, topic)

    def _settings(self, topic: str, partitions: int) -> TopicConfig:
        futures = self._admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, topic)], request_timeout=self._bound.question()
        )
        try:
            (answer,) = [future.result(self._bound.question() + 1) for future in futures.values()]
        except KafkaException as error:
            return TopicConfig(partitions, unread=_unread_reason(error.args[0], topic))
        except FutureTimeout:
            return TopicConfig(partitions, unread="no response in time")
        config = {entry.name: entry.value for entry in answer.values()}
        limit = str(config.get("max.message.bytes") or "")
        return TopicConfig(
            partitions,
            int(limit) if limit.isdigit() else None,
            config.get("cleanup.policy"),
            retention_ms(config),
        )


def cleanup_policies(
    settings: Mapping[str, Any], topics: Collection[str], seconds: float
) -> dict[str, str | None]:
    """Return the cleanup.policy of each topic, with one request; None if it cannot be read.

    "" means that the broker has no settings at all, like librdkafka's mock broker, which never compacts.
    """
    try:
        client = admin(settings)
    except TokenUnavailable:
        return dict.fromkeys(topics)
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    futures = client.describe_configs(resources, request_timeout=seconds)
    deadline = time.monotonic() + seconds + 1
    return {
        resource.name: _policy(future, deadline - time.monotonic()) for resource, future in futures.items()
    }


def _policy(future: Future[Any], seconds: float) -> str | None:
    try:
        entry = future.result(max(0.0, seconds)).get("cleanup.policy")
    except KafkaException as error:
        return "" if error.args[0].code() == KafkaError._UNSUPPORTED_FEATURE else None
    except FutureTimeout:
        return None
    return None if entry is None else str(entry.value)


def describe_error(error: KafkaError, topic: str) -> str:
    """Return the reason why a query about a topic failed."""
    match error.code():
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return f"no permission to describe {topic} (grant DESCRIBE and READ on the topic)"
        case KafkaError.UNKNOWN_TOPIC_OR_PART | KafkaError._UNKNOWN_TOPIC:
            return f"the topic {topic} does not exist"
        case KafkaError._UNKNOWN_PARTITION | KafkaError.LEADER_NOT_AVAILABLE:
            return f"a partition of {topic} has no leader; try again in a few seconds"
        case KafkaError._TIMED_OUT:
            return "the brokers did not respond in time; try again in a few seconds"
    return _failed(error)


def connection_problem(error: KafkaError) -> str:
    """Return why a connection failed, without librdkafka's text, which names threads, addresses and internal states."""
    match error.code():
        case KafkaError._RESOLVE:
            return "the host name cannot be resolved"
        case KafkaError._SSL:
            return "the TLS handshake failed"
        case KafkaError._AUTHENTICATION:
            return "the authentication failed"
        case KafkaError._TIMED_OUT | KafkaError._ALL_BROKERS_DOWN:
            return "no response in time"
    return "the connection failed"


def _failed(error: KafkaError) -> str:
    """Return the code of an error as a reason. `producer-core explain` describes the code."""
    return f"the request failed with {error.name()}"


def _unread_reason(error: KafkaError, topic: str) -> str:
    if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
        return f"grant DESCRIBE_CONFIGS on {topic}"
    if error.code() == KafkaError._UNSUPPORTED_FEATURE:
        return "this broker does not report its settings"
    if error.code() in _UNAVAILABLE:
        return connection_problem(error)
    return _failed(error)
