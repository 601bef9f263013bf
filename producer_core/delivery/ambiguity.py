"""Resolve ambiguous outcomes: attempts that failed although the broker may have the message."""

from __future__ import annotations

import time
from collections.abc import Callable

from producer_core.delivery.context import DeliveryContext
from producer_core.delivery.delivery import AWAITING_DUPLICATE, PROBING, QUEUED, Delivery
from producer_core.delivery.dispatch import LaneDispatcher
from producer_core.delivery.late_requests import FailedAttempt
from producer_core.delivery.prober import (
    QUIET_PERIOD_S,
    AckCheckpoints,
    OnAmbiguous,
    OutcomeProber,
    ProbeRequest,
    resolve,
)
from producer_core.delivery.settlement import Settlement
from producer_core.events import Attempt, Verdict
from producer_core.kafka.classify import Failure, failure_of
from producer_core.kafka.compaction import NewerRecords
from producer_core.kafka.newer_keys import NEWER_RECORD, SequenceLookup
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import id_text

_LATE_REQUEST_REFUSED = (
    "A later message of the same producer is on its partition, so the broker rejects late requests for it."
)
_EVIDENCE_TIMEOUT = 10.0
"""Seconds that an ambiguous message waits for the evidence about a suspected loss."""
_SEARCH_INTERVAL = 5.0
"""Seconds until an incomplete search for newer records of a key is repeated."""
_SEARCH_TIMEOUT = 60.0
"""Seconds for which an incomplete search for newer records is repeated."""
_UNKNOWN_NEWER_RECORD = (
    "It was not found, and it may have been written and compacted away. It is unknown whether the topic has a newer "
    "record with its key ({}): a resend could make an old value the latest."
)


class AmbiguityResolver:
    """Probes the topic for an ambiguous message, then settles the message, retries it, waits, or makes it a dead letter."""

    def __init__(
        self,
        context: DeliveryContext,
        *,
        settlement: Settlement,
        dispatcher: LaneDispatcher,
        checkpoints: AckCheckpoints,
        number: SequenceLookup,
        lost_on: Callable[[str, float], bool],
    ) -> None:
        self._pending = context.pending
        self._settlement = settlement
        self._lanes = context.lanes
        self._dispatcher = dispatcher
        self._duplicates = context.duplicates
        self._retries = context.retries
        self._hooks = context.hooks
        self._late = checkpoints.late
        self._policy = context.settings.on_ambiguous
        self._lost_on = lost_on
        self._clock = context.settings.clock
        self._prober = OutcomeProber(
            context.transport.find_records,
            context.transport.newer_records,
            self._probed,
            checkpoints=checkpoints,
            number=number,
        )

    def probe_first(
        self, delivery: Delivery, failure: Failure, retry_in: float | None, *, partition: int | None
    ) -> bool:
        """Probe the topic before the message is retried or dropped; return False while closing."""
        return self._request_probe(delivery, failure, retry_in, self._late.failed(delivery, partition))

    def recover(self, delivery: Delivery) -> bool:
        """Probe for a pending message of an earlier process; return False while closing."""
        failure = failure_of("_PURGE_INFLIGHT")
        text = "the process that sent it exited before its delivery report arrived"
        attempt = Attempt(self._clock(), failure.code, text)
        delivery.attempts = ((attempt, "possibly_persisted"),)
        self._lanes.failed(delivery)
        return self._request_probe(delivery, failure, 0.0, recovered=True)

    def stop(self, timeout: float) -> None:
        """Stop probing; messages without a result stay ambiguous."""
        self._prober.stop(timeout)

    def _request_probe(
        self,
        delivery: Delivery,
        failure: Failure,
        retry_in: float | None,
        attempt: FailedAttempt | None = None,
        *,
        recovered: bool = False,
    ) -> bool:
        if self._dispatcher.ended:
            return False
        delivery.state = PROBING
        request = ProbeRequest(delivery, failure, retry_in, time.monotonic(), attempt, recovered)
        return self._prober.request(request)

    def _probed(self, request: ProbeRequest, result: ProbeResult, newer: NewerRecords, absent: bool) -> None:
        """Act on the result of a probe. Called on the prober's thread."""
        delivery = request.delivery
        if delivery.id not in self._pending:
            return None
        if delivery.span is not None:
            delivery.span.probed(result.outcome)
        if (message_id := id_text(delivery.id)) in newer.ids:
            return self._hold_back(request, NEWER_RECORD)
        if message_id in newer.unknown:
            absent = False
            if _search_again(request, result, newer):
                # the message stays pending, even while closing
                self._prober.request(request, after=_SEARCH_INTERVAL)
                return None
            if newer.compacted or result.outcome == "not_found":
                return self._hold_back(request, _UNKNOWN_NEWER_RECORD.format(newer.reason))
        quiet_in = request.since + QUIET_PERIOD_S - time.monotonic()
        policy: OnAmbiguous = "dead_letter" if request.retry_in is None else self._policy
        step = resolve(result, policy, absent=absent, waited=quiet_in <= 0)
        if step == "wait" and self._policy == "retry":
            step = "give_up"  # no retry is left, and this policy does not wait
        if step == "wait" and self._prober.request(request, after=quiet_in):
            return None
        if step == "resend" and self._lost_on(delivery.topic, _EVIDENCE_TIMEOUT):
            step = "give_up"  # acknowledged messages are missing from the topic: an operator decides
        if step == "acknowledge":
            return self._settlement.found(delivery, result)
        if step == "resend" and request.retry_in is not None:
            if absent:
                _mark_absent(delivery)
            else:
                self._hooks.counted(delivery.topic, "possible_duplicates")
            # The lane must not send a duplicate while its original has the claim.
            delivery.state = QUEUED if self._duplicates.has(delivery) else AWAITING_DUPLICATE
            return self._retries.schedule(delivery, request.retry_in)
        proof = _proof(result, absent, time.monotonic() - request.since)
        return self._settlement.give_up(delivery, request.failure, proof=proof)

    def _hold_back(self, request: ProbeRequest, reason: str) -> None:
        if request.retry_in is None:  # the message is given up already, because of its own failure
            self._settlement.give_up(request.delivery, request.failure, proof=("inconclusive", reason))
        else:
            self._settlement.hold_back(request.delivery, reason, self._clock())


def _search_again(request: ProbeRequest, result: ProbeResult, newer: NewerRecords) -> bool:
    """Return whether a later search may be complete. A message of an earlier process waits until a broker responds."""
    if request.recovered and newer.unanswered:
        return True
    relevant = request.recovered or newer.compacted or result.outcome == "not_found"
    return relevant and time.monotonic() - request.since < _SEARCH_TIMEOUT


def _mark_absent(delivery: Delivery) -> None:
    """Mark the ambiguous attempt as absent: it was not appended and cannot be, so only later attempts set the verdict."""
    delivery.attempts = tuple(
        (attempt, "absent" if verdict == "possibly_persisted" else verdict)
        for attempt, verdict in delivery.attempts
    )


def _proof(result: ProbeResult, absent: bool, age: float) -> tuple[Verdict, str] | None:
    """Return the verdict of the last probe; None leaves the verdict to the attempts. `absent` means that this is proved."""
    if absent:
        return "absent", f"{result.text} {_LATE_REQUEST_REFUSED}"
    if result.outcome == "not_found" and age >= QUIET_PERIOD_S:
        return (
            "inconclusive",
            f"{result.text} The probe was {age:.0f} s after the failure; a late request may still arrive.",
        )
    return None
