"""Measure the cost of a dead-letter topic per message: off and on, for acknowledged messages and for dead letters.

    python -m benchmarks.dead_letter_topic --rounds 5

Every case sends the same messages of about 200 bytes as JSON and has a store. Acknowledged messages go to the embedded
broker. Dead letters arise and are published on a simulated cluster without a network; the time includes the close, after
which all of them are in the store and on the topic.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.frame import Bench, Case, Outcome, main, markdown, spread, times
from benchmarks.guarantees import message
from benchmarks.stage import KINDS

QUESTION = "What does a dead-letter topic cost per message?"
LIMITATIONS = "a real network; the lookup of dead letters in doubt; large messages."
_DIFFERENT = 10_000
_WARM = 500
_CLOSE_S = 600.0
ENDINGS: Mapping[str, str] = {
    "acknowledged": "every message is acknowledged",
    "dead": "every message becomes a dead letter",
}


def one(
    *, ending: str, published: bool, count: int, servers: str = "", topic: str = "orders"
) -> dict[str, float]:
    """Return the CPU time per message in microseconds, messages per second, and the share of published messages."""
    from producer_core import ReliableKafkaProducer
    from producer_core.testing import InMemoryTransport

    options: dict[str, Any] = {"dead_letter_topic": "{topic}-dlt"} if published else {}
    transports: list[InMemoryTransport] = []
    if ending == "dead":
        refuse = {topic: "POLICY_VIOLATION"}
        options["transport"] = InMemoryTransport.factory(
            transports, script=lambda delivery: refuse.get(delivery.topic)
        )
    values = [message(number) for number in range(_DIFFERENT)]
    with tempfile.TemporaryDirectory() as folder:
        producer = ReliableKafkaProducer(
            servers or "memory:1", store=Path(folder) / "store.duckdb", **options
        )

        def send(number: int) -> None:
            for start in range(0, number, _DIFFERENT):
                for value in values[: min(_DIFFERENT, number - start)]:
                    producer.send_message(topic, value, "key")
            producer.flush(300)

        send(_WARM)
        gc.collect()
        started, cpu = time.perf_counter(), time.process_time()
        send(count)
        while published and ending == "dead" and _published(transports, topic) < count + _WARM:
            time.sleep(0.05)
        producer.close(_CLOSE_S)
        took, spent = time.perf_counter() - started, time.process_time() - cpu
    share = _published(transports, topic) / (count + _WARM)
    return {"cpu": 1e6 * spent / count, "rate": count / took, "published": share}


def _published(transports: list[Any], topic: str) -> int:
    return sum(len(one.log.get(f"{topic}-dlt", ())) for one in transports)


def measure(bench: Bench) -> Outcome:
    broker, count = bench.stage.broker("embedded"), bench.size(20_000, 200)
    cases = [
        Case(_name(ending, published), "dead_letter_topic:one", {"ending": ending, "published": published, "count": count})
        for ending in ENDINGS
        for published in (False, True)
    ]  # fmt: skip

    @contextmanager
    def around(case: Case) -> Iterator[Mapping[str, Any]]:
        if "dead" in case.name:
            yield {}
        else:
            with broker.topic() as where:
                yield where

    runs = bench.run("dead_letter_topic", cases, around=around)
    rows = [
        (
            text,
            "on" if published else "off",
            spread(runs.numbers(name, "cpu"), ".1f"),
            spread(runs.differences(name, _name(ending, False), "cpu"), "+.1f") if published else "",
            times(runs.ratio(name, _name(ending, False), "cpu")),
            f"{runs.median(name, 'rate'):,.0f}",
            f"{runs.median(name, 'published'):.0%}",
        )
        for ending, text in ENDINGS.items()
        for published in (False, True)
        for name in [_name(ending, published)]
    ]
    head = (
        "",
        "dead-letter topic",
        "CPU, µs per message",
        "more than off, µs",
        "CPU x off",
        "messages/s",
        "published",
    )
    table = markdown(head, rows, left=2)
    return Outcome(f"On {KINDS['embedded']} and in memory, {count:,} messages a run:\n\n{table}")


def _name(ending: str, published: bool) -> str:
    return f"{ending}, {'on' if published else 'off'}"


if __name__ == "__main__":
    main(sys.modules[__name__])
