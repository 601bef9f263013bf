"""Record the delivery of one message, or of a batch, in a span.

The delivery path only notes events and the outcome here. The span queue's thread writes them to OpenTelemetry's span.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry.trace import Span, StatusCode

from producer_core._internal.masking import mask_or_hide
from producer_core._internal.trace_context import Header
from producer_core.messages import id_text
from producer_core.producer.tracing import attributes as names
from producer_core.producer.tracing.attributes import Value

if TYPE_CHECKING:
    from producer_core.delivery.delivery import Delivery
    from producer_core.events import AttemptFailed, DeadLetter

_Event = tuple[str, dict[str, Value], int]
"""Name, attributes, and the time in nanoseconds since 1970."""
_MAX_EVENTS = 128
"""Events kept for a span, which is the default limit of OpenTelemetry's SDK too."""


class SpanSink(Protocol):
    """Ends spans later, on another thread. `cluster` returns the cluster's id, empty while unknown."""

    cluster: Callable[[], str]

    def end(self, span: SpanRecorder, write: Callable[[], None]) -> None: ...


class SpanRecorder:
    """Notes the events and the end of a span. Every method returns at once, on any thread; only the first end counts."""

    __slots__ = ("_ended", "_events", "_sink", "_span")

    def __init__(self, span: Span, sink: SpanSink) -> None:
        self._span = span
        self._sink = sink
        self._events: list[_Event] | None = None  # most messages have none
        self._ended = False

    def attempt_failed(self, event: AttemptFailed) -> None:
        """Note a failed attempt, and the delay until the next one."""
        found: dict[str, Value] = {
            names.ERROR_TYPE: event.code, names.ATTEMPT: event.attempt, names.AMBIGUOUS: event.ambiguous,
        }  # fmt: skip
        if event.retry_in is not None:
            found[names.RETRY_IN] = event.retry_in
        self._note(names.ATTEMPT_FAILED, found)

    def probed(self, result: str) -> None:
        """Note the result of a probe of the topic: `found`, `not_found` or `inconclusive`."""
        self._note(names.PROBE, {names.PROBE_RESULT: result})

    def _note(self, name: str, found: dict[str, Value]) -> None:
        if self._events is None:
            self._events = []
        if len(self._events) < _MAX_EVENTS:
            self._events.append((name, found, time.time_ns()))

    def end(
        self, outcome: str, found: dict[str, Value] | None = None, error: tuple[str, str] | None = None
    ) -> None:
        """End the span now. `error` is the type of the error and its text."""
        if self._ended:
            return
        self._ended = True
        self._sink.end(self, partial(self._write, outcome, found or {}, error, time.time_ns()))

    # the span queue's thread

    def _write(
        self, outcome: str, found: dict[str, Value], error: tuple[str, str] | None, ended_at: int
    ) -> None:
        span = self._span
        for name, details, at in self._events or ():
            span.add_event(name, details, at)
        found[names.OUTCOME] = outcome
        if cluster := self._sink.cluster():
            found[names.CLUSTER] = cluster
        span.set_attributes(self._described(found))
        if error is not None:
            code, text = error
            span.set_attribute(names.ERROR_TYPE, code)
            span.set_status(StatusCode.ERROR, mask_or_hide(text))
        span.end(ended_at)

    def _described(self, found: dict[str, Value]) -> dict[str, Value]:
        return found


class MessageSpan(SpanRecorder):
    """The span of one message, which ends when the message is settled."""

    __slots__ = ("_message_id", "_tombstone")

    def __init__(self, span: Span, sink: SpanSink, delivery: Delivery) -> None:
        super().__init__(span, sink)
        self._message_id = delivery.id
        self._tombstone = delivery.value is None

    def settled(self, message: Any, dead_letter: DeadLetter | None) -> None:
        """End the span: acknowledged with `message`, dead, or, without both, a duplicate of an acknowledged message."""
        if dead_letter is not None:
            error = (dead_letter.code, dead_letter.error_text)
            self.end("dead", {names.VERDICT: dead_letter.verdict}, error)
        elif message is None:
            self.end("duplicate")
        else:
            self.end("acknowledged", _position(message.partition(), message.offset()))

    def not_accepted(self, error: BaseException) -> None:
        """End the span of a message that was not accepted."""
        self.end("not_accepted", error=(type(error).__qualname__, str(error)))

    def _described(self, found: dict[str, Value]) -> dict[str, Value]:
        found[names.MESSAGE_ID] = id_text(self._message_id)
        if self._tombstone:
            found[names.TOMBSTONE] = True
        return found


class BatchSpan:
    """The span of a batch. `headers` carry its context in every record. Without a `recorder` it is not recorded."""

    def __init__(self, recorder: SpanRecorder | None, headers: Sequence[Header]) -> None:
        self.headers = headers
        self._recorder = recorder
        self._codes: Counter[str] = Counter()  # of the failed messages
        self._first_text = ""

    def attempt_failed(self, event: AttemptFailed) -> None:
        if self._recorder is not None:
            self._recorder.attempt_failed(event)

    def probed(self, result: str) -> None:
        if self._recorder is not None:
            self._recorder.probed(result)

    def settled(self, message: Any, dead_letter: DeadLetter | None) -> None:
        """Count a dead letter. The span itself ends with the batch."""
        if dead_letter is not None:
            self.count_failed(dead_letter.code, dead_letter.error_text)

    def not_accepted(self, error: BaseException) -> None:
        """Count a message that was not accepted."""
        self.count_failed(type(error).__qualname__, str(error))

    def count_failed(self, code: str, text: str) -> None:
        """Count a message that failed with the code."""
        self._first_text = self._first_text or text
        self._codes[code] += 1

    def ended(self, count: int, *, complete: bool) -> None:
        """End the span of a batch of `count` messages. It is not `complete` if the producer closed before."""
        if self._recorder is None:
            return
        found: dict[str, Value] = {names.BATCH_COUNT: count}
        if self._codes:
            found[names.FAILED_COUNT] = sum(self._codes.values())
            ((code, _),) = self._codes.most_common(1)
            self._recorder.end("failed", found, (code, self._first_text))
        else:
            self._recorder.end("acknowledged" if complete else "journaled", found)


def _position(partition: int | None, offset: int | None) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if partition is not None:
        found[names.PARTITION] = str(partition)
    if offset is not None:
        found[names.OFFSET] = offset
    return found
