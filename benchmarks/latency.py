"""Measure the latency that the producer adds to a manual loop, at a thousand messages per second.

    python -m benchmarks.latency --rounds 5

Each message is sent at its scheduled time and ends with a callback. Two durations are measured: the call, which blocks
the caller, and the time from the call to the callback. A third case without a store shows what the store's threads add.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from benchmarks.frame import Bench, Case, Outcome, Runs, at_most, main, markdown, spread
from benchmarks.guarantees import message
from benchmarks.peers import ByHand
from benchmarks.stage import KINDS

QUESTION = "How much later is a message acknowledged through this producer, at 1,000 messages per second?"
LIMITATIONS = (
    "latency under full load, which depends on the queue and not on the code; the effect of a longer round trip to "
    "the brokers, which is the same for both; pauses of Python's garbage collector in a program with many objects."
)
_WARM = 500

Send = Callable[[Any, str, Callable[[], None]], None]
"""Sends a value with a key, and calls the callback after the acknowledgement."""


@contextmanager
def by_hand(servers: str, topic: str, folder: Path) -> Iterator[Send]:
    loop = ByHand(servers, orjson.dumps)

    def send(value: Any, key: str, ended: Callable[[], None]) -> None:
        def delivered(error: Any, record: Any) -> None:
            loop.latencies.append(time.perf_counter() - started)
            loop.counts[record.topic(), error is None] += 1
            ended()

        started = time.perf_counter()
        data = orjson.dumps(value)
        loop.client.produce(topic, data, key, on_delivery=delivered)

    try:
        yield send
        loop.flush()
    finally:
        loop.close()


@contextmanager
def ours(servers: str, topic: str, folder: Path, store: str | None = "store.duckdb") -> Iterator[Send]:
    from producer_core import ReliableKafkaProducer

    producer = ReliableKafkaProducer(servers, store=store and folder / store)

    def send(value: Any, key: str, ended: Callable[[], None]) -> None:
        producer.send_message(topic, value, key, on_delivery=lambda report: ended())

    yield send
    producer.flush(60)
    producer.close()


_WAYS: Mapping[str, Any] = {"by hand": by_hand, "ours": ours, "no store": partial(ours, store=None)}
_TITLES = ("manual loop", "producer_core", "producer_core, `store=None`")
_TARGETS = (("call", "p50", 20), ("call", "p99", 200), ("whole", "p50", 60), ("whole", "p99", 400))
"""The most microseconds that the producer may add with its store."""
_DURATIONS = {"call": "the call", "whole": "from call to callback"}
PLACES = (0.5, 0.9, 0.99, 0.999)


def one(*, way: str, servers: str, topic: str, count: int, rate: float) -> dict[str, float]:
    """Return the quantiles of the call and of the time to the callback, in microseconds."""
    calls, whole = [0.0] * count, [0.0] * count
    clock = time.perf_counter
    with tempfile.TemporaryDirectory() as folder, _WAYS[way](servers, topic, Path(folder)) as send:
        warm: list[None] = []
        for number in range(_WARM):
            send(message(number), "warm", lambda: warm.append(None))
        while len(warm) < _WARM:
            time.sleep(0.01)
        start = clock()
        for number in range(count):
            value, key = message(number), f"key-{number % 1000}"
            _wait_until(start + number / rate)
            started = clock()

            def ended(number: int = number, started: float = started) -> None:
                whole[number] = clock() - started

            send(value, key, ended)
            calls[number] = clock() - started
    assert all(whole), "a message has no acknowledgement"
    return {**_quantiles("call", calls), **_quantiles("whole", whole)}


def _wait_until(moment: float) -> None:
    while (left := moment - time.perf_counter()) > 0:
        time.sleep(left)


def _quantiles(name: str, seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {f"{name} p{100 * place:g}": 1e6 * ordered[int(place * (len(ordered) - 1))] for place in PLACES}


def measure(bench: Bench) -> Outcome:
    kind = "one"
    broker, count = bench.stage.broker("one"), bench.size(10_000, 300)
    cases = [Case(way, "latency:one", {"way": way, "count": count, "rate": 1000.0}) for way in _WAYS]
    runs = bench.run(kind, cases, around=lambda case: broker.topic())
    targets = [
        at_most(
            f"added latency, {_DURATIONS[what]}, {place}",
            bound,
            runs.differences("ours", "by hand", f"{what} {place}"),
            "µs",
        )
        for what, place, bound in _TARGETS
    ]
    text = f"On {KINDS[broker.kind]}, {count:,} messages per run at 1,000 per second, in microseconds:\n\n{_table(runs)}"
    return Outcome(text, targets)


def _table(runs: Runs) -> str:
    rows = []
    for what, words in _DURATIONS.items():
        for place in PLACES:
            name = f"{what} p{100 * place:g}"
            rows.append(
                (
                    f"{words}, p{100 * place:g}",
                    *(spread(runs.numbers(way, name)) for way in _WAYS),
                    *(spread(runs.differences(way, "by hand", name)) for way in ("ours", "no store")),
                )
            )
    return markdown(("", *_TITLES, "added", "added, `store=None`"), rows)


if __name__ == "__main__":
    main(sys.modules[__name__])
