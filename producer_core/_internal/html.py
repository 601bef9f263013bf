"""Render results for notebooks as HTML tables without script or style sheets, with all text escaped and masked."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from producer_core._internal.masking import mask_or_hide

LISTED = 20
"""Maximum rows of a table. Further rows are only counted."""

_MAX_CHARACTERS = 300
_LEFT = "text-align:left;vertical-align:top"


def page(
    title: str,
    *,
    facts: Iterable[tuple[str, Any]] = (),
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[Any]] = (),
    lines: Iterable[str] = (),
    more: int = 0,
) -> str:
    """Return a heading, facts side by side, a table, and lines of text. `more` rows exist beyond those given."""
    parts = [f"<div><b>{text(title)}</b></div>"]
    if cells := "".join(map(_fact, facts)):
        parts.append(f"<table><tr>{cells}</tr></table>")
    if rows:
        shown = rows[:LISTED]
        parts.append(_table(columns, shown))
        if rest := len(rows) - len(shown) + more:
            parts.append(f"<div>and {rest:,} more</div>")
    parts += [f"<div>{text(line)}</div>" for line in lines]
    return f"<div>{''.join(parts)}</div>"


def text(value: Any) -> str:
    """Return text from a message or a broker as escaped, masked HTML, cut if long."""
    plain = number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    masked = mask_or_hide(plain)
    cut = masked if len(masked) <= _MAX_CHARACTERS else f"{masked[:_MAX_CHARACTERS]} …"
    return html.escape("".join(one if one.isprintable() or one == " " else "�" for one in cut))


def number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _fact(fact: tuple[str, Any]) -> str:
    return f"<td style='{_LEFT};padding-right:1.5em'>{text(fact[0])}<br><b>{text(fact[1])}</b></td>"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th style='{_LEFT}'>{text(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td style={_LEFT!r}>{text(value)}</td>' for value in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
