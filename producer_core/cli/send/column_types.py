"""Lossless type detection for CSV columns.

A field is text. It becomes a JSON number, boolean or null only where the original text can be restored:

- empty, or one of the `nulls` the user named: null;
- whole numbers of at most 64 bits without leading zeros or plus sign, in every field of the column: integers;
- a decimal is a float where the float has exactly its value; decimals with trailing zeros only where the whole
  column has the same number of decimals (12.50, 3.00), so that versions (1.9, 1.10) stay text;
- true and false (or True and False): booleans, where the column contains nothing else;
- `2013-01-01 05:00:00`: the same with ISO 8601's T, where the column contains nothing else;
- NA, NaN, null and similar marks are null in a column of the types above, and text in a text column;
- everything else is text: 007, +49, 1e5, 12345678901234567890123.

With types by value (standard input that is sent as it arrives), only the canonical forms count: an integer, a decimal
without trailing zeros, true, false, empty. Everything else stays text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

EMPTY, INTEGER, DECIMAL, PADDED, BOOLEAN, MOMENT, MARK, TEXT = (1 << bit for bit in range(8))
_SCALES = 8  # the bits from here on: which numbers of decimals occur
_NUMBER = INTEGER | DECIMAL | PADDED

MARKS = frozenset({"NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", r"\N"})
_INTEGER = re.compile(r"(?:0|-?[1-9][0-9]*)\Z")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.([0-9]+)\Z")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?\Z")
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}
_MEMO_SIZE = 50_000

Convert = Callable[[str], Any]


class TypeMemo(dict[str, Any]):
    """Caches the results of a function by text. It is cleared when it is full."""

    def __init__(self, function: Convert) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, text: str) -> Any:
        if len(self) >= _MEMO_SIZE:
            self.clear()
        result = self[text] = self._function(text)
        return result


def kind_of(text: str) -> int:
    """Return the kind of one text as a bit, with a second bit for a number's count of decimals."""
    if not text:
        return EMPTY
    if text in MARKS:
        return MARK
    if _INTEGER.match(text) and -(2**63) <= int(text) < 2**64:
        return INTEGER | 1 << _SCALES
    if found := _DECIMAL.match(text):
        return _decimal_kind(text, found[1])
    if text in _BOOLEANS:
        return BOOLEAN
    if _MOMENT.match(text) and _is_moment(text):
        return MOMENT
    return DECIMAL if _is_shortest_float(text) else TEXT


def conversion(kinds: int, nulls: frozenset[str] = frozenset()) -> Convert:
    """Return the function that converts a column's texts, given the kinds of all of them."""
    present = kinds & 0xFF & ~EMPTY & ~MARK
    several_scales = (kinds >> _SCALES).bit_count() > 1
    if present and not present & ~_NUMBER and not (present & PADDED and several_scales):
        convert = _number
    elif present == BOOLEAN:
        convert = _boolean
    elif present == MOMENT:
        convert = _moment
    else:
        return lambda text: None if not text or text in nulls else text
    return TypeMemo(
        lambda text: None if not text or text in nulls or text in MARKS else convert(text)
    ).__getitem__


def by_value(nulls: frozenset[str] = frozenset()) -> Convert:
    """Return the function that converts a text without knowledge of its column."""

    def convert(text: str) -> Any:
        kind = kind_of(text) & 0xFF
        if kind == EMPTY or text in nulls:
            return None
        if kind in (INTEGER, DECIMAL):
            return _number(text)
        return text == "true" if text in ("true", "false") else text

    return TypeMemo(convert).__getitem__


def as_text(nulls: frozenset[str] = frozenset()) -> Convert:
    """Return the function that leaves every field as text. An empty field is null."""
    return conversion(TEXT, nulls)


def describe(kinds: int) -> str:
    """Return the name of a column's type."""
    sample = conversion(kinds)
    if kinds & 0xFF & ~EMPTY == 0:
        return "empty"
    if kinds & _NUMBER and sample("0") == 0:
        return "number" if kinds & (DECIMAL | PADDED) else "integer"
    if sample("true") is True:
        return "boolean"
    return "timestamp" if kinds & 0xFF & ~EMPTY & ~MARK == MOMENT else "text"


def _decimal_kind(text: str, decimals: str) -> int:
    if Decimal(repr(float(text))) != Decimal(text) and not _is_shortest_float(text):
        return TEXT
    scale = 1 << (_SCALES + min(len(decimals), 60))
    padded = decimals.endswith("0") and decimals != "0"
    return (PADDED if padded else DECIMAL) | scale


def _is_shortest_float(text: str) -> bool:
    try:
        return repr(float(text)) == text and text.lstrip("-")[:1].isdigit()
    except ValueError:
        return False


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> Any:
    try:
        return int(text) if _INTEGER.match(text) else float(text)
    except ValueError:
        return text  # the file changed after its types were read


def _boolean(text: str) -> Any:
    return _BOOLEANS.get(text, text)


def _moment(text: str) -> str:
    return text.replace(" ", "T", 1)
