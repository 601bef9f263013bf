"""The journal, which keeps every accepted and unsettled message on disk across crashes."""

from __future__ import annotations

import contextlib
import errno
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Literal, Self

from producer_core._internal import forks
from producer_core._internal.log_fields import with_fields
from producer_core._internal.plural import plural
from producer_core._internal.queued_logger import queued_logger
from producer_core.delivery.journal.cursor import JournalCursor, JournalSlice, slice_of
from producer_core.delivery.journal.damage import NoticeHandler, set_aside
from producer_core.delivery.journal.folder import JournalFolder
from producer_core.delivery.journal.frame import FrameDamage
from producer_core.delivery.journal.mapped_end import MappedEnd, can_map
from producer_core.delivery.journal.ranges import ranges_of
from producer_core.delivery.journal.record import JournalRecord, encode, topic_and_time
from producer_core.delivery.journal.segment import Segment
from producer_core.delivery.journal.segment_list import SegmentList, SyncTicket
from producer_core.delivery.journal.settle_log import SettleLog, SettleStep
from producer_core.delivery.journal.start_offsets import StartOffsets
from producer_core.errors import ForkedProducer, JournalDamaged, JournalError, JournalFull

if TYPE_CHECKING:
    from producer_core.delivery.delivery import Delivery

logger = queued_logger(__name__)

Level = Literal["buffered", "process", "power"]
"""What an appended message survives. `buffered`: an outage of the brokers (a crash of the process loses up to
`buffered_ms`). `process`: and `kill -9`. `power`: and power failures."""

_GIB = 1 << 30
_BUFFER_BYTES = 1 << 20
"""At the level `buffered`: an append writes the buffer to disk when it is larger than this."""
_FILE_CHECK_S = 1.0
"""Seconds between two checks that the files still exist."""

_SETTLE_LOG_LOST = (
    "The file `settled` of the journal {} was deleted or truncated, so the journal no longer has a list of its settled "
    "messages. Exactly-once delivery looks up each message on its topic and sends it only when it is absent. "
    "At-least-once delivery may send some messages a second time, under the same ids."
)


def _log_notice(kind: str, severity: str, text: str) -> None:
    logger.warning(text, extra={"kind": kind})


class Journal:
    """Keep messages in a folder with one owner. Any thread of the process that opened it may call any method."""

    def __init__(
        self, folder: JournalFolder, *, level: Level, max_bytes: int, segment_bytes: int, buffered_ms: int,
        notify: NoticeHandler, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._folder = folder
        self._level = level
        self.syncs = level == "power"  # whether a written record is accepted only after a sync
        self._max_bytes = max_bytes
        self._notify = notify
        self._clock = clock
        self._process_mark = forks.mark()
        self.lasting_id = folder.identity.folder_id
        self._lock = threading.RLock()  # guards the fields below
        self._segments = SegmentList(
            folder,
            segment_bytes=min(segment_bytes, max_bytes // 4),
            durable=self.syncs,
            mapped=level == "process" and can_map(folder.path),
        )
        # Single records are written to `_mapped` directly, if their sequence is reserved and until the next file check.
        self._mapped: MappedEnd | None = None
        self._reserved_below = 0
        # At the level `power`, under the same conditions, they go to this segment directly, up to this size.
        self._deferring: Segment | None = None
        self._deferring_limit = 0
        self._log = SettleLog(folder)
        self._start_offsets = StartOffsets(folder)
        self._offsets: dict[tuple[str, int], int] = {}
        self._buffer: dict[int, bytes] = {}
        self._buffered_bytes = 0
        self._flush_failed = False  # appends are rejected until a flush succeeds
        self._next_file_check = 0.0
        self._closing = False  # appends are rejected, so that close() waits for one sync only
        self._closed = False
        self.next_sequence = self._next = folder.next_sequence(self._recover())
        self.ids = folder.begin_session(
            self.next_sequence, self._segments.has_records, has_groups=self._segments.has_groups
        )
        self._stopping = threading.Event()
        if level == "buffered":
            flush = partial(self._flush_periodically, buffered_ms / 1000)
            threading.Thread(target=flush, name="producer-core-journal", daemon=True).start()

    @classmethod
    def open(
        cls,
        directory: Path | str,
        *,
        level: Level = "process",
        max_bytes: int = 4 * _GIB,
        segment_bytes: int = 64 << 20,
        buffered_ms: int = 50,
        notice: NoticeHandler = _log_notice,
        clock: Callable[[], float] = time.monotonic,
    ) -> Journal:
        """Open or create a journal and recover its content.

        `notice(kind, severity, text)` is called from any thread: after a torn end was cut off (`journal_torn`), after
        damage was copied to another file and skipped (`journal_damaged`), and when the buffer cannot be written
        (`journal_full`). JournalLocked names the process that uses the journal.
        """
        try:
            folder = JournalFolder(directory)
        except OSError as error:
            raise _unusable(Path(directory), error) from error
        try:
            return cls(
                folder, level=level, max_bytes=max_bytes, segment_bytes=segment_bytes, buffered_ms=buffered_ms,
                notify=notice, clock=clock,
            )  # fmt: skip
        except BaseException as error:
            folder.close()
            if isinstance(error, OSError):
                raise _unusable(folder.path, error) from error
            raise

    # writing

    def append(self, record: JournalRecord | Delivery) -> None:
        """Store a message and return when the level's guarantee holds. JournalFull leaves the journal unchanged."""
        seq, content = record.seq, encode(record)
        if self._mapped is not None and self._process_mark[0]:
            try:
                with self._lock:  # the usual case: no limit of the journal is due to be checked
                    if (
                        seq < self._reserved_below
                        and self._clock() < self._next_file_check
                        and (mapped := self._mapped) is not None
                        and mapped.append(seq, content)
                    ):
                        if seq >= self._next:
                            self._next = seq + 1
                        return
            except BaseException:  # an interrupt
                self.withdraw((seq,))
                raise
        ticket = None if self._deferring is None else self._defer(seq, content)
        if ticket is None:
            ticket = self._write(((seq, content),), seq, len(content))
        if ticket is not None:
            self.wait_synced(ticket, (seq,))

    def _defer(self, seq: int, content: bytes) -> SyncTicket | None:
        """Leave the usual record to the next sync. Return None if a limit of the journal is due to be checked."""
        if not self._process_mark[0]:
            return None
        try:
            with self._lock:
                if (
                    seq < self._reserved_below
                    and self._clock() < self._next_file_check
                    and (segment := self._deferring) is not None
                    and (end := segment.defer_one(seq, content, self._deferring_limit))
                ):
                    if seq >= self._next:
                        self._next = seq + 1
                    return SyncTicket(segment, end)
        except BaseException:  # an interrupt
            self.withdraw((seq,))
            raise
        return None

    def append_many(self, records: Sequence[JournalRecord | Delivery]) -> None:
        """Append all records or none, in one write and, at the level `power`, with one sync."""
        if ticket := self.write(records):
            self.wait_synced(ticket, [record.seq for record in records])

    def write(self, records: Sequence[JournalRecord | Delivery]) -> SyncTicket | None:
        """Write all records or none, without a sync. Return the ticket for `wait_synced`, or None when they need no sync."""
        contents = [(record.seq, encode(record)) for record in records]
        last = max(seq for seq, _ in contents)
        return self._write(contents, last, sum(len(content) for _, content in contents))

    def wait_synced(self, ticket: SyncTicket, seqs: Sequence[int]) -> None:
        """Wait for a sync that includes the records of this ticket. One sync serves all threads that wait.

        When it fails, the records are withdrawn, and JournalFull says so.
        """
        try:
            ticket.wait()
        except OSError as error:
            self.withdraw(seqs)
            full = self._journal_full(error)
            full.withdrawn = True
            raise full from error
        except BaseException:  # an interrupt
            self.withdraw(seqs)
            raise

    def _write(self, contents: Sequence[tuple[int, bytes]], last: int, size: int) -> SyncTicket | None:
        if not self._process_mark[0]:  # `_check_process`, inlined for speed
            raise ForkedProducer
        try:
            while True:
                with self._lock:
                    self._check_room(size)
                    unsynced = self._segments.unsynced_full() if self.syncs else None
                    if unsynced is None:
                        return self._write_locked(contents, last, size)
                # The threads of the full segment report its failed sync. The next segment takes this write.
                with contextlib.suppress(OSError):
                    unsynced.wait()
        except JournalError:
            raise
        except BaseException as error:  # an interrupt during the write
            self.withdraw([seq for seq, _ in contents])
            if self._closed and isinstance(error, Exception):  # by close() in a signal handler of this thread
                raise _closed_error() from error
            raise

    def _write_locked(self, contents: Sequence[tuple[int, bytes]], last: int, size: int) -> SyncTicket | None:
        try:
            self._folder.reserve(last)
            if self._level == "buffered":
                self._buffer.update(contents)
                self._buffered_bytes += size
            else:
                if len(contents) > 1:
                    self._folder.allow_groups()
                self._segments.write(contents)
                if self.syncs or self._segments.mapped:
                    self._allow_direct()
        except OSError as error:
            raise self._journal_full(error) from error
        if last >= self._next:
            self._next = last + 1
        return self._segments.ticket() if self.syncs else None

    def _allow_direct(self) -> None:
        """Let later single records skip `_write`, up to the next limit of the journal."""
        room = self._max_bytes - self._segments.size
        if self.syncs:
            self._deferring, self._deferring_limit = self._segments.active, self._segments.limit(room)
        else:
            self._mapped = self._segments.mapped_end(room)
        self._reserved_below = self._folder.reserved_below

    def withdraw(self, seqs: Iterable[int]) -> bool:
        """Settle messages that were written but not accepted, so that they are never sent. Their sequences stay used.

        Return False if the journal is closed: it keeps the messages, and the next start sends them.
        """
        step = SettleStep(ranges_of(seqs), {})
        with self._lock:
            if self._closed:
                return False
            self._forget_buffered(step)
            self._segments.settle(step.ranges)
            try:
                self._log.append(step, sync=False)
            except OSError:
                logger.warning(
                    **with_fields("messages that were not accepted may be sent", ranges=str(step.ranges))
                )
        return True

    def settle(self, seqs: Iterable[int], offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Settle messages that are acknowledged or stored elsewhere, in one atomic step. On JournalFull none is settled."""
        step = SettleStep(ranges_of(seqs), dict(offsets or {}))
        self._check_process()
        with self._lock:
            self._check()
            try:
                self._log.append(step, sync=self.syncs and not step.ranges)
                if not step.ranges:
                    self._start_offsets.add(step.offsets)
            except OSError as error:
                raise self._journal_full(error) from error
            self._forget_buffered(step)
            self._apply(step)
            self._segments.delete_settled()
            if self._log.needs_rewrite:
                self._rewrite_settle_log()

    def sync(self) -> None:
        """Write everything appended so far to the files, and at the level `power` to the disk."""
        self._check_process()
        with self._lock:
            self._check()
            self._flush()
            unsynced = self._segments.unsynced()
        self._wait_for(unsynced)

    # reading

    @property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        with self._lock:
            return MappingProxyType(dict(self._offsets))

    def read(self, after: int = -1) -> Iterator[JournalRecord]:
        """Yield the unsettled records with a higher sequence, in append order, up to the current end.

        The files are read one window at a time. Records that could not be written yet come last.
        """
        return self.cursor(after).more()

    def cursor(self, after: int = -1) -> JournalCursor:
        """Return a cursor over the same records. It also returns later appends, including lower sequences."""
        return JournalCursor(self, after)

    def unsettled_topics(self) -> Mapping[str, float]:
        """Return each topic with unsettled messages and the earliest timestamp that its records can have."""
        oldest: dict[str, float] = {}
        for content in JournalCursor(self, -1).contents():
            topic, earliest = topic_and_time(content)
            oldest[topic] = min(earliest, oldest.get(topic, earliest))
        return oldest

    def is_settled(self, seq: int) -> bool:
        with self._lock:
            return seq not in self._buffer and not self._segments.has_unsettled(seq)

    def unsettled(self) -> int:
        """Return the number of messages kept."""
        return self._segments.unsettled + len(self._buffer)

    def size(self) -> int:
        """Return the size in bytes of the kept messages and of the settled ones in the same files."""
        return self._segments.size + self._buffered_bytes

    def close(self) -> None:
        """Write the buffer and release the folder. JournalFull means that there was no room and the buffer is lost."""
        if not self._process_mark[0]:
            return
        self._stopping.set()
        try:
            with self._lock:
                if self._closed:
                    return
                self._closing, self._reserved_below = True, 0
                self._flush()
                unsynced = self._segments.unsynced()
            self._wait_for(unsynced)
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # internals

    def _wait_for(self, unsynced: SyncTicket | None) -> None:
        try:
            if unsynced is not None:
                unsynced.wait()
        except OSError as error:
            raise self._journal_full(error) from error

    def _release(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._segments.close()
                self._log.close()
                self._folder.close(self._next)

    def _check_process(self) -> None:
        """Reject a forked child before it takes the lock, which a thread that it lacks may hold forever."""
        if not self._process_mark[0]:
            raise ForkedProducer

    def _check(self) -> None:
        if self._closed:
            raise _closed_error()

    def _check_room(self, more: int) -> None:
        if self._closing:
            raise _closed_error()
        if self._buffered_bytes > _BUFFER_BYTES or self._flush_failed:
            self._flush()
        if (now := self._clock()) >= self._next_file_check:
            self._check_files()
            self._next_file_check = now + _FILE_CHECK_S
        if self._segments.size + self._buffered_bytes + more > self._max_bytes:
            self._segments.make_room()
            if self.size() + more > self._max_bytes:
                raise JournalFull(
                    f"The journal {self._folder.path} has reached its limit of {self._max_bytes:,} bytes; it holds "
                    f"{plural(self.unsettled(), 'message')} that no broker has acknowledged.",
                    fix="Acknowledgements free its space. Raise max_bytes or send more slowly.",
                )

    def _check_files(self) -> None:
        active = self._segments.active
        if not self._folder.in_place or (active is not None and not active.in_place):
            raise JournalDamaged(
                f"Files of the journal {self._folder.path} were deleted or replaced while it was in use.",
                fix="The journal accepts no more messages. This process still sends the accepted ones: let it finish, "
                "then restart it.",
            )

    def _flush(self) -> None:
        """Write the whole buffer, or keep it in memory when the disk has no room."""
        self._flush_failed = False
        if not self._buffer:
            return
        try:
            if len(self._buffer) > 1:
                self._folder.allow_groups()
            self._segments.write(list(self._buffer.items()))
        except OSError as error:
            self._flush_failed = True
            raise self._journal_full(error) from error
        self._buffer.clear()
        self._buffered_bytes = 0

    def _forget_buffered(self, step: SettleStep) -> None:
        for start, end in step.ranges if self._buffer else ():
            for seq in [*self._buffer] if end - start > len(self._buffer) else range(start, end):
                if start <= seq < end and seq in self._buffer:
                    self._buffered_bytes -= len(self._buffer.pop(seq))

    def _flush_periodically(self, seconds: float) -> None:
        failing = False
        while not self._stopping.wait(seconds):
            try:
                with self._lock:
                    if self._closed:
                        return
                    self._flush()
                if failing:
                    self._notify("journal_available", "info", "The journal is written again.")
                failing = False
            except JournalFull as error:
                if not failing:
                    self._notify("journal_full", "critical", f"New messages are only in memory. {error}")
                failing = True

    def _apply(self, step: SettleStep) -> None:
        self._segments.settle(step.ranges)
        self._offsets.update(step.offsets)

    def _rewrite_settle_log(self) -> None:
        try:
            self._folder.sync()  # the new log omits deleted files, so their deletion must be on disk first
            self._log.rewrite(SettleStep(self._segments.settled(), self._offsets, complete=True))
        except OSError as error:
            logger.warning(**with_fields("settle log cannot be rewritten", error=str(error)))

    def next_slice(self, last: JournalSlice | None, after: int) -> JournalSlice | None:
        """Return the records added to the cursor's segment, or the next segment. A rewritten segment starts again."""
        self._check_process()
        with self._lock:
            self._check()
            try:
                self._flush()
            except JournalFull:
                logger.debug("journal buffer is read from memory")
            for segment in self._segments:
                start = last.end if last and segment is last.segment else 0
                end = segment.readable_end
                if end > start and (last is None or segment.number >= last.segment.number):
                    return slice_of(segment, after, start, end)
        return None

    def unwritten(self) -> list[tuple[int, bytes]]:
        """Return the records that are in memory only, for the cursor."""
        with self._lock:
            return list(self._buffer.items())

    def _journal_full(self, error: OSError) -> JournalFull:
        reason = error.strerror or str(error)
        try:
            free = f"{shutil.disk_usage(self._folder.path).free:,} bytes"
        except OSError:
            free = "an unknown number of bytes"
        fix = "The journal accepts messages again as soon as it can be written to."
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            fix = "Free up disk space. The journal accepts messages again as soon as there is room."
        return JournalFull(
            f"The journal {self._folder.path} ({self.size():,} bytes, {free} free on its disk) cannot be written: "
            f"{reason}.",
            fix=fix,
        )

    def _repair(self, *, reported: bool) -> None:
        """Rewrite the recovered part of the settle log, so that a later start finds the same state."""
        if not reported:
            self._notify("journal_damaged", "critical", _SETTLE_LOG_LOST.format(self._folder.path))
        self._rewrite_settle_log()

    def _recover(self) -> int:
        """Read the files. Return a number above every known sequence."""
        on_damage = partial(set_aside, notify=self._notify)
        above = self._segments.recover(on_damage)
        started, in_log, damaged_paths = self._start_offsets.offsets, set[tuple[str, int]](), list[Path]()
        self._offsets.update(started)

        def on_log_damage(path: Path, damage: FrameDamage, data: bytes) -> bool:
            damaged_paths.append(path)
            return on_damage(path, damage, data)

        for step in self._log.steps(on_log_damage, started):
            self._apply(step)
            in_log |= step.offsets.keys()
            above = max([above, *(end for _, end in step.ranges)])
        if damaged_paths or (self._log.is_new and above) or started.keys() - in_log:
            self._repair(reported=bool(damaged_paths))
        try:
            self._start_offsets.add_missing(self._offsets)
        except OSError as error:  # for example a full disk: the next start tries again
            logger.warning(**with_fields("start offsets not written", error=str(error)))
        self._segments.delete_settled()
        return above


def _closed_error() -> JournalError:
    return JournalError("The journal is closed.")


def _unusable(path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"The journal folder {path} cannot be used: {error.strerror or error}.",
        fix="Set journal_dir to a folder that this user can write to, on a disk with free space.",
    )
