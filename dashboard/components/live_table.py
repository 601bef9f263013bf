"""Draw a table whose rows update in place by their ids; on a narrow screen each row is a card.

All text is inserted as text, never as markup. The table sets ARIA roles explicitly, because the CSS of the cards removes
the implicit ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import streamlit as st

from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.html import Node, link, node
from producer_core.dashboard.theme import style_sheet

TextStyle = Literal[
    "plain", "strong", "small", "mono", "badge", "bad", "warning", "good", "quiet", "lost", "duplicated", "reordered"
]  # fmt: skip

_BARS_HEIGHT = 24


class Column(NamedTuple):
    """Describe a column. `number` aligns it to the right; `wide` reserves the width of a sentence."""

    name: str
    number: bool = False
    wide: bool = False
    tooltip: str = ""


@dataclass(frozen=True)
class TablePart:
    """Describe a text, a link (`href`, an address of `header.link`), or a bar chart with its description as `tooltip`."""

    text: str = ""
    style: TextStyle = "plain"
    href: str = ""
    tooltip: str = ""
    bars: tuple[int, ...] = ()


Line = str | TablePart | Sequence[str | TablePart]
Cell = str | TablePart | Sequence[Line]
"""One text or part, or several lines."""


@dataclass(frozen=True)
class TableRow:
    """Describe a row, identified by its id. A `selected` row is highlighted."""

    id: str
    cells: tuple[Cell, ...]
    selected: bool = False


def live_table(columns: Sequence[Column], rows: Sequence[TableRow], *, key: str, alt: str) -> None:
    """Draw the table under a stable key; `alt` describes it for screen readers."""
    live_dom(table(columns, rows, alt=alt), key=key)


def load_style_sheet() -> None:
    """Add the style sheet of the tables to the page; each page calls it once."""
    st.html(f"<style>{style_sheet('live_table')}</style>")


def table(columns: Sequence[Column], rows: Sequence[TableRow], *, alt: str) -> Node:
    """Return the table as a tree for `live_dom`."""
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
        title=column.tooltip or None,
    )


def _row(columns: Sequence[Column], row: TableRow) -> Node:
    cells = [_cell(column, cell) for column, cell in zip(columns, row.cells, strict=True)]
    return node("tr", *cells, role="row", class_="pc-selected" if row.selected else None, data_key=row.id)


def _cell(column: Column, cell: Cell) -> Node:
    lines = [cell] if isinstance(cell, str | TablePart) else cell
    nodes = [_line(line) for line in lines if line]
    return node("td", node("div", *nodes), role="cell", class_=_class(column), data_name=column.name)


def _line(line: Line) -> Node:
    parts: Sequence[str | TablePart] = [line] if isinstance(line, str | TablePart) else line
    return node("span", *(_part(part) for part in parts if part), class_="pc-line")


def _part(part: str | TablePart) -> Node:
    if isinstance(part, str):
        return node("span", part)
    if part.bars:
        return _bars(part)
    style = None if part.style == "plain" else f"pc-l-{part.style}"
    if part.href:
        return link(
            part.text,
            part.href,
            class_=f"pc-link {style}" if style else "pc-link",
            title=part.tooltip or None,
        )
    return node("span", part.text, class_=style, title=part.tooltip or None)


def _bars(part: TablePart) -> Node:
    highest = max(1, *part.bars)
    bars = [
        node(
            "rect",
            x=f"{index + 0.1:.1f}",
            width="0.8",
            y=f"{_BARS_HEIGHT - height:.1f}",
            height=f"{height:.1f}",
        )
        for index, count in enumerate(part.bars)
        if (height := max(2.0, (_BARS_HEIGHT - 1) * count / highest) if count else 0.0)
    ]
    baseline = node("line", x1="0", x2=str(len(part.bars)), y1="23.5", y2="23.5")
    return node(
        "svg",
        node("title", part.tooltip),
        baseline,
        *bars,
        viewBox=f"0 0 {len(part.bars)} {_BARS_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=part.tooltip,
    )


def _class(column: Column) -> str | None:
    return (
        " ".join(name for name, on in (("pc-num", column.number), ("pc-wide-cell", column.wide)) if on)
        or None
    )
