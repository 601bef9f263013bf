"""The journal: every message that was accepted and not settled, on disk, through crashes."""

from __future__ import annotations

import errno
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Literal, Self

from producer_core._internal import forks
from producer_core.delivery.journal.cursor import JournalCursor, JournalSlice, portion
from producer_core.delivery.journal.damage import Say, tell
from producer_core.delivery.journal.folder import JournalFolder
from producer_core.delivery.journal.frame import FrameDamage
from producer_core.delivery.journal.group_sync import GroupSync
from producer_core.delivery.journal.ranges import ranges_of
from producer_core.delivery.journal.record import JournalRecord, encode, origin
from producer_core.delivery.journal.segment_list import SegmentList
from producer_core.delivery.journal.settle_log import SettleLog, SettleStep
from producer_core.delivery.journal.start_offsets import StartOffsets
from producer_core.errors import ForkedProducer, JournalDamaged, JournalError, JournalFull

if TYPE_CHECKING:
    from producer_core.delivery.delivery import Delivery

logger = logging.getLogger(__name__)

Level = Literal["buffered", "process", "power"]
"""What an append survives once it returned: `buffered` only an outage of the brokers (a crash of the process loses
up to `buffered_ms`), `process` also kill -9, `power` also a power failure."""

_GIB = 1 << 30
_BUFFER = 1 << 20
"""Bytes in memory at the level `buffered` from which on an append writes them itself."""
_LOOK = 1.0
"""Seconds between two looks whether the files are still there."""

_LOG_GONE = (
    "The file «settled» of the journal {} was deleted or cut off: which of its messages are done is not known any "
    "more. With exactly-once delivery each is looked for on its topic and sent only when it is not there. At least "
    "once may send some a second time, under the same ids."
)


def _nobody(kind: str, severity: str, text: str) -> None:
    logger.warning(text, extra={"kind": kind})


class Journal:
    """A folder with one owner. All methods may be called from any thread of the process that opened it."""

    def __init__(
        self, folder: JournalFolder, *, level: Level, max_bytes: int, segment_bytes: int, buffered_ms: int, say: Say,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._folder = folder
        self._level = level
        self._max_bytes = max_bytes
        self._say = say
        self._clock = clock
        self._here = forks.mark()
        self.lasting_id = folder.identity.id
        self._lock = threading.RLock()  # guards the fields below
        self._segments = SegmentList(
            folder, segment_bytes=min(segment_bytes, max_bytes // 4), durable=level == "power"
        )
        self._log = SettleLog(folder)
        self._beginnings = StartOffsets(folder)
        self._offsets: dict[tuple[str, int], int] = {}
        self._buffer: dict[int, bytes] = {}
        self._buffered_bytes = 0
        self._overdue = False  # a flush had no room: nothing more is accepted before one has
        self._look_at = 0.0
        self._closed = False
        self.next_sequence = self._next = folder.next_sequence(self._recover())
        self.ids = folder.begin(self.next_sequence, self._segments.has_any)
        self._sync = GroupSync(self._sync_for_all)
        self._stopping = threading.Event()
        if level == "buffered":
            flush = partial(self._flush_now_and_then, buffered_ms / 1000)
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
        notice: Say = _nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> Journal:
        """Open or make a journal and recover what it holds.

        `notice(kind, severity, text)` hears of a torn end that was cut off (`journal_torn`), of damage, which is
        copied aside and skipped (`journal_damaged`), and of a buffer that cannot be written (`journal_full`); it is
        called from any thread. JournalLocked names the process that has it.
        """
        try:
            folder = JournalFolder(directory)
        except OSError as error:
            raise _unusable(Path(directory), error) from error
        try:
            return cls(
                folder, level=level, max_bytes=max_bytes, segment_bytes=segment_bytes, buffered_ms=buffered_ms,
                say=notice, clock=clock,
            )  # fmt: skip
        except BaseException as error:
            folder.close()
            if isinstance(error, OSError):
                raise _unusable(folder.path, error) from error
            raise

    # writing

    def append(self, record: JournalRecord | Delivery) -> None:
        """Keep a message; returns when the level's promise holds. JournalFull leaves nothing of it behind."""
        seq, content = record.seq, encode(record)
        self._keep(((seq, content),), seq, len(content))

    def append_many(self, records: Sequence[JournalRecord | Delivery]) -> None:
        """As `append` for each, in one write and, at the level `power`, one sync: all of them or none."""
        contents = [(record.seq, encode(record)) for record in records]
        last = max(seq for seq, _ in contents)
        self._keep(contents, last, sum(len(content) for _, content in contents))

    def _keep(self, contents: Sequence[tuple[int, bytes]], last: int, size: int) -> None:
        if not self._here[0]:  # as _check_process, without its call
            raise ForkedProducer
        try:
            with self._lock:
                self._check_room(size)
                try:
                    self._folder.reserve(last)
                    if self._level == "buffered":
                        self._buffer.update(contents)
                        self._buffered_bytes += size
                    else:
                        self._segments.write(contents)
                except OSError as error:
                    raise self._full(error) from error
                if last >= self._next:
                    self._next = last + 1
                ticket = self._sync.written() if self._level == "power" else 0
            if ticket:
                self._make_durable(ticket, [seq for seq, _ in contents])
        except JournalError:
            raise
        except BaseException:  # an interrupt while it was written, or waited for the disk
            self.withdraw([seq for seq, _ in contents])
            raise

    def withdraw(self, seqs: Iterable[int]) -> None:
        """What was written and is not accepted after all must not be sent, now or later. Its numbers are used up."""
        step = SettleStep(ranges_of(seqs), {})
        with self._lock:
            if self._closed:
                return
            self._forget_buffered(step)
            self._segments.settle(step.ranges)
            try:
                self._log.append(step, sync=False)
            except OSError:
                logger.warning("messages that were not accepted may be sent", extra={"ranges": step.ranges})

    def settle(self, seqs: Iterable[int], offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Messages are done: acknowledged, or kept elsewhere. One step, whole or not at all; JournalFull: not at all."""
        step = SettleStep(ranges_of(seqs), dict(offsets or {}))
        self._check_process()
        with self._lock:
            self._check()
            try:
                self._log.append(step, sync=self._level == "power" and not step.ranges)
                if not step.ranges:
                    self._beginnings.add(step.offsets)
            except OSError as error:
                raise self._full(error) from error
            self._forget_buffered(step)
            self._apply(step)
            self._segments.delete_settled()
            if self._log.long:
                self._shorten()

    def sync(self) -> None:
        """Everything appended so far is in the files; at the level `power`, on the disk."""
        self._check_process()
        with self._lock:
            self._check()
            self._flush()
            try:
                self._segments.sync()
            except OSError as error:
                raise self._full(error) from error

    # reading

    @property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        with self._lock:
            return MappingProxyType(dict(self._offsets))

    def read(self, after: int = -1) -> Iterator[JournalRecord]:
        """Unsettled records with a higher sequence, in the order they were appended, up to what is there at the end.

        From the files, a window at a time; what could not be written yet comes last.
        """
        return self.cursor(after).more()

    def cursor(self, after: int = -1) -> JournalCursor:
        """The same, to be gone on with: what is appended later comes later, also below what was read."""
        return JournalCursor(self, after)

    def unsettled_topics(self) -> Mapping[str, float]:
        """Return the topics of what is unsettled, each with the earliest time that a record of it may carry."""
        oldest: dict[str, float] = {}
        for content in JournalCursor(self, -1).contents():
            topic, at = origin(content)
            oldest[topic] = min(at, oldest.get(topic, at))
        return oldest

    def is_settled(self, seq: int) -> bool:
        with self._lock:
            return seq not in self._buffer and not self._segments.holds(seq)

    def unsettled(self) -> int:
        """How many messages are kept."""
        return self._segments.unsettled + len(self._buffer)

    def size(self) -> int:
        """Bytes of all messages kept, with the settled ones that stand between them."""
        return self._segments.size + self._buffered_bytes

    def close(self) -> None:
        """Write what is buffered and let the folder go. JournalFull when that had no room: it is lost."""
        if not self._here[0]:
            return
        self._stopping.set()
        with self._lock:
            if self._closed:
                return
            try:
                self._flush()
                self._segments.sync()
            except OSError as error:
                raise self._full(error) from error
            finally:
                self._closed = True
                self._segments.close()
                self._log.close()
                self._folder.close(self._next)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # inside

    def _check_process(self) -> None:
        """Before the lock: in a forked child, a thread that is not there may hold it for ever."""
        if not self._here[0]:
            raise ForkedProducer

    def _check(self) -> None:
        if self._closed:
            raise JournalError("The journal is closed.")

    def _check_room(self, more: int) -> None:
        self._check()
        if self._buffered_bytes > _BUFFER or self._overdue:
            self._flush()
        if (now := self._clock()) >= self._look_at:
            self._look()
            self._look_at = now + _LOOK
        if self._segments.size + self._buffered_bytes + more > self._max_bytes:
            self._segments.make_room()
            if self.size() + more > self._max_bytes:
                raise JournalFull(
                    f"The journal {self._folder.path} holds {self.unsettled():,} messages that no broker has "
                    f"acknowledged and has reached its bound of {self._max_bytes:,} bytes.",
                    fix="It empties as soon as the brokers acknowledge; raise max_bytes, or send slower.",
                )

    def _look(self) -> None:
        active = self._segments.active
        if not self._folder.in_place or (active is not None and not active.in_place):
            raise JournalDamaged(
                f"Files of the journal {self._folder.path} were deleted or replaced while it was in use.",
                fix="Nothing more is accepted. What was accepted is still sent by this process: let it finish, "
                "then start it again.",
            )

    def _flush(self) -> None:
        """Write what is buffered, all or none; what has no room stays buffered."""
        self._overdue = False
        if not self._buffer:
            return
        try:
            self._segments.write(list(self._buffer.items()))
        except OSError as error:
            self._overdue = True
            raise self._full(error) from error
        self._buffer.clear()
        self._buffered_bytes = 0

    def _forget_buffered(self, step: SettleStep) -> None:
        for start, end in step.ranges if self._buffer else ():
            for seq in [*self._buffer] if end - start > len(self._buffer) else range(start, end):
                if start <= seq < end and seq in self._buffer:
                    self._buffered_bytes -= len(self._buffer.pop(seq))

    def _make_durable(self, ticket: int, seqs: Sequence[int]) -> None:
        try:
            self._sync.wait(ticket)
        except OSError as error:
            self.withdraw(seqs)
            full = self._full(error)
            full.withdrawn = True
            raise full from error

    def _sync_for_all(self) -> None:
        """One thread's sync for every waiting one. After a failure nothing more is written to that file."""
        segment = self._segments.active
        try:
            if segment is not None:
                segment.sync()
        except OSError:
            with self._lock:
                self._sync.fail()
            raise

    def _flush_now_and_then(self, seconds: float) -> None:
        troubled = False
        while not self._stopping.wait(seconds):
            try:
                with self._lock:
                    if self._closed:
                        return
                    self._flush()
                troubled = False
            except JournalFull as error:
                if not troubled:
                    self._say("journal_full", "critical", f"Messages wait in memory only. {error}")
                troubled = True

    def _apply(self, step: SettleStep) -> None:
        self._segments.settle(step.ranges)
        self._offsets.update(step.offsets)

    def _shorten(self) -> None:
        try:
            self._folder.sync()  # the new log says nothing of deleted files: none of them may come back
            self._log.rewrite(SettleStep(self._segments.settled(), self._offsets, whole=True))
        except OSError as error:
            logger.warning("settle log cannot be shortened", extra={"error": str(error)})

    def portion_after(self, last: JournalSlice | None, after: int) -> JournalSlice | None:
        """For the cursor: what was added to the file since, or the next file. One written anew begins again."""
        self._check_process()
        with self._lock:
            self._check()
            try:
                self._flush()
            except JournalFull:
                logger.debug("journal buffer is read from memory")
            for segment in self._segments:
                start = last.end if last and segment is last.segment else 0
                if segment.size > start and (last is None or segment.number >= last.segment.number):
                    return portion(segment, after, start)
        return None

    def unwritten(self) -> list[tuple[int, bytes]]:
        """For the cursor: what waits in memory to be written."""
        with self._lock:
            return list(self._buffer.items())

    def _full(self, error: OSError) -> JournalFull:
        reason = error.strerror or str(error)
        try:
            free = f"{shutil.disk_usage(self._folder.path).free:,} bytes"
        except OSError:
            free = "an unknown number of bytes"
        fix = "Messages are taken again as soon as it can be written."
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            fix = "Free its disk; messages are taken again as soon as there is room."
        return JournalFull(
            f"The journal {self._folder.path} ({self.size():,} bytes, {free} free on its disk) cannot be written: "
            f"{reason}.",
            fix=fix,
        )

    def _repair(self, *, told: bool) -> None:
        """Write down what is left of a settle log: a later start must find the same, whatever happens until then."""
        if not told:
            self._say("journal_damaged", "critical", _LOG_GONE.format(self._folder.path))
        self._shorten()

    def _recover(self) -> int:
        """What the files hold; a number above every sequence that is known."""
        damaged = partial(tell, say=self._say)
        above = self._segments.recover(damaged)
        begun, told, damages = self._beginnings.offsets, set[tuple[str, int]](), list[Path]()
        self._offsets.update(begun)

        def log_damaged(path: Path, damage: FrameDamage, data: bytes) -> bool:
            damages.append(path)
            return damaged(path, damage, data)

        for step in self._log.steps(log_damaged, begun):
            self._apply(step)
            told |= step.offsets.keys()
            above = max([above, *(end for _, end in step.ranges)])
        if damages or (self._log.is_new and above) or begun.keys() - told:
            self._repair(told=bool(damages))
        try:
            self._beginnings.adopt(self._offsets)
        except OSError as error:  # a full disk: the next start tries again
            logger.warning("beginnings not written", extra={"error": str(error)})
        self._segments.delete_settled()
        return above


def _unusable(path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"The journal folder {path} cannot be used: {error.strerror or error}.",
        fix="Give journal_dir a folder on a disk with room that this user may write.",
    )
