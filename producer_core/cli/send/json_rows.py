"""The reader of JSON lines: one JSON value per line, sent byte for byte."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator

import orjson

from producer_core.cli.send.input_file import (
    KEPT_OF_A_LONG_LINE,
    InputError,
    InputSource,
    is_too_long,
    lines,
    rest_of_line,
)
from producer_core.cli.send.rows import InputRow, InputRows, MalformedRow


class JsonRows(InputRows):
    """Reads JSON lines. Unless the user named the format (`explicit`), an invalid first line is an error."""

    def __init__(self, source: InputSource, *, skip: int = 0, explicit: bool = True) -> None:
        super().__init__(source, skip=skip)
        self._explicit = explicit

    def _rows(self) -> Iterator[InputRow | MalformedRow]:
        rows = self._all_rows()
        first = next(rows, None)
        if first is None:
            return
        if self.skip == 0 and isinstance(first, MalformedRow):
            self._first_is_malformed(first)
        if (
            self.skip == 0
            and not self._explicit
            and isinstance(first, InputRow)
            and isinstance(first.fields, list)
        ):
            rows = self._with_more_rows(first, rows)
        else:
            yield first
        yield from rows

    def _with_more_rows(
        self, first: InputRow, rows: Iterator[InputRow | MalformedRow]
    ) -> Iterator[InputRow | MalformedRow]:
        """Return the rows, of which the first is an array. Raise InputError where it is the only row."""
        second = next(rows, None)
        if second is None and not self._stopped:
            raise self._json_array("; --format jsonl sends it as one message")
        return itertools.chain([first], [second] if second else [], rows)

    def _all_rows(self) -> Iterator[InputRow | MalformedRow]:
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

    def _row(self, number: int, raw: bytes) -> InputRow | MalformedRow | None:
        if is_too_long(raw):
            rest_of_line(self.source)
            return MalformedRow(
                number, raw[:KEPT_OF_A_LONG_LINE], "longer than 64 MiB; the first 1 MiB is kept"
            )
        line = raw.strip()
        if not line:
            return None
        try:
            return InputRow(number, line, orjson.loads(line), line)
        except orjson.JSONDecodeError as error:
            return MalformedRow(number, raw.rstrip(b"\r\n"), _reason(error))

    def _first_is_malformed(self, row: MalformedRow) -> None:
        if row.raw.lstrip()[:1] == b"[":
            raise self._json_array("")
        if not self._explicit:
            raise InputError(
                f"The first line of {self.name} is {row.text}.",
                fix="Use --format csv or parquet, or --format jsonl to keep such lines as dead letters.",
            )

    def _json_array(self, alternative: str) -> InputError:
        read = f"{'zcat' if self.source.is_compressed else 'cat'} {shlex.quote(str(self.source.path))} | "
        return InputError(
            f"{self.name} contains one JSON array, not one JSON value per line.",
            fix=f"Convert it: {read if self.source.path else '... | '}jq -c '.[]' | producer-core send TOPIC -{alternative}.",
        )


def _reason(error: orjson.JSONDecodeError) -> str:
    if "UTF-8" in error.msg:
        return "not UTF-8 text"
    return f"not JSON: {error.msg} (column {error.colno})"
