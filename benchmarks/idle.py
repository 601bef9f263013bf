"""Measure the CPU time of a producer that sends nothing.

python -m benchmarks.idle --rounds 3
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.frame import Bench, Case, Outcome, at_most, main, markdown, spread

QUESTION = "How much CPU time does an idle producer need?"
LIMITATIONS = "a store with millions of rows; an open dashboard (see `recording`); alert routes; several producers on one store."
_WAYS: Mapping[str, Mapping[str, Any]] = {
    "with a store": {"store": "store.duckdb"},
    "`store=None`": {"store": None},
}
_WARM_UP_S = 10.0
"""Seconds before the measurement: the start, the first evaluation of the alerts and the first write are not idle."""


def one(*, way: str, servers: str, topic: str, seconds: float, warm_up: float) -> dict[str, float]:
    """Return the CPU time of this process as a percentage of one core."""
    from producer_core import ReliableKafkaProducer

    with tempfile.TemporaryDirectory() as folder:
        store = _WAYS[way]["store"]
        with ReliableKafkaProducer(servers, store=store and Path(folder) / store) as producer:
            producer.send_message(topic, {"order": 1})
            producer.flush(60)
            time.sleep(warm_up)
            started, cpu = time.perf_counter(), time.process_time()
            time.sleep(seconds)
            spent, took = time.process_time() - cpu, time.perf_counter() - started
    return {"percent": 100 * spent / took}


def measure(bench: Bench) -> Outcome:
    seconds, warm_up = bench.size(60, 2), bench.size(int(_WARM_UP_S), 1)
    broker = bench.stage.broker("one")
    with broker.topic() as topic:
        cases = [
            Case(way, "idle:one", {"way": way, "seconds": seconds, "warm_up": warm_up, **topic})
            for way in _WAYS
        ]
        runs = bench.run("idle", cases)
    rows = [(way, spread(runs.numbers(way, "percent"), ".2f")) for way in _WAYS]
    table = markdown(("", "% of a core: median (lowest to highest)"), rows)
    target = at_most(
        "an idle producer with a store", 1.0, runs.numbers("with a store", "percent"), "%", ".2f"
    )
    return Outcome(table, [target])


if __name__ == "__main__":
    main(sys.modules[__name__])
