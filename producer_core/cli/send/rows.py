"""A row read from an input, and what every reader of rows offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

from producer_core.cli.send.input_file import InputSource


class InputRow(NamedTuple):
    """One row: what to send, its fields to take a key from, where it ended, and the bytes it was read from.

    The value of a JSON line is its bytes, so nothing is lost by reading it: big integers, decimals, order.
    """

    position: int
    value: Any
    fields: Any
    raw: bytes


class MalformedRow(NamedTuple):
    """What could not be read as a row: where, the raw bytes, and why in a sentence."""

    position: int
    raw: bytes
    text: str


class InputRows(ABC):
    """The rows of one input, read once, from the first to the last, in bounded memory."""

    unit = "line"
    columns: tuple[str, ...] | None = None
    """The names of the columns where the format has them before the first row; known once reading began."""

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
        """How much of the input was read, and of how much, in bytes (Parquet: rows); None when unknown."""
        return self.source.position(), self.source.size

    def prepare(self) -> None:
        """Look at the whole input first where that is needed: a damaged packing is found before the first row."""
        if self.source.is_packed and self.source.size is not None:
            self.stage = "checking"
            self.source = self.source.checked()
            self.stage = "reading"

    def stop(self) -> None:
        """End the iteration after the row that is being read."""
        self._stopped = True

    def close(self) -> None:
        self.source.close()
