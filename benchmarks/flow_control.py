"""Measure the cost of flow control per message: a circuit breaker, off, closed and open, and a rate limit that no message reaches.

    python -m benchmarks.flow_control --rounds 5

Every case sends the same messages of about 200 bytes as JSON. While the circuit is open no broker is needed: the client
has an address where none listens, and each call raises CircuitOpen.
"""

from __future__ import annotations

import gc
import sys
import time

from benchmarks.frame import Bench, Case, Outcome, Runs, main, markdown, spread, times
from benchmarks.guarantees import message
from benchmarks.stage import KINDS

QUESTION = "What does flow control cost per message?"
LIMITATIONS = "the time until a circuit opens and closes, which its settings determine; failing messages; a real network."
_DIFFERENT = 10_000
_WARM = 1_000
_NOWHERE = "127.0.0.1:1"

CASES = {
    "off": "no flow control",
    "closed": "circuit breaker, closed",
    "limited": "rate limits for the producer and its topic, not reached",
    "open": "circuit breaker, open: CircuitOpen is raised",
}


def one(*, way: str, count: int, servers: str, topic: str) -> dict[str, float]:
    """Return the CPU time per message in microseconds, messages per second, and the share of refused messages."""
    from producer_core import CircuitBreaker, CircuitOpen, ReliableKafkaProducer

    refuses = way == "open"
    breaker = CircuitBreaker(max_in_flight_age_s=2.0) if refuses else way == "closed"
    producer = ReliableKafkaProducer(
        _NOWHERE if refuses else servers,
        {"max_messages_per_second": {topic: 1e9, "*": 1e9}} if way == "limited" else None,
        store=None,
        circuit_breaker=breaker,
    )
    values = [message(number) for number in range(_DIFFERENT)]
    refused = 0

    def send_all(number: int) -> None:
        nonlocal refused
        for value in values[:number]:
            try:
                producer.send_message(topic, value, "key")
            except CircuitOpen:
                refused += 1
        if not refuses:
            producer.flush(300)
            assert not producer.pending_count

    while refuses and producer.circuits.cluster.state == "closed":  # type: ignore[union-attr]  # it has a breaker
        time.sleep(0.1)
    send_all(_WARM)
    refused = 0
    gc.collect()
    started, cpu = time.perf_counter(), time.process_time()
    for first in range(0, count, _DIFFERENT):
        send_all(min(_DIFFERENT, count - first))
    took, spent = time.perf_counter() - started, time.process_time() - cpu
    producer.close(1)
    return {"cpu": 1e6 * spent / count, "rate": count / took, "refused": refused / count}


def measure(bench: Bench) -> Outcome:
    broker, count = bench.stage.broker("embedded"), bench.size(50_000, 200)
    cases = [Case(way, "flow_control:one", {"way": way, "count": count}) for way in CASES]

    runs = bench.run("embedded", cases, around=lambda case: broker.topic())
    return Outcome(f"On {KINDS['embedded']}, {count:,} messages a run:\n\n{_table(runs)}")


def _table(runs: Runs) -> str:
    head = ("", "CPU, µs per message", "more than off, µs", "CPU x off", "messages/s", "refused")
    rows = [
        (
            title,
            spread(runs.numbers(way, "cpu"), ".2f"),
            "" if way == "off" else spread(runs.differences(way, "off", "cpu"), "+.2f"),
            times(runs.ratio(way, "off", "cpu")),
            f"{runs.median(way, 'rate'):,.0f}",
            f"{runs.median(way, 'refused'):.0%}",
        )
        for way, title in CASES.items()
    ]
    return markdown(head, rows, left=1)


if __name__ == "__main__":
    main(sys.modules[__name__])
