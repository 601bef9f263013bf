"""Query a Kafka cluster: its brokers, the replicas of a topic, and the permissions of the client."""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource, ResourceType, TopicDescription

from producer_core._internal.librdkafka import client_log
from producer_core._internal.token_source import is_token_failure, new_client
from producer_core.config import ClientConfig, connection_settings, uses_tokens
from producer_core.errors import BrokerError, BrokerUnreachable, ConfigError, InvalidMessage
from producer_core.kafka.classify import failure_of
from producer_core.kafka.clients import admin, topic_id
from producer_core.kafka.token_errors import ENDPOINT_URL, no_answer, token_unavailable

_TRANSACTION_SETTINGS = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 30_000,
    "transaction.timeout.ms": 30_000,
    "linger.ms": 5,
}
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ADDRESS = re.compile(r"^\S+:\d+/(?:bootstrap|\d+): ")
_STATE = re.compile(r" \(after \d+ms in state [^)]*\)")
_PERMANENT_ERRORS = (KafkaError._AUTHENTICATION, KafkaError._SSL)


@dataclass(frozen=True)
class ClusterView:
    """The first response of a cluster: its id, its brokers by id as `host:port`, and its topics."""

    cluster_id: str
    brokers: Mapping[int, str]
    topics: frozenset[str]


@dataclass(frozen=True)
class TopicView:
    """A topic's partitions, replicas and limits. None means that the cluster does not report the value."""

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
    """Query a cluster with time limits in seconds. `last_error` is the last relevant connection error."""

    def __init__(self, config: ClientConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection_settings(config.settings)
        self._address = config.bootstrap_servers
        self._clock = clock
        self._errors: list[KafkaError] = []

    @functools.cached_property
    def _admin(self) -> AdminClient:
        """The client, created by the first query: without a token it cannot be created."""
        return admin(self._connection, {"error_cb": self._errors.append})

    @property
    def last_error(self) -> str:
        """Return the most specific error: credentials before rejected connections before "all brokers down"."""
        for wanted in (_PERMANENT_ERRORS, None):
            for error in reversed(self._errors):
                if (wanted and error.code() in wanted) or (
                    not wanted and error.code() != KafkaError._ALL_BROKERS_DOWN
                ):
                    return _strip_context(error.str())
        return "no connection"

    def view(self, *, timeout: float = 10.0) -> ClusterView:
        """Return the cluster's first response. Raise BrokerUnreachable, with the last connection error, if there is none."""
        metadata = self.metadata(timeout)
        brokers = {broker.id: f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}
        return ClusterView(metadata.cluster_id or "", brokers, frozenset(metadata.topics))

    def require_topic(self, topic: str, *, timeout: float = 5.0) -> None:
        """Raise BrokerError when the topic does not exist, is not created automatically, or is not authorized."""
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InvalidMessage(
                f"{topic!r} is not a topic name.",
                fix="A topic name consists of 1 to 249 characters from a-z, A-Z, 0-9, '.', '_' and '-'.",
            )
        deadline = self._clock() + timeout
        while True:
            error = self.metadata(timeout, topic).topics[topic].error
            if error is None or error.code() == KafkaError.LEADER_NOT_AVAILABLE:
                return
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise BrokerError(
                    f"These credentials do not permit access to topic {topic!r}.", fix="Grant WRITE on it."
                )
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise BrokerError(f"Topic {topic!r} cannot be used: {_strip_context(error.str())}.")
            if self._clock() > deadline:
                raise BrokerError(
                    f"Topic {topic!r} does not exist.",
                    fix="Create it first. This cluster does not create topics automatically.",
                )
            self._admin.poll(0.2)

    def require_partition(self, topic: str, partition: int, *, timeout: float = 5.0) -> None:
        """Raise ConfigError when the topic has no such partition. A topic that was just created is queried again."""
        deadline = self._clock() + timeout
        while not (found := len(self.metadata(timeout, topic).topics[topic].partitions)):
            if self._clock() > deadline:
                return  # sending the messages reports the error
            self._admin.poll(0.2)
        if partition >= found:
            raise ConfigError(
                f"Topic {topic!r} has no partition {partition}.",
                fix="It has partition 0 only." if found == 1 else f"It has partitions 0 to {found - 1}.",
            )

    def partitions(self, topic: str, *, timeout: float = 10.0) -> set[int]:
        """Return the numbers of a topic's partitions, without creating it.

        Raise BrokerError if it does not exist, BrokerUnreachable if no broker responds in time.
        """
        futures = self._admin.describe_topics(TopicCollection([topic]), request_timeout=timeout)
        try:
            found = _described(topic, futures[topic], timeout)
        except BrokerError as error:
            if not _timed_out(error.__cause__):
                raise
            self._admin.poll(0)  # the errors of the connection
            raise self._unreachable(timeout, permanent=False) from error
        return {partition.id for partition in found.partitions}

    def topic(self, name: str, *, timeout: float = 10.0) -> TopicView:
        """Return a topic's replicas, limits and the client's permissions. Raise BrokerError if it cannot be described."""
        view = self.topics([name], timeout=timeout)[name]
        if isinstance(view, BrokerError):
            raise view
        return view

    def topics(self, names: Sequence[str], *, timeout: float = 10.0) -> dict[str, TopicView | BrokerError]:
        """Describe several topics with two requests, as `topic` does; the error of one does not affect the others."""
        futures = self._admin.describe_topics(
            TopicCollection(list(names)), include_authorized_operations=True, request_timeout=timeout
        )
        settings = self._topic_settings(names, timeout)
        views: dict[str, TopicView | BrokerError] = {}
        for name, future in futures.items():
            try:
                views[name] = _topic_view(name, _described(name, future, timeout), settings.get(name, {}))
            except BrokerError as error:
                views[name] = error
        return views

    def operations(self, topics: Sequence[str], *, timeout: float = 10.0) -> dict[str, frozenset[str] | None]:
        """Return the operations allowed on each topic.

        The set is empty for a topic that may not be described. None means that the cluster does not report operations
        or has no such topic. Raise BrokerUnreachable if no broker responds in time.
        """
        if not topics:
            return {}
        self.metadata(timeout)
        futures = self._admin.describe_topics(
            TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=timeout
        )
        return {topic: _operations(topic, future, timeout) for topic, future in futures.items()}

    def may_transact(self, transactional_id: str, *, timeout: float = 10.0) -> bool:
        """Return whether transactions are allowed with this id. The call fences a producer with the same id.

        Raise BrokerUnreachable when the transaction coordinator does not respond in time.
        """
        self.metadata(timeout)
        settings = {
            **self._connection,
            **_TRANSACTION_SETTINGS,
            "transactional.id": transactional_id,
        }
        producer = new_client(Producer, settings, logger=client_log())
        try:
            producer.init_transactions(timeout)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                return False
            raise _query_error("The permission for transactions cannot be checked", error) from error
        return True

    def _topic_settings(self, names: Sequence[str], timeout: float) -> dict[str, Mapping[str, str]]:
        """Return the settings of each topic, without the topics whose settings may not be read."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        futures = self._admin.describe_configs(resources, request_timeout=timeout)
        found: dict[str, Mapping[str, str]] = {}
        for resource, future in futures.items():
            with contextlib.suppress(KafkaException, FutureTimeout):
                entries = future.result(timeout + 1).values()
                found[resource.name] = {entry.name: entry.value for entry in entries}
        return found

    def metadata(self, timeout: float, topic: str | None = None) -> ClusterMetadata:
        """Return confluent-kafka's metadata of the cluster and of one topic, or of all. Raise BrokerError if there is none."""
        deadline = self._clock() + timeout
        while True:
            self._admin.poll(0)
            remaining = deadline - self._clock()
            permanent = (
                any(error.code() in _PERMANENT_ERRORS for error in self._errors) and remaining < timeout - 1
            )
            if remaining <= 0 or permanent:
                raise self._unreachable(timeout, permanent=permanent)
            try:
                return self._admin.list_topics(topic, timeout=min(0.5, remaining))
            except KafkaException as error:
                if error.args[0].code() not in (
                    KafkaError._TRANSPORT,
                    KafkaError._TIMED_OUT,
                    KafkaError._ALL_BROKERS_DOWN,
                ):
                    raise BrokerError(f"{self._address} returned an error: {_text(error)}.") from error
                self._admin.poll(min(0.2, max(remaining, 0)))

    def _unreachable(self, timeout: float, *, permanent: bool) -> BrokerUnreachable:
        if token_error := next(filter(is_token_failure, reversed(self._errors)), None):
            return token_unavailable(token_error, self._connection)
        if uses_tokens(self._connection) and ENDPOINT_URL in self._connection and not self._errors:
            return no_answer(self._connection, timeout)
        if permanent and uses_tokens(self._connection):
            return BrokerUnreachable(
                f"The brokers at {self._address} rejected the token: {self.last_error}.",
                fix="The token was obtained. Check its issuer, audience and scope against the settings of the broker.",
            )
        if permanent:
            return BrokerUnreachable(
                f"The brokers at {self._address} rejected the connection: {self.last_error}.",
                fix="Check the credentials and certificates (--config, --config-file).",
            )
        return BrokerUnreachable(
            f"No broker responded at {self._address} within {timeout:g} s: {self.last_error}.",
            fix="Check security.protocol and the certificates (--config, --config-file)."
            if "SSL" in self.last_error
            else "Check the address and that the broker is running. producer-core doctor shows details. "
            "producer-core broker start starts a local broker.",
        )


def _described(topic: str, future: Future[Any], timeout: float) -> TopicDescription:
    try:
        return future.result(timeout + 1)
    except (KafkaException, FutureTimeout) as error:
        raise BrokerError(f"Topic {topic!r} cannot be described: {_text(error)}.") from error


def _timed_out(error: BaseException | None) -> bool:
    return isinstance(error, FutureTimeout) or (
        isinstance(error, KafkaException) and error.args[0].code() == KafkaError._TIMED_OUT
    )


def _topic_view(name: str, found: TopicDescription, settings: Mapping[str, str]) -> TopicView:
    replicas = [len(partition.replicas) for partition in found.partitions]
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


def _operations(topic: str, future: Future[Any], timeout: float) -> frozenset[str] | None:
    try:
        allowed = future.result(timeout + 1).authorized_operations
    except (KafkaException, FutureTimeout) as error:
        match error.args[0].code() if isinstance(error, KafkaException) else None:
            case KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return frozenset()
            case KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
        raise _query_error(f"The permissions on topic {topic!r} cannot be read", error) from error
    return None if allowed is None else frozenset(operation.name for operation in allowed)


def _query_error(text: str, error: KafkaException | FutureTimeout) -> BrokerError:
    """Return the error of a failed query: BrokerUnreachable when a later attempt can succeed."""
    transient = isinstance(error, FutureTimeout) or failure_of(error.args[0]).kind in (
        "temporary",
        "timed_out",
    )
    return (BrokerUnreachable if transient else BrokerError)(f"{text}: {_text(error)}.")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def _text(error: Exception) -> str:
    if isinstance(error, KafkaException):
        return _strip_context(error.args[0].str())
    return "no response in time"


def _strip_context(text: str) -> str:
    """Remove the addresses and states at the start and end of librdkafka's text; the caller's text has them."""
    text = _STATE.sub("", text.split("]: ", 1)[-1])
    return _ADDRESS.sub("", text).rstrip(". :")
