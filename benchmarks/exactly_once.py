"""Measure the throughput of exactly-once delivery with a latency bound of one second, on three nodes.

    python -m benchmarks.exactly_once --rounds 5

At full speed the queue fills, and its length determines the latency. Therefore the sender waits while the oldest
unsettled message is older than 70% of the bound. One message in fifty has a callback that measures its latency. With
exactly-once delivery, acknowledged means committed.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.frame import Bench, Case, Outcome, Runs, Target, at_least, main, markdown, spread, times
from benchmarks.guarantees import message
from benchmarks.stage import KINDS

QUESTION = "What does exactly-once delivery cost in throughput, if each message may take a second?"
LIMITATIONS = (
    "a stricter limit, at which transactions are smaller and cost more; brokers on separate machines, where three "
    "brokers do not share two cores; the cost of a fence and a read-back after a failure."
)
BOUND = 1.0
_PAUSE_AT = 0.7
_SAMPLE_EVERY = 50
_SETTINGS = {"max_block_ms": 60_000}

_NATIVE: Mapping[str, Any] = {"delivery": "exactly_once", "journal_level": "process", "core": "native"}

WAYS: Mapping[str, Mapping[str, Any]] = {
    "at least once": {},
    "at least once, with a journal": {"journal_level": "process"},
    "exactly once, 2 shards": {"delivery": "exactly_once", "journal_level": "process", "shards": 2},
    "exactly once, 3 shards": {"delivery": "exactly_once", "journal_level": "process", "shards": 3},
    "exactly once, 4 shards": {"delivery": "exactly_once", "journal_level": "process", "shards": 4},
    "exactly once, native core, 2 shards": {**_NATIVE, "shards": 2},
    "exactly once, native core, 3 shards": {**_NATIVE, "shards": 3},
}


class LatencySampler:
    """Measures the latency of the sampled messages and the age of the oldest pending one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two fields below
        self._waiting: OrderedDict[int, float] = OrderedDict()
        self.took: list[float] = []

    def begin(self, number: int) -> None:
        with self._lock:
            self._waiting[number] = time.perf_counter()

    def end(self, report: Any) -> None:
        with self._lock:
            self.took.append(time.perf_counter() - self._waiting.pop(report.record_id))

    def oldest(self) -> float:
        with self._lock:
            return time.perf_counter() - next(iter(self._waiting.values())) if self._waiting else 0.0

    def reset(self) -> None:
        with self._lock:
            self.took = []

    def quantile(self, place: float) -> float:
        with self._lock:
            ordered = sorted(self.took)
        return ordered[int(place * (len(ordered) - 1))] if ordered else 0.0


def one(*, way: str, seconds: float, warm: float, servers: str, topic: str) -> dict[str, float]:
    """Return acknowledged messages per second, latency quantiles in seconds, and CPU time per message in microseconds."""
    from producer_core import ReliableKafkaProducer

    options = dict(WAYS[way])
    with tempfile.TemporaryDirectory() as folder:
        if "journal_level" in options:
            options["journal_dir"] = Path(folder) / "journal"
        producer = ReliableKafkaProducer(servers, _SETTINGS, store=Path(folder) / "store.duckdb", **options)
        sampler, ended = LatencySampler(), threading.Event()
        sender = threading.Thread(target=_send, args=(producer, topic, sampler, ended))
        sender.start()
        _acknowledged(producer, 1)
        time.sleep(warm)
        sampler.reset()
        started, cpu, before = time.perf_counter(), time.process_time(), _acknowledged(producer)
        time.sleep(seconds)
        count, spent, took = (
            _acknowledged(producer) - before,
            time.process_time() - cpu,
            time.perf_counter() - started,
        )
        p50, p99 = sampler.quantile(0.5), sampler.quantile(0.99)
        if producer.get_stats()["core"] != options.get("core", "python"):
            raise RuntimeError(producer.get_stats().get("core_refusal", "another core is used"))
        ended.set()
        sender.join()
        producer.close(timeout=30)
    return {"rate": count / took, "p50": p50, "p99": p99, "cpu": 1e6 * spent / max(count, 1)}


def _acknowledged(producer: Any, least: int = 0) -> int:
    """Wait for at least `least` acknowledgements and return their number."""
    deadline = time.monotonic() + 60
    while (count := producer.metrics.snapshot().acknowledged) < least:
        if time.monotonic() > deadline:
            raise TimeoutError("no acknowledgement within a minute")
        time.sleep(0.01)
    return int(count)


def _send(producer: Any, topic: str, sampler: LatencySampler, ended: threading.Event) -> None:
    values = [message(number) for number in range(10_000)]
    for number in itertools.count():
        if ended.is_set():
            return
        value, key = values[number % 10_000], f"key-{number % 10_000}"
        if number % _SAMPLE_EVERY:
            producer.send_message(topic, value, key)
            continue
        while sampler.oldest() > _PAUSE_AT * BOUND and not ended.is_set():
            time.sleep(0.002)
        sampler.begin(number)
        producer.send_message(topic, value, key, record_id=number, on_delivery=sampler.end)


def measure(bench: Bench) -> Outcome:
    broker = bench.stage.broker("three", real=True)
    seconds, warm = (1.0, 0.2) if bench.quick else (8.0, 3.0)
    ways = list(WAYS)[1:3] if bench.quick else list(WAYS)
    cases = [Case(way, "exactly_once:one", {"way": way, "seconds": seconds, "warm": warm}) for way in ways]
    runs = bench.run("three", cases, around=lambda case: broker.topic())
    text = f"On {KINDS[broker.kind]}, each message settled within {BOUND:g} s:\n\n{_table(runs)}"
    return Outcome(text, _targets(runs))


def _table(runs: Runs) -> str:
    rows = [
        (
            way,
            spread(runs.numbers(way, "rate")),
            times(runs.ratio(way, "at least once")),
            times(runs.ratio(way, "at least once, with a journal")),
            spread([1000 * latency for latency in runs.numbers(way, "p50")]),
            spread([1000 * latency for latency in runs.numbers(way, "p99")]),
            f"{runs.median(way, 'cpu'):.1f}",
        )
        for way in WAYS
        if way in runs
    ]
    head = (
        "",
        "msg/s",
        "x at least once",
        "x at least once, with a journal",
        "p50, ms",
        "p99, ms",
        "CPU, µs per message",
    )
    return markdown(head, rows)


def _targets(runs: Runs) -> list[Target]:
    """Return the targets for the fastest number of shards."""
    exact = [way for way in WAYS if way.startswith("exactly") and way in runs]
    best = max(exact, key=lambda way: runs.median(way, "rate"))
    late = runs.median(best, "p99")
    return [
        at_least(f"{best} vs. at least once, p99 {1000 * late:,.0f} ms", 0.8, runs.ratios(best, "at least once")),
        at_least(f"{best} vs. at least once with a journal", 0.8, runs.ratios(best, "at least once, with a journal")),
    ]  # fmt: skip


if __name__ == "__main__":
    main(sys.modules[__name__])
