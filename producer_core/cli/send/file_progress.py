"""The progress of a file that is sent: the file stands for the journal, a small state file for its marks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from producer_core.cli.send.fingerprint import session_of
from producer_core.cli.send.state_file import SendState, StateFile, Where, encode
from producer_core.delivery import replayable_source
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.journal.ranges import ranges_of
from producer_core.delivery.settling import SettlingSet
from producer_core.errors import JournalFull, QueueFull
from producer_core.messages import MessageIds, parse_id

logger = logging.getLogger(__name__)

_EVERY = 0.25
"""Seconds between two writes of what was settled. What a crash forgets of it is found on the topic again
(exactly_once), or counted as possibly twice (at_least_once)."""
_PATIENCE = 0.5
"""Seconds a row waits for room in the client before its sender may do something else."""
_FEWEST, _MOST = 500, 50_000
"""Rows that may be handed over before it is written down again how far they may reach: twice as many as since the
last time, within these bounds."""


class RowNumbers:
    """The row that is handed over now: its number is its message's sequence."""

    def __init__(self) -> None:
        self.at = -1
        self.take: Callable[[], int] = lambda: self.at

    def peek(self) -> int:
        return self.at + 1


class FileProgress:
    """What is done of a file, durably. It is the producer's `journal`; every method may be called from any thread.

    Whatever is not settled is read from the file again at the next start, so nothing else has to be kept.
    The state file changes with the first row that is handed over or done: a command that is refused leaves none.
    """

    def __init__(self, file: StateFile, state: SendState) -> None:
        self._file = file
        self._writing = threading.Lock()  # guards the file; taken before the other
        self._lock = threading.Lock()  # guards the fields below
        self._state = state
        self._changed = False
        self._highest = self._highest_saved = -1
        self._reached_before = state.reached
        self._reach_on_disk = -1  # nothing of this run is
        self._most = 1 << 62  # rows of the input, once its end was read
        self._bad: set[int] = set()  # malformed, and not yet kept
        self._troubled = False
        self.begun = False
        """Whether a row was handed over, or is done, in this run."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._save_now_and_then, name="send-progress", daemon=True)
        self.already = len(state.settled)
        self.session = self.lasting_id = session_of(state.job, state.run)
        self.ids = MessageIds(self.session)
        self.row = RowNumbers()
        self.numbers: replayable_source.SequenceSource = self.row
        self.keeps_reach = state.job.delivery != "exactly_once"
        self.save()

    # what is done

    @property
    def offsets(self) -> Mapping[Where, int]:
        with self._lock:
            return MappingProxyType(dict(self._state.offsets))

    def unsettled_topics(self) -> Mapping[str, float]:
        """None: an exactly_once send knows from its first moment on where each partition begins."""
        return {}

    def is_settled(self, seq: int) -> bool:
        with self._lock:
            return seq in self._state.settled

    def settle(self, seqs: Iterable[int], offsets: Mapping[Where, int] | None = None) -> None:
        """Rows are done. Offsets alone say where the log begins for us, and are on disk when this returns."""
        ranges = ranges_of(seqs)
        with self._lock:
            self.begun = self.begun or bool(ranges)
            for start, end in ranges:
                self._state.settled.add(start, end)
            self._state.offsets.update(offsets or {})
            self._changed = True
        if not ranges:
            self.save()

    def give_up(self, seqs: Iterable[int]) -> None:
        """Rows are done: their dead letters are on disk."""
        with self._lock:
            self.begun = True
            for seq in seqs:
                new = self._state.settled.add(seq, seq + 1)
                if seq in self._bad:
                    self._bad.discard(seq)
                    self._state.malformed += new
                else:
                    self._state.dead += new
            self._changed = True

    def rows_of(self, message_ids: Iterable[str]) -> list[int]:
        """The rows among these messages."""
        raw = map(parse_id, message_ids)
        return [int.from_bytes(one[16:]) for one in raw if one[:16] == self.session.bytes]

    def malformed(self, seq: int) -> None:
        """This row never became a message; `bury` counts it so."""
        with self._lock:
            self._bad.add(seq)

    def reach(self, seq: int) -> None:
        """This row is about to be handed over; that it may have been is on disk before."""
        self._highest = max(self._highest, seq)
        self.begun = True
        if self._reach_on_disk < 0 or (self.keeps_reach and seq >= self._reach_on_disk):
            self.save()

    def ends_at(self, rows: int) -> None:
        """The input has so many rows: none beyond them was sent by any run, however far one had said to reach."""
        with self._lock:
            self._most = rows
            self._state.doubtful -= max(0, self._reached_before - rows)
            self._reached_before = min(self._reached_before, rows)
            self._state.reached = min(self._state.reached, rows)
        if self.keeps_reach:
            self._try_to_save()

    def save(self) -> None:
        """Write it down, before the first row only try to. JournalFull when the disk does not take it; nothing is
        lost by that."""
        with self._writing:
            with self._lock:
                self._reach_further()
                reached, begun, self._changed = self._state.reached, self.begun, False
                data = encode(self._state)
            try:
                (self._file.write_bytes if begun else self._file.rehearse)(data)
            except OSError as error:
                self._changed = True
                raise JournalFull(
                    f"The state file {self._file.path} cannot be written: {error.strerror or error}.",
                    fix="Free its disk.",
                ) from error
            if begun:
                self._reach_on_disk = reached

    def _reach_further(self) -> None:
        if self.keeps_reach and self._highest >= 0 and not self._stopping.is_set():
            since = self._highest - self._highest_saved if self._highest_saved >= 0 else 0
            self._highest_saved = self._highest
            ahead = self._highest + min(_MOST, max(_FEWEST, 2 * since))
            self._state.reached = min(max(self._state.reached, ahead), self._most)

    def _save_now_and_then(self) -> None:
        while not self._stopping.wait(_EVERY):
            if self._changed:
                self._try_to_save()

    def _try_to_save(self) -> None:
        """Disk trouble costs a mark only: it is in memory, and the next write has it."""
        try:
            self.save()
        except JournalFull as error:
            if not self._troubled:
                logger.warning("state of a send not written", extra={"error": str(error)})
            self._troubled = True
        else:
            self._troubled = False

    # what became of it

    @property
    def possibly_twice(self) -> int:
        """Rows that were sent again, in all runs, although an earlier one may have had them acknowledged."""
        return self._state.doubtful

    @property
    def dead(self) -> int:
        """Rows that are dead letters, of all runs."""
        return self._state.dead

    @property
    def malformed_rows(self) -> int:
        return self._state.malformed

    @property
    def done(self) -> int:
        """Rows that need nothing more."""
        with self._lock:
            return len(self._state.settled)

    def finish(self, rows: int, *, all_of_them: bool) -> bool:
        """So many rows were read, as asked: whether each is done. Then at_least_once forgets the job.

        `all_of_them`: the input has no more, so that an exactly_once send has nothing to do next time.
        """
        with self._lock:
            if sum(end - start for start, end in self._state.settled.overlap(0, rows)) < rows:
                return False
            self.begun = True
            if all_of_them:
                self._state.rows = rows
        if self.keeps_reach:
            self._file.remove()
        else:
            self.save()
        return True

    # the producer's journal

    def pending_log(self, sender: replayable_source.FeederTarget) -> RowsPendingLog:
        """The producer has us: what changes is written by a thread of ours from now on, so that nobody waits for it."""
        self._thread.start()
        return RowsPendingLog(self, sender)

    def unsettled(self) -> int:
        """Rows that were handed over and are not done; they are sent again at the next start."""
        with self._lock:
            below = self._state.settled.overlap(0, self._highest + 1)
            return max(0, self._highest + 1 - sum(end - start for start, end in below))

    def close(self) -> None:
        """The producer has ended: nothing beyond what was handed over can have been sent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(10)
        with self._lock:
            self._state.reached = max(self._reached_before, self._highest + 1)
        self._try_to_save()


class RowsPendingLog:
    """What the lifecycle tells of rows; the file itself keeps them."""

    def __init__(self, progress: FileProgress, sender: replayable_source.FeederTarget) -> None:
        self._progress = progress
        self._sender = sender
        self._room = threading.Event()  # set after each batch of reports
        self._leaving = SettlingSet(sender.pending, settles_journal=sender.transport.settles_journal)

    waiting = 0

    @property
    def unstored_dead_letters(self) -> int:
        return self._leaving.unfinished

    def start(self) -> None:
        """There is nothing to feed: `send` reads the file."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def holds(self, seq: int) -> bool:
        return False

    def take(self, delivery: Delivery) -> None:
        """Waits a moment for room; a row that found none is still in the file."""
        self._progress.reach(delivery.seq)
        deadline = time.monotonic() + _PATIENCE
        while not self._sender.offer(delivery):
            if time.monotonic() > deadline:
                raise QueueFull(f"No room for the next row within {_PATIENCE} s.")
            self._room.clear()
            self._room.wait(_PATIENCE / 10)

    def take_many(self, deliveries: Sequence[Delivery], taken: list[Delivery]) -> None:
        """One after the other: rows are handed over singly."""
        for delivery in deliveries:
            self.take(delivery)
            taken.append(delivery)

    def remove(self, delivery: Delivery) -> bool:
        return self._leaving.remove(delivery)

    def remove_many(self, deliveries: Sequence[Delivery]) -> list[bool]:
        return self._leaving.remove_many(deliveries)

    def acknowledged(self, deliveries: Iterable[Delivery]) -> None:
        self._leaving.acknowledged(deliveries)

    def claim_requested(self, message_id: bytes, earlier: Delivery) -> None:
        """Nothing is claimed before it is handed on."""

    def mark_redundant(self, delivery: Delivery) -> None:
        self._leaving.finished((delivery.seq,) if delivery.on_replayed is None else ())

    def flush(self) -> None:
        self._room.set()
        finished = self._leaving.take_finished()
        self._leaving.written(finished)
        if finished:
            self._progress.settle(finished)

    def dead_letters_stored(self, message_ids: Iterable[str]) -> None:
        ours = self._progress.rows_of(message_ids)
        self._leaving.written(ours)
        if ours:
            self._progress.give_up(ours)
