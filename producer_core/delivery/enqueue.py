"""Accept messages: claim them, journal them, and pass them to the client in the order of their lanes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import KafkaError

from producer_core._internal.withdrawal import check_withdrawn
from producer_core.delivery.context import DeliveryContext
from producer_core.delivery.dedup.claims import Claim
from producer_core.delivery.delivery import AWAITING_DUPLICATE, IN_CLIENT, QUEUED, Callbacks, Delivery
from producer_core.delivery.dispatch import LaneDispatcher
from producer_core.delivery.transport import ClientQueueFull, ClientRefused, Transport
from producer_core.errors import JournalFull, ProducerClosed, ProducerError, QueueFull
from producer_core.events import Notice
from producer_core.messages import id_text

if TYPE_CHECKING:
    from producer_core.delivery.replayable_source import FeederTarget, PendingLog

_NEW, _PENDING, _DUPLICATE = Claim.NEW, Claim.PENDING, Claim.DUPLICATE
_MAX_HELD = 10_000
"""Messages that may wait in memory for an original, a retry or an earlier message of their key; beyond it send_message
waits."""
_TIME_RESOLUTION = 0.001
"""Seconds for which messages share one acceptance time object, which saves 32 bytes each. The time is never too late."""
_REPORT_AGAIN_S, _ROOM_FOR_S = 60.0, 1.0
"""See `_report_room`."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Takes the place of the client's message for a message that is not sent, and gives the reason."""

    held_back: str


class Enqueuer(Protocol):
    """Accepts new messages and dead letters, as `MessageEnqueuer` does."""

    @property
    def transport(self) -> Transport: ...
    def accept(self, delivery: Delivery, max_block: float | None = None) -> bool: ...
    def accept_many(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]: ...
    def resend(self, delivery: Delivery) -> None: ...


class MessageEnqueuer:
    """Adds messages to `pending` and to their lanes; `settlement.py` removes them. Called by the user's threads.

    The journal's feeder uses it as its `FeederTarget`. `failed` handles a message that the client refuses at once.
    `probe_recovered` probes for a message of an earlier process; it returns False while closing.
    """

    def __init__(
        self,
        context: DeliveryContext,
        *,
        pending_log: Callable[[FeederTarget], PendingLog | None],
        failed: Callable[[Delivery, KafkaError, HeldBack | None], None],
        probe_recovered: Callable[[Delivery], bool],
        saturated: Callable[[], bool],
    ) -> None:
        self.pending = context.pending
        self.transport: Transport = context.transport
        self.lanes = context.lanes
        self.dispatcher = LaneDispatcher(context, self._produce)
        self.ended = False  # closing: nothing new is accepted
        # Set by a traced producer, before it starts: starts the span of a message of an earlier process.
        self.resume_span: Callable[[Delivery], Callbacks | None] | None = None
        # Set by a circuit breaker, before the producer starts: raises CircuitOpen for a message that waits for room.
        self.check_wait: Callable[[Delivery], None] | None = None
        self._max_block = context.settings.client.max_block
        self._dedup = context.duplicates.deduplicator
        if self._dedup is not None:
            self._dedup.pending = self.pending.__contains__
        self._duplicates = context.duplicates
        self._retries = context.retries
        self._hooks = context.hooks
        self._connection = context.connection
        self._settled = context.settled
        self._clock = context.settings.clock
        self._failed = failed
        self._probe_recovered = probe_recovered
        self._saturated = saturated
        self._journal_full = False
        self._journal_full_at = 0.0  # monotonic, of the latest message without room
        self._room_reported_at = -math.inf  # monotonic
        self._now = 0.0  # the latest acceptance time
        self.pending_log = pending_log(self)

    # one message

    def accept(self, delivery: Delivery, max_block: float | None = None) -> bool:
        """Accept a message; return False for a duplicate of an acknowledged one.

        Raise QueueFull without room for `max_block` seconds; None means the setting `max_block_ms`. With a circuit breaker,
        raise CircuitOpen if the circuit opens during the wait.
        """
        now = self._clock()
        if 0 <= now - self._now < _TIME_RESOLUTION:
            now = self._now
        else:
            self._now = now
        delivery.accepted_at = now
        if delivery.checksum is None or self._dedup is None:
            claim = _NEW
        else:  # DuplicateGuard.claim, inlined for speed
            claim = self._dedup.claim(delivery.checksum, delivery.topic, delivery.id)
        if claim is _NEW and not self._saturated():  # the usual case
            try:
                if self.offer(delivery) if self.pending_log is None else self._log(delivery) is None:
                    return True
            except BaseException:
                self._duplicates.release(delivery)
                raise
        deadline = time.monotonic() + (self._max_block if max_block is None else max_block)
        if claim is _PENDING:
            claim = self._claim_or_wait(delivery, deadline)
        return self._accept_claimed(delivery, claim, deadline)

    def _claim_or_wait(self, delivery: Delivery, deadline: float) -> Claim:
        """Claim a message. While too many duplicates are held, wait for their originals as for room in the queue."""
        while (claim := self._duplicates.claim(delivery)) is _PENDING and self._retries.pending >= _MAX_HELD:
            reason = f"{_MAX_HELD:,} messages await a retry or the message they duplicate. Send more slowly."
            self._wait_for_room(delivery, deadline, reason)
        return claim

    def _accept_claimed(self, delivery: Delivery, claim: Claim, deadline: float) -> bool:
        if claim is _DUPLICATE:
            self._duplicates.duplicate(delivery)
            return False
        delivery.state = AWAITING_DUPLICATE if claim is _PENDING else QUEUED
        try:
            self._enqueue(delivery, deadline)
        except BaseException:
            self._duplicates.release(delivery)
            raise
        return True

    def _enqueue(self, delivery: Delivery, deadline: float) -> None:
        """Write the message to the journal, which offers it to the client, or offer it directly without a journal."""
        if self.pending_log is None:
            return self._offer_until(delivery, deadline)
        while self._saturated():
            self._wait_for_room(delivery, deadline, self._why_full())
        while (full := self._log(delivery)) is not None:
            self._wait_for_room(delivery, deadline, str(full))
        return None

    def _log(self, delivery: Delivery) -> JournalFull | None:
        """Write the message to the journal, which offers it to the client. Return the error when it is full."""
        try:
            self.pending_log.take(delivery)  # type: ignore[union-attr]  # the caller has checked it
        except JournalFull as error:
            self._report_full_journal(str(error))
            if error.withdrawn:  # a second record under its sequence would count as settled after a crash
                raise QueueFull(str(error)) from error
            return error
        if self._journal_full:
            self._report_room()
        return None

    def _report_full_journal(self, text: str) -> None:
        """Report a full journal once, not for every message that waits."""
        self._journal_full_at = time.monotonic()
        if not self._journal_full:
            self._journal_full = True
            self._hooks.notice(Notice("journal_full", "critical", text, self._clock()))

    def _report_room(self) -> None:
        """Report that the journal accepts messages again.

        A journal at its limit may be full again at the next message, so a second report within a minute waits until no
        message lacked room for a second.
        """
        now = time.monotonic()
        if now - self._room_reported_at >= _REPORT_AGAIN_S or now - self._journal_full_at >= _ROOM_FOR_S:
            self._journal_full, self._room_reported_at = False, now
            text = "The journal accepts messages again."
            self._hooks.notice(Notice("journal_available", "info", text, self._clock()))

    def _offer_until(self, delivery: Delivery, deadline: float) -> None:
        while self._saturated() or not self.offer(delivery):
            self._wait_for_room(delivery, deadline, self._why_full())

    # several messages

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        """Accept several messages in order, with one round trip to Redis and one journal write.

        Return a result or an error for each; only an interrupt is raised. A message that finds no room with the others
        waits for it alone, and claims again.
        """
        if self._saturated() or self._retries.pending >= _MAX_HELD:
            return self._accept_one_by_one(deliveries)
        now = self._clock()
        for delivery in deliveries:
            delivery.accepted_at = now
        claims = self._duplicates.claim_many(deliveries)
        accepted = []
        for delivery, claim in zip(deliveries, claims, strict=True):
            if claim is _DUPLICATE:
                self._duplicates.duplicate(delivery)
            else:
                delivery.state = AWAITING_DUPLICATE if claim is _PENDING else QUEUED
                accepted.append(delivery)
        results = iter(self._enqueue_many(accepted))
        return [False if claim is _DUPLICATE else next(results) for claim in claims]

    def _enqueue_many(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        """Enqueue the messages that fit in one step, and the others one by one. Release the claims of those that fail."""
        taken: list[Delivery] = []
        try:
            self._enqueue_while_room(deliveries, taken)
        except ProducerError as error:
            self._duplicates.release_all(left := deliveries[len(taken) :])
            return [*[True] * len(taken), *[error] * len(left)]
        except BaseException:
            self._duplicates.release_all(deliveries[len(taken) :])
            raise
        return [*[True] * len(taken), *self._accept_one_by_one(deliveries[len(taken) :])]

    def _enqueue_while_room(self, deliveries: Sequence[Delivery], taken: list[Delivery]) -> None:
        if self.pending_log is None:
            for delivery in deliveries:
                if not self.offer(delivery):
                    return
                taken.append(delivery)
        elif deliveries:
            try:
                self.pending_log.take_many(deliveries, taken)
            except JournalFull as error:
                if error.withdrawn:  # see _enqueue
                    self._report_full_journal(str(error))
                    raise QueueFull(str(error)) from error
            else:
                if self._journal_full:
                    self._report_room()

    def _accept_one_by_one(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        results: list[bool | ProducerError] = []
        try:
            for delivery in deliveries:
                delivery.state = QUEUED  # until its claim is known
                try:
                    results.append(self.accept(delivery))
                except ProducerError as error:
                    results.append(error)
        except BaseException:
            # accept() released the interrupted one's
            self._duplicates.release_all(deliveries[len(results) + 1 :])
            raise
        return results

    # passing messages to the client

    def offer(self, delivery: Delivery) -> bool:
        """Pass a message to the client, or queue it in its lane; return False when there is no room."""
        try:
            self.pending[delivery.id] = delivery
            if self.ended:
                if self.pending.pop(delivery.id, None) is None:
                    return True  # close() found and settled it
                raise ProducerClosed  # it would never be settled
            if delivery.state is AWAITING_DUPLICATE:
                return self._hold(delivery)
            if self.lanes.queues or self.lanes.strict:
                if self.lanes.held >= _MAX_HELD:
                    self.pending.pop(delivery.id, None)
                    return False
                if not self.lanes.admit(delivery):  # it is queued: another thread may send it from now on
                    return True
            delivery.state = IN_CLIENT  # _produce, inlined for speed
            self.transport.produce(delivery)
        except ClientRefused as refusal:
            delivery.state = QUEUED
            self._failed(delivery, refusal.error, None)
        except ClientQueueFull:
            delivery.state = QUEUED
            self._undo(delivery)
            return False
        except BaseException:  # the client may have the message; its report is then ignored
            self._undo(delivery)
            raise
        return True

    def _hold(self, delivery: Delivery) -> bool:
        if self._retries.pending >= _MAX_HELD:
            self.pending.pop(delivery.id, None)
            return False
        self._duplicates.hold(delivery)
        return True

    def _undo(self, delivery: Delivery) -> None:
        self.pending.pop(delivery.id, None)
        self.dispatcher.settled(delivery, acknowledged=False)

    def _produce(self, delivery: Delivery) -> None:
        """Pass a message of the dispatcher to the client. Raises ClientQueueFull; a refusal fails the message."""
        delivery.state = IN_CLIENT
        try:
            self.transport.produce(delivery)
        except ClientRefused as refusal:
            delivery.state = QUEUED
            self._failed(delivery, refusal.error, None)
        except (
            Exception
        ):  # ClientQueueFull, or an interrupt that confluent_kafka reports as an error of the headers
            delivery.state = QUEUED
            raise
        except BaseException:  # an interrupt: the client has the message if produce() had returned
            if delivery.state is IN_CLIENT and not self.transport.settles_journal:
                delivery.state = QUEUED
            raise

    # messages accepted earlier

    def resend(self, delivery: Delivery) -> None:
        """Send a dead letter again under its own id; `on_replayed` receives the outcome. Raises QueueFull like `accept`."""
        if self.pending.setdefault(delivery.id, delivery) is not delivery:
            raise QueueFull(f"Message {id_text(delivery.id)} is already in flight.")
        try:
            self._offer_until(delivery, time.monotonic() + self._max_block)
        except BaseException:
            self.pending.pop(delivery.id, None)
            raise

    def recover(self, delivery: Delivery) -> None:
        """Accept a message of an earlier process with an unknown outcome: its topic is probed before it is sent."""
        self.pending[delivery.id] = delivery
        if not self._probe_recovered(delivery):
            self.pending.pop(delivery.id, None)  # closing: the message stays in the journal

    def hold_back(self, delivery: Delivery, reason: str) -> None:
        """Accept a message of an earlier process that must not be sent; it becomes a dead letter."""
        self.pending[delivery.id] = delivery
        self._failed(delivery, KafkaError(KafkaError._OUTDATED, reason), HeldBack(reason))

    def renew(self, deliveries: Sequence[Delivery], waits: Callable[[bytes], bool]) -> None:
        self._duplicates.renew(deliveries, waits)

    def transfer_claim(self, later: Delivery, earlier: Delivery) -> None:
        """Give the claim of `later` to `earlier`, if that is still pending."""
        if earlier.id in self.pending:
            self._duplicates.take_over(earlier, later.id.__eq__)

    # room

    def _wait_for_room(self, delivery: Delivery, deadline: float, reason: str) -> None:
        """Wait for a moment. Raise QueueFull after the deadline, CircuitOpen if the message's circuit is open."""
        check_withdrawn()
        if self.check_wait is not None:
            self.check_wait(delivery)
        if self._hooks.calling:
            raise QueueFull(f"{reason} A delivery callback cannot wait: it runs on the delivery thread.")
        left = deadline - time.monotonic()
        if left <= 0:
            raise QueueFull(reason)
        self._settled.wait(min(left, 0.1))

    def _why_full(self) -> str:
        timeout = "The queue is still full after max_block_ms"
        if self._saturated():
            return (
                f"{timeout}: no store, spill file or journal can accept a dead letter. Free up disk space or release the "
                "store, then send again."
            )
        cause = self._connection.error or "the broker is slower than the application"
        return f"{timeout}; pending messages: {len(self.pending):,} ({cause}). Raise max_block_ms, or send more slowly."

    def end(self) -> None:
        """Accept and send nothing new: the producer is closing."""
        self.ended = self.dispatcher.ended = True
