"""Measure the cost of the producer's log lines per message.

    python -m benchmarks.logs --rounds 5

Off: the level of the logger `producer_core` is CRITICAL. On: its level is INFO, and a handler writes the lines as text to
a file. Every case sends the same messages of about 200 bytes as JSON.
"""

from __future__ import annotations

import gc
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.frame import Bench, Case, Outcome, at_most, main, markdown, spread, times
from benchmarks.guarantees import message
from benchmarks.stage import KINDS

QUESTION = "What do log lines cost per message?"
LIMITATIONS = (
    "handlers that are slower than a file: they take their time on the log's own thread; the level DEBUG."
)
_DIFFERENT = 10_000
_WARM = 500
ENDINGS: Mapping[str, str] = {
    "acknowledged": "every message is acknowledged",
    "dead": "every message becomes a dead letter",
}


def one(
    *, ending: str, logged: bool, count: int, servers: str = "", topic: str = "orders"
) -> dict[str, float]:
    """Return the CPU time per message in microseconds, messages per second, and the number of log lines."""
    from producer_core import ReliableKafkaProducer
    from producer_core.testing import InMemoryTransport

    options: dict[str, Any] = {}
    if ending == "dead":
        options["transport"] = InMemoryTransport.factory(script=lambda delivery: "POLICY_VIOLATION")
    values = [message(number) for number in range(_DIFFERENT)]
    with tempfile.TemporaryDirectory() as folder, _log(Path(folder) / "lines.log", logged) as file:
        with ReliableKafkaProducer(
            servers or "memory:1", store=None, dlq_max_size=count + _WARM, **options
        ) as producer:

            def send(number: int) -> None:
                for start in range(0, number, _DIFFERENT):
                    for value in values[: min(_DIFFERENT, number - start)]:
                        producer.send_message(topic, value)
                producer.flush(300)

            send(_WARM)
            gc.collect()
            started, cpu = time.perf_counter(), time.process_time()
            send(count)
            took, spent = time.perf_counter() - started, time.process_time() - cpu
        lines = len(file.read_text().splitlines()) if logged else 0
    return {"cpu": 1e6 * spent / count, "rate": count / took, "lines": lines}


@contextmanager
def _log(file: Path, logged: bool) -> Iterator[Path]:
    logger = logging.getLogger("producer_core")
    logger.setLevel(logging.INFO if logged else logging.CRITICAL)
    handler = logging.FileHandler(file)
    logger.addHandler(handler)
    try:
        yield file
    finally:
        logger.removeHandler(handler)
        handler.close()


def measure(bench: Bench) -> Outcome:
    broker, count = bench.stage.broker("embedded"), bench.size(20_000, 200)
    cases = [
        Case(_name(ending, logged), "logs:one", {"ending": ending, "logged": logged, "count": count})
        for ending in ENDINGS
        for logged in (False, True)
    ]

    @contextmanager
    def around(case: Case) -> Iterator[Mapping[str, Any]]:
        if "dead" in case.name:
            yield {}
        else:
            with broker.topic() as where:
                yield where

    runs = bench.run("logs", cases, around=around)
    rows = [
        (
            text,
            "on" if logged else "off",
            spread(runs.numbers(name, "cpu"), ".1f"),
            times(runs.ratio(name, _name(ending, False), "cpu")),
            f"{runs.median(name, 'rate'):,.0f}",
            f"{runs.median(name, 'lines'):.0f}",
        )
        for ending, text in ENDINGS.items()
        for logged in (False, True)
        for name in [_name(ending, logged)]
    ]
    head = ("", "log", "CPU, µs per message", "CPU x off", "msg/s", "lines")
    ratios = runs.ratios(_name("acknowledged", True), _name("acknowledged", False), "cpu")
    target = at_most("CPU per acknowledged message with log lines vs. without", 1.05, ratios, "x", ".2f")
    place = f"Acknowledged on {KINDS['embedded']}; dead letters without a broker; {count:,} messages a run"
    return Outcome(f"{place}:\n\n{markdown(head, rows, left=2)}", [target])


def _name(ending: str, logged: bool) -> str:
    return f"{ending}, {'on' if logged else 'off'}"


if __name__ == "__main__":
    main(sys.modules[__name__])
