"""The lifecycle of a message: accepted, in flight, waiting, settled. This puts its parts together, and ends them.

A message is in `pending` from `acceptance.py` until `settlement.py` takes it out. In between an attempt may fail
(`attempts.py`), and the broker may have it all the same (`ambiguous.py`). Nothing else changes a message's state.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from producer_core._internal.deadline import Deadline
from producer_core._internal.wakeup import Wakeup
from producer_core.config import ClientConfig, RetryConfig
from producer_core.delivery.ambiguity import AmbiguityResolver
from producer_core.delivery.connection_state import ConnectionState
from producer_core.delivery.dead_letter import ProducerInfo
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.dedup.duplicates import DuplicateGuard
from producer_core.delivery.delivery import Delivery, Report
from producer_core.delivery.enqueue import MessageEnqueuer
from producer_core.delivery.failure_handler import FailureHandler
from producer_core.delivery.hooks import HookDispatcher
from producer_core.delivery.ordering import Ordering
from producer_core.delivery.prober import AckCheckpoints, OnAmbiguous
from producer_core.delivery.retry import RetryManager
from producer_core.delivery.settlement import Settlement
from producer_core.delivery.transport import TransportFactory
from producer_core.events import Hook, Notice
from producer_core.kafka.newer_keys import Number

if TYPE_CHECKING:
    from producer_core.delivery.replayable_source import FeederTarget, PendingLog

_topic_of = attrgetter("topic")


class DeliveryEngine:
    """Hears the transport, as its `TransportListener`, and knows when nothing is pending any more."""

    def __init__(
        self,
        config: ClientConfig,
        retry_config: RetryConfig,
        *,
        origin: ProducerInfo,
        transport: TransportFactory,
        hooks: Sequence[Hook],
        dedup: MessageDeduplicator | None = None,
        ordering: Ordering = "key",
        on_ambiguous: OnAmbiguous = "retry",
        backlog: Callable[[FeederTarget], PendingLog | None] = lambda sender: None,
        next_sequence: Callable[[], int] = lambda: 0,
        number: Number = lambda id: None,
        saturated: Callable[[], bool] = lambda: False,
        lost_on: Callable[[str, float], bool] = lambda topic, timeout: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settled = Wakeup()  # rings after each batch of reports: room in the queue, or idle
        self._audience = audience = HookDispatcher(hooks)
        self.connection = connection = ConnectionState(self.notice, clock=clock)
        self.retry_manager = retries = RetryManager(retry_config, send=self._due)
        copies = DuplicateGuard(dedup, retries=retries, audience=audience, settled=self._settled)
        self.transport = transport(config, self)
        self.acceptance = accepted = MessageEnqueuer(
            config, self.transport, ordering=ordering, backlog=backlog, dedup=dedup, copies=copies, retries=retries,
            audience=audience, connection=connection, failed=self._failed, look_for=self._look_for,
            saturated=saturated, settled=self._settled, clock=clock,
        )  # fmt: skip
        self.pending, self.backlog, lanes, turns = (
            accepted.pending,
            accepted.backlog,
            accepted.lanes,
            accepted.turns,
        )
        marks = AckCheckpoints(next_sequence)
        self._late = marks.late
        self.settlement = Settlement(
            self.pending, self.backlog, lanes=lanes, turns=turns, copies=copies, retries=retries,
            audience=audience, connection=connection, marks=marks, origin=origin, failed=self._failed,
            settled=self._settled,
        )  # fmt: skip
        self._ambiguous = AmbiguityResolver(
            self.pending, self.transport, number=number, settlement=self.settlement, lanes=lanes, turns=turns, copies=copies,
            retries=retries, audience=audience, marks=marks, policy=on_ambiguous, lost_on=lost_on, clock=clock,
        )  # fmt: skip
        self._attempts = FailureHandler(
            self.pending, config, retry_config, settlement=self.settlement, ambiguous=self._ambiguous, lanes=lanes,
            turns=turns, copies=copies, keeper=self.backlog, retries=retries, audience=audience,
            connection=connection, clock=clock,
        )  # fmt: skip

    # Parts that are made before the one that they call, which is asked rarely: when an attempt failed, or a time came.

    def _failed(self, delivery: Delivery, error: KafkaError, message: Any) -> None:
        self._attempts.failed(delivery, error, message)

    def _due(self, delivery: Delivery) -> None:
        self._attempts.due(delivery)

    def _look_for(self, delivery: Delivery) -> bool:
        return self._ambiguous.recover(delivery)

    def start(self) -> None:
        self.retry_manager.start()
        self.transport.start()
        if self.backlog is not None:
            self.backlog.start()

    # what the transport tells

    def reports(self, batch: Sequence[Report]) -> None:
        """Delivery reports, on the poll thread."""
        self.settlement.reports(batch)

    def statistics(self, statistics: Mapping[str, Any]) -> None:
        """librdkafka's statistics, on the poll thread: evidence for those that wait for their verdict."""
        self.connection.statistics(statistics)
        self._late.statistics(statistics)
        self._attempts.evidence()
        self._audience.tell("client_statistics", statistics)

    def connection_error(self, error: KafkaError) -> None:
        if (reason := self.connection.failed(error)) is not None:
            self._audience.tell("connection_failed", reason)

    def fatal(self, error: KafkaError, generation: int, *, sent: bool = True) -> None:
        """The client broke and was re-created; what the broken one never reported is settled as ambiguous."""
        self.connection.broke(error, sent=sent)
        self._attempts.silent(generation, sent=sent)

    def notice(self, notice: Notice) -> None:
        self._audience.tell("notice", notice)

    def written_twice(self, topic: str) -> None:
        """The check for duplicates found a copy, or could not rule one out."""
        self._audience.tell("counted", topic, "possible_duplicates")

    # looking

    def pending_by_topic(self) -> Counter[str]:
        return Counter(map(_topic_of, list(self.pending.values())))  # a hundred thousand, once a second

    @property
    def waiting(self) -> int:
        """Accepted and not settled: in memory, and in the journal behind it."""
        return len(self.pending) + (0 if self.backlog is None else self.backlog.waiting)

    def kept(self, message_ids: Iterable[str]) -> None:
        """Dead letters are on disk: the journal need not remember them any more."""
        if self.backlog is not None:
            self.backlog.kept(message_ids)

    # waiting

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Until something that reports bring about is so, or nothing can any more."""
        self.transport.hurry()
        while not done() and not self.transport.ended and (self.pending or not self.acceptance.ended):
            self._settled.wait(0.1, unless=done)

    def wait_idle(self, timeout: float | None) -> bool:
        """Until nothing is pending and all who count have heard of it; False when the timeout in seconds ran out first.

        A message leaves `pending` before it is counted or its dead letter is kept: who flushed finds both.
        """
        self.transport.hurry()
        telling = self.settlement.telling
        if threading.get_ident() in telling:  # a delivery callback that flushes waits for no other callback
            telling = set()
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.waiting or telling:
            left = 0.1 if deadline is None else deadline - time.monotonic()
            if left <= 0 or self.transport.ended:
                return False
            self._settled.wait(min(left, 0.1), unless=lambda: not (self.waiting or telling))
        return True

    # closing

    def close(self, deadline: Deadline) -> None:
        """Let what is pending finish; what is left stays in the journal, or becomes dead letters.

        A fifth of the time, two seconds at most, is left for what comes after.
        """
        left = deadline.left()
        self.wait_idle(left - min(2.0, left / 5))
        self.acceptance.end()
        if self.backlog is not None:
            self.backlog.stop()
        self.retry_manager.stop()
        self._ambiguous.stop(deadline.left(at_most=2.0) / 2)
        if self.pending:
            self.transport.purge()
            self._wait_reports(deadline.left(at_least=0.5, at_most=2.0))
        self.transport.stop(deadline.left(at_least=0.5, at_most=5.0))
        self._attempts.end()
        if self.backlog is not None:
            self.backlog.flush()

    def _wait_reports(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.transport.outstanding() and time.monotonic() < deadline:
            self._settled.wait(0.02)
