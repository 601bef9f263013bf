"""A live table: rows are found again by their ids and changed in place; on a narrow screen each row is a card.

Every text is a text: nothing in it is ever markup. Roles are said, because a card is no table to a browser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import streamlit as st

from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.html import Node, link, node
from producer_core.dashboard.theme import style_sheet

Look = Literal[
    "plain", "strong", "small", "mono", "badge", "bad", "warning", "good", "quiet", "lost", "duplicated", "reordered"
]  # fmt: skip

_HIGH = 24


class Column(NamedTuple):
    """`number`: to the right; `wide`: not narrower than a sentence; `more` stands under the pointer."""

    name: str
    number: bool = False
    wide: bool = False
    more: str = ""


@dataclass(frozen=True)
class TablePart:
    """A text, a link (`href`, an address of `header.link`), or small bars that say `more` in words."""

    text: str = ""
    look: Look = "plain"
    href: str = ""
    more: str = ""
    bars: tuple[int, ...] = ()


Line = str | TablePart | Sequence[str | TablePart]
Cell = str | TablePart | Sequence[Line]
"""One text or part, or lines of them."""


@dataclass(frozen=True)
class TableRow:
    """A row by its id; the `chosen` one is marked."""

    id: str
    cells: tuple[Cell, ...]
    chosen: bool = False


def live_table(columns: Sequence[Column], rows: Sequence[TableRow], *, key: str, alt: str) -> None:
    """Draw the table under a stable key; `alt` says what it lists."""
    live_dom(table(columns, rows, alt=alt), key=key)


def style() -> None:
    """The look of the tables, once a page."""
    st.html(f"<style>{style_sheet('live_table')}</style>")


def table(columns: Sequence[Column], rows: Sequence[TableRow], *, alt: str) -> Node:
    """The table as a tree."""
    head = node("thead", node("tr", *map(_head, columns), role="row"), role="rowgroup")
    body = node("tbody", *(_row(columns, row) for row in rows), role="rowgroup")
    return node(
        "div",
        node("table", head, body, role="table", aria_label=alt),
        class_="pc-table",
        role="region",
        aria_label=alt,
        tabindex="0",
    )


def _head(column: Column) -> Node:
    return node(
        "th",
        column.name,
        scope="col",
        role="columnheader",
        class_=_class(column),
        title=column.more or None,
    )


def _row(columns: Sequence[Column], row: TableRow) -> Node:
    cells = [_cell(column, cell) for column, cell in zip(columns, row.cells, strict=True)]
    return node("tr", *cells, role="row", class_="pc-chosen" if row.chosen else None, data_key=row.id)


def _cell(column: Column, cell: Cell) -> Node:
    lines = [cell] if isinstance(cell, str | TablePart) else cell
    drawn = [_line(line) for line in lines if line]
    return node("td", node("div", *drawn), role="cell", class_=_class(column), data_name=column.name)


def _line(line: Line) -> Node:
    parts: Sequence[str | TablePart] = [line] if isinstance(line, str | TablePart) else line
    return node("span", *(_part(part) for part in parts if part), class_="pc-line")


def _part(part: str | TablePart) -> Node:
    if isinstance(part, str):
        return node("span", part)
    if part.bars:
        return _bars(part)
    look = None if part.look == "plain" else f"pc-l-{part.look}"
    if part.href:
        return link(
            part.text, part.href, class_=f"pc-link {look}" if look else "pc-link", title=part.more or None
        )
    return node("span", part.text, class_=look, title=part.more or None)


def _bars(part: TablePart) -> Node:
    most = max(1, *part.bars)
    drawn = [
        node("rect", x=f"{place + 0.1:.1f}", width="0.8", y=f"{_HIGH - high:.1f}", height=f"{high:.1f}")
        for place, count in enumerate(part.bars)
        if (high := max(2.0, (_HIGH - 1) * count / most) if count else 0.0)
    ]
    ground = node("line", x1="0", x2=str(len(part.bars)), y1="23.5", y2="23.5")
    return node(
        "svg",
        node("title", part.more),
        ground,
        *drawn,
        viewBox=f"0 0 {len(part.bars)} {_HIGH}",
        preserveAspectRatio="none",
        role="img",
        aria_label=part.more,
    )


def _class(column: Column) -> str | None:
    return (
        " ".join(name for name, on in (("pc-num", column.number), ("pc-wide-cell", column.wide)) if on)
        or None
    )
