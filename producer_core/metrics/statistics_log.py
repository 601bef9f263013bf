"""Keep batches in a file beside the store until the store has them, so that `kill -9` loses at most the last second.

Each producer appends to a file of its own, which it keeps locked. A file without a lock belongs to an ended process: the
next process that uses the store merges its batches. A merge adds each (producer_id, sequence) once, so a batch that the
store already has adds nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from producer_core._internal.file_lock import FileLock, lock_file
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.errors import StoreCorrupt, StoreError, StoreLocked, StoreTooNew, StoreUnavailable
from producer_core.events import Notice
from producer_core.metrics.batch import Batch
from producer_core.metrics.telemetry.schema import UnknownVersion

logger = queued_logger(__name__)

_INFIX = ".statistics-"
_DAMAGED = ".damaged-statistics-"
_TURN = ".merging-statistics"
_EMPTY_FOR_S = 3600.0
"""Seconds after which an empty file is tried too. A running producer keeps one while the store has all its batches."""
_MERGED_TOGETHER = 60
"""Batches that are merged in one transaction."""
_left: set[Path] = set()
"""Files that this process cannot use and has logged: those of later versions, and a lock file of another user."""


class StatisticsLog:
    """The file of one producer. Used by one thread.

    Each write reaches the kernel and so survives the end of the process. It is not synced: a power failure may lose it.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._lock: FileLock | None = None
        self.size = 0
        """Bytes in the file."""

    def append(self, batches: Iterable[Batch]) -> None:
        """Append the batches. Raise OSError, with nothing appended, if the disk does not take them."""
        if self._lock is None:
            self._lock = self._create()
        self.size += _write(self._lock.descriptor, b"".join(map(_encode, batches)))

    def replace(self, batches: Iterable[Batch]) -> None:
        """Replace the content. A kill in between leaves both files, which contain the same batches."""
        lock = self._create()
        try:
            size = _write(lock.descriptor, b"".join(map(_encode, batches)))
        except BaseException:
            _delete(lock)
            raise
        self._release()
        self._lock, self.size = lock, size

    def clear(self) -> None:
        """Delete the content, because the store has it."""
        if self._lock is not None and self.size:
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock.descriptor, 0)
                self.size = 0

    def close(self) -> None:
        """Release the file. The next process that uses the store merges the batches that it still contains."""
        if self.size and self._lock is not None:
            self._lock.release()
            self._lock = None
        else:
            self._release()

    def _create(self) -> FileLock:
        path = self._store.with_name(f"{self._store.name}{_INFIX}{uuid.uuid4().hex[:16]}")
        return lock_file(path, flags=os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def _release(self) -> None:
        if self._lock is not None:
            _delete(self._lock)
        self._lock, self.size = None, 0


def recover(store: Path, merge: Callable[..., int]) -> int:
    """Call `merge` with the batches that ended processes left beside the store, and return the sum of its results.

    A file is deleted once all its batches are merged. An error of `merge` leaves it in place. One process at a time merges:
    the order of two files of one producer matters, see `_files`.
    """
    if not _files(store):
        return 0
    place = store.with_name(f"{store.name}{_TURN}")
    try:
        turn = lock_file(place, blocking=False)
    except PermissionError as error:
        if place not in _left:
            _left.add(place)
            logger.warning(
                **with_fields("statistics of ended processes not merged", path=str(place), reason=str(error))
            )
        return 0
    except OSError:  # another process merges
        return 0
    try:
        return sum(_recover(path, store, merge) for path in _files(store))
    finally:
        _delete(turn)


def _recover(path: Path, store: Path, merge: Callable[..., int]) -> int:
    try:
        lock = lock_file(path, blocking=False, flags=os.O_RDWR)
    except OSError:  # its producer runs, another process was faster, or the file belongs to another user
        return 0
    with lock:
        try:
            return _merge_file(path, store, merge)
        except OSError as error:  # the next attempt may succeed
            logger.warning(
                **with_fields("statistics of an ended process not merged", path=str(path), reason=str(error))
            )
            return 0


def _merge_file(path: Path, store: Path, merge: Callable[..., int]) -> int:
    try:
        batches, damaged = _read(path)
    except UnknownVersion as error:  # one process writes a file, so all its lines have the same version
        if path not in _left:
            _left.add(path)
            logger.warning(
                **with_fields("statistics left for a later version", path=str(path), reason=str(error))
            )
        return 0
    merged = 0
    for start in range(0, len(batches), _MERGED_TOGETHER):
        try:
            merged += merge(*batches[start : start + _MERGED_TOGETHER])
        except (StoreUnavailable, StoreLocked, StoreTooNew, StoreCorrupt):
            raise
        except (
            StoreError,
            TypeError,
            ValueError,
            OverflowError,
            AttributeError,
        ):  # values that no store takes
            damaged = True
    if damaged:
        _set_aside(path, store)
    else:
        path.unlink(missing_ok=True)
    return merged


def _files(store: Path) -> list[Path]:
    """Return the files, the last written one first: a kill within `replace` leaves two files of one producer.

    The newer file may contain the sum of batches that the older one contains one by one. A merge skips these only after it.
    """
    prefix = f"{store.name}{_INFIX}"
    try:
        with os.scandir(store.parent) as entries:
            found = [entry for entry in entries if entry.name.startswith(prefix) and _is_plain(entry)]
        worth_a_lock = [entry for entry in found if _is_worth_a_lock(entry.stat())]
        worth_a_lock.sort(key=lambda entry: (entry.stat().st_mtime_ns, entry.name), reverse=True)
        return [Path(entry.path) for entry in worth_a_lock]
    except OSError:
        return []


def _is_plain(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is a file. A pipe would block the reader, and a link can name any file."""
    return entry.is_file(follow_symlinks=False)


def _is_worth_a_lock(status: os.stat_result) -> bool:
    """Whether a file has content, or is empty for so long that its producer may have been killed."""
    return status.st_size > 0 or time.time() - status.st_mtime > _EMPTY_FOR_S


def _set_aside(path: Path, store: Path) -> None:
    aside = path.with_name(path.name.replace(f"{store.name}{_INFIX}", f"{store.name}{_DAMAGED}"))
    path.rename(aside)
    logger.warning(**with_fields("damaged statistics were set aside", path=str(aside)))


def _delete(lock: FileLock) -> None:
    with contextlib.suppress(OSError):
        lock.path.unlink(missing_ok=True)
    lock.release()


def _write(file: int, data: bytes) -> int:
    """Append to an open file; return the number of bytes. Leave no part of a write that fails."""
    size, rest = os.fstat(file).st_size, memoryview(data)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        os.ftruncate(file, size)
        raise
    return len(data)


def _read(path: Path) -> tuple[Sequence[Batch], bool]:
    """Return the batches, and whether a line is damaged. A last line without its end is not: its process was killed.

    Raise UnknownVersion if a version with another form of records wrote the file.
    """
    *lines, _ = path.read_bytes().split(b"\n")
    batches, damaged = [], False
    for line in lines:
        try:
            batches.append(_decode(line))
        except UnknownVersion:
            raise
        except (ValueError, TypeError, KeyError):
            damaged = True
    return batches, damaged


def _encode(batch: Batch) -> bytes:
    """Return the batch as a line: its telemetry record, and after a tab the fields that a record does not have."""
    from producer_core.metrics.telemetry.schema import encode

    notices = [(one.kind, one.severity, _utf8(one.text), one.at, dict(one.details)) for one in batch.notices]
    return b"%b\t%b\n" % (encode(batch), orjson.dumps((batch.resolution, notices), default=str))


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _decode(line: bytes) -> Batch:
    from producer_core.metrics.telemetry.schema import decode

    record, _, rest = line.partition(b"\t")
    resolution, notices = orjson.loads(rest)
    return replace(decode(record), resolution=resolution, notices=tuple(Notice(*one) for one in notices))
