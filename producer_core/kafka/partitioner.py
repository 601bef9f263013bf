"""The partition of a message, chosen by us: once, before it is written down, and the same at every retry.

Keys land where librdkafka's partitioner of the same name puts them; `murmur2_random`, the default, is where
Java's and kafka-python's clients put them too. A message without a key goes by a hash of its id.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from producer_core._internal.librdkafka import library
from producer_core.kafka.clients import admin

Count = Callable[[str, float], "int | None"]
"""Asks how many partitions a topic has, within so many seconds; 0 when it does not exist, None when nobody knows."""

_NO_SUCH = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_RETRY = 0.5
"""Seconds until a topic whose count nobody knew is asked for again."""


class Partitioner:
    """Chooses partitions; every method may be called from any thread.

    The first message of a topic waits up to `patience` seconds for the topic's partition count, those after it
    never wait: while the count is unknown they get -1, and a count older than `refresh` seconds is asked for
    anew by a thread of its own while the old one still serves.
    """

    def __init__(
        self,
        count: Count,
        *,
        partitioner: str = "murmur2_random",
        patience: float = 1.0,
        refresh: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = count
        self._hash = _hash(partitioner)
        self._patience = patience
        self._refresh = refresh
        self._clock = clock
        self._lock = threading.Lock()  # guards which topics are being asked for, and the two below
        self._counts: dict[str, int] = {}
        self._next_look: dict[str, float] = {}

    def choose(self, topic: str, key: bytes | None, id: bytes) -> int:
        """The partition of this message, -1 while the topic's partition count is not known."""
        count = self.count(topic)
        if not count:
            return -1
        return self._hash(key, count) if key is not None else murmur2(id, count)

    def count(self, topic: str) -> int | None:
        """How many partitions the topic has, as far as we know; 0 while the brokers say that there is no such topic."""
        if self._clock() >= self._next_look.get(topic, 0.0):
            self._look(topic)
        return self._counts.get(topic)

    def ask_again(self, topic: str) -> None:
        """Ask for a topic's partition count now, and forget the one before: the topic was made anew or deleted."""
        count = self._ask(topic, self._patience)
        with self._lock:
            if count is None:
                self._counts.pop(topic, None)
            else:
                self._counts[topic] = count
            self._next_look[topic] = self._clock() + (self._refresh if count else _RETRY)

    def _look(self, topic: str) -> None:
        with self._lock:
            if self._clock() < self._next_look.get(topic, 0.0):
                return
            first = topic not in self._next_look
            self._next_look[topic] = self._clock() + self._refresh  # nobody else asks meanwhile
        if first:
            self._learn(topic, self._patience)
        else:
            threading.Thread(
                target=self._learn, args=(topic, 10.0), name="producer-core-partitions", daemon=True
            ).start()

    def _learn(self, topic: str, timeout: float) -> None:
        count = self._ask(topic, timeout)
        with self._lock:
            if count or (count == 0 and not self._counts.get(topic)):
                self._counts[topic] = count
            known = self._counts.get(topic)
            self._next_look[topic] = self._clock() + (self._refresh if known else _RETRY)


def murmur2(key: bytes, count: int) -> int:
    """Java's `toPositive(murmur2(key)) % count`."""
    return _hash("murmur2")(key, count)


def _hash(partitioner: str) -> Callable[[bytes, int], int]:
    """librdkafka's own function; it looks at the key and the count only (rdkafka_msg.c)."""
    name = partitioner.removesuffix("_random")
    function = _FUNCTIONS.get(name)
    if function is None:
        function = getattr(library(), f"rd_kafka_msg_partitioner_{_NAMES.get(name, 'murmur2')}")
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


def metadata_count(settings: Mapping[str, Any]) -> Count:
    """Asks the brokers that these client settings name, over one connection that is made when first needed."""
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
