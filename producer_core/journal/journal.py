"""The journal: every message that was accepted and not settled, on disk, through crashes."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Literal, Self

from producer_core.errors import ForkedProducer, JournalError, JournalFull
from producer_core.journal.folder import Folder
from producer_core.journal.frames import Damage, frame
from producer_core.journal.ranges import Ranges, ranges_of
from producer_core.journal.record import Record, decode, encode
from producer_core.journal.segment import Segment
from producer_core.journal.settle_log import SettleLog, Step
from producer_core.journal.syncing import GroupSync

logger = logging.getLogger(__name__)

Level = Literal["buffered", "process", "power"]
"""What an append survives once it returned: `buffered` only an outage of the brokers (a crash of the process loses
up to `buffered_ms`), `process` also kill -9, `power` also a power failure."""

Say = Callable[[str, str, str], None]
_GIB = 1 << 30
_BUFFER = 1 << 20


def _nobody(kind: str, severity: str, text: str) -> None:
    logger.warning(text, extra={"kind": kind})


class Journal:
    """A folder with one owner. All methods may be called from any thread of the process that opened it."""

    def __init__(
        self, folder: Folder, *, level: Level, max_bytes: int, segment_bytes: int, buffered_ms: int, say: Say
    ) -> None:
        self._folder = folder
        self._level = level
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._say = say
        self._pid = os.getpid()
        self._secret = folder.identity.secret
        self.session = folder.identity.session
        self._lock = threading.RLock()  # guards the fields below
        self._segments: list[Segment] = []
        self._offsets: dict[tuple[str, int], int] = {}
        self._unsettled = 0
        self._next = 0
        self._buffer: list[tuple[bytes, int]] = []
        self._buffered = Ranges()
        self._buffered_bytes = 0
        self._closed = False
        self._log = SettleLog(folder)
        self._recover()
        self.next_sequence = max(self._next, folder.reserved)
        self._sync = GroupSync(self._sync_active)
        self._stopping = threading.Event()
        self._flusher = threading.Thread(
            target=self._flush_now_and_then, args=(buffered_ms / 1000,), name="producer-core-journal", daemon=True
        )  # fmt: skip
        if level == "buffered":
            self._flusher.start()

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
    ) -> Journal:
        """Open or make a journal and recover what it holds.

        `notice(kind, severity, text)` hears of a torn end that was cut off (`journal_torn`) and of damage, which is
        copied aside and skipped (`journal_damaged`). JournalLocked names the process that has it.
        """
        folder = Folder.open(directory)
        return cls(
            folder, level=level, max_bytes=max_bytes, segment_bytes=segment_bytes, buffered_ms=buffered_ms, say=notice
        )  # fmt: skip

    # writing

    def append(self, record: Record) -> None:
        """Keep a message; returns when the level's promise holds. JournalFull leaves nothing of it behind."""
        data = frame(encode(record), self._secret)
        with self._lock:
            self._check()
            self._check_room(len(data))
            self._reserve(record.seq)
            if self._level == "buffered":
                self._put_in_buffer(data, record.seq)
            else:
                self._write(data, record.seq)
            self._next = max(self._next, record.seq + 1)
            self._unsettled += 1
            ticket = self._sync.written()
        if self._level == "power":
            self._make_durable(ticket, record.seq)

    def settle(self, seqs: Iterable[int], offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Messages are done: acknowledged, or kept elsewhere. One step, whole or not at all; JournalFull: not at all."""
        step = Step(ranges_of(seqs), dict(offsets or {}))
        baseline = self._level == "power" and not step.ranges
        with self._lock:
            self._check()
            self._flush()
            try:
                self._log.append(step, sync=baseline)
            except OSError as error:
                raise self._full(error) from error
            self._apply(step)
            self._drop_settled()
            if self._log.long:
                self._shorten()

    def sync(self) -> None:
        """Everything appended so far survives a power failure from here on."""
        with self._lock:
            self._check()
            self._flush()
            self._sync_active()

    # reading

    @property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        with self._lock:
            return MappingProxyType(dict(self._offsets))

    def read(self, after: int = -1) -> Iterator[Record]:
        """Unsettled records with a higher sequence, in the order they were appended, up to what is there at the end."""
        done: set[Path] = set()
        while (segment := self._unread(done)) is not None:
            last = segment is self._active()
            for seq, content in segment.read(after, self._secret):
                if not self.is_settled(seq):
                    yield decode(content)
            if not last or segment is not self._active():
                done.add(segment.path)
            else:
                return

    def is_settled(self, seq: int) -> bool:
        with self._lock:
            if seq in self._buffered:
                return False
            segment = next((one for one in reversed(self._segments) if seq in one.sequences), None)
            return segment is None or seq in segment.settled

    def unsettled(self) -> int:
        """How many messages are kept."""
        return self._unsettled

    def size(self) -> int:
        """Bytes of all segments."""
        with self._lock:
            return sum(segment.size for segment in self._segments) + self._buffered_bytes

    def close(self) -> None:
        """Write what is buffered and let the folder go."""
        self._stopping.set()
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
            try:
                self._flush()
                self._sync_active()
            finally:
                for segment in self._segments:
                    segment.close()
                self._log.close()
                self._folder.close(max(self._next, self.next_sequence))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # inside

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProducer
        if self._closed:
            raise JournalError("The journal is closed.")

    def _check_room(self, more: int) -> None:
        if self._buffered_bytes > _BUFFER:
            self._flush()
        if self.size() + more > self._max_bytes:
            raise JournalFull(
                f"The journal {self._folder.path} holds {self._unsettled:,} messages and has reached its bound of "
                f"{self._max_bytes:,} bytes.",
                fix="It empties as soon as the brokers acknowledge; raise the bound, or send slower.",
            )

    def _reserve(self, seq: int) -> None:
        try:
            self._folder.reserve(seq)
        except OSError as error:
            raise self._full(error) from error

    def _put_in_buffer(self, data: bytes, seq: int) -> None:
        self._buffer.append((data, seq))
        self._buffered.add(seq, seq + 1)
        self._buffered_bytes += len(data)

    def _flush(self) -> None:
        """Write what is buffered; what has no room stays buffered."""
        written = 0
        try:
            for data, seq in self._buffer:
                self._write(data, seq)
                written += 1
                self._buffered_bytes -= len(data)
        finally:
            del self._buffer[:written]
            self._buffered = Ranges(ranges_of(seq for _, seq in self._buffer))

    def _write(self, data: bytes, seq: int) -> None:
        segment = self._active()
        try:
            if segment is None or segment.size >= self._segment_bytes:
                segment = self._rotate(seq)
            segment.add(data, seq)
        except OSError as error:
            raise self._full(error) from error

    def _rotate(self, seq: int) -> Segment:
        self._sync_active()
        number = 1 + int(self._segments[-1].path.stem) if self._segments else seq
        segment = Segment(self._folder.path / f"{max(number, seq):020d}.journal", create=True)
        if self._level == "power":
            self._folder.sync()
        self._segments.append(segment)
        self._drop_settled()
        return segment

    def _active(self) -> Segment | None:
        return self._segments[-1] if self._segments else None

    def _sync_active(self) -> None:
        segment = self._active()
        if self._level == "power" and segment is not None:
            segment.sync()

    def _make_durable(self, ticket: int, seq: int) -> None:
        try:
            self._sync.wait(ticket)
        except OSError as error:
            self.settle((seq,))  # it is not accepted, so it must not be sent at the next start
            raise self._full(error) from error

    def _flush_now_and_then(self, seconds: float) -> None:
        while not self._stopping.wait(seconds):
            with self._lock:
                if self._closed:
                    return
                try:
                    self._flush()
                except JournalFull:  # appending says so as soon as the buffer is full
                    logger.warning("journal buffer cannot be written")

    def _apply(self, step: Step) -> None:
        for start, end in step.ranges:
            for segment in self._segments:
                self._unsettled -= segment.settle(start, end)
        self._offsets.update(step.offsets)

    def _drop_settled(self) -> None:
        for segment in self._segments[:-1]:
            if not segment.unsettled:
                segment.path.unlink(missing_ok=True)
                segment.close()
                self._segments.remove(segment)

    def _shorten(self) -> None:
        ranges = sorted(span for segment in self._segments for span in segment.settled)
        try:
            self._log.rewrite(Step(ranges, self._offsets))
        except OSError as error:
            logger.warning("settle log cannot be shortened", extra={"error": str(error)})

    def _unread(self, done: set[Path]) -> Segment | None:
        with self._lock:
            self._flush()
            return next((one for one in self._segments if one.path not in done), None)

    def _full(self, error: OSError) -> JournalFull:
        return JournalFull(
            f"The journal {self._folder.path} cannot be written: {error.strerror or error}.",
            fix="Free its disk; messages are taken again as soon as there is room.",
        )

    # recovering

    def _recover(self) -> None:
        for path in sorted(self._folder.path.glob("*.journal")):
            segment = Segment(path, create=False)
            segment.recover(self._secret, partial(self._damaged, path))
            self._segments.append(segment)
            self._unsettled += len(segment.sequences)
            self._next = max(self._next, segment.sequences.highest + 1)
        for step in self._log.steps():
            self._apply(step)
        self._drop_settled()

    def _damaged(self, path: Path, damage: Damage, data: bytes) -> None:
        where = f"{path.name}, bytes {damage.start:,} to {damage.end:,}"
        aside = path.with_name(f"{path.stem}-{damage.start}.damaged")
        if not aside.exists():
            aside.write_bytes(data)
            aside.chmod(0o600)
        if damage.torn:
            text = (
                f"The journal's end was torn by a crash ({where}) and cut off: its last write had not ended."
            )
            self._say("journal_torn", "warning", f"{text} It is kept in {aside.name}.")
        else:
            text = f"The journal is damaged ({where}); everything else in it was recovered."
            self._say("journal_damaged", "critical", f"{text} The bytes are kept in {aside}.")
