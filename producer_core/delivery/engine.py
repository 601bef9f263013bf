"""Deliver messages: connect the steps from acceptance to settlement, and stop them in order.

`enqueue.py` adds a message to `pending`; `settlement.py` removes it. In between, an attempt can fail
(`failure_handler.py`), perhaps with an ambiguous outcome (`ambiguity.py`). No other module changes a message's state.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaError

from producer_core._internal.deadline import Deadline
from producer_core._internal.wakeup import Wakeup
from producer_core.delivery.ambiguity import AmbiguityResolver
from producer_core.delivery.connection_state import ConnectionState
from producer_core.delivery.context import DeliveryContext, DeliverySettings
from producer_core.delivery.dead_letter import ProducerInfo
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.dedup.duplicates import DuplicateGuard
from producer_core.delivery.delivery import Delivery, Report
from producer_core.delivery.enqueue import MessageEnqueuer
from producer_core.delivery.failure_handler import FailureHandler
from producer_core.delivery.hooks import HookDispatcher
from producer_core.delivery.ordering import Lanes
from producer_core.delivery.prober import AckCheckpoints
from producer_core.delivery.retry import RetryManager
from producer_core.delivery.settlement import Settlement
from producer_core.delivery.transport import TransportFactory
from producer_core.errors import ProducerError
from producer_core.events import Hook, Notice
from producer_core.messages import MessageIds

if TYPE_CHECKING:
    from producer_core.delivery.replayable_source import FeederTarget, PendingLog, SequenceSource

_topic_of = attrgetter("topic")
_OLDEST = 10_000
"""Messages that `topics_in_flight` looks at."""
_STATISTICS_DELAY = 0.3
"""Seconds by which statistics may arrive later than their interval."""


class SessionNumbers(Protocol):
    """The part of a producer's session that deliveries need."""

    @property
    def ids(self) -> MessageIds: ...
    @property
    def sequence(self) -> SequenceSource: ...
    def pending_log(self, target: FeederTarget) -> PendingLog | None: ...


class DeliveryEngine:
    """Connects the steps of a delivery, receives the transport's events, and waits for pending messages.

    `saturated` returns whether there is no room for another dead letter. `lost_on(topic, seconds)` waits for at most that
    time for the evidence about a suspected loss, and returns whether acknowledged messages are missing from the topic.
    """

    def __init__(
        self,
        settings: DeliverySettings,
        producer: ProducerInfo,
        session: SessionNumbers,
        *,
        transport: TransportFactory,
        hooks: Sequence[Hook],
        dedup: MessageDeduplicator | None,
        saturated: Callable[[], bool],
        lost_on: Callable[[str, float], bool],
    ) -> None:
        self.on_resend: Callable[[Delivery], None] | None = None  # called before each resend, if set
        self._settled = Wakeup()
        self._statistics_within = settings.client.statistics_interval + _STATISTICS_DELAY
        self._hooks = HookDispatcher(hooks)
        self.connection = ConnectionState(self.notice, clock=settings.clock)
        self.retry_manager = retries = RetryManager(settings.retry, send=self._due)
        duplicates = DuplicateGuard(dedup, retries=retries, hooks=self._hooks, settled=self._settled)
        self.transport = transport(settings.client, self)
        self.pending: dict[bytes, Delivery] = {}
        context = DeliveryContext(
            settings, self.transport, self.pending, Lanes(settings.ordering), duplicates, retries, self._hooks,
            self.connection, self._settled,
        )  # fmt: skip
        self.enqueuer = MessageEnqueuer(
            context,
            pending_log=session.pending_log,
            failed=self._failed,
            probe_recovered=self._probe_recovered,
            saturated=saturated,
        )
        self.pending_log, dispatcher = self.enqueuer.pending_log, self.enqueuer.dispatcher
        checkpoints = AckCheckpoints(session.sequence.peek)
        self._late = checkpoints.late
        self.settlement = Settlement(
            context,
            self.pending_log,
            dispatcher=dispatcher,
            checkpoints=checkpoints,
            producer=producer,
            failed=self._failed,
        )
        self._ambiguity = AmbiguityResolver(
            context,
            settlement=self.settlement,
            dispatcher=dispatcher,
            checkpoints=checkpoints,
            number=session.ids.number,
            lost_on=lost_on,
        )
        self._failure_handler = FailureHandler(
            context,
            settlement=self.settlement,
            ambiguity=self._ambiguity,
            dispatcher=dispatcher,
            pending_log=self.pending_log,
        )

    # The steps above are created before the steps that these methods call.

    def _failed(self, delivery: Delivery, error: KafkaError, message: Any) -> None:
        self._failure_handler.failed(delivery, error, message)

    def _due(self, delivery: Delivery) -> None:
        if self.on_resend is not None:
            self.on_resend(delivery)
        self._failure_handler.due(delivery)

    def _probe_recovered(self, delivery: Delivery) -> bool:
        return self._ambiguity.recover(delivery)

    def start(self) -> None:
        self.retry_manager.start()
        self.transport.start()
        if self.pending_log is not None:
            self.pending_log.start()

    # events of the transport

    def reports(self, batch: Sequence[Report]) -> None:
        """Settle reported messages. Called on the poll thread."""
        self.settlement.reports(batch)

    def statistics(self, statistics: Mapping[str, Any]) -> None:
        """Pass on librdkafka's statistics, and decide the verdicts that wait for them. Called on the poll thread."""
        self.connection.statistics(statistics)
        self._late.statistics(statistics)
        self._failure_handler.decide_pending()
        self._hooks.client_statistics(statistics)

    def add_statistics_listener(self, listener: Callable[[Mapping[str, Any]], None]) -> None:
        """Call this function too with librdkafka's statistics, on the poll thread."""
        self._hooks.add_statistics_listener(listener)

    def connection_error(self, error: KafkaError) -> None:
        if (reason := self.connection.failed(error)) is not None:
            self._hooks.connection_failed(reason)

    def fatal(self, error: KafkaError, generation: int, *, sent: bool = True) -> None:
        """Fail the messages that a failed client never reported. A new client has replaced it already."""
        self.connection.client_failed(error, sent=sent)
        self._failure_handler.client_failed(generation, sent=sent)

    def notice(self, notice: Notice) -> None:
        self._hooks.notice(notice)

    def written_twice(self, topic: str) -> None:
        """Count a possible duplicate that the duplicate check found or could not rule out."""
        self._hooks.counted(topic, "possible_duplicates")

    # state

    def pending_by_topic(self) -> Counter[str]:
        return Counter(map(_topic_of, list(self.pending.values())))  # for speed: up to 100,000, each second

    def topics_in_flight(self) -> set[str]:
        """Return the topics of the oldest messages that a client has."""
        oldest = itertools.islice(list(self.pending.values()), _OLDEST)
        topics: set[str] = set()
        for delivery in oldest:
            if delivery.topic not in topics and delivery.in_flight:
                topics.add(delivery.topic)
        return topics

    def in_flight(self, limit: int) -> list[Delivery]:
        """Return the messages that a client has, of up to `limit` consecutive ones from a random place."""
        pending = list(self.pending.values())
        first = random.randrange(max(1, len(pending) - limit + 1))  # noqa: S311  # a sample, not a secret
        return [delivery for delivery in pending[first : first + limit] if delivery.in_flight]

    @property
    def waiting(self) -> int:
        """The number of messages that are accepted and not settled, in memory and in the journal."""
        return len(self.pending) + (0 if self.pending_log is None else self.pending_log.waiting)

    def dead_letters_stored(self, message_ids: Iterable[str]) -> None:
        """Settle, in the journal, the messages whose dead letters are on disk."""
        if self.pending_log is not None:
            self.pending_log.dead_letters_stored(message_ids)

    # waiting

    @property
    def in_callback(self) -> bool:
        """Whether the calling thread runs a delivery callback, which must not wait."""
        return self._hooks.calling

    def refuse_in_callback(self, call: str) -> None:
        """Raise ProducerError in a delivery callback of this producer, where a wait for reports would never end."""
        if self.in_callback:
            raise ProducerError(
                f"{call} was called in a delivery callback. It waits for delivery reports, and these wait for the callback.",
                fix="Call it on another thread, for example after a threading.Event that the callback sets.",
            )

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait until `done()`, or until nothing is pending and nothing new is accepted."""
        self.transport.flush_soon()
        while not done() and not self.transport.ended and (self.pending or not self.enqueuer.ended):
            self._settled.wait(0.1, unless=done)

    def wait_idle(self, timeout: float | None) -> bool:
        """Wait until nothing is pending and all hooks were called; return False when the timeout in seconds passes first.

        A message leaves `pending` before the hooks count it or store its dead letter; after a flush both are done.
        """
        self.transport.flush_soon()
        reporting = self.settlement.reporting
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.waiting or reporting:
            left = 0.1 if deadline is None else deadline - time.monotonic()
            if left <= 0 or self.transport.ended:
                return False
            self._settled.wait(min(left, 0.1), unless=lambda: not (self.waiting or reporting))
        return True

    # closing

    def close(self, deadline: Deadline) -> None:
        """Wait for pending messages; the rest stays in the journal or becomes dead letters.

        A fifth of the time, but at most 2 s, is reserved for the steps after the wait. While no broker is connected, half
        of it is reserved, because the verdicts on the rest need statistics that arrive after it left the client.
        """
        left = deadline.left()
        share = 5 if self.connection.unreachable is None else 2
        self.wait_idle(left - min(2.0, left / share))
        self.enqueuer.end()
        if self.pending_log is not None:
            self.pending_log.stop()
        self.retry_manager.stop()
        self._ambiguity.stop(deadline.left(at_most=2.0) / 2)
        self._hooks.defer_callbacks()
        if self.pending:
            self.transport.purge()
            self._wait_reports(deadline.left(at_least=0.5, at_most=2.0))
            if self.pending_log is None:  # with a journal, the rest do not become dead letters
                self._wait_statistics(deadline.left(at_most=self._statistics_within))
        self.transport.stop(deadline.left(at_least=0.5, at_most=5.0))
        self._failure_handler.end()
        if self.pending_log is not None:
            self.pending_log.flush()
        self._hooks.call_deferred(deadline.left(at_least=0.5, at_most=5.0))

    def _wait_statistics(self, timeout: float) -> None:
        """Wait for the statistics that prove which purged messages were never sent."""
        deadline = time.monotonic() + timeout
        while self._failure_handler.awaits_statistics and time.monotonic() < deadline:
            self._settled.wait(0.02)

    def _wait_reports(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.transport.outstanding() and time.monotonic() < deadline:
            self._settled.wait(0.02)
