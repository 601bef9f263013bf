"""Start the spans of a producer's messages, and write their context into the records."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TracerProvider, TraceState

from producer_core import __version__
from producer_core._internal.trace_context import (
    Header,
    TraceContext,
    carries_one,
    context_headers,
    context_of,
    with_only,
)
from producer_core.config import ClientConfig
from producer_core.delivery.delivery import Callbacks, Delivery
from producer_core.producer.tracing import attributes as names
from producer_core.producer.tracing.attributes import Value
from producer_core.producer.tracing.span_queue import SpanQueue
from producer_core.producer.tracing.spans import BatchSpan, MessageSpan, SpanRecorder

MAX_OPEN = 10_000
"""Spans that may be open, about 3 kB each. Beyond it, the span of a further message ends at acceptance."""

_NO_PARENT = Context()


class MessageTracer:
    """Starts a span for each message on the caller's thread, where the user's sampler decides about it.

    An unsampled message gets its context in the record, and nothing else is built. Spans end on the span queue's thread.
    `cluster` returns the cluster's id, empty while unknown.
    """

    def __init__(
        self, provider: TracerProvider | None, config: ClientConfig, *, cluster: Callable[[], str]
    ) -> None:
        self._tracer = trace.get_tracer("producer_core", __version__, provider, names.SCHEMA_URL)
        self._shared = names.of_client(config)
        self.cluster = cluster
        self._topics: dict[
            str, tuple[str, dict[str, Value]]
        ] = {}  # name and attributes of the spans of a topic
        self._open: set[SpanRecorder] = set()  # each change is one atomic step
        self._queue = SpanQueue()
        self._at_exit: Callable[[], object] | None = None

    # starting

    def begin(self, delivery: Delivery) -> None:
        """Start the span of a message that the caller sends, below the caller's current span."""
        self._begin(delivery, None)

    def resume(self, delivery: Delivery) -> Callbacks | None:
        """Start the span of a message of an earlier process, without a parent. Return its callbacks if it is recorded."""
        self._begin(delivery, _NO_PARENT)
        return delivery.callbacks

    def _begin(self, delivery: Delivery, parent: Context | None) -> None:
        name, attributes = self._of_topic(delivery.topic)
        carried = context_of(delivery.headers) if delivery.headers else None
        if carried is None:
            span = self._tracer.start_span(name, parent, SpanKind.PRODUCER, attributes)
            context = span.get_span_context()
            if context.is_valid:
                created = _of_span(context)
                delivery.headers = (
                    with_only(delivery.headers, created) if delivery.headers else context_headers(created)
                )
        else:  # the first context stays; the conventions call a span CLIENT whose context no record carries
            span = self._tracer.start_span(name, parent, SpanKind.CLIENT, attributes, [_link(carried)])
            if not carries_one(delivery.headers):
                delivery.headers = with_only(delivery.headers, carried)
        if span.is_recording():
            self._track(MessageSpan(span, self, delivery), delivery)

    def _track(self, recorder: MessageSpan, delivery: Delivery) -> None:
        if len(self._open) >= MAX_OPEN:
            recorder.end("untracked")
            return
        self._open.add(recorder)
        if delivery.callbacks is None:
            delivery.callbacks = Callbacks(span=recorder)
        else:
            delivery.callbacks.span = recorder

    def begin_batch(self, topic: str) -> BatchSpan:
        """Start the span of a batch, below the caller's current span."""
        name, attributes = self._of_topic(topic)
        span = self._tracer.start_span(name, None, SpanKind.PRODUCER, attributes)
        context = span.get_span_context()
        headers: Sequence[Header] = context_headers(_of_span(context)) if context.is_valid else ()
        if not span.is_recording():
            return BatchSpan(None, headers)
        recorder = SpanRecorder(span, self)
        self._open.add(recorder)
        return BatchSpan(recorder, headers)

    def replayed(
        self,
        began_at: int,
        topics: Sequence[str],
        links: Sequence[TraceContext],
        *,
        count: int,
        failed: Sequence[str],
    ) -> None:
        """Record a transaction of a replay that began at `began_at` (nanoseconds since 1970) and has ended.

        `links` are the contexts of its records, `failed` the error codes of records that failed.
        """
        name, attributes = self._of_topic(topics[0]) if len(topics) == 1 else ("send", self._shared)
        span = self._tracer.start_span(
            name, _NO_PARENT, SpanKind.CLIENT, attributes, list(map(_link, links)), start_time=began_at
        )
        if span.is_recording():
            batch = BatchSpan(SpanRecorder(span, self), ())
            for code in failed:
                batch.count_failed(code, "")
            batch.ended(count, complete=True)

    def _of_topic(self, topic: str) -> tuple[str, dict[str, Value]]:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = f"send {topic}", {**self._shared, names.DESTINATION: topic}
        return found

    # ending

    def end(self, span: SpanRecorder, write: Callable[[], None]) -> None:
        """Write and end a span on the span queue's thread."""
        self._open.discard(span)
        self._queue.put(write)

    def close_at_exit(self, close: Callable[[], object]) -> None:
        """Call `close` at the interpreter's exit, before the tracer provider's own exit function stops it.

        Exit functions run last in, first out, and a provider registers its own when it is created.
        """
        self._at_exit = close
        atexit.register(close)

    def close(self, timeout: float) -> None:
        """End all open spans: their messages stay in the journal. Wait at most `timeout` seconds for the queue."""
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
        for recorder in list(self._open):
            recorder.end("journaled")
        self._queue.close(timeout)


def _of_span(context: SpanContext) -> TraceContext:
    state = context.trace_state
    return TraceContext(
        context.trace_id, context.span_id, int(context.trace_flags), state.to_header() if state else ""
    )


def _link(carried: TraceContext) -> Link:
    state = TraceState.from_header([carried.state]) if carried.state else None
    flags = TraceFlags(carried.flags)
    return Link(
        SpanContext(carried.trace_id, carried.span_id, is_remote=True, trace_flags=flags, trace_state=state)
    )
