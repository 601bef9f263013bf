"""Choose the partition of a message once, before it is stored, so that every retry uses the same one.

Keys go to the same partition as with librdkafka's partitioner of that name. The default `murmur2_random` also matches
Java's and kafka-python's clients. A message without a key is partitioned by a hash of its id.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from producer_core._internal.librdkafka import library_path
from producer_core.kafka.clients import admin

PartitionCount = Callable[[str, float], "int | None"]
"""A function (topic, timeout in seconds) that returns a topic's partition count: 0 if it does not exist, None if unknown."""

_NO_SUCH = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_RETRY_S = 0.5
"""Seconds until a topic with an unknown count is queried again."""


class Partitioner:
    """Choose partitions. Any thread may call any method.

    The first message of a topic waits up to `first_timeout` seconds for the topic's partition count. Later messages
    never wait: while the count is unknown they get -1. A count older than `refresh_interval` seconds is queried again
    on another thread and used until then.
    """

    def __init__(
        self,
        count: PartitionCount,
        *,
        partitioner: str = "murmur2_random",
        first_timeout: float = 1.0,
        refresh_interval: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._query_count = count
        self._hash = _hash(partitioner)
        self._first_timeout = first_timeout
        self._refresh_interval = refresh_interval
        self._clock = clock
        self._lock = threading.Lock()  # guards the two fields below, and which topics are being queried
        self._counts: dict[str, int] = {}
        self._next_query: dict[str, float] = {}

    def choose(self, topic: str, key: bytes | None, id: bytes) -> int:
        """Return the partition of this message, or -1 while the topic's partition count is unknown."""
        count = self.count(topic)
        if not count:
            return -1
        return self._hash(key, count) if key is not None else murmur2(id, count)

    def count(self, topic: str) -> int | None:
        """Return the topic's partition count, None if unknown, or 0 while the brokers report that it does not exist."""
        if self._clock() >= self._next_query.get(topic, 0.0):
            self._update(topic)
        return self._counts.get(topic)

    def refresh_now(self, topic: str) -> None:
        """Query a topic's partition count now and drop the old one, because the topic was recreated or deleted."""
        count = self._query_count(topic, self._first_timeout)
        with self._lock:
            if count is None:
                self._counts.pop(topic, None)
            else:
                self._counts[topic] = count
            self._next_query[topic] = self._clock() + (self._refresh_interval if count else _RETRY_S)

    def _update(self, topic: str) -> None:
        with self._lock:
            if self._clock() < self._next_query.get(topic, 0.0):
                return
            first = topic not in self._next_query
            # keeps other threads from querying
            self._next_query[topic] = self._clock() + self._refresh_interval
        if first:
            self._query(topic, self._first_timeout)
        else:
            threading.Thread(
                target=self._query, args=(topic, 10.0), name="producer-core-partitions", daemon=True
            ).start()

    def _query(self, topic: str, timeout: float) -> None:
        count = self._query_count(topic, timeout)
        with self._lock:
            if count or (count == 0 and not self._counts.get(topic)):
                self._counts[topic] = count
            known = self._counts.get(topic)
            self._next_query[topic] = self._clock() + (self._refresh_interval if known else _RETRY_S)


def murmur2(key: bytes, count: int) -> int:
    """Return Java's `toPositive(murmur2(key)) % count`."""
    return _hash("murmur2")(key, count)


def _hash(partitioner: str) -> Callable[[bytes, int], int]:
    """Return librdkafka's own function. It uses only the key and the count (rdkafka_msg.c)."""
    name = partitioner.removesuffix("_random")
    function = _FUNCTIONS.get(name)
    if function is None:
        # PyDLL keeps Python's lock: to hand it over would take longer than the function, once per message.
        function = getattr(
            ctypes.PyDLL(library_path()), f"rd_kafka_msg_partitioner_{_NAMES.get(name, 'murmur2')}"
        )
        function.restype = ctypes.c_int32
        function.argtypes = [
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip
        _FUNCTIONS[name] = function
    chosen = function

    def partition(key: bytes, count: int) -> int:
        return int(chosen(None, key, len(key), count, None, None))

    return partition


_NAMES: Mapping[str, str] = {"consistent": "consistent", "fnv1a": "fnv1a"}  # all others: murmur2
_FUNCTIONS: dict[str, Any] = {}


def metadata_count(settings: Mapping[str, Any]) -> PartitionCount:
    """Return a count function that queries the brokers of these settings over one connection, opened on first use."""
    lock = threading.Lock()
    clients: list[Any] = []

    def client() -> Any:
        with lock:
            if not clients:
                clients.append(admin(settings))
            return clients[0]

    def count(topic: str, timeout: float) -> int | None:
        try:
            described = client().list_topics(topic, timeout=timeout).topics[topic]
        except KafkaException:
            return None
        if described.error is not None:
            return 0 if described.error.code() in _NO_SUCH else None
        return len(described.partitions)

    return count
