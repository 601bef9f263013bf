"""Measure the throughput of each guarantee on a real Kafka of three nodes.

    python -m benchmarks.guarantees --rounds 5 --seconds 4

Each round runs every configuration once, in random order, so that background load affects all of them equally. A run
sends at full speed and, after a warm-up, counts the acknowledged messages.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import confluent_kafka

from benchmarks.machine import hardware
from producer_core import ReliableKafkaProducer
from producer_core.brokers import kafka
from producer_core.errors import ProducerClosed, QueueFull

DEFAULT = "`at_least_once`, the default"
BY_HAND = "manual loop: `json`, idempotent, callbacks, poll thread"
_WARM_UP = 2.0
_PARTITIONS = 6


class Sender(Protocol):
    """A measured sender: accepts messages from any thread and counts the acknowledgements."""

    def send(self, key: str | None, value: Mapping[str, Any]) -> None: ...
    def acknowledged(self) -> int: ...
    def close(self) -> None: ...


class ByHand:
    """A careful manual loop around confluent-kafka: idempotent, a callback per message, a poll thread."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._count = 0
        self._ended = threading.Event()
        settings = {"enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4"}
        self._client = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "partitioner": "murmur2_random", **settings}
        )
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def send(self, key: str | None, value: Mapping[str, Any]) -> None:
        data = json.dumps(value, separators=(",", ":")).encode()
        while not self._ended.is_set():
            try:
                self._client.produce(self._topic, data, key, on_delivery=self._delivered)
                return
            except BufferError:
                self._ended.wait(0.005)

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._client.poll(0.1)

    def _delivered(self, error: Any, message: Any) -> None:
        self._count += error is None

    def acknowledged(self) -> int:
        return self._count

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._client.purge()
        self._client.flush(5)


class Ours:
    """A ReliableKafkaProducer with its store and the options of one configuration."""

    def __init__(self, servers: str, topic: str, folder: Path, options: Mapping[str, Any]) -> None:
        self._topic = topic
        journal: dict[str, Any] = {"journal_dir": folder / "journal"} if "journal_level" in options else {}
        self._producer = ReliableKafkaProducer(
            servers, {"max_block_ms": 1000}, store=folder / "store.duckdb", **journal, **options
        )

    def send(self, key: str | None, value: Mapping[str, Any]) -> None:
        try:
            self._producer.send_message(self._topic, value, key)
        except (QueueFull, ProducerClosed):
            return

    def acknowledged(self) -> int:
        return self._producer.metrics.snapshot().acknowledged

    def close(self) -> None:
        self._producer.close(timeout=0.5)


@dataclass(frozen=True)
class Way:
    """One row of the table. `keys` is the number of different keys, 0 for messages without a key."""

    name: str
    options: Mapping[str, Any] | None = field(default_factory=dict)
    keys: int = 10_000
    threads: int = 1

    def open(self, servers: str, topic: str, folder: Path) -> Sender:
        if self.options is None:
            return ByHand(servers, topic)
        return Ours(servers, topic, folder, self.options)


WAYS = (
    Way(BY_HAND, None),
    Way(DEFAULT),
    Way('`ordering="none"`', {"ordering": "none"}),
    Way('`ordering="strict"`, 10,000 keys', {"ordering": "strict"}),
    Way('`ordering="strict"`, 100 keys', {"ordering": "strict"}, keys=100),
    Way('`ordering="strict"`, 1 key', {"ordering": "strict"}, keys=1),
    Way('`journal_level="buffered"`', {"journal_level": "buffered"}),
    Way('`journal_level="process"`', {"journal_level": "process"}),
    Way('`journal_level="power"`', {"journal_level": "power"}),
    Way('`journal_level="power"`, 16 threads', {"journal_level": "power"}, threads=16),
    Way(
        '`delivery="exactly_once"`, 2 shards, `journal_level="process"`',
        {"delivery": "exactly_once", "shards": 2, "journal_level": "process"},
    ),
)


def message(number: int) -> dict[str, Any]:
    """Return a message of about 200 bytes as JSON."""
    return {
        "order": number,
        "customer": f"customer-{number % 9973:05}",
        "total": round(number % 50_000 / 7, 2),
        "currency": "EUR",
        "items": [{"sku": f"sku-{number % 811:04}", "quantity": number % 5 + 1}, {"sku": "sku-gift"}],
        "note": "leave it with the neighbours, please; ring twice",
    }


@dataclass(frozen=True)
class Throughput:
    """The result of one run: acknowledged messages per second, and CPU time per message in microseconds."""

    rate: float
    cpu: float


def measure(way: Way, servers: str, topic: str, *, seconds: float) -> Throughput:
    """Measure one configuration for `seconds` after the warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        sender = way.open(servers, topic, Path(folder))
        try:
            with _sending(sender, way):
                _first_acknowledged(sender)
                time.sleep(_WARM_UP)
                started, cpu, before = time.monotonic(), time.process_time(), sender.acknowledged()
                time.sleep(seconds)
                count = sender.acknowledged() - before
                spent = time.process_time() - cpu
                return Throughput(count / (time.monotonic() - started), 1e6 * spent / max(count, 1))
        finally:
            sender.close()


def _first_acknowledged(sender: Sender) -> None:
    deadline = time.monotonic() + 60
    while not sender.acknowledged():
        if time.monotonic() > deadline:
            raise TimeoutError("no acknowledgement within a minute")
        time.sleep(0.01)


@contextmanager
def _sending(sender: Sender, way: Way) -> Iterator[None]:
    stop = threading.Event()

    def send(first: int) -> None:
        number = first
        while not stop.is_set():
            key = f"key-{number % way.keys}" if way.keys else None
            sender.send(key, message(number))
            number += way.threads

    threads = [threading.Thread(target=send, args=(number,)) for number in range(way.threads)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def rounds(
    cluster: kafka.KafkaCluster,
    ways: Sequence[Way],
    *,
    count: int,
    seconds: float,
    log: Callable[[str], None],
) -> dict[str, list[Throughput]]:
    """Run every configuration once per round, each on its own topic."""
    results: dict[str, list[Throughput]] = {way.name: [] for way in ways}
    for number in range(count):
        for way in random.sample(ways, len(ways)):
            topic = f"benchmark-{number}-{ways.index(way)}"
            cluster.create_topic(topic, _PARTITIONS)
            result = measure(way, cluster.bootstrap_servers, topic, seconds=seconds)
            results[way.name].append(result)
            cluster.delete_topic(topic)
            log(f"round {number + 1}: {way.name}: {result.rate:,.0f}/s, {result.cpu:.0f} us each")
    return results


def table(results: Mapping[str, Sequence[Throughput]]) -> str:
    """Return a Markdown table. A ratio is the median of the ratios to the default within each round."""
    lines = [
        "| | msg/s, median | lowest to highest | x default | CPU, µs per message |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, runs in results.items():
        rates = [run.rate for run in runs]
        ratio = median(own.rate / default.rate for own, default in zip(runs, results[DEFAULT], strict=True))
        cpu = median(run.cpu for run in runs)
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        lines.append(f"| {name} | {median(rates):,.0f} | {spread} | {ratio:.2g} | {cpu:,.0f} |")
    return "\n".join(lines)


def machine() -> str:
    """Describe the machine and the client, without the host name."""
    return (
        f"{hardware()}, "
        f"confluent-kafka {confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]}); "
        f"shared by brokers and sender"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guarantees", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured seconds per run (default 4)")
    options = parser.parse_args()
    logging.getLogger("producer_core").setLevel(logging.CRITICAL)  # a run discards messages when it ends
    loads = [os.getloadavg()[0]]

    def log(text: str) -> None:
        loads.append(os.getloadavg()[0])
        print(f"{text}, load {loads[-1]:.0f}", flush=True)

    started = time.monotonic()
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        with kafka.start(nodes=3) as cluster:
            results = rounds(cluster, WAYS, count=options.rounds, seconds=options.seconds, log=log)
    print()
    print(table(results))
    print()
    print(f"Machine: {machine()}. Load average during the run: {min(loads):.0f} to {max(loads):.0f}.")
    print(
        f"Command: python -m benchmarks.guarantees --rounds {options.rounds} --seconds {options.seconds:g} "
        f"({(time.monotonic() - started) / 60:.0f} min)."
    )
    size = len(json.dumps(message(12345), separators=(",", ":")))
    print(
        f"Each message is a dict of {size} bytes as JSON, sent to {_PARTITIONS} partitions with three replicas, acks=all."
    )


if __name__ == "__main__":
    main()
