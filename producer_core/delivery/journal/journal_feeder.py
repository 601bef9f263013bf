"""Feed the backlog to the client: messages that are in the journal and not yet in the client, in order.

While the client has room, a message goes to the journal and to the client in one step. When the client is full, and at
a start that finds messages of an earlier process, messages go to the journal only. One thread then reads them back and
offers them to the client until it has caught up. Memory therefore holds only the client's messages, however long the
brokers are unavailable.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Container, Iterable, Iterator, Sequence
from queue import SimpleQueue

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.delivery.delivery import Callbacks, Delivery
from producer_core.delivery.grouping import groups
from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.delivery.replayable_source import FeederTarget
from producer_core.delivery.settling import SettlingSet
from producer_core.errors import Fenced, JournalError, ProducerClosed
from producer_core.messages import parse_id

logger = queued_logger(__name__)

_OFFER_RETRY_S = 0.02
"""Seconds until a message that the client rejected because it was full is offered again."""
_MAX_PROBED = 20_000
"""The highest number of earlier messages whose outcome is probed at the same time."""

_LAST_PASS_MAX = 1_000
"""The number of messages below which the last pass, which blocks the writers, may start."""
_ACCEPTING_CHECK_S = 0.001
"""Seconds between two checks whether another thread has accepted its message."""
_NO_SEQUENCE = 1 << 64


class JournalFeeder:
    """Run the feeding thread. A message is always in `pending`, in `_settling` or settled in the journal."""

    def __init__(self, journal: Journal, sender: FeederTarget) -> None:
        self.journal = journal
        self._syncs, self._append = journal.syncs, journal.append
        self._sender = sender
        self._ids = journal.ids
        self._first = journal.next_sequence  # lower sequences belong to an earlier process
        # If true, the transport settles the journal and also reads outcomes back itself.
        self._transport_settles = sender.transport.settles_journal
        # Guards the fields below. A message is written and offered to the client in one step under it. Batches, and
        # messages that are synced, are written without it and are in `_accepting` until they are offered.
        self._gate = threading.RLock()
        # By the lowest sequence of each call, the sequences of its messages. Not guarded: an entry ends with its call,
        # even at an interrupt.
        self._accepting: dict[int, Container[int]] = {}
        self._behind = journal.unsettled() > 0
        self._low = 0  # messages written since the last pass began have this sequence or a higher one
        self._callbacks: dict[int, Callbacks] = {}
        self._claim_lost: set[int] = set()  # messages that lost their claim before they were written
        self._fenced: Fenced | None = None
        # By sequence of a later message: the earlier one that waits for its claim. Not guarded by the gate; the retry
        # thread adds entries and the feeder removes them.
        self._claim_awaited_by: dict[int, Delivery] = {}
        self._stopping = threading.Event()
        self._awake: SimpleQueue[None] = SimpleQueue()  # an interrupt cannot leave it locked
        self._settling = SettlingSet(sender.pending, settles_journal=self._transport_settles)
        self._settle_failing = False
        self._thread = threading.Thread(target=self._run, name="producer-core-backlog", daemon=True)

    def start(self) -> None:
        self._wake()
        self._thread.start()

    def stop(self) -> None:
        """Stop feeding. The remaining messages stay in the journal."""
        self._stopping.set()
        self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(10)

    def _wake(self) -> None:
        if self._awake.empty():
            self._awake.put(None)

    @property
    def waiting(self) -> int:
        """Return the number of messages in the journal that are not in the client."""
        if not self._behind:
            return 0
        return max(1, int(self.journal.unsettled()) - len(self._sender.pending))

    def holds(self, seq: int) -> bool:
        """Return whether an accepted message is in the journal and not yet in the client."""
        return self._behind and self._is_unfed(seq)

    @property
    def unstored_dead_letters(self) -> int:
        """Return the number of dead letters that are not on disk yet. The journal keeps their messages."""
        return self._settling.unfinished

    # accepting

    def take(self, delivery: Delivery) -> None:
        """Write a message and offer it to the client, or leave it to the feeder. Raise JournalFull when it is full."""
        if self._syncs:
            self._take_synced(delivery)
            return
        with self._gate:
            if self._fenced is not None:
                raise self._fenced
            try:
                self._append(delivery)
                if not (self._behind or self._claim_lost):  # the usual case, without a call
                    if self._sender.offer(delivery):
                        return
                elif self._offer_directly(delivery):
                    return
                self._leave_to_feeder(delivery)
            except JournalError:
                raise
            except BaseException:
                self.journal.withdraw((delivery.seq,))  # the caller gets an exception: not accepted
                raise
        self._wake()

    def _take_synced(self, delivery: Delivery) -> None:
        """Accept one message as `take_many` does."""
        if self._fenced is not None:
            raise self._fenced
        seq, taken = delivery.seq, False
        try:
            self._accepting[seq] = (seq,)
            self._append(delivery)  # without the gate, so that threads share a sync
            with self._gate:
                if self._fenced is not None:
                    raise self._fenced
                if not self._offer_directly(delivery):
                    self._leave_to_feeder(delivery)
                taken = True
                self._accepting.pop(seq, None)  # under the gate: a last pass skips what is being accepted
        except JournalError:
            raise
        except BaseException as error:
            if not taken and not self._withdraw((seq,), error):
                return
            raise
        finally:
            if self._accepting.pop(seq, None) and taken:
                self._feed_from(seq)
        if self._behind:
            self._wake()

    def _withdraw(self, seqs: Sequence[int], error: BaseException) -> bool:
        """Withdraw messages that are not accepted because of this error. Return False if they are accepted after all.

        A producer that was closed while the messages were synced keeps them: the next start sends them.
        """
        return self.journal.withdraw(seqs) or not isinstance(error, ProducerClosed)

    def take_many(self, deliveries: Sequence[Delivery], taken: list[Delivery]) -> None:
        """Accept each message as `take` does, in order, with one write. Add each accepted message to `taken`.

        Raise JournalFull and accept none when the journal has no room for all of them.
        """
        if self._fenced is not None:
            raise self._fenced
        lowest = min(one.seq for one in deliveries)
        try:
            self._accepting[lowest] = frozenset(one.seq for one in deliveries)
            self.journal.append_many(deliveries)  # without the gate, so that threads share a sync
            with self._gate:
                if self._fenced is not None:
                    raise self._fenced
                self._offer_all(deliveries, taken)
                self._accepting.pop(lowest, None)  # under the gate: a last pass skips what is being accepted
        except JournalError:
            raise
        except BaseException as error:
            # The caller gets an exception: this message and the rest are not accepted.
            if not self._withdraw([left.seq for left in deliveries[len(taken) :]], error):
                taken.extend(deliveries[len(taken) :])
                return
            raise
        finally:
            if self._accepting.pop(lowest, None) and taken:
                self._feed_from(lowest)
        if self._behind:
            self._wake()

    def _offer_all(self, deliveries: Sequence[Delivery], taken: list[Delivery]) -> None:
        for delivery in deliveries:
            if not self._offer_directly(delivery):
                self._leave_to_feeder(delivery)
            taken.append(delivery)

    def _offer_directly(self, delivery: Delivery) -> bool:
        """Offer the message to the client without the feeder. Return whether the client took it."""
        if self._behind or (self._claim_lost and delivery.seq in self._claim_lost):
            return False
        return self._sender.offer(delivery)

    def _leave_to_feeder(self, delivery: Delivery) -> None:
        self._low = min(self._low, delivery.seq) if self._behind else delivery.seq
        self._behind = True
        if delivery.callbacks is not None:  # callbacks cannot be stored in the journal
            self._callbacks[delivery.seq] = delivery.callbacks

    def _feed_from(self, seq: int) -> None:
        """Feed from this sequence on: a last pass may have skipped an accepted message of an interrupted call."""
        with self._gate:
            self._low = min(self._low, seq) if self._behind else seq
            self._behind = True
        self._wake()

    # settling

    def remove(self, delivery: Delivery) -> bool:
        return self._settling.remove(delivery)

    def remove_many(self, deliveries: Sequence[Delivery]) -> list[bool]:
        return self._settling.remove_many(deliveries)

    def acknowledged(self, deliveries: Iterable[Delivery]) -> None:
        """Mark messages as acknowledged. `flush` settles them, unless the transport did so with its commit."""
        self._settling.acknowledged(deliveries)

    def mark_redundant(self, delivery: Delivery) -> None:
        """Settle a duplicate of an acknowledged message. It is done without being sent."""
        self._settling.finished((delivery.seq,))

    def flush(self) -> None:
        """Settle everything acknowledged since the last flush, in one step."""
        finished = self._settling.take_finished()
        if finished and not self._settle(finished):
            self._settling.finished(finished)  # retried at the next flush

    def dead_letters_stored(self, message_ids: Iterable[str]) -> None:
        """Settle the messages whose dead letters are now on disk."""
        numbers = map(self._ids.number, map(parse_id, message_ids))
        self._settling.finished(self._settling.of(number for number in numbers if number is not None))
        self.flush()

    def _settle(self, sequences: list[int]) -> bool:
        try:
            self.journal.settle(sequences)
        except JournalError as error:
            if not self._settle_failing:
                logger.warning(**with_fields("messages cannot be settled in the journal", error=str(error)))
            self._settle_failing = True
            return False
        self._settle_failing = False
        self._settling.written(sequences)
        return True

    # feeding

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._awake.get()
            try:
                while self._behind and not self._stopping.is_set():
                    self._feed()
            except Fenced as error:
                self._fenced = (
                    error  # permanent: the next start with this journal sends the remaining messages
                )
                return
            except ProducerClosed:  # the remaining messages stay for the next start
                return
            except BaseException:
                logger.exception("journal backlog not fed to the client")
                self._stopping.wait(1.0)
                self._wake()

    def _feed(self) -> None:
        """Run one pass. When it fed few messages, run a last one that blocks the writers."""
        if self._pass() < _LAST_PASS_MAX and not self._stopping.is_set():
            with self._gate:
                self._behind = not self._last_pass()

    def _pass(self) -> int:
        """Feed the backlog in the order it was written. Return the number of messages."""
        count = 0
        with self._starting_at_low() as floor:
            for records in groups(self._backlog(floor)):
                self._feed_records(records)
                count += len(records)
        return count

    @contextlib.contextmanager
    def _starting_at_low(self) -> Iterator[int]:
        """Yield the first sequence of a pass. When the pass fails, the next one starts there again."""
        with self._gate:
            low, self._low = self._low, _NO_SEQUENCE
        try:
            yield low
        except BaseException:
            with self._gate:
                self._low = min(self._low, low)
            raise

    def _backlog(self, floor: int) -> Iterator[JournalRecord]:
        for record in self.journal.read(floor - 1):
            self._wait_until_accepted(record.seq)
            if self._stopping.is_set() or self._low < floor:
                return  # stopped, or a lower sequence was written, from which the next pass starts
            if self._is_waiting(record.seq):
                yield record

    def _wait_until_accepted(self, seq: int) -> None:
        """Wait while another thread may still leave the message to the feeder, or one with a lower sequence.

        Without the wait, a later message of that thread could overtake it.
        """
        while self._is_being_accepted(seq) and not self._stopping.wait(_ACCEPTING_CHECK_S):
            pass

    def _is_being_accepted(self, seq: int) -> bool:
        return bool(self._accepting) and any(seq in one for one in self._accepting.copy().values())

    def _last_pass(self) -> bool:
        """Feed the rest without waiting. Return whether the client took everything. Call with the gate held.

        A thread offers the messages that it is still accepting itself, after this pass.
        """
        with self._starting_at_low() as low:
            unfed = self.journal.read(low - 1) if low < _NO_SEQUENCE else ()
            for records in groups(record for record in unfed if self._is_unfed(record.seq)):
                if self._offer(self._deliveries(records)):
                    self._low = min(self._low, low)
                    return False
        return self._low == _NO_SEQUENCE  # otherwise a callback sent a message during the pass

    def _offer(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Offer the messages to the client in order. Return those for which it had no room."""
        self._renew_claims(deliveries)
        for index, delivery in enumerate(deliveries):
            if not self._sender.offer(delivery):
                return deliveries[index:]
            self._callbacks.pop(delivery.seq, None)
        return []

    def _renew_claims(self, deliveries: Sequence[Delivery]) -> None:
        """Renew the messages' claims before they are offered. A claim that an earlier message awaits goes to it first."""
        for later in deliveries if self._claim_awaited_by else ():
            if earlier := self._claim_awaited_by.pop(later.seq, None):
                self._sender.transfer_claim(later, earlier)
        self._sender.renew([one for one in deliveries if one.seq < self._first], self._is_later)
        self._sender.renew([one for one in deliveries if one.seq >= self._first], self._has_to_feed)

    def claim_requested(self, message_id: bytes, earlier: Delivery) -> None:
        seq = self._ids.number(message_id)
        if seq is not None and self.holds(seq):
            self._claim_awaited_by[seq] = earlier

    def _has_to_feed(self, message_id: bytes) -> bool:
        """Return whether the feeder still has to feed this message. Called on the feeding thread."""
        seq = self._ids.number(message_id)
        with self._gate:  # without it, a writer could be passing the message to the client
            return seq is not None and self._is_unfed(seq)

    def _is_later(self, message_id: bytes) -> bool:
        """Return whether a message comes after those of an earlier process. Messages not written yet do."""
        seq = self._ids.number(message_id)
        with self._gate:
            if self._has_to_feed(message_id):
                return True
            if seq is None or seq < self._first or self._settling.contains(message_id, seq):
                return False
            # The message is not in the journal yet. It cannot be a settled one: neither this early after the start nor
            # with a transport that settles the journal does a settled message hold a claim.
            self._claim_lost.add(seq)
            return True

    def _is_unfed(self, seq: int) -> bool:
        return not self._is_being_accepted(seq) and self._is_waiting(seq)

    def _is_waiting(self, seq: int) -> bool:
        """Return whether the message is in the journal only.

        A message moves from `pending` to `_settling` in one step, and is settled before it leaves `_settling`.
        """
        return not (self._settling.contains(self._ids.of(seq), seq) or self.journal.is_settled(seq))

    def _feed_records(self, records: Sequence[JournalRecord]) -> None:
        """Feed the records in order and wait until the client has room for them."""
        deliveries = self._deliveries(records)
        to_probe = [one for one in deliveries if one.seq < self._first and not self._transport_settles]
        self._sender.renew(to_probe, self._is_later)
        for delivery in to_probe:
            self._recover(delivery)
        to_offer = [one for one in deliveries if one.seq >= self._first or self._transport_settles]
        count = len(to_offer)
        while to_offer and not self._stopping.is_set():
            left = self._offer(to_offer[:count])
            to_offer = left + to_offer[count:]
            count = 1 if left else 2 * count
            if left:
                self._stopping.wait(_OFFER_RETRY_S)

    def _recover(self, delivery: Delivery) -> None:
        while len(self._sender.pending) >= _MAX_PROBED and not self._stopping.wait(_OFFER_RETRY_S):
            pass
        self._sender.recover(delivery)
        self._callbacks.pop(delivery.seq, None)

    def _deliveries(self, records: Iterable[JournalRecord]) -> list[Delivery]:
        """Build the deliveries in order and without duplicates: a record may be read twice."""
        return [self._delivery(record) for record in {record.seq: record for record in records}.values()]

    def _delivery(self, record: JournalRecord) -> Delivery:
        raw = self._ids.of(record.seq)
        delivery = Delivery(
            raw, record.seq, record.topic, record.key, record.value, record.headers, record.placement
        )  # fmt: skip
        delivery.accepted_at = record.accepted_at
        delivery.checksum = record.checksum
        # Without the gate, a writer that left the message here may not have kept its callbacks yet.
        with self._gate:
            delivery.callbacks = self._callbacks.get(record.seq)
        self._resume_span(delivery)
        return delivery

    def _resume_span(self, delivery: Delivery) -> None:
        """Start the span of a message of an earlier process, and keep it if the record is read again."""
        resume = self._sender.resume_span
        if resume is None or delivery.seq >= self._first or delivery.callbacks is not None:
            return
        callbacks = resume(delivery)
        if callbacks is not None:
            self._callbacks[delivery.seq] = callbacks
