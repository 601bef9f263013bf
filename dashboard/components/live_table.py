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
    """Describe text, a link, a bar chart with its description as `tooltip`, or a button of a selectable table.

    `href` is an address from `header.link`. `at` is a time in seconds since 1970, shown in the browser's zone instead of
    text. `button` is the ARIA state with which a button shows whether its row is the current one.
    """

    text: str = ""
    style: TextStyle = "plain"
    href: str = ""
    tooltip: str = ""
    bars: tuple[int, ...] = ()
    at: float | None = None
    button: Literal["", "expanded", "pressed"] = ""


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


def table(
    columns: Sequence[Column],
    rows: Sequence[TableRow],
    *,
    alt: str,
    look: str = "pc-plain",
    checkboxes: bool = False,
    scrolls: bool = True,
) -> Node:
    """Return the table as a tree for `live_dom`; `look` is the CSS class of its layout.

    A table that `scrolls` can be focused, so that the arrow keys scroll it.
    """
    heads = [_head(column) for column in columns]
    if checkboxes:
        heads.insert(0, node("th", _checkbox("all on this page"), role="columnheader", class_="pc-check"))
    head = node("thead", node("tr", *heads, role="row"), role="rowgroup")
    body = node("tbody", *(_row(columns, row, checkbox=checkboxes) for row in rows), role="rowgroup")
    return node(
        "div",
        node("table", head, body, role="table", aria_label=alt),
        class_=f"pc-table {look}",
        role="region" if scrolls else None,
        aria_label=alt if scrolls else None,
        tabindex="0" if scrolls else None,
    )


def _checkbox(what: str) -> Node:
    return node("input", type="checkbox", aria_label=f"Select {what}")


def _head(column: Column) -> Node:
    return node(
        "th",
        column.name,
        scope="col",
        role="columnheader",
        class_=_class(column),
        title=column.tooltip or None,
    )


def _row(columns: Sequence[Column], row: TableRow, *, checkbox: bool) -> Node:
    cells = [_cell(column, cell) for column, cell in zip(columns, row.cells, strict=True)]
    if checkbox:
        cells.insert(0, node("td", _checkbox(row.id), role="cell", class_="pc-check"))
    return node("tr", *cells, role="row", class_="pc-selected" if row.selected else None, data_key=row.id)


def _cell(column: Column, cell: Cell) -> Node:
    lines = [cell] if isinstance(cell, str | TablePart) else cell
    nodes = [_line(line) for line in lines if line]
    return node("td", node("div", *nodes), role="cell", class_=_class(column), data_name=column.name)


def _line(line: Line) -> Node:
    parts: Sequence[str | TablePart] = [line] if isinstance(line, str | TablePart) else line
    match parts:
        case [str(text)] | [TablePart(text=text, style="plain", href="", bars=(), at=None, button="")]:
            tooltip = "" if isinstance(parts[0], str) else parts[0].tooltip
            return node("span", text, class_="pc-line", title=tooltip or None)
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
    at = None if part.at is None else str(part.at)
    if part.button:
        return node(
            "button",
            part.text,
            type="button",
            class_="pc-row-button",
            title=part.tooltip or None,
            data_at=at,
            **{f"aria_{part.button}": "false"},
        )
    return node(
        "span" if at is None else "time", part.text, class_=style, title=part.tooltip or None, data_at=at
    )


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
