"""The progress of a file's send. The input file replaces the producer's journal; a small state file holds the position."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.cli.send.ack_offsets import AckOffsets
from producer_core.cli.send.fingerprint import session_of
from producer_core.cli.send.rows_pending_log import RowsPendingLog
from producer_core.cli.send.state_file import Partition, SendState, StateFile, encode
from producer_core.cli.send.unsaved_rows import UnsavedRows
from producer_core.delivery import replayable_source
from producer_core.delivery.journal.ranges import ranges_of
from producer_core.errors import JournalFull
from producer_core.messages import MessageIds, parse_id

logger = queued_logger(__name__)

_SAVE_EVERY = 0.25
"""Seconds between two writes of the settled rows. Rows that a crash loses from the state are found on the topic."""
_MIN_AHEAD, _MAX_AHEAD = 500, 50_000
"""Bounds of the rows that may be enqueued until the next write of `reached`. The number is twice the rows since the
last write."""


class RowNumbers:
    """The number of the row that is being enqueued, which is the sequence of its message."""

    def __init__(self) -> None:
        self.at = -1
        self.take: Callable[[], int] = lambda: self.at

    def peek(self) -> int:
        return self.at + 1


class FileProgress:
    """Records durably which rows of a file are settled. It is the producer's `journal`. Safe from any thread.

    The next start reads every unsettled row from the file again, so the messages themselves need no journal.
    The state file is first written when a row is enqueued or settled; a refused command leaves no state file.
    `unsaved` is the part of the topic that a resumed at_least_once send has read.
    """

    def __init__(self, file: StateFile, state: SendState, unsaved: UnsavedRows | None = None) -> None:
        self._file = file
        self._writing = threading.Lock()  # guards the file; acquired before `_lock`
        self._lock = threading.Lock()  # guards the fields below
        self._state = state
        self._changed = False
        self._highest = self._highest_saved = -1
        self._reached_before = state.reached
        self._reach_on_disk = -1  # this run has written nothing
        self._row_count = 1 << 62  # rows of the input, known at its end
        self._malformed: set[int] = set()  # rows whose dead letter is not stored yet
        self._save_failed = False
        self._unsaved = unsaved or UnsavedRows()
        self.held_back: list[int] = []
        """The rows of this run that were not sent because their key has a newer record."""
        self.acks = AckOffsets(state.reached)
        """The hook that an at_least_once producer needs."""
        self.begun = False
        """Whether this run has enqueued or settled a row."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._save_periodically, name="send-progress", daemon=True)
        self.already = len(state.settled)
        self.session = self.lasting_id = session_of(state.job, state.run)
        self.ids = MessageIds(self.session)
        self.row = RowNumbers()
        self.numbers: replayable_source.SequenceSource = self.row
        self.keeps_reach = state.job.delivery != "exactly_once"
        self.save()

    # settled rows

    @property
    def offsets(self) -> Mapping[Partition, int]:
        with self._lock:
            return MappingProxyType(dict(self._state.offsets))

    def unsettled_topics(self) -> Mapping[str, float]:
        """Return none: an exactly_once send has the start offset of each partition from the beginning."""
        return {}

    def is_settled(self, seq: int) -> bool:
        with self._lock:
            return seq in self._state.settled

    def settle(self, seqs: Iterable[int], offsets: Mapping[Partition, int] | None = None) -> None:
        """Mark rows as settled. Offsets without rows are start positions, and are on disk when this returns."""
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
        """Mark rows as settled because their dead letters are on disk."""
        with self._lock:
            self.begun = True
            for seq in seqs:
                new = self._state.settled.add(seq, seq + 1)
                if seq in self._malformed:
                    self._malformed.discard(seq)
                    self._state.malformed += new
                else:
                    self._state.dead += new
            self._changed = True

    def rows_of(self, message_ids: Iterable[str]) -> list[int]:
        """Return the row numbers of those messages that belong to this run."""
        raw = map(parse_id, message_ids)
        return [int.from_bytes(one[16:]) for one in raw if one[:16] == self.session.bytes]

    def is_superseded(self, seq: int, key: bytes | None) -> bool:
        """Return whether an earlier run may have sent this row, and its key now has a newer record on a compacted topic.

        Every row that is on the topic is settled. Another one was never written, or compaction has removed it.
        """
        newer = self._unsaved.newer
        if newer is None or key is None or seq >= self._reached_before:
            return False
        return newer.after(seq, key, 0.0) is not None

    def count_possible_duplicate(self) -> None:
        """Count a retry of this run that may have written its row twice. A later run still reports it."""
        with self._lock:
            self._state.doubtful += 1
            self._changed = True

    def malformed(self, seq: int) -> None:
        """Mark a row that never became a message; `give_up` counts it as malformed."""
        with self._lock:
            self._malformed.add(seq)

    def reach(self, seq: int) -> None:
        """Announce that this row is about to be enqueued. The state file on disk covers it before this returns."""
        self._highest = max(self._highest, seq)
        self.begun = True
        if self._reach_on_disk < 0 or (self.keeps_reach and seq >= self._reach_on_disk):
            self.save()

    def ends_at(self, rows: int) -> None:
        """Set the number of rows in the input. No run has sent a row beyond it, whatever `reached` was."""
        with self._lock:
            self._row_count = rows
            self._state.doubtful -= max(0, self._reached_before - rows)
            self._reached_before = min(self._reached_before, rows)
            self._state.reached = min(self._state.reached, rows)
        if self.keeps_reach:
            self._try_to_save()

    def save(self) -> None:
        """Write the state; before the first row, only check that a write succeeds.

        Raise JournalFull when the write fails. The state stays in memory, so nothing is lost.
        """
        with self._writing:
            with self._lock:
                self._reach_further()
                if self.keeps_reach:
                    self._state.offsets.update(
                        self.acks.advance(lambda: self._highest + 1, self._all_settled)
                    )
                reached, begun, self._changed = self._state.reached, self.begun, False
                data = encode(self._state)
            try:
                (self._file.write_bytes if begun else self._file.rehearse)(data)
            except OSError as error:
                self._changed = True
                raise JournalFull(
                    f"The state file {self._file.path} cannot be written: {error.strerror or error}.",
                    fix="Free up space.",
                ) from error
            if begun:
                self._reach_on_disk = reached

    def _reach_further(self) -> None:
        if self.keeps_reach and self._highest >= 0 and not self._stopping.is_set():
            since = self._highest - self._highest_saved if self._highest_saved >= 0 else 0
            self._highest_saved = self._highest
            ahead = self._highest + min(_MAX_AHEAD, max(_MIN_AHEAD, 2 * since))
            self._state.reached = min(max(self._state.reached, ahead), self._row_count)

    def _all_settled(self, rows: int) -> bool:
        return sum(end - start for start, end in self._state.settled.overlap(0, rows)) >= rows

    def _save_periodically(self) -> None:
        while not self._stopping.wait(_SAVE_EVERY):
            if self._changed:
                self._try_to_save()

    def _try_to_save(self) -> None:
        """Write the state, and log a failure. The next write includes everything that this one did not store."""
        try:
            self.save()
        except JournalFull as error:
            if not self._save_failed:
                logger.warning(**with_fields("state of a send not written", error=str(error)))
            self._save_failed = True
        else:
            self._save_failed = False

    # totals

    @property
    def possibly_twice(self) -> int:
        """Return the sends, over all runs, of rows that a broker may already have had."""
        return self._state.doubtful

    @property
    def topic_unread(self) -> bool:
        """Return whether a resumed send could not read the topic, so more rows may be sent twice than are counted."""
        return bool(self._unsaved.unread)

    @property
    def dead(self) -> int:
        """Return the rows, over all runs, that are dead letters."""
        return self._state.dead

    @property
    def malformed_rows(self) -> int:
        return self._state.malformed

    @property
    def done(self) -> int:
        """Return the number of settled rows."""
        with self._lock:
            return len(self._state.settled)

    def finish(self, rows: int, *, all_of_them: bool) -> bool:
        """Return whether each of the first `rows` rows is settled.

        If so, at_least_once records that the run is complete, so that a later exactly_once send of the file is refused.
        `all_of_them`: the input has no more rows, so exactly_once records that nothing is left to send. Without it, a run
        that sent nothing, or left rows of an earlier run unsettled, records nothing: the earlier run can be resumed.
        """
        with self._lock:
            if not self._all_settled(rows):
                return False
            sent_nothing, unfinished = not self.begun, rows < self._reached_before
            if self.keeps_reach and not all_of_them and (sent_nothing or unfinished):
                return True
            self.begun = True
            if all_of_them or self.keeps_reach:
                self._state.rows = rows
        try:
            self.save()
        except JournalFull:
            if not self.keeps_reach:
                raise
            self._file.remove()  # an older state would resume this run
        return True

    # the interface of the producer's journal

    def pending_log(self, sender: replayable_source.FeederTarget) -> RowsPendingLog:
        """Start the thread that writes the state file, so that no other thread waits for the disk."""
        self._thread.start()
        return RowsPendingLog(self, sender)

    def unsettled(self) -> int:
        """Return the rows that were enqueued and are not settled. The next start sends them again."""
        with self._lock:
            below = self._state.settled.overlap(0, self._highest + 1)
            return max(0, self._highest + 1 - sum(end - start for start, end in below))

    def close(self) -> None:
        """Write the final state. No row beyond the last enqueued one can have been sent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(10)
        with self._lock:
            self._state.reached = max(self._reached_before, self._highest + 1)
        self._try_to_save()
