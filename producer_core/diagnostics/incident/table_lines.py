"""Write and read the rows of a table as JSON Lines: the names of the columns, then one list of values per row.

Bytes are Base64. A reader accepts only the columns, types and lengths that the schema and the limits below allow.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import orjson

from producer_core.diagnostics.incident.table_columns import FORMS, Column, columns
from producer_core.errors import TransferError

MAX_LINE = 64 << 20
"""Bytes of the longest line."""
MAX_TEXT, MAX_BLOB = 4 << 20, 32 << 20
"""Characters and bytes of the longest values that are written; a note replaces longer ones."""
_SHORTER = (64 << 10, 1 << 20)
"""The limits of the values in a line that would be longer than MAX_LINE."""
BATCH_ROWS, BATCH_BYTES = 1000, 8 << 20
"""The rows of a batch, and the bytes of lines after which no further one is added."""

Rows = list[list[Any]]


def header_line(table: str) -> bytes:
    """Return the first line of a table."""
    return orjson.dumps([column.name for column in columns()[table]], option=orjson.OPT_APPEND_NEWLINE)


def row_line(table: str, row: Sequence[Any]) -> bytes:
    """Return the line of a row, which has the values of all columns in order."""
    line = _line(table, row, (MAX_TEXT, MAX_BLOB))
    return line if len(line) <= MAX_LINE else _line(table, row, _SHORTER)


def read_rows(chunks: Iterable[bytes], table: str, name: str) -> Iterator[tuple[Sequence[str], Rows]]:
    """Yield the names of the columns with each batch of checked rows.

    Raise TransferError with `name`, the line and the column of the first value that is not valid.
    """
    lines = _lines(chunks, name)
    found = _header(next(lines, b""), table, name)
    names = [column.name for column in found]
    rows: Rows = []
    size = 0
    for number, line in enumerate(lines, 2):
        rows.append(_row(line, found, f"{name}, line {number}"))
        size += len(line)
        if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield names, rows
            rows, size = [], 0
    if rows:
        yield names, rows


def _line(table: str, row: Sequence[Any], limits: tuple[int, int]) -> bytes:
    cells = [
        _cell(table, column, value, *limits) for column, value in zip(columns()[table], row, strict=True)
    ]
    return orjson.dumps(cells, option=orjson.OPT_APPEND_NEWLINE)


def _cell(table: str, column: Column, value: Any, longest_text: int, longest_blob: int) -> Any:
    """Return the JSON value of a cell. What no reader would accept is replaced."""
    match value:
        case bytes():
            long = len(value) > longest_blob
            return b64encode(f"{len(value):,} bytes, left out".encode() if long else value).decode()
        case int() | float() if column.bound and not abs(value) <= column.bound:  # also true for NaN
            return type(value)(math.copysign(column.bound, value))
        case str():
            form = FORMS.get((table, column.name))
            if len(value) <= longest_text and (form is None or form[0](value)):
                return value
            return form[1] if form else {"[": "[]", "{": "{}"}.get(value[:1], f"{value[:1000]}…")
    return value


def _lines(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    rest, number = b"", 1
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
            number += 1
        if len(rest) > MAX_LINE:
            _refuse(f"{name}, line {number}", f"it has more than {MAX_LINE >> 20} MiB")
    if rest:
        _refuse(f"{name}, line {number}", "it has no end")


def _header(line: bytes, table: str, name: str) -> list[Column]:
    """Return the columns of the first line. A column that an earlier version lacks gets its default."""
    known = {column.name: column for column in columns()[table]}
    given = _parsed(line)
    place = f"{name}, line 1"
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        _refuse(place, "it does not name the columns")
    if len({*given}) < len(given):
        _refuse(place, "it names a column twice")
    for one in given:
        if one not in known:
            _refuse(place, f"this version has no column {one!r:.80}")
    for column in known.values():
        if column.name not in given and not column.nullable and not column.has_default:
            _refuse(place, f"the column {column.name} is missing")
    return [known[one] for one in given]


def _row(line: bytes, found: Sequence[Column], place: str) -> list[Any]:
    values = _parsed(line)
    if not isinstance(values, list) or len(values) != len(found):
        _refuse(place, f"it is not a list of {len(found)} values")
    try:
        return [column(value) for column, value in zip(found, values, strict=True)]
    except ValueError:
        _refuse_value(found, values, place)


def _refuse_value(found: Sequence[Column], values: Sequence[Any], place: str) -> NoReturn:
    for column, value in zip(found, values, strict=True):
        try:
            column(value)
        except ValueError as error:
            _refuse(f"{place}, column {column.name}", f"the value {error}")
    raise AssertionError(place)


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _refuse(place: str, problem: str) -> NoReturn:
    raise TransferError(f"{place}: {problem}.", fix="Copy the bundle again from a source that you trust.")
