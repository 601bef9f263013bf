"""Send the same messages without producer_core: with a manual loop or with another library.

Each peer takes the servers, a topic and its own folder. It yields a function that sends messages and returns when the
last one is acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

Messages = Iterable[tuple[Any, str]]
"""Pairs of value (a dict or bytes) and key."""
Send = Callable[[Messages], None]

SETTINGS: Mapping[str, Any] = {
    "enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4", "partitioner": "murmur2_random",
}  # fmt: skip
"""The default settings of producer_core; all other settings are librdkafka's defaults."""


def by_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def missing(package: str | None) -> str | None:
    """Return why a peer cannot run, or None if it can."""
    return None if package is None or find_spec(package) else f"{package} is not installed"


@contextmanager
def bare(servers: str, topic: str, folder: Path, **settings: Any) -> Iterator[Send]:
    """Send as fast as the client allows: bytes, one shared callback, a poll every 1,000 messages."""
    import confluent_kafka

    client = confluent_kafka.Producer({"bootstrap.servers": servers, **SETTINGS, **settings})
    acknowledged = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    def send_all(messages: Messages) -> None:
        nonlocal acknowledged
        acknowledged = sent = 0
        produce = client.produce
        for value, key in messages:
            while True:
                try:
                    produce(topic, value, key, on_delivery=delivered)
                    break
                except BufferError:
                    client.poll(0.01)
            sent += 1
            if sent % 1000 == 0:
                client.poll(0)
        client.flush()
        assert acknowledged == sent, f"{acknowledged} of {sent} were acknowledged"

    yield send_all


class ByHand:
    """A careful manual loop: JSON, a callback per message, latencies, counts by topic, backpressure.

    A thread polls, or with `poll_every`, the sending thread itself, once after that many messages.
    """

    def __init__(
        self, servers: str, dumps: Callable[[Any], bytes], *, poll_every: int = 0, **settings: Any
    ) -> None:
        import confluent_kafka

        self.client = confluent_kafka.Producer({"bootstrap.servers": servers, **SETTINGS, **settings})
        self.latencies: list[float] = []
        self.counts: Counter[tuple[str, bool]] = Counter()
        self._dumps = dumps
        self._poll_every = poll_every
        self._sent = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        if not poll_every:
            self._thread.start()

    def send(self, topic: str, value: Any, key: str) -> None:
        started = time.perf_counter()

        def delivered(error: Any, message: Any) -> None:
            self.latencies.append(time.perf_counter() - started)
            self.counts[message.topic(), error is None] += 1

        data = self._dumps(value)
        while True:
            try:
                self.client.produce(topic, data, key, on_delivery=delivered)
                break
            except BufferError:
                if self._poll_every:
                    self.client.poll(0.01)
                else:
                    time.sleep(0.005)
        if self._poll_every:
            self._sent += 1
            if self._sent % self._poll_every == 0:
                self.client.poll(0)

    def flush(self) -> None:
        self.client.flush()

    def failed(self) -> int:
        return sum(count for (_, good), count in self.counts.items() if not good)

    def close(self) -> None:
        self._ended.set()
        if not self._poll_every:
            self._thread.join()

    def _poll(self) -> None:
        while not self._ended.is_set():
            self.client.poll(0.1)


@contextmanager
def by_hand(
    servers: str, topic: str, folder: Path, dumps: Callable[[Any], bytes], poll_every: int = 0
) -> Iterator[Send]:
    loop = ByHand(servers, dumps, poll_every=poll_every)

    def send_all(messages: Messages) -> None:
        for value, key in messages:
            loop.send(topic, value, key)
        loop.flush()
        assert not loop.failed()

    try:
        yield send_all
    finally:
        loop.close()


@contextmanager
def with_duckdb(servers: str, topic: str, folder: Path) -> Iterator[Send]:
    """Run the manual loop with orjson, and write counts and percentiles to DuckDB once a second."""
    import duckdb

    loop, ended = ByHand(servers, orjson.dumps), threading.Event()

    def write(database: Any) -> None:
        latencies, loop.latencies = loop.latencies, []
        counts, loop.counts = loop.counts, Counter()
        latencies.sort()
        percentiles = [
            latencies[int(part * (len(latencies) - 1))] if latencies else None for part in (0.5, 0.95, 0.99)
        ]
        for (name, good), count in counts.items():
            database.execute(
                "INSERT INTO statistics VALUES (now(), ?, ?, ?, ?, ?, ?)", [name, good, count, *percentiles]
            )

    def record() -> None:
        with duckdb.connect(str(folder / "own.duckdb")) as database:
            database.execute(
                "CREATE TABLE statistics (at TIMESTAMPTZ, topic TEXT, good BOOLEAN, n BIGINT, p50 DOUBLE, p95 DOUBLE, p99 DOUBLE)"
            )
            while not ended.wait(1.0):
                write(database)
            write(database)

    writer = threading.Thread(target=record)
    writer.start()

    def send_all(messages: Messages) -> None:
        for value, key in messages:
            loop.send(topic, value, key)
        loop.flush()

    try:
        yield send_all
    finally:
        ended.set()
        writer.join()
        loop.close()


@contextmanager
def serializing(servers: str, topic: str, folder: Path) -> Iterator[Send]:
    """Use confluent-kafka's SerializingProducer with orjson; poll after each message, as its examples do."""
    from confluent_kafka import SerializingProducer

    settings = {
        "key.serializer": lambda key, context: key.encode(),
        "value.serializer": lambda value, context: orjson.dumps(value),
    }
    client = SerializingProducer({"bootstrap.servers": servers, **SETTINGS, **settings})
    failed = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal failed
        failed += error is not None

    def send_all(messages: Messages) -> None:
        for value, key in messages:
            while True:
                try:
                    client.produce(topic, key=key, value=value, on_delivery=delivered)
                    break
                except BufferError:
                    client.poll(0.01)
            client.poll(0)
        client.flush()
        assert not failed

    yield send_all


@contextmanager
def kafka_python(servers: str, topic: str, folder: Path) -> Iterator[Send]:
    """Use kafka-python, which is pure Python; idempotent if the installed version supports it."""
    from kafka import KafkaProducer
    from kafka.codec import has_lz4

    settings: dict[str, Any] = {
        "bootstrap_servers": servers.split(","), "acks": "all", "linger_ms": 5, "max_in_flight_requests_per_connection": 5,
        "value_serializer": orjson.dumps, "key_serializer": str.encode, "compression_type": "lz4" if has_lz4() else None,
    }  # fmt: skip
    if "enable_idempotence" in KafkaProducer.DEFAULT_CONFIG:
        settings["enable_idempotence"] = True
    client = KafkaProducer(**settings)
    acknowledged = failed = 0

    def delivered(record: Any) -> None:
        nonlocal acknowledged
        acknowledged += 1

    def lost(error: Any) -> None:
        nonlocal failed
        failed += 1

    def send_all(messages: Messages) -> None:
        nonlocal acknowledged
        acknowledged = sent = 0
        for value, key in messages:
            client.send(topic, value, key).add_callback(delivered).add_errback(lost)
            sent += 1
        client.flush()
        assert acknowledged == sent and not failed

    try:
        yield send_all
    finally:
        client.close()


@contextmanager
def aiokafka(servers: str, topic: str, folder: Path) -> Iterator[Send]:
    """Use aiokafka in its own event loop, as Faust-style wrappers do."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.codec import has_lz4

    loop = asyncio.new_event_loop()
    acknowledged = 0

    async def connect() -> Any:
        client = AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, linger_ms=5, compression_type="lz4" if has_lz4() else None,
            value_serializer=orjson.dumps, key_serializer=str.encode,
        )  # fmt: skip
        await client.start()
        return client

    client = loop.run_until_complete(connect())

    def delivered(done: Any) -> None:
        nonlocal acknowledged
        done.result()
        acknowledged += 1

    async def send(messages: Messages) -> int:
        sent = 0
        for value, key in messages:
            done = await client.send(topic, value, key)
            done.add_done_callback(delivered)
            sent += 1
        await client.flush()
        return sent

    def send_all(messages: Messages) -> None:
        nonlocal acknowledged
        acknowledged = 0
        assert loop.run_until_complete(send(messages)) == acknowledged

    try:
        yield send_all
    finally:
        loop.run_until_complete(client.stop())
        loop.close()
