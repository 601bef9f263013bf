"""Clients that only ask: they write nothing, join no group, and need no producer id, which not every user may have."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Uuid
from confluent_kafka.admin import AdminClient

from producer_core._internal.librdkafka import client_log
from producer_core.config import connection_settings
from producer_core.kafka.classify import failure_of

_READER: Mapping[str, Any] = MappingProxyType(
    {
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",  # retention may take the start away while we look
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 20,
        "queued.max.messages.kbytes": 16_384,
    }
)
_numbers = itertools.count(1)

NO_SUCH = (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
_ANSWER = 30.0
"""Seconds for which a question is asked again while its error is transient, as right after a topic is created."""
_AGAIN = 0.2
_Answer = TypeVar("_Answer")


def answered(ask: Callable[[], _Answer]) -> _Answer:
    """Return the answer to a question; ask again while its error is transient, within a bound."""
    deadline = time.monotonic() + _ANSWER
    while True:
        try:
            return ask()
        except KafkaException as error:
            passing = failure_of(error.args[0]).kind in ("temporary", "timed_out")
            if not passing or error.args[0].code() in NO_SUCH or time.monotonic() > deadline:
                raise
            threading.Event().wait(_AGAIN)


@contextmanager
def reader(
    settings: Mapping[str, Any],
    changes: Mapping[str, Any] = MappingProxyType({}),
    *,
    name: str = "look",
    on_error: Callable[[KafkaError], None] = lambda error: None,
) -> Iterator[Consumer]:
    """A reader of committed records on the cluster of these client settings, to be assigned; closed at the end.

    `changes` are settings of its own; `on_error` gets what its connection complains of.
    """
    chosen = {**connection_settings(settings), **_READER, **changes}
    chosen["group.id"] = f"producer-core-landing-{uuid.uuid4().hex[:8]}"  # required, never joined
    chosen["client.id"] = f"{name}-{next(_numbers)}"
    chosen["error_cb"] = on_error
    consumer = Consumer(chosen, logger=client_log())
    try:
        yield consumer
    finally:
        consumer.close()


def admin(settings: Mapping[str, Any], changes: Mapping[str, Any] = MappingProxyType({})) -> AdminClient:
    """Asks the cluster of these client settings for metadata and descriptions. Keep it: what it was asked ends with it."""
    return AdminClient({**connection_settings(settings), **changes}, logger=client_log())


def topic_id(told: Uuid) -> str:
    """The id that a topic has since Kafka 2.8; "" where the broker gave it none."""
    return "" if told.get_most_significant_bits() == told.get_least_significant_bits() == 0 else str(told)


def cluster_id(settings: Mapping[str, Any], topic: str | None, timeout: float) -> str | None:
    """The cluster's id, asked with one known topic if there is one: every topic's metadata would be heavy.

    None when nobody answers in time.
    """
    asking = admin(settings)
    try:
        if topic is not None:
            found: str | None = asking.list_topics(topic, timeout=timeout).cluster_id
        else:
            found = asking.describe_cluster(request_timeout=timeout).result(timeout + 1).cluster_id
    except (KafkaException, TimeoutError):
        return None
    return found
