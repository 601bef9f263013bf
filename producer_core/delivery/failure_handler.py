"""The attempts that failed: each is judged, and its message sent again, looked for first, or given up."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from confluent_kafka import KafkaError

from producer_core.config import ClientConfig, RetryConfig
from producer_core.delivery.ambiguity import AmbiguityResolver
from producer_core.delivery.connection_state import ConnectionState
from producer_core.delivery.dedup.deduplicator import Claim
from producer_core.delivery.dedup.duplicates import DuplicateGuard
from producer_core.delivery.delivery import AWAITING_DUPLICATE, PROBING, QUEUED, Delivery
from producer_core.delivery.dispatch import LaneDispatcher
from producer_core.delivery.hooks import HookDispatcher
from producer_core.delivery.missing_report import NOT_SENT, SILENT
from producer_core.delivery.ordering import Lanes
from producer_core.delivery.replayable_source import PendingLog
from producer_core.delivery.retry import RetryAfter, RetryManager, decide
from producer_core.delivery.settlement import Settlement
from producer_core.events import Attempt, Verdict
from producer_core.kafka.classify import Failure, failure_of, judge, refused_here
from producer_core.messages import MessageStatus

_PROVABLE = ("timed_out", "local")
"""Kinds of failures that a message has also when it never left the client."""


class PendingVerdict(NamedTuple):
    """An attempt for which the next statistics prove `claim`, or not; `produced_at` is of `time.monotonic`."""

    delivery: Delivery
    claim: Literal["not_sent", "rejected"]
    failure: Failure
    text: str
    partition: int | None
    produced_at: float


class FailureHandler:
    """`failed` is called on the poll thread and on the user's, `due` on the retry manager's."""

    def __init__(
        self,
        pending: dict[bytes, Delivery],
        config: ClientConfig,
        retry_config: RetryConfig,
        *,
        settlement: Settlement,
        ambiguous: AmbiguityResolver,
        lanes: Lanes,
        turns: LaneDispatcher,
        copies: DuplicateGuard,
        keeper: PendingLog | None,
        retries: RetryManager,
        audience: HookDispatcher,
        connection: ConnectionState,
        clock: Callable[[], float],
    ) -> None:
        self._pending = pending
        self._retry_backoff = config.retry_backoff
        self._retry_config = retry_config
        self._settlement = settlement
        self._ambiguous = ambiguous
        self._lanes = lanes
        self._turns = turns
        self._copies = copies
        self._keeper = keeper
        self._retries = retries
        self._audience = audience
        self._connection = connection
        self._clock = clock
        # touched on the poll thread, and by end() after it
        self._unjudged: list[PendingVerdict] = []

    def failed(self, delivery: Delivery, error: KafkaError, message: Any) -> None:
        """An attempt came back with an error; without a message the client refused it on the spot."""
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
            self._judged(delivery, failure, text, verdict, partition)
        elif self._turns.ended:  # no statistics are certain to come
            self._judged(delivery, failure, text, "possibly_persisted", partition)
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
        self._unjudged.append(one)

    def evidence(self) -> None:
        """The connection has new statistics: judge the attempts that waited for them. On the poll thread."""
        unjudged, self._unjudged = self._unjudged, []
        for one in unjudged:
            proved = self._proved(one)
            text, reason = one.text, self._connection.unreachable
            if proved and one.claim == "not_sent" and reason is not None:
                text = f"{text}, no broker was connected: {reason}"
            one.delivery.place = QUEUED
            verdict: Verdict = one.claim if proved else "possibly_persisted"
            self._judged(one.delivery, one.failure, text, verdict, one.partition)

    def _proved(self, one: PendingVerdict) -> bool:
        refuted = (
            self._connection.may_have_repeated if one.claim == "rejected" else self._connection.may_have_sent
        )
        return not refuted(one.delivery.accepted_at, one.produced_at)

    def _judged(
        self, delivery: Delivery, failure: Failure, text: str, verdict: Verdict, partition: int | None
    ) -> None:
        if delivery.id not in self._pending:
            return
        delivery.attempts = (*delivery.attempts, (Attempt(self._clock(), failure.code, text), verdict))
        self._follow(delivery, failure, verdict, partition)

    def _cause(self, failure: Failure, text: str, verdict: Verdict) -> tuple[Failure, str]:
        """Of a message that a close purged while no broker could be reached: the reason for that is its cause."""
        reason = self._connection.unreachable
        if reason is None or failure.code != "_PURGE_QUEUE" or not self._turns.ended:
            return failure, text
        text = f"closed while no broker was connected: {reason}"
        return (failure_of(self._connection.cause), text) if verdict == "not_sent" else (failure, text)

    def _follow(self, delivery: Delivery, failure: Failure, verdict: Verdict, partition: int | None) -> None:
        """Send again, look first, or give up."""
        decision = decide(failure, len(delivery.attempts), self._retry_config)
        retry_in = decision.seconds if isinstance(decision, RetryAfter) else None
        if self._turns.ended and retry_in is not None:
            self._audience.attempt_failed(delivery, failure, None)
            return self._settlement.keep(delivery, failure)
        self._audience.attempt_failed(delivery, failure, retry_in)
        if retry_in is not None:
            self._lanes.failed(delivery)
        if verdict == "possibly_persisted" and self._ambiguous.look_first(
            delivery, failure, retry_in, partition=partition
        ):
            return None
        if retry_in is not None:
            return self._retries.schedule(delivery, retry_in)
        return self._settlement.bury(delivery, failure)

    def due(self, delivery: Delivery) -> None:
        """A waiting message's time has come, on the retry thread."""
        if delivery.id not in self._pending or delivery.place not in (QUEUED, AWAITING_DUPLICATE):
            return None
        claim = Claim.NEW if delivery.replay else self._copies.claim(delivery)  # a retry renews its claim
        if claim is Claim.PENDING and self._copies.take_over(delivery, partial(self._yields, delivery)):
            claim = self._copies.claim(delivery)
        if delivery.id not in self._pending:  # handed out by its lane and settled, while Redis was asked
            return None
        if not self._lanes.waits(delivery, QUEUED if claim is Claim.NEW else AWAITING_DUPLICATE):
            return None
        if claim is Claim.PENDING:
            self._turns.gives_way(delivery)
            return self._copies.hold(delivery)
        if claim is Claim.DUPLICATE:
            return self._settlement.duplicate(delivery)
        return self._turns.due(delivery)

    def _yields(self, delivery: Delivery, message_id: bytes) -> bool:
        """A copy that came later and stands in its lane is sent after this one, or not at all: else each waits for the other.

        One that waits for room in the journal, which may be this one's, gives its claim up before it is offered again.
        """
        later = self._pending.get(message_id)
        if later is None and self._keeper is not None:
            self._keeper.wanted(message_id, delivery)
        if later is None or not self._lanes.steps_back(later):
            return False
        self._copies.hold(later)
        return True

    def silent(self, generation: int, *, sent: bool) -> None:
        """The client of this generation broke: what it never reported failed; without `sent` nothing of it left us."""
        error = KafkaError(KafkaError._PURGE_INFLIGHT, "the client failed before it reported this message")
        for delivery in list(self._pending.values()):
            if delivery.place.generation == generation:
                delivery.place = QUEUED
                self.failed(delivery, error, SILENT if sent else NOT_SENT)

    def end(self) -> None:
        """Nothing more can be done in this process for whatever is pending; the threads have stopped."""
        for one in self._unjudged:  # no statistics came after their time-out: nothing is proved
            one.delivery.place = QUEUED
            self._judged(one.delivery, one.failure, one.text, "possibly_persisted", one.partition)
        for delivery in list(self._pending.values()):
            self._abandon(delivery)

    def _abandon(self, delivery: Delivery) -> None:
        held = delivery.place is AWAITING_DUPLICATE
        if held and self._copies.claim(delivery) is Claim.DUPLICATE:
            return self._settlement.duplicate(delivery)
        if delivery.status is MessageStatus.RETRYING:
            return self._settlement.keep(delivery, failure_of(delivery.attempts[-1][0].code))
        failure = failure_of("_PURGE_INFLIGHT" if delivery.flying else "held")
        verdict: Verdict = "possibly_persisted" if delivery.flying else "not_sent"
        attempt = Attempt(self._clock(), failure.code, _closed_while(delivery))
        delivery.attempts = (*delivery.attempts, (attempt, verdict))
        self._audience.attempt_failed(delivery, failure, None)
        return self._settlement.keep(delivery, failure)


def _produced_at(message: Any) -> float:
    """Return when the client was given a message, of `time.monotonic`; 0 where its report does not say."""
    age: float | None = message.latency()
    return 0.0 if age is None else time.monotonic() - age


def _judge(failure: Failure, message: Any, backoff: float) -> Verdict:
    """The verdict of one attempt; without a message the client refused it on the spot."""
    if message is None:
        return refused_here(failure)[0]
    proved: Verdict | None = getattr(message, "verdict", None)  # a transaction that was aborted proves more
    if proved is not None:
        return proved
    assigned = message.partition() is not None
    return judge(failure, latency=message.latency(), retry_backoff=backoff, assigned=assigned)[0]


def _closed_while(delivery: Delivery) -> str:
    if delivery.flying:
        return "closed before its report came"
    if delivery.place is AWAITING_DUPLICATE:
        return "closed while a copy of it was still undecided"
    return "closed while an earlier message of its key was still undecided"
