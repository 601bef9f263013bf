"""Handle failed attempts: give each a verdict, then retry the message, probe its topic first, or make it a dead letter."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Literal, NamedTuple

from confluent_kafka import KafkaError

from producer_core.delivery.ambiguity import AmbiguityResolver
from producer_core.delivery.context import DeliveryContext
from producer_core.delivery.dedup.deduplicator import Claim
from producer_core.delivery.delivery import AWAITING_DUPLICATE, PROBING, QUEUED, Delivery
from producer_core.delivery.dispatch import LaneDispatcher
from producer_core.delivery.missing_report import NOT_SENT, SILENT
from producer_core.delivery.replayable_source import PendingLog
from producer_core.delivery.retry import RetryAfter, decide
from producer_core.delivery.settlement import Settlement
from producer_core.events import Attempt, Verdict
from producer_core.kafka.classify import Failure, failure_of, judge, not_sent_verdict
from producer_core.messages import MessageStatus

_PROVABLE = ("timed_out", "local")
"""Kinds of failures that a message can also have when it never left the client."""


class PendingVerdict(NamedTuple):
    """An attempt for which the next statistics prove `claim`, or not; `produced_at` is of `time.monotonic`."""

    delivery: Delivery
    claim: Literal["not_sent", "rejected"]
    failure: Failure
    text: str
    partition: int | None
    produced_at: float


class FailureHandler:
    """Decides about failed attempts. `failed` is called on the poll thread and the user's, `due` on the retry manager's."""

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
        # touched on the poll thread, and by end() once that has stopped
        self._awaiting_statistics: list[PendingVerdict] = []

    def failed(self, delivery: Delivery, error: KafkaError, message: Any) -> None:
        """Handle a report with an error. Without a `message` the client refused the message at once."""
        held_back: str | None = getattr(message, "held_back", None)
        if held_back is not None:
            self._settlement.hold_back(delivery, held_back, self._clock())
            return
        failure = failure_of(error)
        verdict = _judge(failure, message, self._retry_backoff)
        failure, text = self._cause(failure, error.str(), verdict)
        partition = None if message is None else message.partition()
        claim = self._claim(delivery, failure, verdict, message)
        if claim is None:
            self._record(delivery, failure, text, verdict, partition)
        elif self._dispatcher.ended:  # no statistics are certain to come
            self._record(delivery, failure, text, "possibly_persisted", partition)
        else:
            self._defer(PendingVerdict(delivery, claim, failure, text, partition, _produced_at(message)))

    def _claim(
        self, delivery: Delivery, failure: Failure, verdict: Verdict, message: Any
    ) -> Literal["not_sent", "rejected"] | None:
        """Return what the next statistics may prove of an attempt; None where its report alone decides."""
        if message is None or getattr(message, "verdict", None) is not None:
            return None
        if verdict == "rejected":
            return verdict
        provable = verdict == "possibly_persisted" and failure.kind in _PROVABLE
        if provable and not self._connection.may_have_sent(delivery.accepted_at, _produced_at(message)):
            return "not_sent"
        return None

    def _defer(self, one: PendingVerdict) -> None:
        """Wait for the next statistics. Until then the message is not sent again, and its lane waits for its retry."""
        one.delivery.place = PROBING
        if isinstance(decide(one.failure, len(one.delivery.attempts) + 1, self._retry_config), RetryAfter):
            self._lanes.failed(one.delivery)
        self._awaiting_statistics.append(one)

    def evidence(self) -> None:
        """Decide the verdicts that waited for these statistics. Called on the poll thread."""
        waiting, self._awaiting_statistics = self._awaiting_statistics, []
        for one in waiting:
            proved = self._proved(one)
            text, reason = one.text, self._connection.unreachable
            if proved and one.claim == "not_sent" and reason is not None:
                text = f"{text}, no broker was connected: {reason}"
            one.delivery.place = QUEUED
            verdict: Verdict = one.claim if proved else "possibly_persisted"
            self._record(one.delivery, one.failure, text, verdict, one.partition)

    def _proved(self, one: PendingVerdict) -> bool:
        refuted = (
            self._connection.may_have_repeated if one.claim == "rejected" else self._connection.may_have_sent
        )
        return not refuted(one.delivery.accepted_at, one.produced_at)

    def _record(
        self, delivery: Delivery, failure: Failure, text: str, verdict: Verdict, partition: int | None
    ) -> None:
        if delivery.id not in self._pending:
            return
        delivery.attempts = (*delivery.attempts, (Attempt(self._clock(), failure.code, text), verdict))
        self._follow(delivery, failure, verdict, partition)

    def _cause(self, failure: Failure, text: str, verdict: Verdict) -> tuple[Failure, str]:
        """Return the cause of a failure: for a message purged at close, the reason why no broker was reachable."""
        reason = self._connection.unreachable
        if reason is None or failure.code != "_PURGE_QUEUE" or not self._dispatcher.ended:
            return failure, text
        text = f"closed while no broker was connected: {reason}"
        return (failure_of(self._connection.cause), text) if verdict == "not_sent" else (failure, text)

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
        if delivery.id not in self._pending or delivery.place not in (QUEUED, AWAITING_DUPLICATE):
            return None
        claim = (
            Claim.NEW if delivery.on_replayed else self._duplicates.claim(delivery)
        )  # a retry renews the claim
        if claim is Claim.PENDING and self._duplicates.take_over(delivery, partial(self._yields, delivery)):
            claim = self._duplicates.claim(delivery)
        if delivery.id not in self._pending:  # its lane sent it and it was settled while Redis answered
            return None
        if not self._lanes.waits(delivery, QUEUED if claim is Claim.NEW else AWAITING_DUPLICATE):
            return None
        if claim is Claim.PENDING:
            self._dispatcher.gives_way(delivery)
            return self._duplicates.hold(delivery)
        if claim is Claim.DUPLICATE:
            return self._settlement.duplicate(delivery)
        return self._dispatcher.due(delivery)

    def _yields(self, delivery: Delivery, message_id: bytes) -> bool:
        """Let a later duplicate give up its claim, so that the two do not wait for each other; return whether it did.

        A duplicate that is only in the journal gives its claim up before the feeder offers it again.
        """
        later = self._pending.get(message_id)
        if later is None and self._pending_log is not None:
            self._pending_log.wanted(message_id, delivery)
        if later is None or not self._lanes.steps_back(later):
            return False
        self._duplicates.hold(later)
        return True

    def client_broke(self, generation: int, *, sent: bool) -> None:
        """Fail the messages that a broken client never reported. Without `sent` none of them left the client."""
        error = KafkaError(KafkaError._PURGE_INFLIGHT, "the client failed before it reported this message")
        for delivery in list(self._pending.values()):
            if delivery.place.generation == generation:
                delivery.place = QUEUED
                self.failed(delivery, error, SILENT if sent else NOT_SENT)

    def end(self) -> None:
        """Settle what is still pending, once the threads have stopped."""
        for one in self._awaiting_statistics:  # no statistics came: nothing is proved
            one.delivery.place = QUEUED
            self._record(one.delivery, one.failure, one.text, "possibly_persisted", one.partition)
        for delivery in list(self._pending.values()):
            self._abandon(delivery)

    def _abandon(self, delivery: Delivery) -> None:
        held = delivery.place is AWAITING_DUPLICATE
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


def _produced_at(message: Any) -> float:
    """Return when the client got a message, by `time.monotonic`; 0 when the report does not say."""
    age: float | None = message.latency()
    return 0.0 if age is None else time.monotonic() - age


def _judge(failure: Failure, message: Any, backoff: float) -> Verdict:
    """Return the verdict of one attempt. Without a message the client refused it at once."""
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
    if delivery.place is AWAITING_DUPLICATE:
        return "closed while the message that it duplicates was pending"
    return "closed while an earlier message of its key was pending"
