"""Escape CSV cells so that no spreadsheet interprets them as formulas.

If the first character after blanks is one of `= + - @`, their full-width forms, a tab, a line break or `'`, a `'` is
inserted before it. The same applies after each semicolon, tab and line break in a cell, because some programs split
there instead of at commas. `plain` reverses the escaping without loss.
"""

from __future__ import annotations

import re

_CELL_START = r"(?:^|(?<=[;\t\r\n]))[ \u00a0\ufeff]*"
_FORMULA = re.compile(rf"({_CELL_START})(?=['=+\-@\t\r\n＝＋－＠])")
_ESCAPED = re.compile(rf"({_CELL_START})'")


def safe(text: str) -> str:
    """Return the text escaped for a cell."""
    return _FORMULA.sub(r"\1'", text)


def plain(cell: str) -> str:
    """Return the original text of an escaped cell."""
    return _ESCAPED.sub(r"\1", cell)


def line(cells: list[str | None]) -> bytes:
    """Return a line of CSV. All cells are quoted except null, which is empty and so differs from an empty text."""
    quoted = ("" if cell is None else f'"{safe(cell).replace(_QUOTE, _QUOTE * 2)}"' for cell in cells)
    return (",".join(quoted) + "\r\n").encode()


_QUOTE = '"'
