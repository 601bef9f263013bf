"""Measure the cost of the metrics for Prometheus.

    python -m benchmarks.prometheus --rounds 5

The first part sends at full speed without metrics, and with a collector that another process scrapes every five seconds.
The second part scrapes the process of a producer, and a store, with up to a thousand topics, over HTTP.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.frame import Bench, Case, Outcome, Runs, at_least, at_most, main, markdown, spread, times
from benchmarks.guarantees import message
from benchmarks.recording import send_for, warm_up
from benchmarks.stage import KINDS

QUESTION = "What do the metrics for Prometheus cost a producer, and how long does a scrape take?"
LIMITATIONS = "a store on a slow disk; producers that write to the store during a scrape; the work of Prometheus itself."
EVERY = 5.0
"""Seconds between two scrapes."""
_TOPICS = (10, 100, 1_000)
_SCRAPES = 5
_SCRAPER = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1], timeout=30).read()
    time.sleep(float(sys.argv[2]))
"""


# the cost of a message


def sending(*, scraped: bool, seconds: float, servers: str, topic: str) -> dict[str, float]:
    """Send at full speed; return messages per second and the CPU time per message in microseconds."""
    from producer_core import ReliableKafkaProducer

    values = [message(number) for number in range(10_000)]
    with tempfile.TemporaryDirectory() as folder:
        with ReliableKafkaProducer(servers, store=Path(folder) / "store.duckdb") as producer:
            warm_up(producer, topic, values)
            with _scraped(producer, scraped):
                return send_for(producer, topic, values, seconds)


@contextmanager
def _scraped(producer: Any, scraped: bool) -> Iterator[None]:
    """Serve the metrics of the producer, and scrape them from another process."""
    if not scraped:
        yield
        return
    from producer_core.producer.prometheus import start_metrics_server

    with start_metrics_server(0, producer) as server:
        scraper = subprocess.Popen([sys.executable, "-c", _SCRAPER, server.url, str(EVERY)])
        try:
            yield
        finally:
            scraper.terminate()
            scraper.wait()


# the time of a scrape


def scrape_process(*, topics: int) -> dict[str, float]:
    """Return the time of a scrape of a producer's process."""
    from producer_core import ReliableKafkaProducer
    from producer_core.producer.prometheus import start_metrics_server
    from producer_core.testing import InMemoryTransport

    with ReliableKafkaProducer("memory:1", store=None, transport=InMemoryTransport.factory()) as producer:
        for number in range(20 * topics):
            producer.send_message(f"topic-{number % topics}", {"n": number})
        producer.flush()
        with start_metrics_server(0, producer, topics=topics) as server:
            return _times(server.url)


def scrape_store(*, topics: int, seconds: int) -> dict[str, float]:
    """Return the time of a scrape of a store with one row a second of each topic."""
    from producer_core.producer.prometheus import MetricsServer, StoreCollector
    from producer_core.store import Store

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.duckdb"
        Store.open(path).close()
        rows = _fill(path, topics, seconds)
        collector = StoreCollector(Store.open(path), topics=topics)
        with MetricsServer(collector.render, port=0) as server:
            return {"rows": rows, **_times(server.url)}


def _fill(path: Path, topics: int, seconds: int) -> int:
    """Fill the tables of the recorder, and return the number of rows of latencies: three buckets a second and topic."""
    import duckdb

    begin = int(time.time()) - seconds
    source = f"range({topics}) t(topic), range({begin}, {begin + seconds}) w(second)"
    labels = "1, second, 'bench', 'producer', 'topic-' || topic"
    with duckdb.connect(str(path), config={"threads": 2, "memory_limit": "2GB"}) as connection:
        connection.execute(
            f"INSERT INTO statistics SELECT {labels}, 3, 3, 0, 0, 0, 0, 0, 0, 600, 0.03 FROM {source}"
        )
        connection.execute(
            f"INSERT INTO latencies SELECT {labels}, 10 * bucket - 100, 1 FROM {source}, range(3) b(bucket)"
        )
        connection.execute("CHECKPOINT")
    return 3 * topics * seconds


def _times(url: str) -> dict[str, float]:
    """Return the milliseconds of the first and of later scrapes, and the size of the answer in KB."""
    took = []
    for _ in range(1 + _SCRAPES):
        started = time.perf_counter()
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = answer.read()
        took.append(1e3 * (time.perf_counter() - started))
    return {"first": took[0], "later": median(took[1:]), "size": len(text) / 1e3}


# the question


_OFF, _ON = "no metrics", f"collected, scraped every {EVERY:.0f} s"


def measure(bench: Bench) -> Outcome:
    broker = bench.stage.broker("one")

    cases = [
        Case(name, "prometheus:sending", {"scraped": name == _ON, "seconds": bench.size(20, 1)})
        for name in (_OFF, _ON)
    ]
    sent = bench.run("cost", cases, around=lambda case: broker.topic())
    scrapes = bench.run("scrape", _scrape_cases(bench), rounds=1 if bench.quick else 3)
    most = f"{bench.size(_TOPICS[-1], _TOPICS[0]):,} topics"
    return Outcome(
        f"Sending at full speed, on {KINDS[broker.kind]}:\n\n{_cost_table(sent)}\n\nA scrape over HTTP:\n\n{_scrape_table(scrapes)}",
        [
            at_least("throughput with metrics vs. without", 0.97, sent.ratios(_ON, _OFF)),
            at_most(f"scrape of a process, {most}", 500, scrapes.numbers(f"process, {most}", "later"), "ms"),
            at_most(f"scrape of a store, {most}", 2_000, scrapes.numbers(f"store, {most}", "later"), "ms"),
        ],
    )


def _scrape_cases(bench: Bench) -> list[Case]:
    seconds = bench.size(3_600, 10)
    counts = _TOPICS[:1] if bench.quick else _TOPICS
    processes = [
        Case(f"process, {count:,} topics", "prometheus:scrape_process", {"topics": count}) for count in counts
    ]
    stores = [
        Case(f"store, {count:,} topics", "prometheus:scrape_store", {"topics": count, "seconds": seconds})
        for count in counts
    ]
    return [*processes, *stores]


def _cost_table(runs: Runs) -> str:
    rows = [
        (
            name,
            spread(runs.numbers(name, "cpu"), ".1f"),
            spread(runs.numbers(name, "rate")),
            times(runs.ratio(name, _OFF)),
        )
        for name in (_OFF, _ON)
        if name in runs
    ]
    return markdown(("", "CPU, µs per message", "msg/s", f"x {_OFF}"), rows)


def _scrape_table(runs: Runs) -> str:
    names = [f"{source}, {count:,} topics" for source in ("process", "store") for count in _TOPICS]
    rows = [
        (
            name,
            f"{runs.median(name, 'rows'):,.0f}" if name.startswith("store") else "-",
            *(spread(runs.numbers(name, column)) for column in ("first", "later", "size")),
        )
        for name in names
        if name in runs
    ]
    return markdown(("", "rows of latencies", "first scrape, ms", "later scrapes, ms", "answer, KB"), rows)


if __name__ == "__main__":
    main(sys.modules[__name__])
