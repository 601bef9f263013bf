"""JSON lines: one JSON value a line, sent as the bytes it was written with."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator

import orjson

from producer_core.cli.send.input_file import (
    KEPT_OF_A_LONG_LINE,
    InputError,
    Source,
    is_too_long,
    lines,
    rest_of_line,
)
from producer_core.cli.send.rows import Malformed, Row, Rows


class JsonRows(Rows):
    """`sure` is whether the user said that these are JSON lines; if not, a first line that is none stops at once."""

    def __init__(self, source: Source, *, skip: int = 0, sure: bool = True) -> None:
        super().__init__(source, skip=skip)
        self._sure = sure

    def _rows(self) -> Iterator[Row | Malformed]:
        rows = self._all_rows()
        first = next(rows, None)
        if first is None:
            return
        if self.skip == 0 and isinstance(first, Malformed):
            self._first_is_malformed(first)
        if self.skip == 0 and not self._sure and isinstance(first, Row) and isinstance(first.fields, list):
            rows = self._others_follow(first, rows)
        else:
            yield first
        yield from rows

    def _others_follow(self, first: Row, rows: Iterator[Row | Malformed]) -> Iterator[Row | Malformed]:
        """Return the rows with their first, an array; InputError where it is the whole input."""
        second = next(rows, None)
        if second is None and not self._stopped:
            raise self._one_array("; --format jsonl sends it as one message")
        return itertools.chain([first], [second] if second else [], rows)

    def _all_rows(self) -> Iterator[Row | Malformed]:
        for number, raw in enumerate(lines(self.source), start=1):
            if self._stopped:
                return
            if number <= self.skip:
                continue
            row = self._row(number, raw)
            if row is None:
                self.blank += bool(raw)
            else:
                yield row

    def _row(self, number: int, raw: bytes) -> Row | Malformed | None:
        if is_too_long(raw):
            rest_of_line(self.source)
            return Malformed(
                number, raw[:KEPT_OF_A_LONG_LINE], "longer than 64 MiB; its first mebibyte is kept"
            )
        line = raw.strip()
        if not line:
            return None
        try:
            return Row(number, line, orjson.loads(line), line)
        except orjson.JSONDecodeError as error:
            return Malformed(number, raw.rstrip(b"\r\n"), _why(error))

    def _first_is_malformed(self, row: Malformed) -> None:
        if row.raw.lstrip()[:1] == b"[":
            raise self._one_array("")
        if not self._sure:
            raise InputError(
                f"The first line of {self.name} is not JSON: {row.text}.",
                fix="Say --format csv or parquet, or --format jsonl to keep such lines as dead letters.",
            )

    def _one_array(self, or_else: str) -> InputError:
        read = f"{'zcat' if self.source.is_packed else 'cat'} {shlex.quote(str(self.source.path))} | "
        return InputError(
            f"{self.name} begins like one JSON array, not like one JSON value a line.",
            fix=f"Convert it: {read if self.source.path else '... | '}jq -c '.[]' | producer-core send TOPIC -{or_else}.",
        )


def _why(error: orjson.JSONDecodeError) -> str:
    if "UTF-8" in error.msg:
        return "not UTF-8 text"
    return f"not JSON: {error.msg} (column {error.colno})"
