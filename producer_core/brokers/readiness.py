"""Wait for a cluster, and create and delete topics, over Kafka's protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Event

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from producer_core.errors import BrokerError, BrokerUnreachable

_REQUEST = 30.0


def wait(brokers: Mapping[int, str], check: Callable[[], None], timeout: float) -> None:
    """Wait until each broker (number to address) responds and knows all the others.

    Asking one broker is not enough: after a kill -9, the others list the dead broker until its session has expired.
    `check` raises when waiting is pointless.
    """
    deadline = time.monotonic() + timeout
    for address in brokers.values():
        left = max(0.0, deadline - time.monotonic())
        _until(address, lambda seen: set(brokers) <= set(seen.brokers), left, check=check)


def create_topic(servers: str, topic: str, partitions: int, config: dict[str, str], replicas: int) -> None:
    """Create a topic, and return when each partition has a leader."""
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=config)
    admin = _admin(servers)  # kept in a variable: a collected client gets no answer
    _done(admin.create_topics([new], request_timeout=_REQUEST)[topic], f"create topic {topic}")
    _until(servers, lambda seen: _has_leaders(seen, topic, partitions), _REQUEST)


def delete_topic(servers: str, topic: str) -> None:
    """Delete a topic, and return when the brokers no longer list it."""
    admin = _admin(servers)
    _done(admin.delete_topics([topic], request_timeout=_REQUEST)[topic], f"delete topic {topic}")
    _until(servers, lambda seen: topic not in seen.topics, _REQUEST)


def _admin(servers: str) -> AdminClient:
    # Brokers that are not up yet are expected here; the errors raised below report real problems.
    quiet = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
    return AdminClient({"bootstrap.servers": servers, **quiet})


def _until(
    servers: str,
    reached: Callable[[ClusterMetadata], bool],
    timeout: float,
    *,
    check: Callable[[], None] = lambda: None,
) -> None:
    admin, deadline, pause = _admin(servers), time.monotonic() + timeout, Event()
    while True:
        check()
        try:
            if reached(admin.list_topics(timeout=0.5)):
                return
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
                raise BrokerError(f"The cluster's metadata request failed: {error.args[0].str()}.") from error
        if time.monotonic() > deadline:
            raise BrokerUnreachable(f"The cluster at {servers} was not ready in time.")
        pause.wait(0.03)


def _has_leaders(seen: ClusterMetadata, topic: str, partitions: int) -> bool:
    found = seen.topics.get(topic)
    return (
        found is not None
        and len(found.partitions) == partitions
        and all(partition.leader >= 0 for partition in found.partitions.values())
    )


def _done(future: Future[None], what: str) -> None:
    try:
        future.result(_REQUEST)
    except KafkaException as error:
        raise BrokerError(f"The cluster did not {what}: {error.args[0].str()}.") from error
