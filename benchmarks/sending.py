"""What a send costs: ours against what a careful engineer writes by hand, on the same broker with the same settings.

    python -m benchmarks.sending --rounds 5 --count 100000

Each round runs every way once in a process of its own, in an order drawn anew, so that what else the machine does
falls on all of them. A run sends its messages and waits until the last is acknowledged.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.guarantees import machine, message

BARE = "bare `produce(bytes)`, one callback"
JSON = "by hand, `json`"
ORJSON = "by hand, `orjson`"
SETTINGS: Mapping[str, Any] = {
    "enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4", "partitioner": "murmur2_random",
}  # fmt: skip
_DIFFERENT = 10_000
"""Different messages, made before the clock starts."""
_PARTITIONS = 6

Send = Callable[[str, Any], None]


@dataclass(frozen=True)
class Cost:
    """Of one run: messages a second until the last was acknowledged, and processor's microseconds for each."""

    rate: float
    cpu: float


@contextmanager
def bare(servers: str, topic: str, folder: Path) -> Iterator[tuple[Send, Callable[[], None]]]:
    """As quick as the binding lets: bytes, one shared callback, polled every 1,000 messages."""
    import confluent_kafka

    client = confluent_kafka.Producer({"bootstrap.servers": servers, **SETTINGS})
    acknowledged = 0
    sent = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    def send(key: str, value: bytes) -> None:
        nonlocal sent
        while True:
            try:
                client.produce(topic, value, key, on_delivery=delivered)
                break
            except BufferError:
                client.poll(0.01)
        sent += 1
        if sent % 1000 == 0:
            client.poll(0)

    def finish() -> None:
        client.flush()
        assert acknowledged == sent

    yield send, finish


@contextmanager
def by_hand(
    servers: str, topic: str, folder: Path, dumps: Callable[[Any], bytes]
) -> Iterator[tuple[Send, Callable[[], None]]]:
    """A careful loop: JSON, a closure a message, latencies, counts by topic, and a thread that polls."""
    import confluent_kafka

    client = confluent_kafka.Producer({"bootstrap.servers": servers, **SETTINGS})
    latencies: list[float] = []
    counts: Counter[tuple[str, bool]] = Counter()
    ended = threading.Event()

    def poll() -> None:
        while not ended.is_set():
            client.poll(0.1)

    thread = threading.Thread(target=poll)
    thread.start()

    def send(key: str, value: Any) -> None:
        begun = time.perf_counter()

        def delivered(error: Any, message: Any) -> None:
            latencies.append(time.perf_counter() - begun)
            counts[message.topic(), error is None] += 1

        data = dumps(value)
        while True:
            try:
                client.produce(topic, data, key, on_delivery=delivered)
                return
            except BufferError:
                time.sleep(0.005)

    def finish() -> None:
        client.flush()
        ended.set()
        thread.join()
        assert not any(count for (_, good), count in counts.items() if not good)

    yield send, finish


@contextmanager
def ours(
    servers: str, topic: str, folder: Path, **options: Any
) -> Iterator[tuple[Send, Callable[[], None]]]:
    """A ReliableKafkaProducer with its store, as anybody has it."""
    from producer_core import ReliableKafkaProducer

    if "journal_level" in options:
        options["journal_dir"] = folder / "journal"
    producer = ReliableKafkaProducer(servers, store=folder / "store.duckdb", **options)

    def send(key: str, value: Any) -> None:
        producer.send_message(topic, value, key)

    def finish() -> None:
        producer.flush(120)
        assert not producer.pending_count and not producer.metrics.snapshot().dead

    yield send, finish
    producer.close()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _orjson(value: Any) -> bytes:
    import orjson

    return orjson.dumps(value)


@dataclass(frozen=True)
class Way:
    """One row: how it is opened, and whether it is given bytes instead of a dict."""

    name: str
    open: Callable[[str, str, Path], Any]
    as_bytes: bool = False


WAYS = {
    "bare": Way(BARE, bare, as_bytes=True),
    "json": Way(JSON, lambda *where: by_hand(*where, _json)),
    "orjson": Way(ORJSON, lambda *where: by_hand(*where, _orjson)),
    "ours": Way("`send_message(dict)`, the default", ours),
    "bytes": Way("`send_message(bytes)`", ours, as_bytes=True),
    "buffered": Way(
        '`journal_level="buffered"`', lambda *where: ours(*where, journal_level="buffered")
    ),
    "process": Way('`journal_level="process"`', lambda *where: ours(*where, journal_level="process")),
}


def run(name: str, servers: str, topic: str, count: int) -> Cost:
    """One run, in this process."""
    way = WAYS[name]
    values: list[Any] = [message(number) for number in range(_DIFFERENT)]
    if way.as_bytes:
        values = [_orjson(value) for value in values]
    keys = [f"key-{number}" for number in range(_DIFFERENT)]
    with tempfile.TemporaryDirectory() as folder, way.open(servers, topic, Path(folder)) as (send, finish):
        for number in range(1000):
            send(keys[number], values[number])
        time.sleep(1)
        begun, cpu = time.perf_counter(), time.process_time()
        for number in range(count):
            place = number % _DIFFERENT
            send(keys[place], values[place])
        finish()
        took, spent = time.perf_counter() - begun, time.process_time() - cpu
    return Cost(count / took, 1e6 * spent / count)


def rounds(servers: str, names: Sequence[str], count: int, number: int) -> dict[str, list[Cost]]:
    """Every way once a round, each in a process of its own."""
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    for turn in range(number):
        for name in random.sample(names, len(names)):
            command = [sys.executable, "-m", "benchmarks.sending", "--one", name, "--servers", servers]
            command += ["--count", str(count), "--topic", f"bench-{name}"]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            costs[name].append(Cost(**json.loads(printed)))
            cost = costs[name][-1]
            print(f"round {turn + 1}: {name}: {cost.rate:,.0f}/s, {cost.cpu:.1f} us", file=sys.stderr, flush=True)
    return costs


def table(costs: Mapping[str, Sequence[Cost]]) -> str:
    """Markdown; each ratio is the median of the ratios within the rounds."""
    lines = [
        "| | msg/s, median | lowest to highest | x bare | x by hand, json | x by hand, orjson | CPU, µs a message |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, own in costs.items():
        rates = [cost.rate for cost in own]
        ratios = " | ".join(
            f"{median(one.rate / other.rate for one, other in zip(own, costs[peer], strict=True)):.2f}"
            if peer in costs
            else ""
            for peer in ("bare", "json", "orjson")
        )
        lines.append(
            f"| {WAYS[name].name} | {median(rates):,.0f} | {min(rates):,.0f} to {max(rates):,.0f} "
            f"| {ratios} | {median(cost.cpu for cost in own):.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sending", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=100_000, help="messages a run")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--servers", help="a Kafka of yours instead of one node started here")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--topic", default="bench", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        cost = run(options.one, options.servers, options.topic, options.count)
        print(json.dumps({"rate": cost.rate, "cpu": cost.cpu}))
        return
    from producer_core.brokers import kafka

    with tempfile.TemporaryDirectory() as folder, kafka.start(nodes=1, folder=Path(folder) / "kafka") as cluster:
        for name in options.ways:
            cluster.create_topic(f"bench-{name}", _PARTITIONS)
        costs = rounds(cluster.bootstrap_servers, options.ways, options.count, options.rounds)
    print(table(costs))
    print(f"\nMachine: {machine()}.")


if __name__ == "__main__":
    main()
