"""A cell of a CSV file that no spreadsheet takes for a formula.

A cell whose first character after blanks is one of `= + - @`, their full-width forms, a tab or a line break, or `'`,
gets one `'` before that character. So does each place inside a cell where a program that splits at semicolons, tabs
or line breaks instead of commas would see a cell begin. `plain` takes them away again: nothing is lost.
"""

from __future__ import annotations

import re

_BEGINS = r"(?:^|(?<=[;\t\r\n]))[ \u00a0\ufeff]*"
_DANGEROUS = re.compile(rf"({_BEGINS})(?=['=+\-@\t\r\n＝＋－＠])")
_GUARDED = re.compile(rf"({_BEGINS})'")


def safe(text: str) -> str:
    """The text as it may stand in a cell."""
    return _DANGEROUS.sub(r"\1'", text)


def plain(cell: str) -> str:
    """The text that `safe` was given."""
    return _GUARDED.sub(r"\1", cell)


def line(cells: list[str | None]) -> bytes:
    """A line of CSV: every cell quoted, but null is nothing at all, so that it differs from an empty text."""
    quoted = ("" if cell is None else f'"{safe(cell).replace(_QUOTE, _QUOTE * 2)}"' for cell in cells)
    return (",".join(quoted) + "\r\n").encode()


_QUOTE = '"'
