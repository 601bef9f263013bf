"""Simulate a fleet of producers whose batches follow from a seed, so that the exact sums are known."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import Producer

from producer_core.metrics.telemetry import SCHEMA_VERSION, encode
from producer_core.store import Batch, ErrorRow, LatencyRow, ProducerRow, StatisticsRow

HOUR, DAY = 3600, 86400
TOPICS = ("orders", "payments")
CLUSTER = "simulated"
POINTS = (
    "received",
    "drafted",
    "in the transaction",
    "merged",
    "kept",
    "drafted a file",
    "renamed a file",
    "published",
)
"""The steps that a telemetry job reports, in their order within a micro-batch and its publication."""


@dataclass
class Truth:
    """The expected sums: counters by producer and hour, latencies by bucket, errors, and numbers of batches and records."""

    counters: Counter = field(default_factory=Counter)
    buckets: Counter = field(default_factory=Counter)
    errors: Counter = field(default_factory=Counter)
    batches: int = 0
    unreadable: int = 0

    def add(self, batch):
        self.batches += 1
        for row in batch.statistics:
            hour = row.window_start // HOUR
            for name in ("accepted", "acknowledged", "dead", "bytes"):
                self.counters[batch.producer_id, hour, row.topic, name] += getattr(row, name)
        for row in batch.latencies:
            self.buckets[row.topic, row.bucket] += row.count
        for row in batch.errors:
            self.errors[row.topic, row.code] += row.count


class Fleet:
    """Has `producers` producers with one batch per second for `seconds`, until `now`.

    The share `late` of the batches arrives after all others with a time of an hour or a day before. The share `twice`
    arrives again. `unreadable` is the number of records that contain no known batch.
    """

    def __init__(self, *, producers, seconds, now, seed, late=0.02, twice=0.01, unreadable=7):
        self._chance = random.Random(seed)
        self.truth = Truth()
        self.names = [f"p-{seed}-{number:04}" for number in range(producers)]
        on_time, after = [], []
        for sequence in range(seconds):
            for name in self.names:
                is_late = self._chance.random() < late
                back = self._chance.choice((HOUR, DAY)) if is_late else 0
                batch = self.batch(name, sequence, now - seconds + sequence - back)
                self.truth.add(batch)
                (after if is_late else on_time).append((name, encode(batch)))
        again = self._chance.sample(on_time, int(len(on_time) * twice))
        self.records = on_time + after + again
        for number in range(unreadable):
            newer = {"v": SCHEMA_VERSION + 1, "producer_id": self.names[0], "sequence": seconds + number}
            value = json.dumps(newer).encode() if number % 2 else b"\xff\x00 no JSON"
            self.records.insert(self._chance.randrange(len(self.records)), (self.names[0], value))
        self.truth.unreadable = unreadable

    def batch(self, name, sequence, at):
        chance = self._chance
        statistics, latencies, errors = [], [], []
        for topic in TOPICS:
            acknowledged, dead = chance.randrange(2_000), chance.randrange(3)
            where = (int(at), CLUSTER, name, topic)
            statistics.append(
                StatisticsRow(
                    *where, acknowledged + dead, acknowledged, dead, dead, 0, 0, 0, 0, 90 * acknowledged, 0.01
                )
            )
            cut = sorted(chance.randrange(acknowledged + 1) for _ in range(5))
            counts = [high - low for low, high in zip([0, *cut], [*cut, acknowledged], strict=True)]
            latencies += [
                LatencyRow(*where, 40 + place, count) for place, count in enumerate(counts) if count
            ]
            if dead:
                errors.append(ErrorRow(*where, "MSG_SIZE_TOO_LARGE", "permanent", dead))
        heartbeat = ProducerRow(
            name, CLUSTER, "app", "host", 1, "1", 0.0, float(at), None, True, None, 0, 0, 0, 0, 0, None, False,
            "at_least_once", "{}",
        )  # fmt: skip
        return Batch(name, sequence, tuple(statistics), tuple(latencies), tuple(errors), heartbeat)


def publish(servers, topic, records, *, pace=None):
    """Send all records, in order for each producer. `pace()` is called before each thousand records."""
    client = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20})
    for number, (name, value) in enumerate(records):
        if pace is not None and number % 1_000 == 0:
            pace()
        while True:
            try:
                client.produce(topic, value, name.encode())
                break
            except BufferError:
                client.poll(0.1)
        client.poll(0)
    left = client.flush(60)
    assert left == 0, f"{left} records have no acknowledgement"


def found(connection):
    """Return the same sums from a store, over all resolutions."""
    truth = Truth()
    rows = connection.execute(
        f"SELECT producer_id, window_start // {HOUR}, topic, sum(accepted), sum(acknowledged), sum(dead), sum(bytes) "
        "FROM statistics GROUP BY ALL"
    ).fetchall()
    return _filled(truth, connection, rows, "latencies", "errors")


def found_in_history(connection, folder):
    """Return the same sums from the Parquet history."""
    source = f"read_parquet('{folder}/statistics/*.parquet')"
    rows = connection.execute(
        f"SELECT producer_id, window_start // {HOUR}, topic, sum(accepted), sum(acknowledged), sum(dead), sum(bytes) "
        f"FROM {source} GROUP BY ALL"
    ).fetchall()
    others = [f"read_parquet('{folder}/{kind}/*.parquet')" for kind in ("latencies", "errors")]
    return _filled(Truth(), connection, rows, *others)


def _filled(truth, connection, rows, latencies, errors):
    for producer, hour, topic, *values in rows:
        for name, value in zip(("accepted", "acknowledged", "dead", "bytes"), values, strict=True):
            truth.counters[producer, hour, topic, name] += int(value)
    for topic, bucket, count in connection.execute(
        f"SELECT topic, bucket, sum(count) FROM {latencies} GROUP BY ALL"
    ).fetchall():
        truth.buckets[topic, bucket] += int(count)
    for topic, code, count in connection.execute(
        f"SELECT topic, code, sum(count) FROM {errors} GROUP BY ALL"
    ).fetchall():
        truth.errors[topic, code] += int(count)
    return truth


def difference(found, truth):
    """Describe the differences; return an empty string if there are none."""
    wrong = []
    for name in ("counters", "buckets", "errors"):
        have, want = +getattr(found, name), +getattr(truth, name)
        if have != want:
            keys = [key for key in {*have, *want} if have[key] != want[key]]
            one = sorted(keys, key=str)[0]
            wrong.append(f"{name}: {len(keys)} differ, {one} is {have[one]} instead of {want[one]}")
    return "; ".join(wrong)
