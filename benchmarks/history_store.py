"""Create a store with the history of five topics at a steady rate, rolled up by age as the recorder does."""

from __future__ import annotations

from pathlib import Path

import duckdb

from benchmarks.dead_letters import batch
from producer_core.dlq import DeadLetters
from producer_core.metrics.batch import KINDS, ProducerRow
from producer_core.store import Store
from producer_core.store.retention import Retention

NOW = 1_795_000_000
"""The end of every history."""
TOPICS = ("orders", "payments", "page-views", "shipments", "refunds")
PRODUCER = "0192a4c0-7b1e-7d44-9c3a-ffffffffffff"
BUCKETS = 24
"""Latency buckets per topic and window."""
DEAD_LETTER_EVERY = 10_000
"""One message in this many is a dead letter."""


def make(path: Path, seconds: int, rate: int = 1_000) -> None:
    """Create a store at `path` with `seconds` of history: old hours as single rows, recent time at a finer resolution."""
    store = Store.open(path)
    dead = DeadLetters(store, clock=lambda: float(NOW))
    for number in range(seconds * rate // DEAD_LETTER_EVERY // 1_000):
        dead.add(batch(number))
    store.close()
    with duckdb.connect(str(path), config={"threads": 2, "memory_limit": "2GB"}) as connection:
        for resolution, first, last in steps(seconds):
            _fill(connection, resolution, first, last, rate)
        connection.execute("INSERT INTO merged_batches VALUES (?, 0, ?)", [PRODUCER, seconds])
        names = ", ".join(ProducerRow._fields)
        connection.execute(
            f"INSERT INTO producers ({names}) VALUES ({', '.join('?' * len(ProducerRow._fields))})",
            _producer(seconds),
        )
        connection.execute("CHECKPOINT")


def steps(seconds: int) -> list[tuple[int, int, int]]:
    """Return (resolution, first window, end) of each part of a history, oldest first."""
    keep = Retention()
    fine, middle = int(NOW - keep.keep_seconds) // 60 * 60, int(NOW - keep.keep_minutes) // 3600 * 3600
    begin = NOW - seconds
    parts = (
        (3600, begin // 3600 * 3600, middle),
        (60, max(begin, middle) // 60 * 60, fine),
        (1, max(begin, fine), NOW),
    )
    return [part for part in parts if part[1] < part[2]]


def _fill(connection: duckdb.DuckDBPyConnection, resolution: int, first: int, last: int, rate: int) -> None:
    """Fill every table of the recorder for each window."""
    bounds = {"resolution": resolution, "first": first, "last": last, "producer": PRODUCER}
    topics = ", ".join(f"('{topic}', {place})" for place, topic in enumerate(TOPICS))
    each = rate * resolution // len(TOPICS)
    windows = "(SELECT unnest(range($first, $last, $resolution)) AS moment)"
    own = "$resolution, moment, 'bench', $producer"
    connection.execute(
        f"INSERT INTO statistics SELECT {own}, topic, n, n, 0, 0, 0, 0, 0, 0, n * 200, n * 0.012 FROM "
        f"(SELECT moment, topic, {each} + (moment + place) % 7 AS n FROM {windows}, (VALUES {topics}) AS t(topic, place))",
        bounds,
    )
    connection.execute(
        f"INSERT INTO latencies SELECT {own}, topic, -100 + bucket + place, 1 + {each} // {BUCKETS} "
        f"FROM {windows}, (VALUES {topics}) AS t(topic, place), range({BUCKETS}) AS b(bucket)",
        bounds,
    )
    connection.execute(
        f"INSERT INTO errors SELECT {own}, topic, 'NOT_ENOUGH_REPLICAS', 'temporary', 1 "
        f"FROM {windows}, (VALUES {topics}) AS t(topic, place) WHERE moment // $resolution % 20 = place",
        bounds,
    )
    connection.execute(
        f"INSERT INTO client_statistics SELECT {own}, $resolution, 0, 100, 100000, 50, 1000, 200000, 0, 0.01, 1, 0.1 "
        f"FROM {windows}",
        bounds,
    )
    values = len(KINDS["broker_statistics"].columns) - 5
    connection.execute(
        f"INSERT INTO broker_statistics SELECT {own}, broker, 'broker-' || broker || ':9092', {', '.join(['1'] * values)} "
        f"FROM {windows}, range(3) AS b(broker)",
        bounds,
    )


def _producer(seconds: int) -> list[object]:
    row = ProducerRow(
        PRODUCER, "bench", "reliable-producer-1", "host", 4711, "0.1.0", NOW - seconds, NOW, None, True, None, 12, 0, 12,
        100_000, 80_000_000, 4_000_000_000, True, "at_least_once", "{}",
    )  # fmt: skip
    return list(row)
