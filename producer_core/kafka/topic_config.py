"""A topic as its brokers describe it: what a record that is sent there now would meet."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from producer_core.kafka.clients import admin

_NO_SUCH = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_NOBODY = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """`partitions` None: there is no such topic; 0: nobody could say, and `trouble` says why.

    The settings are None where they may not be read (`unread` says why).
    """

    partitions: int | None
    max_message_bytes: int | None = None
    cleanup_policy: str | None = None
    trouble: str = ""
    unread: str = ""

    @property
    def compacted(self) -> bool:
        return "compact" in (self.cleanup_policy or "")

    @property
    def may_be_compacted(self) -> bool:
        return may_compact(self.cleanup_policy)


def may_compact(cleanup_policy: str | None) -> bool:
    """Return whether a topic with this policy may be compacted; None: it is not known."""
    return cleanup_policy is None or "compact" in cleanup_policy


class TimeLimit:
    """So many seconds, or until `stopping` says so."""

    def __init__(self, seconds: float, stopping: Callable[[], bool] = lambda: False) -> None:
        self._until = time.monotonic() + seconds
        self._stopping = stopping

    def left(self) -> float:
        return 0.0 if self._stopping() else max(0.0, self._until - time.monotonic())

    def question(self, most: float = 10.0) -> float:
        """Seconds for one question; never 0, which librdkafka takes for «as long as it lasts»."""
        return max(0.05, min(most, self.left()))


class TopicConfigQuery:
    """Asks about topics through `handle`; once nobody answered, nobody is asked again.

    `seconds` are for all questions together, counted only while somebody is asked. `complaints` are what the handle's
    connection complains of.
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
        began = time.monotonic()
        self._bound = TimeLimit(self._seconds - self.spent, self._stopping)
        if not self.silent and not self._bound.left():
            self.silent = "there was no time to ask"
        if self.silent:
            return TopicConfig(0, trouble=self.silent)
        found = self._described(topic)
        self.spent += time.monotonic() - began
        return found

    def _described(self, topic: str) -> TopicConfig:
        try:
            described = self._handle.list_topics(topic, timeout=self._bound.question()).topics[topic]
        except KafkaException as error:
            return TopicConfig(0, trouble=self._failed(error.args[0], topic))
        if described.error is not None:
            gone = described.error.code() in _NO_SUCH
            return TopicConfig(None if gone else 0, trouble=words(described.error, topic))
        return self._settings(topic, len(described.partitions))

    def _failed(self, error: KafkaError, topic: str) -> str:
        if error.code() in _NOBODY:
            told = [one for one in self._complaints if one.code() != KafkaError._ALL_BROKERS_DOWN]
            self.silent = f"no broker answers ({_plain(told[-1] if told else error)})"
            return self.silent
        return words(error, topic)

    def _settings(self, topic: str, partitions: int) -> TopicConfig:
        asked = self._admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, topic)], request_timeout=self._bound.question()
        )
        try:
            (answer,) = [future.result(self._bound.question() + 1) for future in asked.values()]
        except KafkaException as error:
            return TopicConfig(partitions, unread=_unread(error.args[0], topic))
        except FutureTimeout:
            return TopicConfig(partitions, unread="no answer in time")
        found = {entry.name: entry.value for entry in answer.values()}
        limit = str(found.get("max.message.bytes") or "")
        return TopicConfig(partitions, int(limit) if limit.isdigit() else None, found.get("cleanup.policy"))


def cleanup_policies(
    settings: Mapping[str, Any], topics: Collection[str], seconds: float
) -> dict[str, str | None]:
    """Return the cleanup.policy of each topic, from one request; None where it cannot be read.

    "" where the broker has no settings at all: only librdkafka's mock broker, which never compacts.
    """
    client = admin(settings)
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    asked = client.describe_configs(resources, request_timeout=seconds)
    until = time.monotonic() + seconds + 1
    return {resource.name: _policy(future, until - time.monotonic()) for resource, future in asked.items()}


def _policy(future: Future[Any], seconds: float) -> str | None:
    try:
        entry = future.result(max(0.0, seconds)).get("cleanup.policy")
    except KafkaException as error:
        return "" if error.args[0].code() == KafkaError._UNSUPPORTED_FEATURE else None
    except FutureTimeout:
        return None
    return None if entry is None else str(entry.value)


def words(error: KafkaError, topic: str) -> str:
    """Why a question about a topic was not answered."""
    match error.code():
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return f"no permission to see {topic} (grant DESCRIBE and READ on the topic)"
        case KafkaError.UNKNOWN_TOPIC_OR_PART | KafkaError._UNKNOWN_TOPIC:
            return f"the topic {topic} does not exist"
        case KafkaError._UNKNOWN_PARTITION | KafkaError.LEADER_NOT_AVAILABLE:
            return f"a partition of {topic} has no leader that answers; look again in a few seconds"
        case KafkaError._TIMED_OUT:
            return "the brokers did not answer in time; look again in a few seconds"
    return f"{error.name()}: {error.str()}"


def _plain(error: KafkaError) -> str:
    """Without the client's and the broker's name, and without the state that the library was in."""
    return str(error.str()).rpartition("]: ")[2].partition(" (after ")[0]


def _unread(error: KafkaError, topic: str) -> str:
    if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
        return f"grant DESCRIBE_CONFIGS on {topic}"
    if error.code() == KafkaError._UNSUPPORTED_FEATURE:
        return "this broker does not tell its settings"
    return f"{error.name()}: {error.str()}"
