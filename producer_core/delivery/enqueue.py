"""The acceptance: the producer takes responsibility for a message, and the client gets it when its turn has come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from producer_core._internal.wakeup import Wakeup
from producer_core.config import ClientConfig
from producer_core.delivery.connection_state import ConnectionState
from producer_core.delivery.dedup.deduplicator import Claim, MessageDeduplicator
from producer_core.delivery.dedup.duplicates import DuplicateGuard
from producer_core.delivery.delivery import AWAITING_DUPLICATE, IN_CLIENT, QUEUED, Delivery
from producer_core.delivery.dispatch import LaneDispatcher
from producer_core.delivery.hooks import HookDispatcher
from producer_core.delivery.ordering import Lanes, Ordering
from producer_core.delivery.retry import RetryManager
from producer_core.delivery.transport import ClientQueueFull, ClientRefused, Transport
from producer_core.errors import JournalFull, ProducerClosed, ProducerError, QueueFull
from producer_core.events import Notice
from producer_core.messages import id_text

if TYPE_CHECKING:
    from producer_core.delivery.replayable_source import FeederTarget, PendingLog

_NEW, _HELD, _COPY = Claim.NEW, Claim.PENDING, Claim.DUPLICATE
_MOST_HELD = 10_000
"""Messages that wait in memory for a twin, a retry or an earlier one of their key, before send_message waits too."""
_TOGETHER = 0.001
"""Seconds within which messages share a time, which is 32 bytes of memory: never later than the truth."""


class MessageEnqueuer:
    """Puts messages into `pending`, in their lanes; `settlement.py` takes them out. Called by the user's threads.

    For the journal's backlog it is the `stand_in.Sender`. `failed` hears of what the client refused on the spot,
    `look_for` of a message of an earlier process, and says whether it can still be looked for.
    """

    def __init__(
        self,
        config: ClientConfig,
        transport: Transport,
        *,
        ordering: Ordering,
        backlog: Callable[[FeederTarget], PendingLog | None],
        dedup: MessageDeduplicator | None,
        copies: DuplicateGuard,
        retries: RetryManager,
        audience: HookDispatcher,
        connection: ConnectionState,
        failed: Callable[[Delivery, KafkaError, None], None],
        look_for: Callable[[Delivery], bool],
        saturated: Callable[[], bool],
        settled: Wakeup,
        clock: Callable[[], float],
    ) -> None:
        self.pending: dict[bytes, Delivery] = {}
        self.transport = transport
        self.lanes = Lanes(ordering)
        self.turns = LaneDispatcher(
            self.lanes, produce=self._produce, copies=copies, retries=retries, audience=audience, clock=clock
        )
        self.ended = False  # closing: nothing new is taken
        self._max_block = config.max_block
        self._dedup = dedup
        if dedup is not None:
            dedup.pending = self.pending.__contains__
        self._copies = copies
        self._retries = retries
        self._audience = audience
        self._connection = connection
        self._failed = failed
        self._look_for = look_for
        self._saturated = saturated
        self._settled = settled
        self._clock = clock
        self._journal_full = False
        self._now = 0.0  # the last time that was read anew
        self.backlog = backlog(self)

    # one message

    def accept(self, delivery: Delivery) -> bool:
        """Take responsibility for a message; False when it is a confirmed duplicate. QueueFull after max_block."""
        now = self._clock()
        if 0 <= now - self._now < _TOGETHER:
            now = self._now
        else:
            self._now = now
        delivery.accepted_at = now
        if delivery.checksum is None or self._dedup is None:
            claim = _NEW
        else:  # as copies.claim, without its call
            claim = self._dedup.claim(delivery.checksum, delivery.topic, delivery.id)
        if claim is _NEW and self.backlog is None and not self._saturated():
            try:
                if self.offer(delivery):
                    return True  # as nearly all do
            except BaseException:
                self._copies.release(delivery)
                raise
        deadline = time.monotonic() + self._max_block
        if claim is _HELD:
            claim = self._claim_or_wait(delivery, deadline)
        return self._accept_claimed(delivery, claim, deadline)

    def _claim_or_wait(self, delivery: Delivery, deadline: float) -> Claim:
        """Claim; where too many copies are held already, wait for their twins as for room in the queue."""
        while (claim := self._copies.claim(delivery)) is _HELD and self._retries.pending >= _MOST_HELD:
            why = f"{_MOST_HELD:,} messages wait for a retry or for their twin. Send slower."
            self._wait_for_room(deadline, why)
        return claim

    def _accept_claimed(self, delivery: Delivery, claim: Claim, deadline: float) -> bool:
        if claim is _COPY:
            self._copies.duplicate(delivery)
            return False
        delivery.place = AWAITING_DUPLICATE if claim is _HELD else QUEUED
        try:
            self._take(delivery, deadline)
        except BaseException:
            self._copies.release(delivery)
            raise
        return True

    def _take(self, delivery: Delivery, deadline: float) -> None:
        """Into the journal when there is one, and on its way."""
        if self.backlog is None:
            return self._hand_over(delivery, deadline)
        while self._saturated():
            self._wait_for_room(deadline, self._why_full())
        while True:
            try:
                self.backlog.take(delivery)
            except JournalFull as error:
                self._journal_is_full(str(error))
                if error.withdrawn:  # written again under its number it would count as settled after a crash
                    raise QueueFull(str(error)) from error
                self._wait_for_room(deadline, str(error))
            else:
                self._journal_full = False
                return None

    def _journal_is_full(self, text: str) -> None:
        """Told when it begins, not for every message that waits."""
        if not self._journal_full:
            self._journal_full = True
            self._audience.tell("notice", Notice("journal_full", "critical", text, self._clock()))

    def _hand_over(self, delivery: Delivery, deadline: float) -> None:
        while self._saturated() or not self.offer(delivery):
            self._wait_for_room(deadline, self._why_full())

    # many together

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        """As accept for each, in order: one round trip to Redis and one write of the journal for all; what it raised.

        Only an interrupt is raised. Whoever finds no room with the others waits for it alone, and claims again then.
        """
        if self._saturated() or self._retries.pending >= _MOST_HELD:
            return self._one_by_one(deliveries)
        now = self._clock()
        for delivery in deliveries:
            delivery.accepted_at = now
        claims = self._copies.claim_many(deliveries)
        wanted = []
        for delivery, claim in zip(deliveries, claims, strict=True):
            if claim is _COPY:
                self._copies.duplicate(delivery)
            else:
                delivery.place = AWAITING_DUPLICATE if claim is _HELD else QUEUED
                wanted.append(delivery)
        ends = iter(self._take_together(wanted))
        return [False if claim is _COPY else next(ends) for claim in claims]

    def _take_together(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        """Those that find room, in one step; then the others, each for itself. Their claims go if they are not taken."""
        taken: list[Delivery] = []
        try:
            self._take_what_fits(deliveries, taken)
        except ProducerError as error:
            self._copies.release_all(left := deliveries[len(taken) :])
            return [*[True] * len(taken), *[error] * len(left)]
        except BaseException:
            self._copies.release_all(deliveries[len(taken) :])
            raise
        return [*[True] * len(taken), *self._one_by_one(deliveries[len(taken) :])]

    def _take_what_fits(self, deliveries: Sequence[Delivery], taken: list[Delivery]) -> None:
        if self.backlog is None:
            for delivery in deliveries:
                if not self.offer(delivery):
                    return
                taken.append(delivery)
        elif deliveries:
            try:
                self.backlog.take_many(deliveries, taken)
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
                delivery.place = QUEUED  # until its own claim says otherwise
                try:
                    ends.append(self.accept(delivery))
                except ProducerError as error:
                    ends.append(error)
        except BaseException:
            self._copies.release_all(deliveries[len(ends) + 1 :])  # accept itself let go of the one before
            raise
        return ends

    # to the client

    def offer(self, delivery: Delivery) -> bool:
        """Start a message on its way, or let it wait for its turn; False when there is no room for it now."""
        try:
            self.pending[delivery.id] = delivery
            if self.ended:
                if self.pending.pop(delivery.id, None) is None:
                    return True  # close() found it here, and settled it
                raise ProducerClosed  # nobody would settle it any more
            if delivery.place is AWAITING_DUPLICATE:
                return self._held(delivery)
            if self.lanes.queues or self.lanes.strict:
                if self.lanes.held >= _MOST_HELD:
                    self.pending.pop(delivery.id, None)
                    return False
                if not self.lanes.admit(delivery):  # it waits, and may be sent by another thread from now on
                    return True
            delivery.place = IN_CLIENT  # as in _produce, without its call
            self.transport.produce(delivery)
        except ClientRefused as refusal:
            delivery.place = QUEUED
            self._failed(delivery, refusal.error, None)
        except ClientQueueFull:
            delivery.place = QUEUED
            self._not_after_all(delivery)
            return False
        except BaseException:  # the client may have it: its report finds nothing pending
            self._not_after_all(delivery)
            raise
        return True

    def _held(self, delivery: Delivery) -> bool:
        if self._retries.pending >= _MOST_HELD:
            self.pending.pop(delivery.id, None)
            return False
        self._copies.hold(delivery)
        return True

    def _not_after_all(self, delivery: Delivery) -> None:
        self.pending.pop(delivery.id, None)
        self.turns.settled(delivery, acknowledged=False)

    def _produce(self, delivery: Delivery) -> None:
        """Hand to the client, for the turns. Full is raised; a refusal settles the message here and now."""
        delivery.place = IN_CLIENT
        try:
            self.transport.produce(delivery)
        except ClientRefused as refusal:
            delivery.place = QUEUED
            self._failed(delivery, refusal.error, None)
        except Exception:  # Full, or the binding took an interrupt for a fault of the headers
            delivery.place = QUEUED
            raise
        except BaseException:  # an interrupt: the client may have it, unless it was on its way there
            if delivery.place is IN_CLIENT and not self.transport.proves:
                delivery.place = QUEUED
            raise

    # what was accepted before

    def resend(self, delivery: Delivery) -> None:
        """Send a dead letter again under its own id; its `replay` callable hears how it ended. QueueFull as accept."""
        if self.pending.setdefault(delivery.id, delivery) is not delivery:
            raise QueueFull(f"Message {id_text(delivery.id)} is on its way already.")
        try:
            self._hand_over(delivery, time.monotonic() + self._max_block)
        except BaseException:
            self.pending.pop(delivery.id, None)
            raise

    def recover(self, delivery: Delivery) -> None:
        """A message of an earlier process whose end nobody knows: looked for before it is sent."""
        self.pending[delivery.id] = delivery
        if not self._look_for(delivery):
            self.pending.pop(delivery.id, None)  # closing: the journal still has it

    def renew(self, deliveries: Sequence[Delivery], waits: Callable[[bytes], bool]) -> None:
        self._copies.renew(deliveries, waits)

    def hand_over(self, later: Delivery, earlier: Delivery) -> None:
        if earlier.id in self.pending:
            self._copies.take_over(earlier, later.id.__eq__)

    # room

    def _wait_for_room(self, deadline: float, why: str) -> None:
        if self._audience.calling:
            raise QueueFull(f"{why} A delivery callback cannot wait: the reports that make room wait for it.")
        left = deadline - time.monotonic()
        if left <= 0:
            raise QueueFull(why)
        self._settled.wait(min(left, 0.1))

    def _why_full(self) -> str:
        bound = f"No room for the message within {self._max_block:g} s"
        if self._saturated():
            return f"{bound}: dead letters can be kept nowhere. Free the disk or the store, then send again."
        reason = self._connection.error or "the broker is slower than you send"
        return f"{bound}: {len(self.pending):,} messages wait ({reason}). Raise max_block_ms or send slower."

    def end(self) -> None:
        """Closing: from now on nothing new leaves us."""
        self.ended = self.turns.ended = True
