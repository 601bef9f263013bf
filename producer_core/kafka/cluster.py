"""A Kafka cluster as it answers questions: its brokers, a topic's replicas, what we may do there."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import ConfigResource, ResourceType

from producer_core._internal.librdkafka import client_log
from producer_core.config import ClientConfig, connection_settings
from producer_core.errors import BrokerError, BrokerUnreachable, ConfigError, InvalidMessage
from producer_core.kafka.classify import failure_of
from producer_core.kafka.clients import admin, topic_id

_TRANSACTING = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 30_000,
    "transaction.timeout.ms": 30_000,
    "linger.ms": 5,
}
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ADDRESS = re.compile(r"^\S+:\d+/(?:bootstrap|\d+): ")
_STATE = re.compile(r" \(after \d+ms in state [^)]*\)")
_HOPELESS = (KafkaError._AUTHENTICATION, KafkaError._SSL)


@dataclass(frozen=True)
class ClusterView:
    """What the first answer says: the cluster's id and its brokers by id, as `host:port`."""

    cluster_id: str
    brokers: Mapping[int, str]
    topics: frozenset[str]


@dataclass(frozen=True)
class TopicView:
    """A topic's partitions and the number of its replicas; None where the cluster does not tell."""

    name: str
    partitions: int
    replication_factor: int
    in_sync: int
    leaderless: int
    operations: frozenset[str] | None
    min_insync_replicas: int | None
    max_message_bytes: int | None
    topic_id: str | None = None


class Cluster:
    """Asks within a bound of seconds. `last_error` is what the connection complained of last."""

    def __init__(self, config: ClientConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection_settings(config.settings)
        self._address = config.bootstrap_servers
        self._clock = clock
        self._errors: list[KafkaError] = []
        self._admin = admin(self._connection, {"error_cb": self._errors.append})

    @property
    def last_error(self) -> str:
        """The most telling complaint: credentials before refused connections before «all brokers are down»."""
        for wanted in (_HOPELESS, None):
            for error in reversed(self._errors):
                if (wanted and error.code() in wanted) or (
                    not wanted and error.code() != KafkaError._ALL_BROKERS_DOWN
                ):
                    return _plain(error.str())
        return "no connection"

    def view(self, *, timeout: float = 10.0) -> ClusterView:
        """The cluster's first answer; BrokerUnreachable with the last connection error when none came."""
        metadata = self._metadata(timeout)
        brokers = {broker.id: f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}
        return ClusterView(metadata.cluster_id or "", brokers, frozenset(metadata.topics))

    def require_topic(self, topic: str, *, timeout: float = 5.0) -> None:
        """BrokerError when the topic is not there and does not come by being asked for, or may not be seen."""
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InvalidMessage(
                f"{topic!r} is not a topic name.",
                fix="Kafka takes 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.",
            )
        deadline = self._clock() + timeout
        while True:
            error = self._metadata(timeout, topic).topics[topic].error
            if error is None or error.code() == KafkaError.LEADER_NOT_AVAILABLE:
                return
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise BrokerError(
                    f"Topic {topic!r} may not be used with these credentials.", fix="Grant WRITE on it."
                )
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise BrokerError(f"Topic {topic!r} cannot be used: {_plain(error.str())}.")
            if self._clock() > deadline:
                raise BrokerError(
                    f"There is no topic {topic!r}.",
                    fix="Create it first; this cluster does not create topics by itself.",
                )
            self._admin.poll(0.2)

    def require_partition(self, topic: str, partition: int, *, timeout: float = 5.0) -> None:
        """Raise ConfigError when the topic has no such partition; a topic that was just made is asked again."""
        deadline = self._clock() + timeout
        while not (found := len(self._metadata(timeout, topic).topics[topic].partitions)):
            if self._clock() > deadline:
                return  # the messages themselves will tell
            self._admin.poll(0.2)
        if partition >= found:
            raise ConfigError(
                f"Topic {topic!r} has no partition {partition}.",
                fix="It has partition 0 only." if found == 1 else f"It has partitions 0 to {found - 1}.",
            )

    def topic(self, name: str, *, timeout: float = 10.0) -> TopicView:
        """A topic's replicas, limits and our permissions; BrokerError when it cannot be described."""
        asked = self._admin.describe_topics(
            TopicCollection([name]), include_authorized_operations=True, request_timeout=timeout
        )[name]
        try:
            found = asked.result(timeout + 1)
        except (KafkaException, FutureTimeout) as error:
            raise BrokerError(f"Topic {name!r} cannot be described: {_text(error)}.") from error
        replicas = [len(partition.replicas) for partition in found.partitions]
        settings = self._settings(ResourceType.TOPIC, name, timeout)
        operations = found.authorized_operations
        return TopicView(
            name=name,
            partitions=len(found.partitions),
            replication_factor=min(replicas, default=0),
            in_sync=min((len(partition.isr) for partition in found.partitions), default=0),
            leaderless=sum(partition.leader is None for partition in found.partitions),
            operations=None if operations is None else frozenset(item.name for item in operations),
            min_insync_replicas=_number(settings.get("min.insync.replicas")),
            max_message_bytes=_number(settings.get("max.message.bytes")),
            topic_id=topic_id(found.topic_id) or None,
        )

    def operations(self, topics: Sequence[str], *, timeout: float = 10.0) -> dict[str, frozenset[str] | None]:
        """What we may do on each topic: nothing where it may not even be seen; None where the cluster does not
        tell, or has no such topic. BrokerUnreachable without an answer in time."""
        if not topics:
            return {}
        self._metadata(timeout)
        asked = self._admin.describe_topics(
            TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=timeout
        )
        return {topic: _operations(topic, future, timeout) for topic, future in asked.items()}

    def may_transact(self, transactional_id: str, *, timeout: float = 10.0) -> bool:
        """Whether transactions may be begun under this id. It fences whoever uses the very same one.

        BrokerUnreachable when the transaction coordinator does not answer in time.
        """
        self._metadata(timeout)
        producer = Producer(
            {**self._connection, **_TRANSACTING, "transactional.id": transactional_id},
            logger=client_log(),
        )
        try:
            producer.init_transactions(timeout)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                return False
            raise _not_told("Whether transactions are allowed cannot be tried", error) from error
        return True

    def _settings(self, kind: Any, name: str, timeout: float) -> Mapping[str, str]:
        """A resource's settings; empty where we may not read them."""
        asked = self._admin.describe_configs([ConfigResource(kind, name)], request_timeout=timeout)
        try:
            (answer,) = [future.result(timeout + 1) for future in asked.values()]
        except (KafkaException, FutureTimeout):
            return {}
        return {entry.name: entry.value for entry in answer.values()}

    def _metadata(self, timeout: float, topic: str | None = None) -> Any:
        deadline = self._clock() + timeout
        while True:
            self._admin.poll(0)
            left = deadline - self._clock()
            hopeless = any(error.code() in _HOPELESS for error in self._errors) and left < timeout - 1
            if left <= 0 or hopeless:
                raise self._unreachable(timeout, hopeless=hopeless)
            try:
                return self._admin.list_topics(topic, timeout=min(0.5, left))
            except KafkaException as error:
                if error.args[0].code() not in (
                    KafkaError._TRANSPORT,
                    KafkaError._TIMED_OUT,
                    KafkaError._ALL_BROKERS_DOWN,
                ):
                    raise BrokerError(f"{self._address} answered with an error: {_text(error)}.") from error
                self._admin.poll(min(0.2, max(left, 0)))

    def _unreachable(self, timeout: float, *, hopeless: bool) -> BrokerUnreachable:
        if hopeless:
            return BrokerUnreachable(
                f"The brokers at {self._address} refuse the connection: {self.last_error}.",
                fix="Check the credentials and certificates (--config, --config-file).",
            )
        return BrokerUnreachable(
            f"No broker answers at {self._address} within {timeout:g} s: {self.last_error}.",
            fix="Check security.protocol and the certificates (--config, --config-file)."
            if "SSL" in self.last_error
            else "Check the address and that the broker runs: producer-core doctor looks closer, "
            "producer-core broker start runs one here.",
        )


def _operations(topic: str, future: Future[Any], timeout: float) -> frozenset[str] | None:
    try:
        allowed = future.result(timeout + 1).authorized_operations
    except (KafkaException, FutureTimeout) as error:
        match error.args[0].code() if isinstance(error, KafkaException) else None:
            case KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return frozenset()
            case KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
        raise _not_told(f"What we may do on topic {topic!r} is not told", error) from error
    return None if allowed is None else frozenset(operation.name for operation in allowed)


def _not_told(text: str, error: KafkaException | FutureTimeout) -> BrokerError:
    """The error to raise for a question without an answer: BrokerUnreachable where a later try can succeed."""
    passing = isinstance(error, FutureTimeout) or failure_of(error.args[0]).kind in ("temporary", "timed_out")
    return (BrokerUnreachable if passing else BrokerError)(f"{text}: {_text(error)}.")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def _text(error: Exception) -> str:
    if isinstance(error, KafkaException):
        return _plain(error.args[0].str())
    return "no answer in time"


def _plain(text: str) -> str:
    """A library's text without the addresses and states it begins and ends with; our sentence has them."""
    text = _STATE.sub("", text.split("]: ", 1)[-1])
    return _ADDRESS.sub("", text).rstrip(". :")
