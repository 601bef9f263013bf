"""A row of an input, and the interface of the row readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

from producer_core.cli.send.input_file import InputSource


class InputRow(NamedTuple):
    """One row: the position of its end, the value to send, the fields for the key, and the bytes it was read from.

    The value of a JSON line is its bytes, so that large integers, decimals and field order are preserved.
    """

    position: int
    value: Any
    fields: Any
    raw: bytes


class MalformedRow(NamedTuple):
    """Bytes that are not a row: their position, the bytes, and the reason."""

    position: int
    raw: bytes
    text: str


class InputRows(ABC):
    """Reads the rows of one input once, in order, in bounded memory."""

    unit = "line"
    columns: tuple[str, ...] | None = None
    """The column names, where the format has them before the first row. Set once reading begins."""

    def __init__(self, source: InputSource, *, skip: int) -> None:
        self.source = source
        self.skip = skip
        self.blank = 0
        self.stage = "reading"
        self.notes: list[str] = []
        self._stopped = False

    def __iter__(self) -> Iterator[InputRow | MalformedRow]:
        try:
            yield from self._rows()
        finally:
            self.close()

    @abstractmethod
    def _rows(self) -> Iterator[InputRow | MalformedRow]: ...

    @property
    def name(self) -> str:
        return self.source.name

    def progress(self) -> tuple[int, int | None]:
        """Return how much was read and the total, in bytes (Parquet: rows). The total is None when unknown."""
        return self.source.position(), self.source.size

    def content(self) -> tuple[int, int | None]:
        """Return how much the rows so far cover and the total, in bytes of the content (Parquet: rows).

        Unlike `progress`, this does not count what is read ahead. The total is None when unknown.
        """
        return self.covered, self.source.content_size

    @property
    def covered(self) -> int:
        """The first part of `content`."""
        return self.source.consumed

    def prepare(self) -> None:
        """Read a compressed input completely, so that damage is found before the first row."""
        if self.source.is_compressed and self.source.size is not None:
            self.stage = "checking"
            self.source = self.source.checked()
            self.stage = "reading"

    def stop(self) -> None:
        """End the iteration after the current row."""
        self._stopped = True

    def close(self) -> None:
        self.source.close()
