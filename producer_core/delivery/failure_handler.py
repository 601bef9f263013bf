"""Handle failed attempts: give each a verdict, then retry the message, probe its topic first, or make it a dead letter."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Literal, NamedTuple

from confluent_kafka import KafkaError

from producer_core.delivery.ambiguity import AmbiguityResolver
from producer_core.delivery.context import DeliveryContext
from producer_core.delivery.dedup.claims import Claim
from producer_core.delivery.delivery import AWAITING_DUPLICATE, PROBING, QUEUED, Delivery
from producer_core.delivery.dispatch import LaneDispatcher
from producer_core.delivery.missing_report import NOT_SENT, OUTCOME_UNKNOWN
from producer_core.delivery.replayable_source import PendingLog
from producer_core.delivery.retry import RetryAfter, decide
from producer_core.delivery.settlement import Settlement
from producer_core.events import Attempt, Verdict
from producer_core.kafka.classify import Failure, failure_of, judge, not_sent_verdict
from producer_core.messages import MessageStatus

_LONGEST_INTERVAL_S = 5.0
"""With a longer interval, no verdict waits for the statistics, and nothing is proved by them."""
_PROVABLE = ("timed_out", "local")
"""Kinds of failures that are possible for a message that never left the client."""


class PendingVerdict(NamedTuple):
    """A failed attempt whose `expected` verdict the next statistics confirm or not. The times are monotonic."""

    delivery: Delivery
    expected: Literal["not_sent", "rejected"]
    failure: Failure
    text: str
    partition: int | None
    produced_at: float
    reported_at: float


class FailureHandler:
    """Handles failed attempts.

    `failed` is called on the poll thread and on the user's threads, `due` on the retry manager's thread.
    """

    def __init__(
        self,
        context: DeliveryContext,
        *,
        settlement: Settlement,
        ambiguity: AmbiguityResolver,
        dispatcher: LaneDispatcher,
        pending_log: PendingLog | None,
    ) -> None:
        self._pending = context.pending
        self._retry_backoff = context.settings.client.retry_backoff
        self._retry_config = context.settings.retry
        self._settlement = settlement
        self._ambiguity = ambiguity
        self._lanes = context.lanes
        self._dispatcher = dispatcher
        self._duplicates = context.duplicates
        self._pending_log = pending_log
        self._retries = context.retries
        self._hooks = context.hooks
        self._connection = context.connection
        self._clock = context.settings.clock
        self._has_statistics = context.settings.client.statistics_interval <= _LONGEST_INTERVAL_S
        # used on the poll thread, and by end() once that thread has stopped
        self._awaiting_statistics: list[PendingVerdict] = []

    def failed(self, delivery: Delivery, error: KafkaError, message: Any) -> None:
        """Handle a report with an error. Without a `message` the client refused the record at once."""
        held_back: str | None = getattr(message, "held_back", None)
        if held_back is not None:
            self._settlement.hold_back(delivery, held_back, self._clock())
            return
        failure = failure_of(error)
        verdict = _judge(failure, message, self._retry_backoff)
        text = error.str()
        partition = None if message is None else message.partition()
        now = time.monotonic()
        produced_at = 0.0 if message is None else _produced_at(message, now)
        expected = self._expected_verdict(delivery, failure, verdict, message, produced_at, now)
        if expected is not None and not self._has_statistics:
            expected, verdict = None, "possibly_persisted"
        if expected is None:
            if message is not None:  # else the client refused the record, whatever the connection
                text = self._with_reason(failure, text, verdict)
            self._record(delivery, failure, text, verdict, partition)
        else:
            self._defer(PendingVerdict(delivery, expected, failure, text, partition, produced_at, now))

    def _expected_verdict(
        self,
        delivery: Delivery,
        failure: Failure,
        verdict: Verdict,
        message: Any,
        produced_at: float,
        reported_at: float,
    ) -> Literal["not_sent", "rejected"] | None:
        """Return the verdict that the next statistics may confirm; None when the report alone decides."""
        if message is None or getattr(message, "verdict", None) is not None:
            return None
        if verdict == "rejected":
            return verdict
        if verdict != "possibly_persisted":
            return None
        if message.latency() is not None:  # it may have waited before its transmission
            since = self._connection.transmitted_after(produced_at)
            if self._was_fast(failure, reported_at if since is None else since, reported_at):
                return "rejected"
        if failure.kind in _PROVABLE and not self._connection.may_have_sent(
            delivery.accepted_at, produced_at
        ):
            return "not_sent"
        return None

    def _defer(self, pending: PendingVerdict) -> None:
        """Wait for the next statistics. Until then the message is not sent again, and its lane waits for its retry."""
        delivery = pending.delivery
        delivery.state = PROBING
        if not self._dispatcher.ended and isinstance(
            decide(pending.failure, len(delivery.attempts) + 1, self._retry_config), RetryAfter
        ):
            self._lanes.failed(delivery)
        self._awaiting_statistics.append(pending)

    @property
    def awaits_statistics(self) -> bool:
        """Whether a verdict waits for the next statistics."""
        return bool(self._awaiting_statistics)

    def decide_pending(self) -> None:
        """Decide the verdicts that waited for the latest statistics. Called on the poll thread."""
        decidable, self._awaiting_statistics = self._awaiting_statistics, []
        if decidable:
            with self._settlement.until_reported():  # one wake-up for all of them
                for pending in decidable:
                    self._decide(pending)

    def _decide(self, pending: PendingVerdict) -> None:
        verdict: Verdict = pending.expected if self._is_proved(pending) else "possibly_persisted"
        text = self._with_reason(pending.failure, pending.text, verdict)
        pending.delivery.state = QUEUED
        self._record(pending.delivery, pending.failure, text, verdict, pending.partition)

    def _is_proved(self, pending: PendingVerdict) -> bool:
        times = pending.delivery.accepted_at, pending.produced_at
        if pending.expected == "not_sent":
            return not self._connection.may_have_sent(*times)
        since = self._connection.transmitted_after(pending.produced_at)
        fast = self._was_fast(
            pending.failure, pending.produced_at if since is None else since, pending.reported_at
        )
        return fast and not self._connection.may_have_repeated(*times)

    def _was_fast(self, failure: Failure, since: float, reported_at: float) -> bool:
        """Whether this is a rejection that arrived before the client could transmit the message again."""
        return judge(failure, latency=reported_at - since, retry_backoff=self._retry_backoff)[0] == "rejected"

    def _record(
        self, delivery: Delivery, failure: Failure, text: str, verdict: Verdict, partition: int | None
    ) -> None:
        if delivery.id not in self._pending:
            return
        failure, text = self._cause(failure, text, verdict)
        delivery.attempts = (*delivery.attempts, (Attempt(self._clock(), failure.code, text), verdict))
        self._follow(delivery, failure, verdict, partition)

    def _with_reason(self, failure: Failure, text: str, verdict: Verdict) -> str:
        """Return the text of an unsent message, with the reason why no broker was reachable."""
        reason = self._connection.unreachable
        provable = verdict == "not_sent" and failure.kind in _PROVABLE
        if reason is None or not provable or self._purged_at_close(failure):
            return text
        return f"{text} (no broker was connected: {reason})"

    def _cause(self, failure: Failure, text: str, verdict: Verdict) -> tuple[Failure, str]:
        """Return the cause and its text: for a message purged at close, the reason why no broker was reachable."""
        reason = self._connection.unreachable
        if reason is None or not self._purged_at_close(failure):
            return failure, text
        text = f"closed while no broker was connected: {reason}"
        return (failure_of(self._connection.cause), text) if verdict == "not_sent" else (failure, text)

    def _purged_at_close(self, failure: Failure) -> bool:
        return failure.code == "_PURGE_QUEUE" and self._dispatcher.ended

    def _follow(self, delivery: Delivery, failure: Failure, verdict: Verdict, partition: int | None) -> None:
        """Retry the message, probe its topic first, or give it up."""
        decision = decide(failure, len(delivery.attempts), self._retry_config)
        retry_in = decision.seconds if isinstance(decision, RetryAfter) else None
        if self._dispatcher.ended and retry_in is not None:
            self._hooks.attempt_failed(delivery, failure, None)
            return self._settlement.leave_to_journal(delivery, failure)
        self._hooks.attempt_failed(delivery, failure, retry_in)
        if retry_in is not None:
            self._lanes.failed(delivery)
        if verdict == "possibly_persisted" and self._ambiguity.probe_first(
            delivery, failure, retry_in, partition=partition
        ):
            return None
        if retry_in is not None:
            return self._retries.schedule(delivery, retry_in)
        return self._settlement.give_up(delivery, failure)

    def due(self, delivery: Delivery) -> None:
        """Send a message whose retry time has come. Called on the retry thread."""
        if delivery.id not in self._pending or delivery.state not in (QUEUED, AWAITING_DUPLICATE):
            return None
        # The claim of a retry is renewed.
        claim = Claim.NEW if delivery.on_replayed else self._duplicates.claim(delivery)
        if claim is Claim.PENDING and self._duplicates.take_over(delivery, partial(self._yields, delivery)):
            claim = self._duplicates.claim(delivery)
        if delivery.id not in self._pending:  # its lane sent it, and it was settled before Redis answered
            return None
        if not self._lanes.set_waiting(delivery, QUEUED if claim is Claim.NEW else AWAITING_DUPLICATE):
            return None
        if claim is Claim.PENDING:
            self._dispatcher.yield_turn(delivery)
            return self._duplicates.hold(delivery)
        if claim is Claim.DUPLICATE:
            return self._settlement.duplicate(delivery)
        return self._dispatcher.due(delivery)

    def _yields(self, delivery: Delivery, message_id: bytes) -> bool:
        """Make a later duplicate give up its claim, so that the two do not wait for each other; return whether it did.

        A duplicate that is only in the journal gives up its claim before the feeder offers it again.
        """
        later = self._pending.get(message_id)
        if later is None and self._pending_log is not None:
            self._pending_log.claim_requested(message_id, delivery)
        if later is None or not self._lanes.withdraw(later):
            return False
        self._duplicates.hold(later)
        return True

    def client_failed(self, generation: int, *, sent: bool) -> None:
        """Fail the messages that a failed client never reported. Without `sent` none of them left the client."""
        error = KafkaError(KafkaError._PURGE_INFLIGHT, "the client failed before it reported this message")
        for delivery in list(self._pending.values()):
            if delivery.state.generation == generation:
                delivery.state = QUEUED
                self.failed(delivery, error, OUTCOME_UNKNOWN if sent else NOT_SENT)

    def end(self) -> None:
        """Settle what is still pending, once the threads have stopped."""
        unproved, self._awaiting_statistics = self._awaiting_statistics, []
        for verdict in unproved:  # no further statistics arrived
            verdict.delivery.state = QUEUED
            self._record(
                verdict.delivery, verdict.failure, verdict.text, "possibly_persisted", verdict.partition
            )
        for delivery in list(self._pending.values()):
            self._abandon(delivery)

    def _abandon(self, delivery: Delivery) -> None:
        held = delivery.state is AWAITING_DUPLICATE
        if held and self._duplicates.claim(delivery) is Claim.DUPLICATE:
            return self._settlement.duplicate(delivery)
        if delivery.status is MessageStatus.RETRYING:
            return self._settlement.leave_to_journal(delivery, failure_of(delivery.attempts[-1][0].code))
        failure = failure_of("_PURGE_INFLIGHT" if delivery.in_flight else "held")
        verdict: Verdict = "possibly_persisted" if delivery.in_flight else "not_sent"
        attempt = Attempt(self._clock(), failure.code, _closed_while(delivery))
        delivery.attempts = (*delivery.attempts, (attempt, verdict))
        self._hooks.attempt_failed(delivery, failure, None)
        return self._settlement.leave_to_journal(delivery, failure)


def _produced_at(message: Any, now: float) -> float:
    """Return the monotonic time at which the client received a message; 0 when the report does not contain it."""
    age: float | None = message.latency()
    return 0.0 if age is None else now - age


def _judge(failure: Failure, message: Any, backoff: float) -> Verdict:
    """Return the verdict of one attempt. Without a message the client refused the record at once."""
    if message is None:
        return not_sent_verdict(failure)[0]
    proved: Verdict | None = getattr(message, "verdict", None)  # an aborted transaction proves more
    if proved is not None:
        return proved
    assigned = message.partition() is not None
    return judge(failure, latency=message.latency(), retry_backoff=backoff, assigned=assigned)[0]


def _closed_while(delivery: Delivery) -> str:
    if delivery.in_flight:
        return "closed before its delivery report arrived"
    if delivery.state is AWAITING_DUPLICATE:
        return "closed while the message that it duplicates was pending"
    return "closed while an earlier message with the same key was pending"
