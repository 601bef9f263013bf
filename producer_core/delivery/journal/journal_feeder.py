"""The backlog: messages that are in the journal and not yet with the client, fed to it in their order.

While the client has room a message goes to the journal and to the client in one step. When there is no room, and
at a start that finds messages of an earlier process, messages go to the journal only; one thread reads them back
and hands them on until it has caught up. So memory holds what the client holds, however long the brokers are away.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from queue import SimpleQueue

from producer_core.delivery.delivery import Callbacks, Delivery
from producer_core.delivery.grouping import groups
from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.delivery.replayable_source import FeederTarget
from producer_core.delivery.settling import SettlingSet
from producer_core.errors import Fenced, JournalError, ProducerClosed
from producer_core.messages import parse_id

logger = logging.getLogger(__name__)

_ROOM = 0.02
"""Seconds until a message that found no room with the client is offered again."""
_MOST_PENDING = 20_000
"""Messages of an earlier process that are looked for at the same time."""

_FEW = 1_000
"""Messages so few that handing them on may keep the writers waiting."""
_NOTHING = 1 << 64


class JournalFeeder:
    """Owns the feeding thread. A message is always in `pending`, in `_leaving`, or settled in the journal."""

    def __init__(self, journal: Journal, sender: FeederTarget) -> None:
        self.journal = journal
        self._sender = sender
        self._ids = journal.ids
        self._first = journal.next_sequence  # below: of an earlier process
        self._proves = sender.transport.settles_journal  # it settles, and looks, by itself
        self._gate = (
            threading.RLock()
        )  # guards the fields below; a message is written and handed on in one step
        self._behind = journal.unsettled() > 0
        self._low = 0  # no message that was written since the last pass began has a lower sequence
        self._owners: dict[int, Callbacks] = {}
        self._outrun: set[int] = set()  # those that lost their claim before they were written down
        self._refused: Fenced | None = None
        # Not under the gate: noted on the retry thread, taken by the feeder.
        self._wanted: dict[int, Delivery] = {}  # those whose claim an earlier message waits for
        self._stopping = threading.Event()
        self._awake: SimpleQueue[None] = SimpleQueue()  # an interrupt leaves nothing locked
        self._leaving = SettlingSet(sender.pending, settles_journal=self._proves)
        self._troubled = False
        self._thread = threading.Thread(target=self._run, name="producer-core-backlog", daemon=True)

    def start(self) -> None:
        self._wake()
        self._thread.start()

    def stop(self) -> None:
        """Feed nothing more; what was not fed stays in the journal."""
        self._stopping.set()
        self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(10)

    def _wake(self) -> None:
        if self._awake.empty():
            self._awake.put(None)

    @property
    def waiting(self) -> int:
        """Messages that the journal has and the client has not."""
        if not self._behind:
            return 0
        return max(1, int(self.journal.unsettled()) - len(self._sender.pending))

    def holds(self, seq: int) -> bool:
        """Whether a message is in the journal and not yet with the client."""
        return self._behind and self._is_waiting(seq)

    @property
    def unstored_dead_letters(self) -> int:
        """Dead letters that no disk has taken: the journal keeps their messages."""
        return self._leaving.unfinished

    # accepting

    def take(self, delivery: Delivery) -> None:
        """Write a message down and hand it on, or leave it to the feeder. JournalFull when there is no room."""
        with self._gate:
            if self._refused is not None:
                raise self._refused
            try:
                self.journal.append(delivery)
                if self._passes(delivery):
                    return
                self._leave_to_the_feeder(delivery)
            except JournalError:
                raise
            except BaseException:
                self.journal.withdraw((delivery.seq,))  # the caller is told that it was not accepted
                raise
        self._wake()

    def take_many(self, deliveries: Sequence[Delivery], taken: list[Delivery]) -> None:
        """As `take` for each, in order, written down together; each that was taken is put to `taken`.

        JournalFull when there is no room for all of them; then none was.
        """
        with self._gate:
            if self._refused is not None:
                raise self._refused
            try:
                self.journal.append_many(deliveries)
                for delivery in deliveries:
                    if not self._passes(delivery):
                        self._leave_to_the_feeder(delivery)
                    taken.append(delivery)
            except JournalError:
                raise
            except BaseException:  # the caller is told that neither this one nor the rest was accepted
                self.journal.withdraw([left.seq for left in deliveries[len(taken) :]])
                raise
        if self._behind:
            self._wake()

    def _passes(self, delivery: Delivery) -> bool:
        """Whether the client has taken it at once, past the feeder."""
        if self._behind or (self._outrun and delivery.seq in self._outrun):
            return False
        return self._sender.offer(delivery)

    def _leave_to_the_feeder(self, delivery: Delivery) -> None:
        self._low = min(self._low, delivery.seq) if self._behind else delivery.seq
        self._behind = True
        if delivery.callbacks is not None:  # callbacks cannot be written down
            self._owners[delivery.seq] = delivery.callbacks

    # settling

    def remove(self, delivery: Delivery) -> bool:
        return self._leaving.remove(delivery)

    def remove_many(self, deliveries: Sequence[Delivery]) -> list[bool]:
        return self._leaving.remove_many(deliveries)

    def acknowledged(self, deliveries: Iterable[Delivery]) -> None:
        """They are done; `flush` writes that down, unless the transport did so with its commit."""
        self._leaving.acknowledged(deliveries)

    def mark_redundant(self, delivery: Delivery) -> None:
        """A copy of a message that was acknowledged: it is done without having been sent."""
        self._leaving.finished((delivery.seq,))

    def flush(self) -> None:
        """Write down what was acknowledged since the last time, in one record."""
        finished = self._leaving.take_finished()
        if finished and not self._settle(finished):
            self._leaving.finished(finished)  # with the next ones

    def dead_letters_stored(self, message_ids: Iterable[str]) -> None:
        """Dead letters that are on disk now."""
        numbers = map(self._ids.number, map(parse_id, message_ids))
        self._leaving.finished(self._leaving.of(number for number in numbers if number is not None))
        self.flush()

    def _settle(self, sequences: list[int]) -> bool:
        try:
            self.journal.settle(sequences)
        except JournalError as error:
            if not self._troubled:
                logger.warning("journal cannot be marked", extra={"error": str(error)})
            self._troubled = True
            return False
        self._troubled = False
        self._leaving.written(sequences)
        return True

    # feeding

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._awake.get()
            try:
                while self._behind and not self._stopping.is_set():
                    self._feed()
            except Fenced as error:  # for good: what is here is sent by whoever starts with this journal next
                self._refused = error
                return
            except ProducerClosed:  # what is here stays for the next start
                return
            except BaseException:
                logger.exception("what waits in the journal was not handed on")
                self._stopping.wait(1.0)
                self._wake()

    def _feed(self) -> None:
        """One pass; when little was left, a last one while nobody else writes."""
        if self._pass() < _FEW and not self._stopping.is_set():
            with self._gate:
                self._behind = not self._last_pass()

    def _pass(self) -> int:
        """Hand on what waits, in the order it was written; how many there were."""
        handed = 0
        with self._from_low() as floor:
            for records in groups(self._unfed(floor)):
                self._hand_on(records)
                handed += len(records)
        return handed

    @contextlib.contextmanager
    def _from_low(self) -> Iterator[int]:
        """Where a pass begins; one that fails is begun there again."""
        with self._gate:
            low, self._low = self._low, _NOTHING
        try:
            yield low
        except BaseException:
            with self._gate:
                self._low = min(self._low, low)
            raise

    def _unfed(self, floor: int) -> Iterator[JournalRecord]:
        for record in self.journal.read(floor - 1):
            if self._stopping.is_set() or self._low < floor:  # an earlier one came late: begin with it
                return
            if self._is_waiting(record.seq):
                yield record

    def _last_pass(self) -> bool:
        """Under the gate, without waiting: whether everything found room."""
        with self._from_low() as low:
            unfed = self.journal.read(low - 1) if low < _NOTHING else ()
            for records in groups(record for record in unfed if self._is_waiting(record.seq)):
                if self._offer(self._deliveries(records)):
                    self._low = min(self._low, low)
                    return False
        return self._low == _NOTHING  # else a callback sent something on the way

    def _offer(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Those that found no room."""
        self._renew(deliveries)
        for at, delivery in enumerate(deliveries):
            if not self._sender.offer(delivery):
                return deliveries[at:]
            self._owners.pop(delivery.seq, None)
        return []

    def _renew(self, deliveries: Sequence[Delivery]) -> None:
        """Their claims, before they are offered; one that an earlier message waits for is that one's first."""
        for later in deliveries if self._wanted else ():
            if earlier := self._wanted.pop(later.seq, None):
                self._sender.transfer_claim(later, earlier)
        self._sender.renew([one for one in deliveries if one.seq < self._first], self._comes_after)
        self._sender.renew([one for one in deliveries if one.seq >= self._first], self._waits)

    def claim_requested(self, message_id: bytes, earlier: Delivery) -> None:
        seq = self._ids.number(message_id)
        if seq is not None and self.holds(seq):
            self._wanted[seq] = earlier

    def _waits(self, message_id: bytes) -> bool:
        """Whether a message is still to be handed on, by the thread that asks."""
        seq = self._ids.number(message_id)
        with self._gate:  # else it may be written down, and on its way to the client
            return seq is not None and self._is_waiting(seq)

    def _comes_after(self, message_id: bytes) -> bool:
        """The same, asked for a message of an earlier process: what is still to be written down comes later too."""
        seq = self._ids.number(message_id)
        with self._gate:
            if self._waits(message_id):
                return True
            if seq is None or seq < self._first or self._leaving.contains(message_id, seq):
                return False
            # Not written down yet: so early, or where all is proved, none that was settled holds a claim.
            self._outrun.add(seq)
            return True

    def _is_waiting(self, seq: int) -> bool:
        """A message goes from `pending` to `_leaving` in one step, and is settled before it is not leaving any more."""
        return not (self._leaving.contains(self._ids.of(seq), seq) or self.journal.is_settled(seq))

    def _hand_on(self, records: Sequence[JournalRecord]) -> None:
        """In their order, with waiting for room."""
        deliveries = self._deliveries(records)
        looked_for = [one for one in deliveries if one.seq < self._first and not self._proves]
        self._sender.renew(looked_for, self._comes_after)
        for delivery in looked_for:
            self._recover(delivery)
        waited = [one for one in deliveries if one.seq >= self._first or self._proves]
        together = len(waited)
        while waited and not self._stopping.is_set():
            left = self._offer(waited[:together])
            waited = left + waited[together:]
            together = 1 if left else 2 * together
            if left:
                self._stopping.wait(_ROOM)

    def _recover(self, delivery: Delivery) -> None:
        while len(self._sender.pending) >= _MOST_PENDING and not self._stopping.wait(_ROOM):
            pass
        self._sender.recover(delivery)

    def _deliveries(self, records: Iterable[JournalRecord]) -> list[Delivery]:
        """In their order, each once: a record may be read twice."""
        return [self._delivery(record) for record in {record.seq: record for record in records}.values()]

    def _delivery(self, record: JournalRecord) -> Delivery:
        raw = self._ids.of(record.seq)
        delivery = Delivery(
            raw, record.seq, record.topic, record.key, record.value, record.headers, record.placement
        )  # fmt: skip
        delivery.accepted_at = record.accepted_at
        delivery.checksum = record.checksum
        with self._gate:
            delivery.callbacks = self._owners.get(record.seq)
        return delivery
