"""Accept messages: claim them, journal them, and hand them to the client in the order of their lanes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from producer_core.delivery.context import DeliveryContext
from producer_core.delivery.dedup.claims import Claim
from producer_core.delivery.delivery import AWAITING_DUPLICATE, IN_CLIENT, QUEUED, Delivery
from producer_core.delivery.dispatch import LaneDispatcher
from producer_core.delivery.transport import ClientQueueFull, ClientRefused
from producer_core.errors import JournalFull, ProducerClosed, ProducerError, QueueFull
from producer_core.events import Notice
from producer_core.messages import id_text

if TYPE_CHECKING:
    from producer_core.delivery.replayable_source import FeederTarget, PendingLog

_NEW, _HELD, _COPY = Claim.NEW, Claim.PENDING, Claim.DUPLICATE
_MOST_HELD = 10_000
"""Messages that wait in memory for an original, a retry or an earlier message of their key. Beyond it send_message waits."""
_TOGETHER = 0.001
"""Seconds within which messages share one acceptance time, which saves 32 bytes each. The time is never too late."""


class MessageEnqueuer:
    """Adds messages to `pending` and their lanes; `settlement.py` removes them. Called by the user's threads.

    It is the `FeederTarget` of the journal's feeder. `failed` handles a message that the client refuses at once.
    `probe_recovered` looks for a message of an earlier process; it returns False while closing.
    """

    def __init__(
        self,
        context: DeliveryContext,
        *,
        pending_log: Callable[[FeederTarget], PendingLog | None],
        failed: Callable[[Delivery, KafkaError, None], None],
        probe_recovered: Callable[[Delivery], bool],
        saturated: Callable[[], bool],
    ) -> None:
        self.pending = context.pending
        self.transport = context.transport
        self.lanes = context.lanes
        self.dispatcher = LaneDispatcher(context, self._produce)
        self.ended = False  # closing: nothing new is accepted
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
        self._now = 0.0  # the latest reading of the clock
        self.pending_log = pending_log(self)

    # one message

    def accept(self, delivery: Delivery) -> bool:
        """Accept a message; return False for a confirmed duplicate. Raises QueueFull after `max_block`."""
        now = self._clock()
        if 0 <= now - self._now < _TOGETHER:
            now = self._now
        else:
            self._now = now
        delivery.accepted_at = now
        if delivery.checksum is None or self._dedup is None:
            claim = _NEW
        else:  # DuplicateGuard.claim, inlined for speed
            claim = self._dedup.claim(delivery.checksum, delivery.topic, delivery.id)
        if claim is _NEW and self.pending_log is None and not self._saturated():
            try:
                if self.offer(delivery):
                    return True  # the usual case
            except BaseException:
                self._duplicates.release(delivery)
                raise
        deadline = time.monotonic() + self._max_block
        if claim is _HELD:
            claim = self._claim_or_wait(delivery, deadline)
        return self._accept_claimed(delivery, claim, deadline)

    def _claim_or_wait(self, delivery: Delivery, deadline: float) -> Claim:
        """Claim. While too many duplicates are held, wait for their originals as for room in the queue."""
        while (claim := self._duplicates.claim(delivery)) is _HELD and self._retries.pending >= _MOST_HELD:
            why = f"{_MOST_HELD:,} messages wait for a retry or for the message that they duplicate. Send slower."
            self._wait_for_room(deadline, why)
        return claim

    def _accept_claimed(self, delivery: Delivery, claim: Claim, deadline: float) -> bool:
        if claim is _COPY:
            self._duplicates.duplicate(delivery)
            return False
        delivery.place = AWAITING_DUPLICATE if claim is _HELD else QUEUED
        try:
            self._take(delivery, deadline)
        except BaseException:
            self._duplicates.release(delivery)
            raise
        return True

    def _take(self, delivery: Delivery, deadline: float) -> None:
        """Write the message to the journal, if there is one, and start it."""
        if self.pending_log is None:
            return self._hand_over(delivery, deadline)
        while self._saturated():
            self._wait_for_room(deadline, self._why_full())
        while True:
            try:
                self.pending_log.take(delivery)
            except JournalFull as error:
                self._journal_is_full(str(error))
                if error.withdrawn:  # a second record under its sequence would count as settled after a crash
                    raise QueueFull(str(error)) from error
                self._wait_for_room(deadline, str(error))
            else:
                self._journal_full = False
                return None

    def _journal_is_full(self, text: str) -> None:
        """Report a full journal once, not for every message that waits."""
        if not self._journal_full:
            self._journal_full = True
            self._hooks.notice(Notice("journal_full", "critical", text, self._clock()))

    def _hand_over(self, delivery: Delivery, deadline: float) -> None:
        while self._saturated() or not self.offer(delivery):
            self._wait_for_room(deadline, self._why_full())

    # many at once

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        """Accept several in order, with one round trip to Redis and one journal write; return a result or error for each.

        Only an interrupt is raised. A message that finds no room in the group waits on its own, and claims again.
        """
        if self._saturated() or self._retries.pending >= _MOST_HELD:
            return self._one_by_one(deliveries)
        now = self._clock()
        for delivery in deliveries:
            delivery.accepted_at = now
        claims = self._duplicates.claim_many(deliveries)
        wanted = []
        for delivery, claim in zip(deliveries, claims, strict=True):
            if claim is _COPY:
                self._duplicates.duplicate(delivery)
            else:
                delivery.place = AWAITING_DUPLICATE if claim is _HELD else QUEUED
                wanted.append(delivery)
        ends = iter(self._take_together(wanted))
        return [False if claim is _COPY else next(ends) for claim in claims]

    def _take_together(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        """Start those that fit in one step, then the others one by one. Release the claims of those that fail."""
        taken: list[Delivery] = []
        try:
            self._take_what_fits(deliveries, taken)
        except ProducerError as error:
            self._duplicates.release_all(left := deliveries[len(taken) :])
            return [*[True] * len(taken), *[error] * len(left)]
        except BaseException:
            self._duplicates.release_all(deliveries[len(taken) :])
            raise
        return [*[True] * len(taken), *self._one_by_one(deliveries[len(taken) :])]

    def _take_what_fits(self, deliveries: Sequence[Delivery], taken: list[Delivery]) -> None:
        if self.pending_log is None:
            for delivery in deliveries:
                if not self.offer(delivery):
                    return
                taken.append(delivery)
        elif deliveries:
            try:
                self.pending_log.take_many(deliveries, taken)
            except JournalFull as error:
                if error.withdrawn:  # see _take
                    self._journal_is_full(str(error))
                    raise QueueFull(str(error)) from error
            else:
                self._journal_full = False

    def _one_by_one(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        ends: list[bool | ProducerError] = []
        try:
            for delivery in deliveries:
                delivery.place = QUEUED  # until its claim is known
                try:
                    ends.append(self.accept(delivery))
                except ProducerError as error:
                    ends.append(error)
        except BaseException:
            self._duplicates.release_all(
                deliveries[len(ends) + 1 :]
            )  # accept() released the claim of the one before
            raise
        return ends

    # handing to the client

    def offer(self, delivery: Delivery) -> bool:
        """Hand a message to the client, or queue it in its lane; return False when there is no room."""
        try:
            self.pending[delivery.id] = delivery
            if self.ended:
                if self.pending.pop(delivery.id, None) is None:
                    return True  # close() found and settled it
                raise ProducerClosed  # nothing would settle it
            if delivery.place is AWAITING_DUPLICATE:
                return self._held(delivery)
            if self.lanes.queues or self.lanes.strict:
                if self.lanes.held >= _MOST_HELD:
                    self.pending.pop(delivery.id, None)
                    return False
                if not self.lanes.admit(delivery):  # it is queued: another thread may send it from now on
                    return True
            delivery.place = IN_CLIENT  # _produce, inlined for speed
            self.transport.produce(delivery)
        except ClientRefused as refusal:
            delivery.place = QUEUED
            self._failed(delivery, refusal.error, None)
        except ClientQueueFull:
            delivery.place = QUEUED
            self._undo(delivery)
            return False
        except BaseException:  # the client may have it; its report then finds nothing pending
            self._undo(delivery)
            raise
        return True

    def _held(self, delivery: Delivery) -> bool:
        if self._retries.pending >= _MOST_HELD:
            self.pending.pop(delivery.id, None)
            return False
        self._duplicates.hold(delivery)
        return True

    def _undo(self, delivery: Delivery) -> None:
        self.pending.pop(delivery.id, None)
        self.dispatcher.settled(delivery, acknowledged=False)

    def _produce(self, delivery: Delivery) -> None:
        """Hand a message to the client for the dispatcher. Raises ClientQueueFull; a refusal is handled here."""
        delivery.place = IN_CLIENT
        try:
            self.transport.produce(delivery)
        except ClientRefused as refusal:
            delivery.place = QUEUED
            self._failed(delivery, refusal.error, None)
        except Exception:  # ClientQueueFull, or the binding reported an interrupt as an error of the headers
            delivery.place = QUEUED
            raise
        except BaseException:  # an interrupt: the client has it unless produce() had not returned
            if delivery.place is IN_CLIENT and not self.transport.settles_journal:
                delivery.place = QUEUED
            raise

    # messages accepted earlier

    def resend(self, delivery: Delivery) -> None:
        """Send a dead letter again under its own id; its `on_replayed` gets the outcome. Raises QueueFull like `accept`."""
        if self.pending.setdefault(delivery.id, delivery) is not delivery:
            raise QueueFull(f"Message {id_text(delivery.id)} is in flight already.")
        try:
            self._hand_over(delivery, time.monotonic() + self._max_block)
        except BaseException:
            self.pending.pop(delivery.id, None)
            raise

    def recover(self, delivery: Delivery) -> None:
        """Take a message of an earlier process with an unknown outcome: its topic is probed before it is sent."""
        self.pending[delivery.id] = delivery
        if not self._probe_recovered(delivery):
            self.pending.pop(delivery.id, None)  # closing: it stays in the journal

    def renew(self, deliveries: Sequence[Delivery], waits: Callable[[bytes], bool]) -> None:
        self._duplicates.renew(deliveries, waits)

    def hand_over(self, later: Delivery, earlier: Delivery) -> None:
        if earlier.id in self.pending:
            self._duplicates.take_over(earlier, later.id.__eq__)

    # room

    def _wait_for_room(self, deadline: float, why: str) -> None:
        if self._hooks.calling:
            raise QueueFull(f"{why} A delivery callback cannot wait: it runs on the thread that makes room.")
        left = deadline - time.monotonic()
        if left <= 0:
            raise QueueFull(why)
        self._settled.wait(min(left, 0.1))

    def _why_full(self) -> str:
        bound = f"No room for the message within {self._max_block:g} s"
        if self._saturated():
            return f"{bound}: no store, spill file or journal can take a dead letter. Free the disk or the store, then send again."
        reason = self._connection.error or "the broker is slower than the application"
        return f"{bound}: {len(self.pending):,} messages are pending ({reason}). Raise max_block_ms or send slower."

    def end(self) -> None:
        """Accept and send nothing new: the producer is closing."""
        self.ended = self.dispatcher.ended = True
