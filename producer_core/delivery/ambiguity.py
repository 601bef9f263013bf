"""The ambiguous: messages whose attempt failed and that the broker may have. A look decides what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from producer_core.delivery.dedup.duplicates import DuplicateGuard
from producer_core.delivery.delivery import AWAITING_DUPLICATE, PROBING, QUEUED, Delivery
from producer_core.delivery.dispatch import LaneDispatcher
from producer_core.delivery.hooks import HookDispatcher
from producer_core.delivery.late_requests import FailedAttempt
from producer_core.delivery.ordering import Lanes
from producer_core.delivery.prober import (
    QUIET_PERIOD_S,
    AckCheckpoints,
    OnAmbiguous,
    OutcomeProber,
    ProbeRequest,
    resolve,
)
from producer_core.delivery.retry import RetryManager
from producer_core.delivery.settlement import Settlement
from producer_core.delivery.transport import Transport
from producer_core.events import Attempt, Verdict
from producer_core.kafka.classify import Failure, failure_of
from producer_core.kafka.compaction import NewerRecords
from producer_core.kafka.newer_keys import NEWER_RECORD, Number
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.messages import id_text

_REFUSED = (
    "A later message of the same producer is on its partition, so the broker refuses a late request of it."
)
_EVIDENCE = 10.0
"""Seconds that a message in doubt waits for the evidence of a suspected loss."""
_AGAIN = 5.0
"""Seconds until newer records of a key are searched for again."""
_SEARCHING = 60.0
"""Seconds for which an incomplete search for newer records is repeated."""
_UNKNOWN = (
    "It was not found, and it may have been written and compacted away. Whether a newer record of its key is on the "
    "topic is not known ({}): sending it again could put an old value last."
)


class AmbiguityResolver:
    """Asks `in_doubt.py:InDoubt`, and acts on its thread upon the answer: landed, sent again, waited for, or buried."""

    def __init__(
        self,
        pending: dict[bytes, Delivery],
        transport: Transport,
        *,
        number: Number,
        settlement: Settlement,
        lanes: Lanes,
        turns: LaneDispatcher,
        copies: DuplicateGuard,
        retries: RetryManager,
        audience: HookDispatcher,
        marks: AckCheckpoints,
        policy: OnAmbiguous,
        lost_on: Callable[[str, float], bool],
        clock: Callable[[], float],
    ) -> None:
        self._pending = pending
        self._settlement = settlement
        self._lanes = lanes
        self._turns = turns
        self._copies = copies
        self._retries = retries
        self._audience = audience
        self._policy = policy
        self._lost_on = lost_on
        self._clock = clock
        self._late = marks.late
        self._in_doubt = OutcomeProber(
            transport.look, transport.newer_records, self._looked, marks=marks, number=number
        )

    def look_first(
        self, delivery: Delivery, failure: Failure, retry_in: float | None, *, partition: int | None
    ) -> bool:
        """Ask the topic before anything else happens to a message that the broker may have; False when closing."""
        return self._ask(delivery, failure, retry_in, self._late.failed(delivery, partition))

    def recover(self, delivery: Delivery) -> bool:
        """Look for a message of an earlier process, which is in `pending`; False when closing."""
        failure = failure_of("_PURGE_INFLIGHT")
        text = "the process that sent it ended before its report came"
        attempt = Attempt(self._clock(), failure.code, text)
        delivery.attempts = ((attempt, "possibly_persisted"),)
        self._lanes.failed(delivery)
        return self._ask(delivery, failure, 0.0, recovered=True)

    def stop(self, timeout: float) -> None:
        """Look for nothing more; what has no answer stays in doubt."""
        self._in_doubt.stop(timeout)

    def _ask(
        self,
        delivery: Delivery,
        failure: Failure,
        retry_in: float | None,
        sent: FailedAttempt | None = None,
        *,
        recovered: bool = False,
    ) -> bool:
        if self._turns.ended:
            return False
        delivery.place = PROBING
        return self._in_doubt.ask(
            ProbeRequest(delivery, failure, retry_in, time.monotonic(), sent, recovered)
        )

    def _looked(self, doubt: ProbeRequest, landing: ProbeResult, newer: NewerRecords, absent: bool) -> None:
        """What a look says of a message in doubt, on the look's thread."""
        delivery = doubt.delivery
        if delivery.id not in self._pending:
            return None
        if (message_id := id_text(delivery.id)) in newer.ids:
            return self._hold_back(doubt, NEWER_RECORD)
        if message_id in newer.unknown:
            absent = False
            if _search_again(doubt, landing, newer):
                self._in_doubt.ask(doubt, after=_AGAIN)  # a close keeps it: it stays pending
                return None
            if newer.compacted or landing.outcome == "not_found":
                return self._hold_back(doubt, _UNKNOWN.format(newer.reason))
        quiet_in = doubt.since + QUIET_PERIOD_S - time.monotonic()
        policy: OnAmbiguous = "dead_letter" if doubt.retry_in is None else self._policy
        what = resolve(landing, policy, absent=absent, waited=quiet_in <= 0)
        if what == "wait" and self._policy == "retry":
            what = "bury"  # no retry is left, and nobody asked to wait for certainty
        if what == "wait" and self._in_doubt.ask(doubt, after=quiet_in):
            return None
        if what == "resend" and self._lost_on(delivery.topic, _EVIDENCE):
            what = "bury"  # acknowledged messages are missing there: an operator decides what is sent again
        if what == "landed":
            return self._settlement.found(delivery, landing)
        if what == "resend" and doubt.retry_in is not None:
            if absent:
                _disprove(delivery)
            else:
                self._audience.tell("counted", delivery.topic, "possible_duplicates")
            # A copy whose twin has the claim must not be handed out by its lane.
            delivery.place = QUEUED if self._copies.has(delivery) else AWAITING_DUPLICATE
            return self._retries.schedule(delivery, doubt.retry_in)
        proof = _proof(landing, absent, time.monotonic() - doubt.since)
        return self._settlement.bury(delivery, doubt.failure, proof=proof)

    def _hold_back(self, doubt: ProbeRequest, reason: str) -> None:
        if doubt.retry_in is None:  # it is given up anyway, for a reason of its own
            self._settlement.bury(doubt.delivery, doubt.failure, proof=("inconclusive", reason))
        else:
            self._settlement.hold_back(doubt.delivery, reason, self._clock())


def _search_again(doubt: ProbeRequest, landing: ProbeResult, newer: NewerRecords) -> bool:
    """Whether a later search may know more. Before any broker answers, a message of an earlier process waits."""
    if doubt.recovered and newer.unanswered:
        return True
    matters = doubt.recovered or newer.compacted or landing.outcome == "not_found"
    return matters and time.monotonic() - doubt.since < _SEARCHING


def _disprove(delivery: Delivery) -> None:
    """The attempt in doubt did not land and cannot any more: a later one is judged by itself."""
    delivery.attempts = tuple(
        (attempt, "absent" if verdict == "possibly_persisted" else verdict)
        for attempt, verdict in delivery.attempts
    )


def _proof(landing: ProbeResult, absent: bool, age: float) -> tuple[Verdict, str] | None:
    """The verdict that a last look allows; None leaves it to the attempts. `absent` only where it is proved."""
    if absent:
        return "absent", f"{landing.text} {_REFUSED}"
    if landing.outcome == "not_found" and age >= QUIET_PERIOD_S:
        return (
            "inconclusive",
            f"{landing.text} That was {age:.0f} s after it failed; a late request may still arrive.",
        )
    return None
