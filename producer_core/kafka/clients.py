"""Clients that only query: they write nothing, join no group, and need no producer id, which requires a permission."""

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
from producer_core._internal.token_source import new_client
from producer_core.config import connection_settings
from producer_core.kafka.classify import failure_of

_READER_SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",  # retention may remove the start during the read
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 20,
        "queued.max.messages.kbytes": 16_384,
    }
)
_client_numbers = itertools.count(1)

NO_SUCH = (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
_RETRY_LIMIT_S = 30.0
"""Seconds for which a request is retried while its error is transient, as right after a topic is created."""
_RETRY_PAUSE_S = 0.2
_Result = TypeVar("_Result")


def retry_transient(request: Callable[[], _Result]) -> _Result:
    """Return the result of a request. Retry it while its error is transient, up to a time limit."""
    deadline = time.monotonic() + _RETRY_LIMIT_S
    while True:
        try:
            return request()
        except KafkaException as error:
            transient = failure_of(error.args[0]).kind in ("temporary", "timed_out")
            if not transient or error.args[0].code() in NO_SUCH or time.monotonic() > deadline:
                raise
            threading.Event().wait(_RETRY_PAUSE_S)


@contextmanager
def reader(
    settings: Mapping[str, Any],
    changes: Mapping[str, Any] = MappingProxyType({}),
    *,
    name: str = "look",
    on_error: Callable[[KafkaError], None] = lambda error: None,
) -> Iterator[Consumer]:
    """Open a `read_committed` consumer on the cluster of these settings, for manual assignment, and close it at the end.

    `changes` override its settings. `on_error` receives its connection errors. Raise TokenUnavailable if `oauth_cb` provides
    no token.
    """
    chosen = {**connection_settings(settings), **_READER_SETTINGS, **changes}
    chosen["group.id"] = f"producer-core-landing-{uuid.uuid4().hex[:8]}"  # required, never joined
    chosen["client.id"] = f"{name}-{next(_client_numbers)}"
    chosen["error_cb"] = on_error
    consumer = new_client(Consumer, chosen, logger=client_log())
    try:
        yield consumer
    finally:
        consumer.close()


def admin(settings: Mapping[str, Any], changes: Mapping[str, Any] = MappingProxyType({})) -> AdminClient:
    """Return an admin client for these settings. Keep a reference to it: its futures end with it.

    Raise TokenUnavailable if `oauth_cb` provides no token.
    """
    return new_client(AdminClient, {**connection_settings(settings), **changes}, logger=client_log())


def topic_id(value: Uuid) -> str:
    """Return a topic's id (Kafka 2.8 and later), or "" when the broker gave it none."""
    return "" if value.get_most_significant_bits() == value.get_least_significant_bits() == 0 else str(value)


def cluster_id(settings: Mapping[str, Any], topic: str | None, timeout: float) -> str | None:
    """Return the cluster's id, or None if no broker responds in time.

    The request names one known topic if there is one, because the metadata of all topics can be large.
    """
    try:
        client = admin(settings)
        if topic is not None:
            id_found: str | None = client.list_topics(topic, timeout=timeout).cluster_id
        else:
            id_found = client.describe_cluster(request_timeout=timeout).result(timeout + 1).cluster_id
    except (KafkaException, TimeoutError):
        return None
    return id_found
