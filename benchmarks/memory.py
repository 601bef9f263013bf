"""Measure the memory of a message in flight beyond its key and value, compared with a manual loop.

    python -m benchmarks.memory --rounds 5

With a `linger.ms` of five minutes, every message stays in flight. The result is the growth of the resident memory without
the bytes of keys and values, divided by the number of messages.
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

from benchmarks.frame import Bench, Case, Outcome, Runs, at_most, main, markdown, spread
from benchmarks.guarantees import message
from benchmarks.peers import SETTINGS, ByHand

QUESTION = "How much memory does a message in flight take, in addition to its key and value?"
LIMITATIONS = (
    "requests in flight, of which there are five at most and which take the same memory in all cases; the objects "
    "of the user's own callbacks; messages that wait for a retry or a probe, which keep their attempts as well."
)
COLLECTING: Mapping[str, Any] = {
    "linger.ms": 300_000, "message.timeout.ms": 600_000, "batch.num.messages": 1_000_000, "batch.size": 1_000_000_000,
    "queue.buffering.max.messages": 1_000_000,
}  # fmt: skip
"""The client sends nothing before the run ends."""

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
    return lambda value, key: _discard(producer.send_message(topic, value, key))


def _discard(message_id: str | None) -> None:
    """Drop the id, as a caller that does not need it does."""


def _ours_with_callback(servers: str, topic: str, folder: Path) -> Send:
    from producer_core import ReliableKafkaProducer

    producer = ReliableKafkaProducer(servers, COLLECTING, store=folder / "store.duckdb")

    def send(value: Any, key: str) -> None:
        producer.send_message(topic, value, key, on_delivery=lambda report: None, record_id=key)

    return send


_WAYS: Mapping[str, Callable[..., Send]] = {
    "(a) bare, one callback": _bare,
    "(b) by hand, a closure a message": _by_hand,
    "ours": _ours,
    "ours, `on_delivery` and `record_id` for each": _ours_with_callback,
}

TITLES: Mapping[str, str] = {
    "(a) bare, one callback": "(a) plain `produce()`, one callback",
    "(b) by hand, a closure a message": "(b) manual loop, one closure per message",
    "ours": "`send_message`",
    "ours, `on_delivery` and `record_id` for each": "`send_message` with `on_delivery` and `record_id`",
}
"""The row titles; the keys are the names of the cases in saved results."""


def one(*, way: str, count: int, rest: float, servers: str, topic: str) -> dict[str, float]:
    """Print the bytes per message beyond one copy of key and value, and exit with all messages in flight."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # the store still writes to it
        send = _WAYS[way](servers, topic, Path(folder))
        for number in range(1_000):  # connects, fetches metadata and imports every module
            send(message(number), f"key-{number}")
        time.sleep(rest)  # the store opens and writes, which is not memory of messages
        gc.collect()
        before, payload = _resident(), 0
        for number in range(count):
            value, key = message(number), f"key-{number}"
            payload += len(key) + len(orjson.dumps(value))
            send(value, key)
        gc.collect()
        grown = _resident() - before
    print(orjson.dumps({"bytes": (grown - payload) / count, "whole": grown / count}).decode(), flush=True)
    os._exit(0)  # otherwise the clients wait for the messages in flight


def _resident() -> int:
    """Return the private resident memory of this process in bytes."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return 1024 * (int(fields["Private_Dirty"].split()[0]) + int(fields["Private_Clean"].split()[0]))


def measure(bench: Bench) -> Outcome:
    broker, count = bench.stage.broker("embedded"), bench.size(100_000, 2_000)
    rest = 0.2 if bench.quick else 4.0
    cases = [Case(way, "memory:one", {"way": way, "count": count, "rest": rest}) for way in _WAYS]
    runs = bench.run("embedded", cases, around=lambda case: broker.topic())
    target = at_most(
        "memory per message in flight, beyond key and value", 1000, runs.numbers("ours", "bytes"), "bytes"
    )
    return Outcome(f"{count:,} messages in flight, of 195 bytes and a key each:\n\n{_table(runs)}", [target])


def _table(runs: Runs) -> str:
    rows = [
        (
            TITLES[way],
            spread(runs.numbers(way, "bytes")),
            spread(runs.differences(way, "(a) bare, one callback", "bytes")),
        )
        for way in _WAYS
    ]
    return markdown(("", "bytes beyond key and value", "more than (a)"), rows)


if __name__ == "__main__":
    main(sys.modules[__name__])
