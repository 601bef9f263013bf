"""Measure the cost of tracing per message, off, unsampled and sampled, beside a manual loop with the released instrumentation.

    python -m benchmarks.tracing --rounds 5

Every case sends the same messages of about 200 bytes as JSON. Spans go through a BatchSpanProcessor, whose exporter encodes
them for OTLP and discards the bytes. The queue of the processor is large enough that it drops none.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from benchmarks.frame import Bench, Case, Outcome, Runs, main, markdown, spread, times
from benchmarks.guarantees import message
from benchmarks.peers import SETTINGS
from benchmarks.stage import KINDS

QUESTION = "What does tracing cost per message?"
LIMITATIONS = (
    "the network and the receiver of the spans; other samplers and processors. A span of the released instrumentation "
    "ends when the message is enqueued, has no offset, and reports no error; a span of this producer ends with the "
    "acknowledgement."
)
_DIFFERENT = 10_000
_WARM = 1_000

RATIOS: Mapping[str, float | None] = {"off": None, "0 %": 0.0, "1 %": 0.01, "100 %": 1.0}
"""The sampled share of messages by the name of a case; None is no tracing."""


def one(*, way: str, sampled: float | None, count: int, servers: str, topic: str) -> dict[str, float]:
    """Return the CPU time per message in microseconds, messages per second, and spans per message that were exported."""
    exported = _Exported()
    provider = None if sampled is None else exported.provider(sampled)
    send_all, close = _WAYS[way](servers, topic, provider)
    values = [message(number) for number in range(_DIFFERENT)]
    send_all(values[:_WARM])
    exported.wait(provider)
    gc.collect()
    before, started, cpu = exported.spans, time.perf_counter(), time.process_time()
    for first in range(0, count, _DIFFERENT):
        send_all(values[: min(_DIFFERENT, count - first)])
    exported.wait(provider)
    took, spent = time.perf_counter() - started, time.process_time() - cpu
    close()
    if provider is not None:
        provider.shutdown()
    return {"cpu": 1e6 * spent / count, "rate": count / took, "spans": (exported.spans - before) / count}


class _Exported:
    """Counts the spans that reach the exporter, which encodes them for OTLP."""

    def __init__(self) -> None:
        self.spans = 0
        self._started = self._ended = 0  # each is changed by one thread

    def wait(self, provider: Any) -> None:
        """Wait until all spans have ended, which happens on a thread of the producer, and are exported.

        A span that the producer drops never ends; after 60 s the column of spans shows the rest.
        """
        deadline = time.monotonic() + 60
        while self._ended < self._started and time.monotonic() < deadline:
            time.sleep(0.002)
        if provider is not None:
            provider.force_flush()

    def provider(self, sampled: float) -> Any:
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

        counted = self

        class Encoding(SpanExporter):
            def export(self, spans: Any) -> SpanExportResult:
                encode_spans(spans).SerializePartialToString()
                counted.spans += len(spans)
                return SpanExportResult.SUCCESS

        class Counting(SpanProcessor):
            def on_start(self, span: Any, parent_context: Any = None) -> None:
                counted._started += 1

            def on_end(self, span: Any) -> None:
                counted._ended += 1

        provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(sampled)), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(Encoding(), max_queue_size=1_000_000))
        provider.add_span_processor(Counting())
        return provider


SendAll = Callable[[list[dict[str, Any]]], None]


def _ours(servers: str, topic: str, provider: Any) -> tuple[SendAll, Callable[[], Any]]:
    from producer_core import ReliableKafkaProducer

    producer = ReliableKafkaProducer(servers, store=None, tracing=False if provider is None else provider)

    def send_all(values: list[dict[str, Any]]) -> None:
        for value in values:
            producer.send_message(topic, value, "key")
        producer.flush(300)
        assert not producer.pending_count

    return send_all, producer.close


def _by_hand(servers: str, topic: str, provider: Any) -> tuple[SendAll, Callable[[], Any]]:
    """A manual loop with `orjson` that polls every 1,000 messages. The instrumentation wraps the client, if it is on."""
    import confluent_kafka

    client = confluent_kafka.Producer({"bootstrap.servers": servers, **SETTINGS})
    produce = client.produce
    if provider is not None:
        from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor

        produce = ConfluentKafkaInstrumentor.instrument_producer(client, provider).produce
    acknowledged = 0

    def delivered(error: Any, record: Any) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    def send_all(values: list[dict[str, Any]]) -> None:
        for number, value in enumerate(values):
            while True:
                try:
                    produce(topic, orjson.dumps(value), key="key", on_delivery=delivered)
                    break
                except BufferError:
                    client.poll(0.01)
            if number % 1000 == 0:
                client.poll(0)
        assert client.flush(300) == 0

    return send_all, lambda: None


_WAYS = {"ours": _ours, "loop": _by_hand}
_TITLES = {"ours": "producer_core, `send_message`", "loop": "manual loop, released instrumentation"}


def measure(bench: Bench) -> Outcome:
    broker, count = bench.stage.broker("embedded"), bench.size(20_000, 200)
    cases = [
        Case(f"{way} {name}", "tracing:one", {"way": way, "sampled": sampled, "count": count})
        for way in _WAYS
        for name, sampled in RATIOS.items()
    ]

    runs = bench.run("embedded", cases, around=lambda case: broker.topic())
    return Outcome(f"On {KINDS['embedded']}, {count:,} messages a run:\n\n{_table(runs)}")


def _table(runs: Runs) -> str:
    head = (
        "",
        "sampled",
        "CPU, µs per message",
        "more than off, µs",
        "CPU x off",
        "msg/s",
        "spans per message",
    )
    rows = [
        (
            title,
            name if name != "0 %" else "on, 0 %",
            spread(runs.numbers(f"{way} {name}", "cpu"), ".1f"),
            "" if name == "off" else spread(runs.differences(f"{way} {name}", f"{way} off", "cpu"), "+.1f"),
            times(runs.ratio(f"{way} {name}", f"{way} off", "cpu")),
            f"{runs.median(f'{way} {name}', 'rate'):,.0f}",
            f"{runs.median(f'{way} {name}', 'spans'):.3f}",
        )
        for way, title in _TITLES.items()
        for name in RATIOS
    ]
    return markdown(head, rows, left=2)


if __name__ == "__main__":
    main(sys.modules[__name__])
