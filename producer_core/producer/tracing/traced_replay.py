"""Trace the transactions of an exactly-once replay: one span for each, linked to the traces of its records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from producer_core._internal.trace_context import TraceContext, context_of
from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.replay.outcome import AcknowledgedBatch, OrphanedRecord, RecordOutcome
from producer_core.replay.strategy import Guarantee, ReplayStrategy

if TYPE_CHECKING:
    from producer_core.producer.tracing.tracer import MessageTracer
    from producer_core.replay.claims import Floors

MAX_LINKS = 128
"""Links of one span, which is the default limit of OpenTelemetry's SDK too."""


class TracedReplay:
    """A strategy that traces the transactions of another one. Used by one thread, like the other."""

    def __init__(self, strategy: ReplayStrategy, tracer: MessageTracer) -> None:
        self.guarantee: Guarantee = strategy.guarantee
        self.by_wave = strategy.by_wave
        self._strategy = strategy
        self._tracer = tracer
        self._sent: dict[str, tuple[str, TraceContext | None]] = {}  # topic and context by message id

    @property
    def in_flight(self) -> int:
        return self._strategy.in_flight

    @property
    def bytes(self) -> int:
        return self._strategy.bytes

    @property
    def floors(self) -> Floors | None:
        return self._strategy.floors

    def begin(self, topics: Sequence[str]) -> None:
        self._strategy.begin(topics)

    def after(self, orphans: Sequence[OrphanedRecord]) -> list[RecordOutcome]:
        return self._strategy.after(orphans)

    def send(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        if not self._strategy.in_flight:
            self._sent.clear()
        for one in islice(dead_letters, max(0, MAX_LINKS - len(self._sent))):
            self._sent[one.message_id] = one.topic, context_of(one.headers)
        return self._strategy.send(dead_letters)

    def gather(self, seconds: float) -> Sequence[RecordOutcome] | AcknowledgedBatch:
        began_at = time.time_ns()
        outcomes = self._strategy.gather(seconds)
        if isinstance(outcomes, AcknowledgedBatch):
            self._trace(began_at, outcomes.records.topics, len(outcomes), ())
        elif sent := [one for one in outcomes if one.ending in ("acknowledged", "failed")]:
            topics = {self._sent[one.message_id][0] for one in sent if one.message_id in self._sent}
            failed = [one.death.code for one in sent if one.death is not None]
            self._trace(began_at, topics, len(sent), failed)
        return outcomes

    def _trace(self, began_at: int, topics: Iterable[str], count: int, failed: Sequence[str]) -> None:
        links = [context for _, context in self._sent.values() if context is not None]
        self._tracer.replayed(began_at, sorted(topics), links, count=count, failed=failed)

    def give_back(self) -> list[RecordOutcome]:
        return self._strategy.give_back()

    def close(self) -> None:
        self._strategy.close()
