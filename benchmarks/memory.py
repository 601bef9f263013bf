"""What a message in flight weighs beyond its key and value, ours against by hand.

    python -m benchmarks.memory --rounds 5

The client is told to collect for five minutes, so every message that is sent stays in flight; the growth of the
process's resident memory, less the bytes of keys and values, is shared out among them.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from benchmarks.frame import Bench, Case, Outcome, Runs, alone, at_most, markdown, spread
from benchmarks.guarantees import message
from benchmarks.peers import SETTINGS, ByHand

QUESTION = "How much memory does a message in flight take, in addition to its key and value?"
SHOWS_NOT = (
    "requests in flight, of which there are five at most and which take the same memory in all cases; the objects "
    "of the user's own callbacks; messages that wait for a retry or a probe, which keep their attempts as well."
)
COLLECTING: Mapping[str, Any] = {
    "linger.ms": 300_000, "message.timeout.ms": 600_000, "batch.num.messages": 1_000_000, "batch.size": 1_000_000_000,
    "queue.buffering.max.messages": 1_000_000,
}  # fmt: skip
"""Nothing is sent before the run is over."""

Send = Callable[[Any, str], None]


def _bare(servers: str, topic: str, folder: Path) -> Send:
    import confluent_kafka

    client = confluent_kafka.Producer({"bootstrap.servers": servers, **SETTINGS, **COLLECTING})
    count = 0

    def delivered(error: Any, record: Any) -> None:
        nonlocal count
        count += 1

    return lambda value, key: client.produce(topic, orjson.dumps(value), key, on_delivery=delivered)


def _by_hand(servers: str, topic: str, folder: Path) -> Send:
    loop = ByHand(servers, orjson.dumps, **COLLECTING)
    return lambda value, key: loop.send(topic, value, key)


def _ours(servers: str, topic: str, folder: Path, **options: Any) -> Send:
    from producer_core import ReliableKafkaProducer

    producer = ReliableKafkaProducer(servers, COLLECTING, store=folder / "store.duckdb", **options)
    return lambda value, key: _told(producer.send_message(topic, value, key))


def _told(message_id: str | None) -> None:
    """The caller drops the id."""


def _ours_watched(servers: str, topic: str, folder: Path) -> Send:
    from producer_core import ReliableKafkaProducer

    producer = ReliableKafkaProducer(servers, COLLECTING, store=folder / "store.duckdb")

    def send(value: Any, key: str) -> None:
        producer.send_message(topic, value, key, on_delivery=lambda report: None, record_id=key)

    return send


_WAYS: Mapping[str, Callable[..., Send]] = {
    "(a) bare, one callback": _bare,
    "(b) by hand, a closure a message": _by_hand,
    "ours": _ours,
    "ours, `on_delivery` and `record_id` for each": _ours_watched,
}


def one(*, way: str, count: int, rest: float, servers: str, topic: str) -> dict[str, float]:
    """Bytes a message beyond one copy of key and value. The process ends at once, with all of it in flight."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # the store goes on writing to it
        send = _WAYS[way](servers, topic, Path(folder))
        for number in range(1_000):  # connected, the topic known, every module imported
            send(message(number), f"key-{number}")
        time.sleep(rest)  # the store was opened and written to: that is no message's memory
        gc.collect()
        before, payload = _resident(), 0
        for number in range(count):
            value, key = message(number), f"key-{number}"
            payload += len(key) + len(orjson.dumps(value))
            send(value, key)
        gc.collect()
        grown = _resident() - before
    print(orjson.dumps({"bytes": (grown - payload) / count, "whole": grown / count}).decode(), flush=True)
    os._exit(0)  # else the clients would wait for what they hold


def _resident() -> int:
    """Bytes that this process alone has in memory."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return 1024 * (int(fields["Private_Dirty"].split()[0]) + int(fields["Private_Clean"].split()[0]))


def measure(bench: Bench) -> Outcome:
    broker, count = bench.stage.broker("embedded"), bench.size(100_000, 2_000)
    rest = 0.2 if bench.quick else 4.0
    cases = [Case(way, "memory:one", {"way": way, "count": count, "rest": rest}) for way in _WAYS]
    runs = bench.run("embedded", cases, around=lambda case: broker.topic())
    target = at_most(
        "memory a message in flight, beyond key and value", 1000, runs.numbers("ours", "bytes"), "bytes"
    )
    return Outcome(f"{count:,} messages in flight, of 195 bytes and a key:\n\n{_table(runs)}", [target])


def _table(runs: Runs) -> str:
    rows = [
        (
            way,
            spread(runs.numbers(way, "bytes")),
            spread(runs.differences(way, "(a) bare, one callback", "bytes")),
        )
        for way in _WAYS
    ]
    return markdown(("", "bytes beyond key and value", "more than (a)"), rows)


if __name__ == "__main__":
    alone(sys.modules[__name__])
