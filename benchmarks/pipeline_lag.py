"""Measure the telemetry lag from Kafka to the fleet's store, and the time to process a backlog.

    python -m benchmarks.pipeline_lag --producers 100 1000 --seconds 120 --every 1 --backlog 200000

A separate process simulates the producers. Each sends one batch per second, evenly distributed (two topics, six latency
buckets per topic, a heartbeat), through a real Kafka of one node. The job runs like `pipeline telemetry`, on all cores;
broker, producers and job share this machine. The lag is the time from a record's timestamp to the end of the transaction
that merged it, for every batch after the warm-up.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import mean, quantiles
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from producer_core.brokers import kafka
from producer_core.pipeline import piece_merger, telemetry
from producer_core.pipeline.session import open_session
from producer_core.store import Store

_WARM_UP = 30.0
_PARTITIONS = 4
_SENDER = "import sys; from benchmarks.pipeline_lag import send; send(*sys.argv[1:])"


class TimedMerge:
    """Wraps the sink's merge and records when each batch was merged."""

    def __init__(self) -> None:
        self.merged: dict[tuple[str, int], float] = {}
        self._merge = piece_merger.merge

    def __call__(self, store: Store, fresh: Any, **choices: Any) -> int:
        count = self._merge(store, fresh, **choices)
        now = time.time()
        ids = zip(fresh["producer_id"].to_pylist(), fresh["sequence"].to_pylist(), strict=True)
        self.merged.update(dict.fromkeys(ids, now))
        return count


def send(servers: str, topic: str, producers: str, seconds: str) -> None:
    """Send one batch per producer and second, evenly distributed, in a separate process."""
    from tests.scenarios.pipelines.fleet import Fleet

    count = int(producers)
    fleet = Fleet(producers=count, seconds=0, now=time.time(), seed=1, unreadable=0)
    client = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    started = time.monotonic()
    for number in range(count * int(seconds)):
        sequence, place = divmod(number, count)
        due = started + number / count
        while (early := due - time.monotonic()) > 0:
            client.poll(early)  # returns at each delivery
        name = fleet.names[place]
        client.produce(topic, _encoded(fleet, name, sequence), name)
        client.poll(0)
    client.flush(30)


def _encoded(fleet: Any, name: str, sequence: int) -> bytes:
    from producer_core.metrics.telemetry import encode

    return encode(fleet.batch(name, sequence, time.time()))


def sent(servers: str, topic: str, count: int) -> dict[tuple[str, int], float]:
    """Return the Kafka timestamp of each record."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "lag", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in range(_PARTITIONS)])
    found: dict[tuple[str, int], float] = {}
    deadline = time.monotonic() + 120
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(5_000, timeout=1.0):
            value = orjson.loads(message.value())
            found[value["producer_id"], value["sequence"]] = message.timestamp()[1] / 1000
    consumer.close()
    return found


def live(
    spark: Any, cluster: kafka.KafkaCluster, folder: Path, producers: int, seconds: int, every: float
) -> str:
    topic = f"lag-{producers}-{int(time.time())}"
    cluster.create_topic(topic, partitions=_PARTITIONS)
    merge, store = TimedMerge(), Store.open(folder / f"{topic}.duckdb")
    piece_merger.merge = merge  # type: ignore[assignment]
    ended = threading.Event()
    job = threading.Thread(
        target=telemetry.run, args=(spark, store),
        kwargs={"servers": cluster.bootstrap_servers, "topics": [topic], "every": every, "stopped": ended.is_set},
    )  # fmt: skip
    job.start()
    whole = int(_WARM_UP) + seconds
    arguments = [cluster.bootstrap_servers, topic, str(producers), str(whole)]
    started = time.time()
    subprocess.run([sys.executable, "-c", _SENDER, *arguments], check=True)
    deadline = time.monotonic() + 120
    while len(merge.merged) < producers * whole and time.monotonic() < deadline and job.is_alive():
        time.sleep(0.2)
    ended.set()
    job.join()
    piece_merger.merge = merge._merge
    store.close()
    when = sent(cluster.bootstrap_servers, topic, producers * whole)
    lags = [
        merge.merged[key] - at for key, at in when.items() if at > started + _WARM_UP and key in merge.merged
    ]
    lost = len(when) - len(merge.merged)
    if len(lags) < 2:
        return f"| {producers} | {every:g} | {len(merge.merged):,} merged of {len(when):,}, none after the warm-up |"
    cut = quantiles(lags, n=100)
    row = (
        producers,
        f"{every:g}",
        f"{len(lags):,}",
        *(f"{cut[at]:.2f}" for at in (49, 94, 98)),
        f"{max(lags):.2f}",
        f"{mean(lags):.2f}",
    )
    return "| " + " | ".join(map(str, row)) + " |" + (f" **{lost} not merged**" if lost else "")


def backlog(spark: Any, cluster: kafka.KafkaCluster, folder: Path, count: int) -> str:
    from tests.scenarios.pipelines.fleet import Fleet, publish

    topic = f"backlog-{int(time.time())}"
    cluster.create_topic(topic, partitions=_PARTITIONS)
    fleet = Fleet(producers=200, seconds=0, now=time.time(), seed=1, unreadable=0)
    now = time.time()
    records = (
        (name, _at(fleet, name, sequence, now)) for sequence in range(count // 200) for name in fleet.names
    )
    publish(cluster.bootstrap_servers, topic, records)
    store = Store.open(folder / "backlog.duckdb")
    started = time.monotonic()
    done = telemetry.run(
        spark, store, servers=cluster.bootstrap_servers, topics=[topic], once=True, history=folder / "history"
    )
    seconds = time.monotonic() - started
    size = store.path.stat().st_size
    store.close()
    return f"| {done.merged:,} | {seconds:.1f} | {done.merged / seconds:,.0f} | {size / 1e6:,.0f} MB |"


def _at(fleet: Any, name: str, sequence: int, now: float) -> bytes:
    from producer_core.metrics.telemetry import encode

    return encode(fleet.batch(name, sequence, now - 3_600 + sequence))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--producers", type=int, nargs="*", default=[1_000])
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument(
        "--backlog",
        type=int,
        default=0,
        help="also process this many batches at once, with history (default 0)",
    )
    options = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    with tempfile.TemporaryDirectory() as home, kafka.start(nodes=1) as cluster:
        spark = open_session(name="lag", driver_memory="1g", light=True)
        print("| producers | trigger, s | batches | lag p50, s | p95 | p99 | max | mean |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        for producers in options.producers:
            print(live(spark, cluster, Path(home), producers, options.seconds, options.every), flush=True)
        if options.backlog:
            print(
                "\n| backlog, batches | seconds | batches per second | store |\n| ---: | ---: | ---: | ---: |"
            )
            print(backlog(spark, cluster, Path(home), options.backlog))
        spark.stop()


if __name__ == "__main__":
    main()
