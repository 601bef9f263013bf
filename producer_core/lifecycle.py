"""The lifecycle of a message: accepted, in flight, waiting, settled. Nothing else changes a message's state.

A message is in `pending` from acceptance until it is settled; taking it out of that table is the one atomic
step that settles it, so whatever arrives twice (a late report, a look that found it, a close) settles it once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from producer_core.acknowledgements import Acknowledgements
from producer_core.burial import Origin, dead_letter
from producer_core.config import ClientConfig, RetryConfig
from producer_core.connection import Connection
from producer_core.dedup import Claim, MessageDeduplicator
from producer_core.errors import JournalFull, ProducerClosed, ProducerError, QueueFull
from producer_core.events import Acknowledged, Attempt, Hook, Notice, Remark, Verdict
from producer_core.failures import Failure, failure_of, judge, refused_here
from producer_core.in_doubt import QUIET, Doubt, InDoubt, Landed, Marks, OnAmbiguous, resolve
from producer_core.landing import Landing
from producer_core.messages import MessageStatus, id_text
from producer_core.ordering import Lanes, Ordering
from producer_core.reports import Resent
from producer_core.retry import RetryAfter, RetryManager, decide
from producer_core.telling import Audience
from producer_core.transport import Delivery, Full, Refused, Report, TransportFactory
from producer_core.turns import Turns
from producer_core.unreported import NOT_SENT, SILENT

if TYPE_CHECKING:
    from producer_core.stand_in import Keeper

logger = logging.getLogger(__name__)

_new = tuple.__new__
_NEW = Claim.NEW
_topic_of, _seq_of, _id_of = attrgetter("topic"), attrgetter("seq"), attrgetter("id")
_PENDING, _SENT, _DUPLICATE = MessageStatus.PENDING, MessageStatus.SENT, MessageStatus.DUPLICATE
_MOST_HELD = 10_000
"""Messages that wait in memory for a twin, a retry or an earlier one of their key, before send_message waits too."""
_HOLD = 0.1
"""Seconds until a copy of a pending claim asks again."""
_EVIDENCE = 10.0
"""Seconds that a message in doubt waits for the evidence of a suspected loss."""


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
        ordering: Ordering = "key",
        on_ambiguous: OnAmbiguous = "retry",
        backlog: Callable[[Lifecycle], Keeper | None] = lambda lifecycle: None,
        next_sequence: Callable[[], int] = lambda: 0,
        saturated: Callable[[], bool] = lambda: False,
        lost_on: Callable[[str, float], bool] = lambda topic, timeout: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._lost_on = lost_on
        self._retry_config = retry_config
        self._origin = origin
        self._audience = Audience(hooks)
        self._dedup = dedup
        self._on_ambiguous = on_ambiguous
        self._saturated = saturated
        self._clock = clock
        self._settled = threading.Event()  # set after each batch of reports: room in the queue, or idle
        self._telling = 0  # the thread that settles reports and has not told everybody yet; 0: nobody does
        self._closing = False
        self._journal_full = False
        # touched on the poll thread, and by close() after it
        self._unjudged: list[tuple[Delivery, Failure]] = []
        self._broken = ""  # the code of the client's last fatal error, until something is acknowledged
        self.pending: dict[bytes, Delivery] = {}
        self.highest = -1  # the highest sequence that was acknowledged; written on the poll thread
        self.lanes = Lanes(ordering)
        self.retry_manager = RetryManager(retry_config, send=self._due)
        self._turns = Turns(
            self.lanes,
            produce=self._produce,
            retries=self.retry_manager,
            audience=self._audience,
            clock=clock,
        )
        self.connection = Connection(self.notice, clock=clock)
        self.transport = transport(config, self)
        self._marks = Marks(next_sequence)
        self.in_doubt = InDoubt(self.transport.look, self._looked, marks=self._marks)
        self.backlog = backlog(self)

    def start(self) -> None:
        self.retry_manager.start()
        self.transport.start()
        if self.backlog is not None:
            self.backlog.start()

    # accepting

    def accept(self, delivery: Delivery) -> bool:
        """Take responsibility for a message; False when it is a confirmed duplicate. QueueFull after max_block."""
        delivery.accepted_at = self._clock()
        claim = _NEW if delivery.checksum is None else self._claim(delivery)
        if claim is _NEW and self.backlog is None and not self._saturated():
            try:
                if self.offer(delivery):
                    return True  # as nearly all do
            except BaseException:
                self._release(delivery)
                raise
        deadline = time.monotonic() + self._config.max_block
        if claim is Claim.PENDING:
            claim = self._claim_or_wait(delivery, deadline)
        return self._accept_claimed(delivery, claim, deadline)

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        """As accept for each, in order: one round trip to Redis and one write of the journal for all; what it raised.

        Only an interrupt is raised. Whoever finds no room with the others waits for it alone, and claims again then.
        """
        if self._saturated() or self.retry_manager.pending >= _MOST_HELD:
            return self._one_by_one(deliveries)
        now = self._clock()
        for delivery in deliveries:
            delivery.accepted_at = now
        claims = self._claim_many(deliveries)
        wanted = []
        for delivery, claim in zip(deliveries, claims, strict=True):
            if claim is Claim.DUPLICATE:
                self._duplicate(delivery)
            else:
                delivery.status = _DUPLICATE if claim is Claim.PENDING else _PENDING
                wanted.append(delivery)
        ends = iter(self._take_together(wanted))
        return [False if claim is Claim.DUPLICATE else next(ends) for claim in claims]

    def _claim_many(self, deliveries: Sequence[Delivery]) -> list[Claim]:
        if self._dedup is None:
            return [Claim.NEW] * len(deliveries)
        return self._dedup.claim_many(
            [(d.checksum or "", d.dedup_topic or d.topic, d.id) for d in deliveries]
        )

    def _take_together(self, deliveries: Sequence[Delivery]) -> list[bool | ProducerError]:
        """Those that find room, in one step; then the others, each for itself. Their claims go if they are not taken."""
        taken: list[Delivery] = []
        try:
            self._take_what_fits(deliveries, taken)
        except ProducerError as error:
            self._release_all(left := deliveries[len(taken) :])
            return [*[True] * len(taken), *[error] * len(left)]
        except BaseException:
            self._release_all(deliveries[len(taken) :])
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
                delivery.status = _PENDING  # until its own claim says otherwise
                try:
                    ends.append(self.accept(delivery))
                except ProducerError as error:
                    ends.append(error)
        except BaseException:
            self._release_all(deliveries[len(ends) + 1 :])  # accept itself let go of the one before
            raise
        return ends

    def _accept_claimed(self, delivery: Delivery, claim: Claim, deadline: float) -> bool:
        if claim is Claim.DUPLICATE:
            self._duplicate(delivery)
            return False
        delivery.status = _DUPLICATE if claim is Claim.PENDING else _PENDING
        try:
            self._take(delivery, deadline)
        except BaseException:
            self._release(delivery)
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
            self.notice(Notice("journal_full", "critical", text, self._clock()))

    def _hand_over(self, delivery: Delivery, deadline: float) -> None:
        while self._saturated() or not self.offer(delivery):
            self._wait_for_room(deadline, self._why_full())

    def offer(self, delivery: Delivery) -> bool:
        """Start a message on its way, or let it wait for its turn; False when there is no room for it now."""
        self.pending[delivery.id] = delivery
        if self._closing:
            if self.pending.pop(delivery.id, None) is None:
                return True  # close() found it here, and settled it
            raise ProducerClosed  # nobody would settle it any more
        if delivery.status is _DUPLICATE:
            self._hold(delivery)
            return True
        if self.lanes.queues or self.lanes.strict:
            if self.lanes.held >= _MOST_HELD:
                self.pending.pop(delivery.id, None)
                return False
            if not self.lanes.admit(delivery):  # it waits, and may be sent by another thread from now on
                return True
        try:
            delivery.flying = True  # from here as in _produce, without its call
            self.transport.produce(delivery)
        except Refused as refusal:
            delivery.flying = False
            self._failed_attempt(delivery, refusal.error, None)
        except Full:
            delivery.flying = False
            self._not_after_all(delivery)
            return False
        except BaseException:
            delivery.flying = False
            self._not_after_all(delivery)
            raise
        return True

    def _not_after_all(self, delivery: Delivery) -> None:
        self.pending.pop(delivery.id, None)
        self._turns.settled(delivery, acknowledged=False)

    def _produce(self, delivery: Delivery) -> None:
        """Hand to the client. Full is raised; a refusal settles the message here and now."""
        if delivery.status is not _PENDING:
            delivery.status = _PENDING
        delivery.flying = True
        try:
            self.transport.produce(delivery)
        except Refused as refusal:
            delivery.flying = False
            self._failed_attempt(delivery, refusal.error, None)
        except BaseException:
            delivery.flying = False
            raise

    def _wait_for_room(self, deadline: float, why: str) -> None:
        if self._audience.calling:
            raise QueueFull(f"{why} A delivery callback cannot wait: the reports that make room wait for it.")
        left = deadline - time.monotonic()
        if left <= 0:
            raise QueueFull(why)
        self._settled.clear()
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
        self._telling = threading.get_ident()
        try:
            plain = self.backlog is None and _plain(batch)
            acknowledged = self._all_acked(batch) if plain else self._each(batch)
            if acknowledged:
                self.connection.acknowledged()
                self._broken = ""
                self._marks.note(acknowledged)
                self._audience.tell("acknowledged", acknowledged)
            if self.backlog is not None:
                self.backlog.flush()
        finally:
            self._telling = 0
        self._settled.set()

    def _each(self, batch: Sequence[Report]) -> list[Acknowledged]:
        acknowledged: list[Acknowledged] = []
        for delivery, error, message in batch:
            if error is not None:
                delivery.flying = False
                self._failed_attempt(delivery, error, message)
            elif item := self._acked(delivery, message):
                acknowledged.append(item)
        return acknowledged

    def _all_acked(self, batch: Sequence[Report]) -> Acknowledgements:
        """As `_acked` for each of a plain batch, one step for all at a time: what nearly every message costs."""
        settle = self.pending.pop
        settled = [report for report in batch if settle(report[0].id, None) is not None]
        deliveries = [delivery for delivery, _, _ in settled]
        messages = [message for _, _, message in settled]
        if self._dedup is not None:
            for delivery in deliveries:
                if delivery.checksum is not None:
                    self._dedup.confirm(delivery.checksum, delivery.dedup_topic or delivery.topic)
        for delivery in deliveries:
            if delivery.ended is not None:
                delivery.ended("sent")
        if self.lanes.queues:
            for delivery in deliveries:
                self._turns.settled(delivery, acknowledged=True)
        seqs = list(map(_seq_of, deliveries))
        self.highest = max(self.highest, max(seqs, default=-1))
        return Acknowledgements(
            list(map(_topic_of, deliveries)),
            [message.partition() for message in messages],
            [message.offset() for message in messages],
            [message.latency() or 0.0 for message in messages],
            [0 if (value := delivery.value) is None else len(value) for delivery in deliveries],
            [1] * len(deliveries),
            seqs,
            list(map(_id_of, deliveries)),
        )

    def _failed_attempt(self, delivery: Delivery, error: KafkaError, message: Any) -> None:
        failure = failure_of(error)
        verdict = _judge(failure, message, self._config.retry_backoff)
        delivery.attempts = (*delivery.attempts, (Attempt(self._clock(), failure.code, error.str()), verdict))
        self._failed(delivery, failure, verdict)

    def _failed(self, delivery: Delivery, failure: Failure, verdict: Verdict) -> None:
        """An attempt came back: send again, look first, or give up."""
        decision = decide(failure, len(delivery.attempts), self._retry_config)
        retry_in = decision.seconds if isinstance(decision, RetryAfter) else None
        if self._closing and retry_in is not None:
            self._audience.attempt_failed(delivery, failure, None)
            return self._keep(delivery, failure)
        self._audience.attempt_failed(delivery, failure, retry_in)
        if retry_in is not None:
            delivery.status = MessageStatus.RETRYING
            self.lanes.failed(delivery)
        if verdict == "possibly_persisted" and self._look_first(delivery, failure, retry_in):
            return None
        if retry_in is not None:
            return self.retry_manager.schedule(delivery, retry_in)
        return self._give_up(delivery, failure)

    def _keep(self, delivery: Delivery, failure: Failure) -> None:
        """Failed while closing: it stays in the journal, or becomes a dead letter without one."""
        if self.backlog is not None and delivery.replay is None:
            self.pending.pop(delivery.id, None)
        else:
            self._bury(delivery, failure)

    def _acked(self, delivery: Delivery, message: Any) -> Acknowledged | None:
        if self.backlog is None:  # as in _leave, without its call
            if self.pending.pop(delivery.id, None) is None:
                return None
        elif not self.backlog.leave(delivery):
            return None
        delivery.status = _SENT
        if delivery.seq > self.highest:
            self.highest = delivery.seq
        if delivery.checksum is not None and self._dedup is not None:
            self._dedup.confirm(delivery.checksum, delivery.dedup_topic or delivery.topic)
        tries = 1
        if delivery.attempts:
            tries += len(delivery.attempts)
            self.retry_manager.settled(delivery, True)
        partition, offset, latency = message.partition(), message.offset(), message.latency()
        if delivery.replay is not None:
            delivery.replay(Resent(id_text(delivery.id), "acknowledged", partition, offset))
        if self.backlog is not None:
            self.backlog.acknowledged(delivery)
        if delivery.callback is not None or delivery.on_delivery is not None:
            self._audience.call_back(delivery, message, None)
        elif delivery.ended is not None:
            delivery.ended("sent")
        if self.lanes.queues:
            self._turns.settled(delivery, acknowledged=True)
        value = delivery.value
        size = 0 if value is None else len(value)
        row = (delivery.topic, partition, offset, latency or 0.0, size, tries, delivery.seq, delivery.id)
        return _new(Acknowledged, row)  # as Acknowledged(…) makes it, without a Python call for each message

    def _leave(self, delivery: Delivery) -> bool:
        """The one step that settles a message; False when it was settled before."""
        if self.backlog is not None:
            return self.backlog.leave(delivery)
        return self.pending.pop(delivery.id, None) is not None

    def _give_up(self, delivery: Delivery, failure: Failure) -> None:
        """Bury, once the evidence is in: a client that never sent a request proves it with its next statistics."""
        if failure.kind == "timed_out" and not self.connection.may_have_produced and not self._closing:
            self._unjudged.append((delivery, failure))
        else:
            self._bury(delivery, failure)

    def _bury(
        self, delivery: Delivery, failure: Failure, *, proof: tuple[Verdict, str] | None = None
    ) -> None:
        if not self._leave(delivery):
            return
        delivery.status = MessageStatus.DLQ
        if len(delivery.attempts) > 1:
            self.retry_manager.settled(delivery, False)
        letter = dead_letter(delivery, failure, origin=self._origin, proof=proof)
        if letter.verdict in ("not_sent", "rejected", "absent"):
            self._release(delivery)
        if delivery.replay is None:
            self._audience.tell("died", letter)
        else:
            delivery.replay(Resent(letter.message_id, "failed", letter=letter, text=letter.error_text))
        self._audience.call_back(delivery, None, letter)
        self._turns.settled(delivery, acknowledged=False)
        self._settled.set()

    def kept(self, message_ids: Iterable[str]) -> None:
        """Dead letters are on disk: the journal need not remember them any more."""
        if self.backlog is not None:
            self.backlog.kept(message_ids)

    # retries, looks, holds and replays

    def resend(self, delivery: Delivery) -> None:
        """Send a dead letter again under its own id; its `replay` callable hears how it ended. QueueFull as accept."""
        if self.pending.setdefault(delivery.id, delivery) is not delivery:
            raise QueueFull(f"Message {id_text(delivery.id)} is on its way already.")
        try:
            self._hand_over(delivery, time.monotonic() + self._config.max_block)
        except BaseException:
            self.pending.pop(delivery.id, None)
            raise

    def _due(self, delivery: Delivery) -> None:
        """A waiting message's time has come, on the retry thread."""
        if delivery.id not in self.pending or delivery.flying or delivery.in_doubt:
            return None
        claim = Claim.NEW if delivery.replay else self._claim(delivery)  # a retry renews its claim
        if claim is Claim.PENDING:
            return self._hold(delivery)
        if claim is Claim.DUPLICATE:
            return self._duplicate_after_all(delivery)
        return self._turns.due(delivery)

    def _look_first(self, delivery: Delivery, failure: Failure, retry_in: float | None) -> bool:
        """Ask the topic before anything else happens to a message that the broker may have."""
        if failure.kind == "timed_out" and not self.connection.may_have_produced:
            return False
        return self._ask(delivery, failure, retry_in)

    def _ask(self, delivery: Delivery, failure: Failure, retry_in: float | None) -> bool:
        if self._closing:
            return False
        delivery.in_doubt = True
        delivery.status = MessageStatus.RETRYING
        return self.in_doubt.ask(Doubt(delivery, failure, retry_in, time.monotonic()))

    def recover(self, delivery: Delivery) -> None:
        """A message of an earlier process whose end nobody knows: looked for before it is sent."""
        failure = failure_of("_PURGE_INFLIGHT")
        text = "the process that sent it ended before its report came"
        attempt = Attempt(self._clock(), failure.code, text)
        delivery.attempts = ((attempt, "possibly_persisted"),)
        self.pending[delivery.id] = delivery
        self.lanes.failed(delivery)
        if not self._ask(delivery, failure, 0.0):
            self.pending.pop(delivery.id, None)  # closing: the journal still has it

    def _looked(self, doubt: Doubt, landing: Landing) -> None:
        """What a look says of a message in doubt, on the look's thread."""
        delivery = doubt.delivery
        if delivery.id not in self.pending:
            return None
        quiet_in = doubt.since + QUIET - time.monotonic()
        policy: OnAmbiguous = "dead_letter" if doubt.retry_in is None else self._on_ambiguous
        what = resolve(landing, policy, quiet=quiet_in <= 0)
        if what == "wait" and self._on_ambiguous == "retry":
            what = "bury"  # no retry is left, and nobody asked to wait for certainty
        if what == "wait" and self.in_doubt.ask(doubt, after=quiet_in):
            return None
        if what == "resend" and self._lost_on(delivery.topic, _EVIDENCE):
            what = "bury"  # acknowledged messages are missing there: an operator decides what is sent again
        delivery.in_doubt = False
        if what == "landed":
            return self._found(delivery, landing)
        if what == "resend" and doubt.retry_in is not None:
            if not (landing.outcome == "absent" and quiet_in <= 0):
                self.remark(delivery.topic, "possible_duplicates")
            return self.retry_manager.schedule(delivery, doubt.retry_in)
        return self._bury(delivery, doubt.failure, proof=_proof(delivery, landing, quiet=quiet_in <= 0))

    def _found(self, delivery: Delivery, landing: Landing) -> None:
        item = self._acked(delivery, Landed(landing))
        if item is not None:
            self._audience.tell("acknowledged", [item])
            self.remark(delivery.topic, "landed")
        if self.backlog is not None:
            self.backlog.flush()
        self._settled.set()

    def _hold(self, delivery: Delivery) -> None:
        delivery.status = MessageStatus.DUPLICATE
        self.retry_manager.schedule(delivery, _HOLD, counted=False)

    def _duplicate(self, delivery: Delivery) -> None:
        delivery.status = MessageStatus.DUPLICATE
        self._audience.tell("duplicate", delivery.topic)
        self._settled.set()

    def _duplicate_after_all(self, delivery: Delivery) -> None:
        """A held copy whose twin was acknowledged: its owner is told so."""
        if self.pending.pop(delivery.id, None) is not None:
            if self.backlog is not None:
                self.backlog.needless(delivery)
                self.backlog.flush()
            self._duplicate(delivery)
            self._audience.call_back(delivery, None, None)
            self._turns.settled(delivery, acknowledged=False)

    def _claim(self, delivery: Delivery) -> Claim:
        if delivery.checksum is None or self._dedup is None:
            return Claim.NEW
        return self._dedup.claim(delivery.checksum, delivery.dedup_topic or delivery.topic, delivery.id)

    def _claim_or_wait(self, delivery: Delivery, deadline: float) -> Claim:
        """Claim; where too many copies are held already, wait for their twins as for room in the queue."""
        while (claim := self._claim(delivery)) is Claim.PENDING and self.retry_manager.pending >= _MOST_HELD:
            why = f"{_MOST_HELD:,} messages wait for a retry or for their twin. Send slower."
            self._wait_for_room(deadline, why)
        return claim

    def _release(self, delivery: Delivery) -> None:
        if delivery.checksum is not None and self._dedup is not None:
            self._dedup.release(delivery.checksum, delivery.dedup_topic or delivery.topic, delivery.id)

    def _release_all(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._release(delivery)

    # what the transport tells

    def statistics(self, statistics: Mapping[str, Any]) -> None:
        """librdkafka's statistics, on the poll thread: evidence for those that wait for their verdict."""
        self.connection.statistics(statistics)
        unjudged, self._unjudged = self._unjudged, []
        for delivery, failure in unjudged:
            self._bury(delivery, failure, proof=None if self.connection.may_have_produced else _NEVER_SENT)
        self._audience.tell("client_statistics", statistics)

    def connection_error(self, error: KafkaError) -> None:
        self.connection.failed(error)

    def fatal(self, error: KafkaError, generation: int, *, sent: bool = True) -> None:
        """The client broke and was re-created; what the broken one never reported is settled as ambiguous."""
        if sent:
            self.connection.recreated()
        if error.name() != self._broken:  # told once until something is acknowledged again
            self._broken = error.name()
            text = f"The Kafka client failed and was re-created: {error.str()}"
            self.notice(Notice("fatal_error", "critical", text, self._clock(), {"code": error.name()}))
        silent = KafkaError(KafkaError._PURGE_INFLIGHT, "the client failed before it reported this message")
        for delivery in list(self.pending.values()):
            if delivery.generation == generation and delivery.flying:
                delivery.flying = False
                self._failed_attempt(delivery, silent, SILENT if sent else NOT_SENT)

    def notice(self, notice: Notice) -> None:
        self._audience.tell("notice", notice)

    def remark(self, topic: str, what: Remark) -> None:
        self._audience.tell("counted", topic, what)

    # looking and closing

    def pending_by_topic(self) -> Counter[str]:
        return Counter(map(_topic_of, list(self.pending.values())))  # a hundred thousand, once a second

    @property
    def waiting(self) -> int:
        """Accepted and not settled: in memory, and in the journal behind it."""
        return len(self.pending) + (0 if self.backlog is None else self.backlog.waiting)

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Until something that reports bring about is so, or nothing can any more."""
        while not done() and not self.transport.ended and (self.pending or not self._closing):
            self._settled.clear()
            if not done():
                self._settled.wait(0.1)

    def wait_idle(self, timeout: float | None) -> bool:
        """Until nothing is pending and all who count have heard of it; False when the timeout in seconds ran out first.

        Reports are taken out of `pending` many at a time, and counted after that: who flushed reads whole numbers.
        """
        own = (0, threading.get_ident())  # a delivery callback that flushes does not wait for itself
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.waiting or self._telling not in own:
            left = 0.1 if deadline is None else deadline - time.monotonic()
            if left <= 0 or self.transport.ended:
                return False
            self._settled.clear()
            if self.waiting or self._telling not in own:
                self._settled.wait(min(left, 0.1))
        return True

    def close(self, timeout: float) -> None:
        """Let what is pending finish for `timeout` seconds; what is left stays in the journal, or becomes dead letters."""
        self.wait_idle(timeout)
        self._closing = self._turns.ended = True
        if self.backlog is not None:
            self.backlog.stop()
        self.retry_manager.stop()
        self.in_doubt.stop(2.0)
        if self.pending:
            self.transport.purge()
            self._wait_reports(2.0)
        self.transport.stop()
        for delivery, failure in self._unjudged:  # no statistics came after their time-out: nothing is proved
            self._keep(delivery, failure)
        for delivery in list(self.pending.values()):
            self._abandon(delivery)
        if self.backlog is not None:
            self.backlog.flush()

    def _wait_reports(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.transport.outstanding() and time.monotonic() < deadline:
            self._settled.clear()
            self._settled.wait(0.02)

    def _abandon(self, delivery: Delivery) -> None:
        """Nothing more can be done for it in this process."""
        held = delivery.status is MessageStatus.DUPLICATE
        if held and self._claim(delivery) is Claim.DUPLICATE:
            return self._duplicate_after_all(delivery)
        if delivery.status is MessageStatus.RETRYING and delivery.attempts:
            return self._keep(delivery, failure_of(delivery.attempts[-1][0].code))
        failure = failure_of("_PURGE_INFLIGHT" if delivery.flying else "held")
        verdict: Verdict = "possibly_persisted" if delivery.flying else "not_sent"
        attempt = Attempt(self._clock(), failure.code, _closed_while(delivery))
        delivery.attempts = (*delivery.attempts, (attempt, verdict))
        self._audience.attempt_failed(delivery, failure, None)
        return self._keep(delivery, failure)


def _plain(batch: Sequence[Report]) -> bool:
    """Whether all were acknowledged at the first try, and none has an owner who hears of it alone."""
    for delivery, error, _ in batch:
        if (
            error is not None
            or delivery.attempts
            or delivery.callback is not None
            or delivery.on_delivery is not None
            or delivery.replay is not None
        ):
            return False
    return True


_NEVER_SENT: tuple[Verdict, str] = ("not_sent", "The client never sent a produce request to any broker.")


def _closed_while(delivery: Delivery) -> str:
    if delivery.flying:
        return "closed before its report came"
    if delivery.status is MessageStatus.DUPLICATE:
        return "closed while a copy of it was still undecided"
    return "closed while an earlier message of its key was still undecided"


def _proof(delivery: Delivery, landing: Landing, *, quiet: bool) -> tuple[Verdict, str] | None:
    """The verdict that a last look allows; None leaves it to the attempts. `absent` only once nothing can arrive."""
    if all(verdict != "possibly_persisted" for _, verdict in delivery.attempts):
        return None
    if quiet and landing.outcome == "absent":
        return "absent", f"{landing.text} No request of it can still arrive."
    return None


def _judge(failure: Failure, message: Any, backoff: float) -> Verdict:
    """The verdict of one attempt; without a message the client refused it on the spot."""
    if message is None:
        return refused_here(failure)[0]
    proved: Verdict | None = getattr(message, "verdict", None)  # a transaction that was aborted proves more
    if proved is not None:
        return proved
    assigned = message.partition() is not None
    return judge(failure, latency=message.latency(), retry_backoff=backoff, assigned=assigned)[0]
