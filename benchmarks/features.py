"""Measure what each optional feature costs per message: off and on.

    python -m benchmarks.features --rounds 5

Every case sends the same messages of about 200 bytes as JSON to the embedded broker, and every message is acknowledged.
Each feature is compared with the same producer without it, in the same round.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.frame import Bench, Case, Outcome, main, markdown, spread, times
from benchmarks.guarantees import message
from benchmarks.schemas import AVRO
from benchmarks.stage import KINDS

QUESTION = "What does each optional feature cost per message?"
LIMITATIONS = (
    "features that do nothing for a single message: tokens, decoded values in the dashboard, `telemetry collect`; tracing, log "
    "lines and metrics, which have their own benchmarks; failing messages; a real network."
)
_DIFFERENT = 10_000
_WARM = 1_000


@dataclass(frozen=True)
class Feature:
    """A feature and what it is compared with. `settings` and `arguments` switch it on."""

    title: str
    settings: Mapping[str, Any] | None = None
    arguments: Mapping[str, Any] | None = None
    store: bool = False


FEATURES: Mapping[str, Feature] = {
    "store": Feature("a store", store=True),
    "application": Feature("an application name", arguments={"application": "shop"}, store=True),
    "samples": Feature("samples for the choice of a codec", store=True),
    "text ids": Feature("message ids as text", {"message_id_format": "text"}),
    "dead-letter topic": Feature(
        "a dead-letter topic, without dead letters", arguments={"dead_letter_topic": "{topic}-dlt"}, store=True
    ),
    "breaker": Feature("circuit breaker, closed", arguments={"circuit_breaker": True}),
    "severe": Feature('on_severe_errors="stop"', arguments={"on_severe_errors": "stop"}),
    "limits": Feature("rate limits, not reached", {"max_messages_per_second": {"*": 1e9}, "max_bytes_per_second": 1e12}),
    "avro": Feature(
        "Avro from settings, instead of JSON",
        {"value.serializer": "avro", "value.schema": json.dumps(AVRO), "auto.register.schemas": True},
    ),
}  # fmt: skip


def one(*, way: str, on: bool, count: int, servers: str, topic: str, url: str) -> dict[str, float]:
    """Return the CPU time per message in microseconds, and messages per second."""
    from producer_core import ReliableKafkaProducer

    feature = FEATURES[way]
    with tempfile.TemporaryDirectory() as folder, _sampling(on or way != "samples"):
        has_store = feature.store and (on or way != "store")
        settings = {**(feature.settings or {})} if on else {}
        if "value.serializer" in settings:
            settings["schema.registry.url"] = url
        producer = ReliableKafkaProducer(
            servers,
            settings,
            store=Path(folder) / "store.duckdb" if has_store else None,
            **(feature.arguments or {} if on else {}),
        )
        values = [message(number) for number in range(_DIFFERENT)]
        _send(producer, topic, values, _WARM)
        gc.collect()
        started, cpu = time.perf_counter(), time.process_time()
        _send(producer, topic, values, count)
        took, spent = time.perf_counter() - started, time.process_time() - cpu
        producer.close(30)
    return {"cpu": 1e6 * spent / count, "rate": count / took}


def _send(producer: Any, topic: str, values: list[Any], count: int) -> None:
    for number in range(count):
        producer.send_message(topic, values[number % _DIFFERENT], "key")
    producer.flush(300)
    assert not producer.pending_count


@contextmanager
def _sampling(on: bool) -> Iterator[None]:
    """Let producers take samples, or not: there is no setting for it."""
    from producer_core.producer.compression_recorder import CompressionRecorder

    sample: Callable[[CompressionRecorder], None] = CompressionRecorder.sample
    if not on:
        CompressionRecorder.sample = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        CompressionRecorder.sample = sample  # type: ignore[method-assign]


def measure(bench: Bench) -> Outcome:
    from producer_core.brokers import schema_registry

    broker, count = bench.stage.broker("embedded"), bench.size(100_000, 200)
    cases = [
        Case(_name(way, on), "features:one", {"way": way, "on": on, "count": count})
        for way in FEATURES
        for on in (False, True)
    ]
    with schema_registry.start() as registry:

        @contextmanager
        def around(case: Case) -> Iterator[Mapping[str, Any]]:
            with broker.topic() as where:
                yield {"url": registry.url, **where}

        runs = bench.run("features", cases, around=around)
    head = ("feature", "off: CPU, µs per message", "on", "more, µs", "CPU x off", "messages/s x off")
    rows = [
        (
            feature.title,
            spread(runs.numbers(_name(way, False), "cpu"), ".1f"),
            spread(runs.numbers(_name(way, True), "cpu"), ".1f"),
            spread(runs.differences(_name(way, True), _name(way, False), "cpu"), "+.1f"),
            times(runs.ratio(_name(way, True), _name(way, False), "cpu")),
            times(runs.ratio(_name(way, True), _name(way, False), "rate")),
        )
        for way, feature in FEATURES.items()
    ]
    return Outcome(f"On {KINDS['embedded']}, {count:,} messages a run:\n\n{markdown(head, rows, left=1)}")


def _name(way: str, on: bool) -> str:
    return f"{way}, {'on' if on else 'off'}"


if __name__ == "__main__":
    main(sys.modules[__name__])
