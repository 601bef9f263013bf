"""Compare the speed of `pipeline reprocess` with a plain transactional producer and with `dlq replay`.

    python -m benchmarks.reprocess --dead-letters 10000 50000 --runs 3
    python -m benchmarks.reprocess --dead-letters 200000 --runs 1 --ways plain session

Each run sends the dead letters of a copy of the store to a new topic, once per method and in random order: with the plain
producer (transactions of 2,000, dead letters in memory, no outcome stored), with the runner of `dlq replay`, and with
Spark, sliced by session and by key. Spark starts once; its start is not included and is printed separately. Every run
verifies that each dead letter is on its topic once and is settled.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import confluent_kafka

from benchmarks.machine import hardware
from producer_core import ReliableKafkaProducer, replay
from producer_core.brokers import kafka
from producer_core.config import client_config
from producer_core.delivery.dead_letter import delivery_of
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.events import Attempt, DeadLetter
from producer_core.messages import id_bytes, id_text
from producer_core.pipeline.reprocess import reprocess
from producer_core.pipeline.session import open_session
from producer_core.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from producer_core.brokers.kafka import KafkaCluster

_IN_A_TRANSACTION = 2000
_SESSIONS = 40
_PARTITIONS = 6
_WAYS = {
    "plain": "plain transactional producer",
    "dlq replay": "runner of `dlq replay`",
    "session": "`pipeline reprocess`, sliced by session",
    "key": "`pipeline reprocess`, sliced by key",
}
_HEAD = [
    "| dead letters | method | dead letters/s, median | lowest to highest | x plain producer |",
    "| --- " * 5 + "|",
]


class Bench:
    """Uses the same cluster, Spark session and dead letters for each run."""

    def __init__(self, cluster: KafkaCluster, session: SparkSession, dead_letters: int, folder: Path) -> None:
        self._cluster = cluster
        self._session = session
        self._count = dead_letters
        self._folder = folder
        self._dead_letters = _dead_letters(dead_letters, "bench", cluster.cluster_id)
        self._original = folder / f"{dead_letters}.duckdb"
        store = Store.open(self._original)
        for start in range(0, dead_letters, 10_000):
            DeadLetters(store).add(self._dead_letters[start : start + 10_000])
        store.close()

    def run(self, way: str) -> float:
        """Replay all dead letters with one method and return dead letters per second."""
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        self._cluster.create_topic(topic, partitions=_PARTITIONS)
        if way == "plain":
            dead_letters = [replace(dead_letter, topic=topic) for dead_letter in self._dead_letters]
            started = time.monotonic()
            self._plain(dead_letters)
            return self._rate(started, topic)
        with self._store(topic) as store:
            started = time.monotonic()
            operation = self._runner(store) if way == "dlq replay" else self._spark(store, way)
            rate = self._rate(started, topic)
            if operation.acknowledged != self._count:
                raise RuntimeError(f"{way}: {operation.message}")
            return rate

    def _rate(self, started: float, topic: str) -> float:
        took = time.monotonic() - started
        if (found := _count(self._cluster.bootstrap_servers, topic)) != self._count:
            raise RuntimeError(f"{topic} has {found:,} of {self._count:,} records")
        return self._count / took

    @contextmanager
    def _store(self, topic: str) -> Iterator[Store]:
        path = Path(shutil.copy(self._original, self._folder / f"{topic}.duckdb"))
        shutil.copy(f"{self._original}.generation", f"{path}.generation")  # else it is a restored copy
        store = Store.open(path)
        with store.borrow(write=True) as connection:
            connection.execute("UPDATE dead_letters SET topic = ?", [topic])
        try:
            yield store
        finally:
            store.close()
            path.unlink()

    def _plain(self, dead_letters: Sequence[DeadLetter]) -> None:
        settings = transactional_settings(client_config(self._cluster.bootstrap_servers).settings)
        producer = confluent_kafka.Producer(
            {**settings, "transactional.id": uuid.uuid4().hex, "statistics.interval.ms": 0}
        )
        producer.init_transactions(30)
        for start in range(0, len(dead_letters), _IN_A_TRANSACTION):
            producer.begin_transaction()
            for one in dead_letters[start : start + _IN_A_TRANSACTION]:
                sent = delivery_of(one)
                producer.produce(sent.topic, sent.value, sent.key, headers=sent.record_headers)
                producer.poll(0)
            producer.commit_transaction(60)

    def _runner(self, store: Store) -> Any:
        servers, cluster = self._cluster.bootstrap_servers, self._cluster.cluster_id
        operation = replay.plan(store, DeadLetterFilter(), who="bench", origin="python", can_run=cluster)
        with ReliableKafkaProducer(servers, store=None, run_replays=False) as sender:
            runner = replay.ReplayRunner(store, sender, client=client_config(servers).settings)
            return runner.run_one(operation.operation_id, 3600)

    def _spark(self, store: Store, way: str) -> Any:
        by: Any = way
        return reprocess(
            self._session, store, self._cluster.bootstrap_servers, who="bench", slice_by=by, slices=4
        )


def _dead_letters(count: int, topic: str, cluster: str) -> list[DeadLetter]:
    sessions = [uuid.uuid4() for _ in range(_SESSIONS)]
    now = time.time() - 3600
    return [
        DeadLetter(
            message_id=id_text(id_bytes(sessions[number % _SESSIONS], number)), cluster_id=cluster, producer_id="bench",
            topic=topic, key=b"k%d" % (number % 50_000), value=os.urandom(100).hex().encode(), headers=(("n", b"%d" % number),),
            partition=None, timestamp_ms=None, verdict="rejected", verdict_reason="The broker refused it.", kind="permanent",
            code="POLICY_VIOLATION", error_text="Broker: Policy violation", fingerprint="abc",
            attempts=(Attempt(now, "POLICY_VIOLATION", "Broker: Policy violation"),),
            accepted_at=now + number * 0.001, failed_at=now + number * 0.001,
        )
        for number in range(count)
    ]  # fmt: skip


def _count(servers: str, topic: str) -> int:
    """Return the number of records that a read_committed consumer reads from the topic."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    ended: set[int] = set()
    count = 0
    while len(ended) < _PARTITIONS:
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                count += 1
            else:
                ended.add(message.partition())
    consumer.close()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dead-letters", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=list(_WAYS))
    options = parser.parse_args()
    started = time.monotonic()
    session = open_session(name="benchmark reprocess", master=options.master, driver_memory="1g")
    startup = time.monotonic() - started
    tables: list[str] = []
    with tempfile.TemporaryDirectory() as folder, kafka.start(nodes=options.nodes) as cluster:
        for dead_letters in options.dead_letters:
            bench = Bench(cluster, session, dead_letters, Path(folder))
            if not tables:
                first = bench.run("session")
            tables += _rows(dead_letters, _measured(bench, options.ways, options.runs))
    session.stop()
    print("\n".join(["", *_HEAD, *tables]))
    print(
        f"\nFirst run of Spark's workers, cold: {first:,.0f} dead letters/s; start of the session: {startup:.1f} s."
    )
    print(
        f"Dead letters of 200 bytes, nodes: {options.nodes}, {options.master}, runs: {options.runs}; {hardware()}; "
        f"load average {os.getloadavg()[0]:.1f} at the end."
    )


def _measured(bench: Bench, ways: Sequence[str], runs: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(runs):
        for way in random.sample(ways, len(ways)):
            found[way].append(bench.run(way))
            print(f"{way}: {found[way][-1]:,.0f} dead letters/s", flush=True)
    return found


def _rows(dead_letters: int, found: dict[str, list[float]]) -> list[str]:
    """Return a row per method; a ratio is the median of the ratios within the runs."""
    plain = found.get("plain", [])
    return [
        f"| {dead_letters:,} | {_WAYS[way]} | {median(rates):,.0f} | {min(rates):,.0f} to {max(rates):,.0f} "
        f"| {_ratio(rates, plain)} |"
        for way, rates in found.items()
    ]


def _ratio(rates: Sequence[float], plain: Sequence[float]) -> str:
    ratios = [rate / other for rate, other in zip(rates, plain, strict=False)]
    return f"{median(ratios):.2f}" if ratios else ""


if __name__ == "__main__":
    main()
