"""An input file as a stream of bytes, decompressed while it is read."""

from __future__ import annotations

import contextlib
import gzip
import io
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from producer_core.errors import ProducerError

LONGEST_LINE = 64 << 20
"""The longest line in bytes that can be a row. Of a longer one, the first mebibyte is kept as malformed."""
KEPT_OF_A_LONG_LINE = 1 << 20


class InputError(ProducerError):
    """The input cannot be read."""


class InputSource:
    """The bytes of an input. `raw` is the file as stored, `stream` its decompressed content."""

    def __init__(self, path: Path | None, raw: IO[bytes], name: str) -> None:
        self.path = path
        self.name = name
        self.inner_name = name
        self.raw = raw
        self.size: int | None = path.stat().st_size if path is not None and path.is_file() else None
        self.stream: IO[bytes] = raw
        self.consumed = 0  # bytes of the content that `lines` has returned
        self._content_size: int | None = None
        try:
            self._unpack()
        except ProducerError:
            raw.close()
            raise

    def peek(self, count: int) -> bytes:
        """Return the first bytes without consuming them."""
        with readable(self.name):
            return cast(io.BufferedReader, self.stream).peek(count)[:count]

    def position(self) -> int:
        """Return the position in the stored file; 0 where there is none, as in a pipe."""
        if self.raw.closed:
            return self.size or 0
        try:
            return self.raw.tell()
        except OSError:
            return 0

    @property
    def content_size(self) -> int | None:
        """The size of the content in bytes. None while unknown: for a pipe, or before a compressed file was read once."""
        return self._content_size if self.is_compressed else self.size

    def reopen(self, content_size: int | None = None) -> InputSource:
        """Return the same bytes from the start. The bytes of a pipe come from a temporary file, see `keep`.

        `content_size` is the size of the content, where all of it was read.
        """
        source = self
        if self.path is not None and self.path.is_file():
            self.close()
            source = open_source(self.path)
        else:
            self.stream.seek(0)
        source.consumed, source._content_size = 0, content_size
        return source

    @property
    def is_compressed(self) -> bool:
        return self.stream is not self.raw

    def checked(self) -> InputSource:
        """Read a compressed file to its end, and reopen it. Raise InputError where it is damaged."""
        with readable(self.name, damaged="Nothing was sent. Fetch the file again and run the same command."):
            size = 0
            while block := self.stream.read(1 << 20):
                size += len(block)
        return self.reopen(size)

    def keep(self) -> None:
        """Make a pipe readable twice: copy it to a temporary file, which disappears with the process."""
        if self.size is not None:
            return
        kept = tempfile.TemporaryFile()  # noqa: SIM115 it lives as long as this source
        with readable(self.name):
            while block := self.stream.read(1 << 20):
                kept.write(block)
        self.size = kept.tell()
        kept.seek(0)
        self.raw = self.stream = kept

    def close(self) -> None:
        if self.path is not None or self.size is not None:  # standard input stays open
            self.stream.close()
            self.raw.close()

    def _unpack(self) -> None:
        start = self.peek(4)
        if start[:2] == b"\x1f\x8b":
            # unbuffered: a buffer would lose the readable part of a truncated file
            self.stream = cast(IO[bytes], gzip.GzipFile(fileobj=self.raw))
            self.inner_name = self.name.removesuffix(".gz")
        elif start == b"PK\x03\x04" and self.size is not None:
            self._unzip()

    def _unzip(self) -> None:
        with readable(self.name):
            archive = zipfile.ZipFile(self.raw)
        members = [member for member in archive.infolist() if not member.is_dir()]
        if not members:
            raise InputError(f"{self.name} contains no file.", fix="Send an archive that contains one file.")
        if len(members) > 1:
            raise InputError(
                f"{self.name} contains {len(members)} files.",
                fix="Extract the files and send them one by one.",
            )
        self.inner_name = members[0].filename
        member = cast(io.RawIOBase, archive.open(members[0]))
        self.stream = io.BufferedReader(member, 1 << 18)


def open_source(path: Path | str | None) -> InputSource:
    """Open a file, or standard input for None. Raise InputError when it cannot be opened."""
    if path is None:
        given = cast(IO[bytes], sys.stdin.buffer)
        raw = (
            given if hasattr(given, "peek") else cast(IO[bytes], io.BufferedReader(cast(io.RawIOBase, given)))
        )
        return InputSource(None, raw, "standard input")
    path = Path(path)
    with readable(str(path)):
        return InputSource(path, path.open("rb", buffering=1 << 18), path.name)


@contextlib.contextmanager
def readable(name: str, *, damaged: str = "Fetch the file again.") -> Iterator[None]:
    """Turn errors of the operating system and of decompression into InputError."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(
            f"There is no file {name}.", fix="Check the path; - reads standard input."
        ) from error
    except IsADirectoryError as error:
        raise InputError(f"{name} is a folder.", fix="Specify a file.") from error
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        text = str(error).rstrip(".")
        raise InputError(f"{name} is compressed, and the archive is damaged: {text}.", fix=damaged) from error
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}.") from error


def lines(source: InputSource) -> Iterator[bytes]:
    """Return the lines with their ends, without a UTF-8 byte order mark, each at most LONGEST_LINE bytes."""
    with readable(source.name):
        first = source.stream.readline(LONGEST_LINE)
        source.consumed += len(first)
        if first[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise InputError(
                f"{source.name} is UTF-16 text.", fix=f"Convert it: iconv -f UTF-16 -t UTF-8 {source.name}."
            )
        yield first.removeprefix(b"\xef\xbb\xbf")
        while line := source.stream.readline(LONGEST_LINE):
            source.consumed += len(line)
            yield line


def is_too_long(line: bytes) -> bool:
    return len(line) >= LONGEST_LINE and not line.endswith(b"\n")


def rest_of_line(source: InputSource) -> None:
    """Read and discard the rest of a line that is too long."""
    with readable(source.name):
        while piece := source.stream.readline(LONGEST_LINE):
            source.consumed += len(piece)
            if piece.endswith(b"\n"):
                return
