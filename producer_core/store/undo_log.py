"""Undo a checkpoint that a killed process left unfinished."""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import duckdb

from producer_core._internal import private_files
from producer_core.store import file_errors

_HEADER = 4096
_HEADERS = 3 * _HEADER
"""Bytes before the first block: DuckDB's main header and two database headers. A checkpoint writes one of them last."""

_DATABASE_HEADER = struct.Struct("<8xQ24xQ")  # number of the checkpoint, bytes per block
_PREFIX = struct.Struct("<8sIIQ")  # magic, CRC-32 of the rest, number of blocks, bytes per block
_NUMBER = struct.Struct("<Q")
_MAGIC = b"PCUNDO01"


class UndoLog:
    """The file `<store>.undo`: copies of the blocks that a checkpoint is about to write in place.

    DuckDB's checkpoint writes into the free parts of metadata blocks. Each block has one checksum for all of its parts, so
    a kill or a power failure in the middle of that write makes the parts in use unreadable too. Until the checkpoint has
    written its database header, the old blocks together with the write-ahead log are the whole content of the store.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self.path = store.with_name(store.name + ".undo")

    def is_pending(self) -> bool:
        """Whether there is a checkpoint to undo, and this user may do that. A running checkpoint counts too."""
        return self.path.exists() and os.access(self._store, os.W_OK) and os.access(self.path.parent, os.W_OK)

    @contextlib.contextmanager
    def saved(self, connection: duckdb.DuckDBPyConnection, alias: str) -> Iterator[None]:
        """Copy the blocks durably before the block, which must run the checkpoint and detach the store.

        The store's file stays open until the end of the block: closing it releases DuckDB's lock on it.
        """
        source = os.open(self._store, os.O_RDONLY | os.O_CLOEXEC)
        try:
            private_files.write(self.path, _copy(source, _blocks_written_in_place(connection, alias)))
            private_files.sync_file(self.path)
            private_files.sync_folder(self.path.parent)
            yield
        finally:
            os.close(source)

    def discard(self) -> None:
        """Delete the copies after a complete checkpoint."""
        self.path.unlink(missing_ok=True)

    def undo(self) -> None:
        """Restore the blocks if a checkpoint did not complete. The caller must have locked out all other users."""
        try:
            if self.path.exists():
                self._restore(self.path.read_bytes())
                self.discard()
        except OSError as error:
            raise file_errors.from_system(error, self._store) from error

    def _restore(self, raw: bytes) -> None:
        """Write the copies to the file. Copies that are incomplete are of a checkpoint that had not begun."""
        if _is_complete(raw) and self._store.exists():
            with self._store.open("r+b") as file:
                _restore(file.fileno(), raw)


def _copy(store: int, blocks: list[int]) -> bytes:
    """Return the content of an undo log: the headers, and each block after its number."""
    headers = os.pread(store, _HEADERS, 0)
    size = _block_size(headers)
    parts = [headers]
    for block in blocks:
        parts += (_NUMBER.pack(block), os.pread(store, size, _HEADERS + block * size))
    rest = b"".join(parts)
    return _PREFIX.pack(_MAGIC, zlib.crc32(rest), len(blocks), size) + rest


def _block_size(headers: bytes) -> int:
    """Return the bytes per block, from the newer database header."""
    found = [_DATABASE_HEADER.unpack_from(headers, at) for at in (_HEADER, 2 * _HEADER)]
    return int(max(found)[-1])


def _blocks_written_in_place(connection: duckdb.DuckDBPyConnection, alias: str) -> list[int]:
    """Return the numbers of the metadata blocks that have free parts."""
    found = connection.execute(f"SELECT block_id, free_list FROM pragma_metadata_info('{alias}')").fetchall()
    return [block for block, free in found if free]


def _is_complete(raw: bytes) -> bool:
    if len(raw) < _PREFIX.size:
        return False
    magic, checksum, _, _ = _PREFIX.unpack_from(raw)
    return bool(magic == _MAGIC and zlib.crc32(raw[_PREFIX.size :]) == checksum)


def _restore(store: int, raw: bytes) -> None:
    _, _, count, size = _PREFIX.unpack_from(raw)
    at = _PREFIX.size + _HEADERS
    if os.pread(store, _HEADERS, 0) != raw[_PREFIX.size : at]:
        return  # the checkpoint completed, or the file is another one now
    for _ in range(count):
        (block,) = _NUMBER.unpack_from(raw, at)
        content = raw[at + _NUMBER.size : at + _NUMBER.size + size]
        os.pwrite(store, content, _HEADERS + block * size)
        at += _NUMBER.size + size
    os.fsync(store)
