"""Measure the CPU time of a send with a schema.

    python -m benchmarks.schemas --rounds 5

Every case sends the same messages to the embedded broker. The registry is the real one that the tests use; only the
first message of a run asks it. The manual loop has a callback per message, as in `benchmarks.sending`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.frame import Bench, Case, Outcome, at_most, main, markdown, spread
from benchmarks.guarantees import message
from benchmarks.peers import ByHand, orjson

QUESTION = "What does a schema cost per message?"
LIMITATIONS = (
    "the registry's own work; the first message of a topic; schemas with rules; other sizes; several senders."
)

_ITEM = {
    "type": "record", "name": "Item", "fields": [
        {"name": "sku", "type": "string"}, {"name": "quantity", "type": "int", "default": 1},
    ],
}  # fmt: skip
AVRO = {
    "type": "record", "name": "Order", "fields": [
        {"name": "order", "type": "long"}, {"name": "customer", "type": "string"},
        {"name": "total", "type": "double"}, {"name": "currency", "type": "string"},
        {"name": "items", "type": {"type": "array", "items": _ITEM}}, {"name": "note", "type": "string"},
    ],
}  # fmt: skip
_JSON = {
    "type": "object", "title": "Order", "required": ["order", "customer", "total"],
    "properties": {
        "order": {"type": "integer"}, "customer": {"type": "string"}, "total": {"type": "number"},
        "currency": {"type": "string"}, "note": {"type": "string"},
        "items": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    },
}  # fmt: skip
CASES: Mapping[str, str] = {
    "json": "JSON, the default",
    "avro": "Avro, from settings",
    "avro serializer": "Avro, with AvroSerializer",
    "json schema": "JSON with a schema, from settings",
    "loop json": "manual loop with orjson",
    "loop avro": "manual loop with AvroSerializer",
}
Send = Callable[[Any, str], Any]


def one(*, way: str, url: str, count: int, servers: str, topic: str) -> dict[str, float]:
    """Return the CPU time per message of this process in microseconds, without that of the first thousand."""
    values = [message(number) for number in range(1_000)]
    with _sender(way, url, servers, topic) as (send, flush):
        for number, value in enumerate(values):
            send(value, f"key-{number}")
        flush()
        cpu = time.process_time()
        for number in range(count):
            send(values[number % 1_000], f"key-{number % 1_000}")
        flush()
        spent = time.process_time() - cpu
    return {"cpu": 1e6 * spent / count}


@contextmanager
def _sender(way: str, url: str, servers: str, topic: str) -> Iterator[tuple[Send, Callable[[], Any]]]:
    """Yield a function that sends and one that waits for the reports."""
    if way.startswith("loop"):
        loop = ByHand(servers, orjson.dumps if way == "loop json" else _by_avro(url, topic))
        yield lambda value, key: loop.send(topic, value, key), loop.flush
        loop.close()
        assert not loop.failed()
        return
    from producer_core import ReliableKafkaProducer

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.duckdb"
        with ReliableKafkaProducer(servers, _settings(way, url, topic), store=store) as producer:
            yield lambda value, key: producer.send_message(topic, value, key), lambda: producer.flush(120)


def _settings(way: str, url: str, topic: str) -> dict[str, Any]:
    match way:
        case "json":
            return {}
        case "avro serializer":
            return {"value_serializer": _avro_serializer(url)}
    form, schema = ("avro", AVRO) if way == "avro" else ("json", _JSON)
    return {
        "schema.registry.url": url, "value.serializer": form, "value.schema": json.dumps(schema),
        "auto.register.schemas": True,
    }  # fmt: skip


def _avro_serializer(url: str) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer

    return AvroSerializer(SchemaRegistryClient({"url": url, "timeout": 30}), json.dumps(AVRO))


def _by_avro(url: str, topic: str) -> Callable[[Any], bytes]:
    from confluent_kafka.serialization import MessageField, SerializationContext

    serializer, context = _avro_serializer(url), SerializationContext(topic, MessageField.VALUE)
    return lambda value: serializer(value, context)


def measure(bench: Bench) -> Outcome:
    from producer_core.brokers import schema_registry

    count = bench.size(50_000, 200)
    broker = bench.stage.broker("embedded")
    with schema_registry.start() as registry:
        cases = [Case(way, "schemas:one", {"way": way, "count": count}) for way in CASES]

        @contextmanager
        def around(case: Case) -> Iterator[Mapping[str, Any]]:
            with broker.topic() as topic:
                yield {"url": registry.url, **topic}

        runs = bench.run("cpu", cases, around=around)
    rows = [
        (
            CASES[way],
            spread(runs.numbers(way, "cpu"), ".1f"),
            spread(runs.differences(way, "json", "cpu"), "+.1f"),
        )
        for way in CASES
    ]
    table = markdown(("", "µs of CPU per message", "minus JSON, the default"), rows)
    # The serializer's own cost is the difference between the two manual loops.
    ours = runs.differences("avro serializer", "json", "cpu")
    loops = runs.differences("loop avro", "loop json", "cpu")
    added = [own - loop for own, loop in zip(ours, loops, strict=True)]
    target = at_most("AvroSerializer, beyond its cost in a manual loop", 3, added, "µs per message", ".1f")
    return Outcome(table, [target])


if __name__ == "__main__":
    main(sys.modules[__name__])
