"""Send a batch of messages and count their outcomes together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core.delivery.delivery import Callbacks, Delivery, SendOutcome
from producer_core.delivery.enqueue import Enqueuer
from producer_core.delivery.grouping import groups
from producer_core.errors import ProducerError
from producer_core.events import DeadLetter

if TYPE_CHECKING:
    from producer_core.producer.tracing import MessageTracer

logger = queued_logger(__name__)


class BatchEntry(NamedTuple):
    """The outcome of one input. For a dead letter, `verdict` says whether a resend is safe."""

    message_id: str | None
    status: SendOutcome
    error: str | None = None
    verdict: str | None = None


class BatchReport(TypedDict):
    """The outcome of a batch: counts, the ids of accepted messages, and one entry per input, in input order."""

    total: int
    sent: int
    failed: int
    duplicate: int
    message_ids: list[str]
    results: list[BatchEntry]


class BatchSend:
    """Counts the outcomes of a batch. `callbacks` may run on any thread, each in one atomic step; all other methods
    belong to the sending thread."""

    def __init__(self) -> None:
        self._outcomes: list[SendOutcome] = []
        self.callbacks = Callbacks(on_settled=self._outcomes.append, on_unsent=self._record_unsent)
        self._inputs: list[int | BatchEntry] = []  # per input its sequence, or its entry if it was rejected
        self._unsent: dict[int, tuple[bool, BatchEntry]] = {}  # by sequence; True if the message was accepted

    def _record_unsent(self, number: int, dead_letter: DeadLetter | None) -> None:
        entry = (
            BatchEntry(None, "duplicate")
            if dead_letter is None
            else BatchEntry(None, "failed", dead_letter.error_text, dead_letter.verdict)
        )
        self._unsent[number] = (dead_letter is not None, entry)

    @contextmanager
    def traced(self, tracer: MessageTracer | None, topic: str) -> Iterator[None]:
        """Trace the batch as one span, if the producer is traced."""
        if tracer is None:
            yield
            return
        span = self.callbacks.span = tracer.begin_batch(topic)
        try:
            yield
        finally:
            span.ended(len(self._inputs), complete=self.complete())

    def send(
        self,
        deliveries: Iterable[Delivery],
        enqueuer: Enqueuer,
        *,
        grouped: bool,
    ) -> None:
        """Enqueue all deliveries: in groups that share a round trip and a sync, or one by one."""
        if grouped:
            for group in groups(self._track(deliveries)):
                for delivery, outcome in zip(group, enqueuer.accept_many(group), strict=True):
                    self._record(delivery.seq, outcome)
            return
        accept = enqueuer.accept
        for delivery in self._track(deliveries):
            try:
                self._record(delivery.seq, accept(delivery))
            except ProducerError as error:
                self._record(delivery.seq, error)

    def _track(self, deliveries: Iterable[Delivery]) -> Iterator[Delivery]:
        for delivery in deliveries:
            self._inputs.append(delivery.seq)
            yield delivery

    def _record(self, number: int, outcome: bool | ProducerError) -> None:
        if outcome is True:
            return
        if outcome is not False and self.callbacks.span is not None:
            self.callbacks.span.not_accepted(outcome)
        entry = BatchEntry(None, "duplicate") if outcome is False else self._rejected_entry(outcome)
        self._unsent[number] = (False, entry)
        self._outcomes.append(entry.status)

    def record_rejected(self, error: ProducerError) -> None:
        """Record the next input as rejected."""
        if self.callbacks.span is not None:
            self.callbacks.span.not_accepted(error)
        self._inputs.append(self._rejected_entry(error))
        self._outcomes.append("failed")

    def _rejected_entry(self, error: ProducerError) -> BatchEntry:
        text = mask_or_hide(str(error))
        logger.warning(**with_fields("message of a batch not accepted", error=text))
        return BatchEntry(None, "failed", str(error), "not_sent")

    def complete(self) -> bool:
        return len(self._outcomes) >= len(self._inputs)

    def result(self, id_of: Callable[[int], str]) -> BatchReport:
        """Return the counts, `message_ids` of accepted non-duplicates, and `results` with one entry per input in order."""
        counts = Counter(self._outcomes)
        results = [self._entry(one, id_of) for one in self._inputs]
        return {
            "total": len(results),
            "sent": counts["sent"],
            "failed": counts["failed"],
            "duplicate": counts["duplicate"],
            "message_ids": [entry.message_id for entry in results if entry.message_id is not None],
            "results": results,
        }

    def _entry(self, one: int | BatchEntry, id_of: Callable[[int], str]) -> BatchEntry:
        if isinstance(one, BatchEntry):
            return one
        if one not in self._unsent:
            return BatchEntry(id_of(one), "sent")
        accepted, entry = self._unsent[one]
        return entry._replace(message_id=id_of(one)) if accepted else entry
