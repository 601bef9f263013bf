"""The lifecycle of a message: accepted, in flight, waiting, settled. Nothing else changes a message's state.

A message is in `pending` from acceptance until it is settled; taking it out of that table is the one atomic
step that settles it, so whatever arrives twice (a late report, a close during a retry) is settled once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError

from producer_core.burial import Origin, dead_letter
from producer_core.config import ClientConfig, RetryConfig
from producer_core.connection import Connection
from producer_core.dedup import Claim, MessageDeduplicator
from producer_core.errors import QueueFull
from producer_core.events import Acknowledged, Attempt, AttemptFailed, DeadLetter, Hook, Notice, Verdict
from producer_core.failures import Failure, failure_of, judge, refused_here
from producer_core.messages import MessageStatus, id_text
from producer_core.reports import Resent, as_message, delivery_report
from producer_core.retry import RetryAfter, RetryManager, decide
from producer_core.transport import Delivery, Full, Refused, Report, TransportFactory

logger = logging.getLogger(__name__)

_MOST_HELD = 10_000
"""Copies of pending claims, and retries, that wait in memory before send_message waits too."""
_HOLD = 0.1
"""Seconds until a copy of a pending claim asks again."""


class Lifecycle:
    """Owns the pending messages. `accept` is called by the user's threads, the rest by ours."""

    def __init__(
        self,
        config: ClientConfig,
        retry_config: RetryConfig,
        *,
        origin: Origin,
        transport: TransportFactory,
        hooks: Sequence[Hook],
        dedup: MessageDeduplicator | None = None,
        saturated: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._retry_config = retry_config
        self._origin = origin
        self._hooks = tuple(hooks)
        self._dedup = dedup
        self._saturated = saturated
        self._clock = clock
        self._settled = threading.Event()  # set after each batch of reports: room in the queue, or idle
        self._closing = False
        # touched on the poll thread, and by close() after it
        self._unjudged: list[tuple[Delivery, Failure]] = []
        self.pending: dict[bytes, Delivery] = {}
        self.highest = -1  # the highest sequence that was acknowledged; written on the poll thread
        self.retry_manager = RetryManager(retry_config, send=self._due)
        self.connection = Connection(self.notice, clock=clock)
        self.transport = transport(config, self)

    def start(self) -> None:
        self.retry_manager.start()
        self.transport.start()

    # accepting

    def accept(self, delivery: Delivery) -> bool:
        """Take responsibility for a message; False when it is a confirmed duplicate. QueueFull after max_block."""
        delivery.accepted_at = self._clock()
        delivery.attempts = ()
        delivery.status = MessageStatus.PENDING
        claim = self._claim_or_wait(delivery)
        if claim is Claim.DUPLICATE:
            self._duplicate(delivery)
            return False
        self.pending[delivery.id] = delivery
        try:
            if claim is Claim.PENDING:
                self._hold(delivery)
            else:
                self._hand_over(delivery, time.monotonic() + self._config.max_block)
        except BaseException:
            self.pending.pop(delivery.id, None)
            self._release(delivery)
            raise
        return True

    def _hand_over(self, delivery: Delivery, deadline: float) -> None:
        while True:
            if not self._saturated():
                self._settled.clear()
                try:
                    self.transport.produce(delivery)
                    return
                except Full:
                    pass
                except Refused as refusal:
                    self._settle(delivery, refusal.error, None)
                    return
            left = deadline - time.monotonic()
            if left <= 0:
                raise QueueFull(self._why_full())
            self._settled.wait(min(left, 0.1))

    def _why_full(self) -> str:
        bound = f"No room for the message within {self._config.max_block:g} s"
        if self._saturated():
            return f"{bound}: dead letters can be kept nowhere. Free the disk or the store, then send again."
        reason = self.connection.error or "the broker is slower than you send"
        return f"{bound}: {len(self.pending):,} messages wait ({reason}). Raise max_block_ms or send slower."

    # settling

    def reports(self, batch: Sequence[Report]) -> None:
        """Delivery reports, on the poll thread."""
        acknowledged: list[Acknowledged] = []
        for delivery, error, message in batch:
            item = self._settle(delivery, error, message)
            if item is not None:
                acknowledged.append(item)
        if acknowledged:
            self.connection.acknowledged()
            self._tell("acknowledged", acknowledged)
        self._settled.set()

    def _settle(self, delivery: Delivery, error: KafkaError | None, message: Any) -> Acknowledged | None:
        if error is None:
            return self._acked(delivery, message)
        failure = failure_of(error)
        verdict = _judge(failure, message, self._config.retry_backoff)
        delivery.attempts = (*delivery.attempts, (Attempt(self._clock(), failure.code, error.str()), verdict))
        match decide(failure, len(delivery.attempts), self._retry_config):
            case RetryAfter(seconds=seconds) if not self._closing:
                self._retry(delivery, failure, seconds)
            case _:
                self._give_up(delivery, failure)
        return None

    def _acked(self, delivery: Delivery, message: Any) -> Acknowledged | None:
        if self.pending.pop(delivery.id, None) is None:
            return None
        delivery.status = MessageStatus.SENT
        self.highest = max(self.highest, delivery.seq)
        if delivery.checksum is not None and self._dedup is not None:
            self._dedup.confirm(delivery.checksum, delivery.dedup_topic)
        tries = len(delivery.attempts) + 1
        if tries > 1:
            self.retry_manager.settled(delivery, True)
        partition, offset, latency = message.partition(), message.offset(), message.latency()
        if delivery.replay is not None:
            delivery.replay(Resent(id_text(delivery.id), "acknowledged", partition, offset))
        if delivery.callback is not None or delivery.on_delivery is not None:
            self._call_back(delivery, message, None)
        return Acknowledged(
            delivery.topic, partition, offset, latency or 0.0, len(delivery.value or b""), tries, delivery.seq
        )

    def _retry(self, delivery: Delivery, failure: Failure, seconds: float) -> None:
        delivery.status = MessageStatus.RETRYING
        self._attempt_failed(delivery, failure, seconds)
        self.retry_manager.schedule(delivery, seconds)

    def _give_up(self, delivery: Delivery, failure: Failure) -> None:
        """Bury, once the evidence is in: a client that never sent a request proves it with its next statistics."""
        if failure.kind == "timed_out" and not self.connection.may_have_produced and not self._closing:
            self._unjudged.append((delivery, failure))
        else:
            self._bury(delivery, failure)

    def _bury(self, delivery: Delivery, failure: Failure, *, never_sent: bool = False) -> None:
        if self.pending.pop(delivery.id, None) is None:
            return
        delivery.status = MessageStatus.DLQ
        if len(delivery.attempts) > 1:
            self.retry_manager.settled(delivery, False)
        self._attempt_failed(delivery, failure, None)
        letter = dead_letter(delivery, failure, origin=self._origin, never_sent=never_sent)
        if letter.verdict in ("not_sent", "rejected"):
            self._release(delivery)
        if delivery.replay is None:
            self._tell("died", letter)
        else:
            delivery.replay(Resent(letter.message_id, "failed", letter=letter, text=letter.error_text))
        if delivery.callback is not None or delivery.on_delivery is not None:
            self._call_back(delivery, None, letter)
        self._settled.set()

    # retries, holds and replays

    def resend(self, delivery: Delivery) -> None:
        """Send a dead letter again under its own id; its `replay` callable hears how it ended. QueueFull as accept."""
        delivery.status = MessageStatus.PENDING
        delivery.attempts = ()
        if self.pending.setdefault(delivery.id, delivery) is not delivery:
            raise QueueFull(f"Message {id_text(delivery.id)} is on its way already.")
        try:
            self._hand_over(delivery, time.monotonic() + self._config.max_block)
        except BaseException:
            self.pending.pop(delivery.id, None)
            raise

    def _due(self, delivery: Delivery) -> None:
        """A waiting message's time has come, on the retry thread."""
        if delivery.id not in self.pending:
            return None
        claim = Claim.NEW if delivery.replay else self._claim(delivery)  # a retry renews its claim
        if claim is Claim.PENDING:
            return self._hold(delivery)
        if claim is Claim.DUPLICATE:
            return self._duplicate_after_all(delivery)
        delivery.status = MessageStatus.PENDING
        try:
            self.transport.produce(delivery)
        except Full:
            self.retry_manager.schedule(delivery, 0.05, counted=False)
        except Refused as refusal:
            self._settle(delivery, refusal.error, None)
        return None

    def _hold(self, delivery: Delivery) -> None:
        delivery.status = MessageStatus.DUPLICATE
        self.retry_manager.schedule(delivery, _HOLD, counted=False)

    def _duplicate(self, delivery: Delivery) -> None:
        delivery.status = MessageStatus.DUPLICATE
        self._tell("duplicate", delivery.topic)
        self._settled.set()

    def _duplicate_after_all(self, delivery: Delivery) -> None:
        """A held copy whose twin was acknowledged: its owner is told so."""
        if self.pending.pop(delivery.id, None) is not None:
            self._duplicate(delivery)
            self._call_back(delivery, None, None)

    def _claim(self, delivery: Delivery) -> Claim:
        if delivery.checksum is None or self._dedup is None:
            return Claim.NEW
        return self._dedup.claim(delivery.checksum, delivery.dedup_topic, delivery.id)

    def _claim_or_wait(self, delivery: Delivery) -> Claim:
        """Claim; where too many copies are held already, wait for their twins as for room in the queue."""
        deadline = time.monotonic() + self._config.max_block
        while (claim := self._claim(delivery)) is Claim.PENDING and self.retry_manager.pending >= _MOST_HELD:
            if time.monotonic() > deadline:
                raise QueueFull(f"{_MOST_HELD:,} messages wait for a retry or for their twin. Send slower.")
            self._settled.clear()
            self._settled.wait(0.1)
        return claim

    def _release(self, delivery: Delivery) -> None:
        if delivery.checksum is not None and self._dedup is not None:
            self._dedup.release(delivery.checksum, delivery.dedup_topic, delivery.id)

    # what the transport tells

    def statistics(self, statistics: Mapping[str, Any]) -> None:
        """librdkafka's statistics, on the poll thread: evidence for those that wait for their verdict."""
        self.connection.statistics(statistics)
        unjudged, self._unjudged = self._unjudged, []
        for delivery, failure in unjudged:
            self._bury(delivery, failure, never_sent=not self.connection.may_have_produced)
        self._tell("client_statistics", statistics)

    def connection_error(self, error: KafkaError) -> None:
        self.connection.failed(error)

    def fatal(self, error: KafkaError, generation: int) -> None:
        """The client broke and was re-created; what the broken one never reported is settled as ambiguous."""
        self.connection.recreated()
        text = f"The Kafka client failed and was re-created: {error.str()}"
        self.notice(Notice("fatal_error", "critical", text, self._clock(), {"code": error.name()}))
        silent = KafkaError(KafkaError._PURGE_INFLIGHT, "the client failed before it reported this message")
        for delivery in list(self.pending.values()):
            if delivery.generation == generation and delivery.status is MessageStatus.PENDING:
                self._settle(delivery, silent, _NoMessage())

    def notice(self, notice: Notice) -> None:
        self._tell("notice", notice)

    # looking and closing

    def pending_by_topic(self) -> Counter[str]:
        return Counter(delivery.topic for delivery in list(self.pending.values()))

    def wait_idle(self, timeout: float | None) -> bool:
        """Until nothing is pending; False when the timeout in seconds ran out first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.pending:
            left = 0.1 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            self._settled.clear()
            if self.pending:
                self._settled.wait(min(left, 0.1))
        return True

    def close(self, timeout: float) -> None:
        """Let what is pending finish for `timeout` seconds; what is left then becomes dead letters."""
        self.wait_idle(timeout)
        self._closing = True
        self.retry_manager.stop()
        if self.pending:
            self.transport.purge()
            self._wait_reports(2.0)
        self.transport.stop()
        for (
            delivery,
            failure,
        ) in self._unjudged:  # no statistics came after their time-out, so nothing is proved
            self._bury(delivery, failure)
        for delivery in list(self.pending.values()):
            self._abandon(delivery)

    def _wait_reports(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.transport.outstanding() and time.monotonic() < deadline:
            self._settled.clear()
            self._settled.wait(0.02)

    def _abandon(self, delivery: Delivery) -> None:
        if delivery.status is MessageStatus.DUPLICATE and self._claim(delivery) is Claim.DUPLICATE:
            self._duplicate_after_all(delivery)
            return
        never_sent = delivery.status is MessageStatus.DUPLICATE
        failure = failure_of("held" if never_sent else "_PURGE_INFLIGHT")
        if delivery.status is MessageStatus.RETRYING and delivery.attempts:
            failure = failure_of(delivery.attempts[-1][0].code)
        else:
            text = (
                "closed while a copy of it was still undecided"
                if never_sent
                else "closed before its report came"
            )
            verdict: Verdict = "not_sent" if never_sent else "possibly_persisted"
            delivery.attempts = (*delivery.attempts, (Attempt(self._clock(), failure.code, text), verdict))
        self._bury(delivery, failure)

    # telling

    def _attempt_failed(self, delivery: Delivery, failure: Failure, retry_in: float | None) -> None:
        attempt, verdict = delivery.attempts[-1]
        event = AttemptFailed(
            id_text(delivery.id), delivery.topic, failure.code, failure.kind, attempt.text, len(delivery.attempts),
            retry_in, verdict == "possibly_persisted", attempt.failed_at,
        )  # fmt: skip
        self._tell("attempt_failed", event)

    def _tell(self, what: str, about: Any) -> None:
        """Every hook hears of it; one that fails is logged, and neither the others nor our thread suffer."""
        for hook in self._hooks:
            try:
                getattr(hook, what)(about)
            except Exception:
                logger.exception("hook failed", extra={"hook": type(hook).__name__, "event": what})

    def _call_back(self, delivery: Delivery, message: Any, letter: DeadLetter | None) -> None:
        report = delivery_report(delivery, message, letter)
        try:
            if delivery.on_delivery is not None:
                delivery.on_delivery(report)
            if delivery.callback is not None:
                delivery.callback(letter is None, as_message(delivery, report.error), report.error or report)
        except Exception:
            logger.exception("delivery callback failed", extra={"topic": delivery.topic})


class _NoMessage:
    """Stands for the report that never came."""

    def latency(self) -> None:
        return None

    def partition(self) -> int:
        return 0  # it may have been assigned to one: nothing is known


def _judge(failure: Failure, message: Any, backoff: float) -> Verdict:
    """The verdict of one attempt; without a message the client refused it on the spot."""
    if message is None:
        return refused_here(failure)[0]
    assigned = message.partition() is not None
    return judge(failure, latency=message.latency(), retry_backoff=backoff, assigned=assigned)[0]
