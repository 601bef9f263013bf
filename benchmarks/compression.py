"""Measure the bytes and the CPU time of each codec on four kinds of content, and what compression_type="auto" chooses.

    python -m benchmarks.compression --rounds 5

The bytes are those that the Kafka client counts on its sockets. The CPU time is that of the sending process, which
includes the client's threads, where batches are compressed. With "auto", a first producer samples the content and a
second one, which is measured, starts with the codec that the store remembers.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.frame import Bench, Case, Outcome, main, markdown, spread
from benchmarks.stage import KINDS

QUESTION = 'What do the codecs save on different content, and what does "auto" choose?'
LIMITATIONS = "the brokers' disks and replication, which store and copy the same bytes; other levels of a codec; consumers."
CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "auto")
_VALUES = 2_000
_SAMPLING_S = 8.0


def _orders(rng: random.Random) -> bytes:
    order = {
        "order_id": rng.randrange(10**9), "customer": f"c-{rng.randrange(5000)}", "amount": rng.randrange(10**6) / 100,
        "currency": rng.choice(("EUR", "USD", "GBP")), "status": rng.choice(("paid", "open", "sent")),
        "items": [{"sku": f"sku-{rng.randrange(900)}", "count": rng.randrange(1, 5)} for _ in range(3)],
    }  # fmt: skip
    return json.dumps(order).encode()


def _log_line(rng: random.Random) -> bytes:
    path = rng.choice(("/", "/cart", "/search?q=shoes", "/item/"))
    return (
        f"10.0.{rng.randrange(256)}.{rng.randrange(256)} - - [27/Nov/2026:10:{rng.randrange(60):02}:{rng.randrange(60):02} +0000] "
        f'"GET {path}{rng.randrange(1000)} HTTP/1.1" {rng.choice((200, 200, 200, 304, 404))} {rng.randrange(50_000)} "-" "Mozilla/5.0"'
    ).encode()


def _compressed(rng: random.Random) -> bytes:
    return zlib.compress(b"".join(_orders(rng) for _ in range(3)), 9)


def _encrypted(rng: random.Random) -> bytes:
    return rng.randbytes(300)


CONTENT: Mapping[str, Callable[[random.Random], bytes]] = {
    "JSON orders": _orders,
    "log lines": _log_line,
    "compressed already (zlib)": _compressed,
    "encrypted (random bytes)": _encrypted,
}


def one(*, content: str, codec: str, count: int, sampling: float, servers: str, topic: str) -> dict[str, Any]:
    """Return bytes on the network and CPU time in microseconds, both per message, and the codec that was used."""
    rng = random.Random(7)
    values = [CONTENT[content](rng) for _ in range(_VALUES)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.duckdb"
        if codec == "auto":
            _sample(path, values, sampling, servers, topic)
        return _measured(path if codec == "auto" else None, codec, values, count, servers, topic)


def _sample(path: Path, values: list[bytes], seconds: float, servers: str, topic: str) -> None:
    from producer_core import ReliableKafkaProducer

    end = time.monotonic() + seconds
    with ReliableKafkaProducer(servers, {"compression_type": "auto"}, store=path) as producer:
        while time.monotonic() < end:
            for value in values:
                producer.send_message(topic, value)


def _measured(
    path: Path | None, codec: str, values: list[bytes], count: int, servers: str, topic: str
) -> dict[str, Any]:
    from producer_core import ReliableKafkaProducer

    sent: list[int] = [0]
    settings = {"compression_type": codec, "statistics.interval.ms": 100, "stats_cb": _counts_bytes(sent)}
    with ReliableKafkaProducer(servers, settings, store=path) as producer:
        for value in values:
            producer.send_message(topic, value)
        producer.flush(300)
        time.sleep(0.5)
        gc.collect()
        before, cpu = sent[0], time.process_time()
        for value in _repeated(values, count):
            producer.send_message(topic, value)
        producer.flush(300)
        spent = time.process_time() - cpu
        time.sleep(0.5)
        choice = producer.config.compression
        used = codec if choice is None else choice.used
        return {
            "bytes": (sent[0] - before) / count, "cpu": 1e6 * spent / count, "plain": sum(map(len, values)) / len(values),
            "codec": CODECS.index(used),
        }  # fmt: skip


def _counts_bytes(sent: list[int]) -> Callable[[str], None]:
    def count(text: str) -> None:
        sent[0] = json.loads(text)["tx_bytes"]

    return count


def _repeated(values: list[bytes], count: int) -> Iterator[bytes]:
    for number in range(count):
        yield values[number % len(values)]


def measure(bench: Bench) -> Outcome:
    broker, count = bench.stage.broker("one"), bench.size(50_000, 200)
    sampling = _SAMPLING_S if count > 1000 else 3.0
    cases = [
        Case(f"{content}, {codec}", "compression:one", {"content": content, "codec": codec, "count": count, "sampling": sampling})
        for content in CONTENT
        for codec in CODECS
    ]  # fmt: skip
    runs = bench.run("one", cases, around=lambda case: broker.topic())
    head = (
        "content",
        "codec",
        "bytes per message",
        "of no codec",
        "CPU, µs per message",
        "more than none, µs",
    )
    rows = []
    for content in CONTENT:
        base = f"{content}, none"
        for codec in CODECS:
            way = f"{content}, {codec}"
            used = {CODECS[round(number)] for number in runs.numbers(way, "codec")}
            rows.append(
                (
                    content,
                    f"auto: {', '.join(sorted(used))}" if codec == "auto" else codec,
                    f"{runs.median(way, 'bytes'):,.0f}",
                    f"{runs.median(way, 'bytes') / runs.median(base, 'bytes'):.0%}",
                    spread(runs.numbers(way, "cpu"), ".1f"),
                    "" if codec == "none" else spread(runs.differences(way, base, "cpu"), "+.1f"),
                )
            )
    return Outcome(f"On {KINDS['one']}, {count:,} messages a run:\n\n{markdown(head, rows, left=2)}")


if __name__ == "__main__":
    main(sys.modules[__name__])
