"""What a command prints: tables for a terminal, plain columns for a pipe, JSON for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import click
import orjson

from producer_core.cli.plain import in_json, plain

_GAP = 2
_NARROWEST = 5
_BARS = "·▁▂▃▄▅▆▇█"

Cell = str | int | float | None


def emit(value: Any) -> None:
    """JSON on standard output, indented."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    click.echo(in_json(orjson.dumps(value, default=str, option=options).decode()))


def say(text: str, *, err: bool = False, sign: str = "") -> None:
    """Lines that may have text from records in them; see `plain`. A `sign` before them is ours and may be coloured."""
    click.echo(sign + plain(text), err=err)


def is_terminal() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty()


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    right: Iterable[str] = (),
    shrink: Iterable[str] = (),
) -> None:
    """Rows under their columns' names; columns in `right` stand to the right.

    On a terminal that is too narrow the columns in `shrink` lose their ends; the others are never cut.
    """
    texts = [[_text(cell) for cell in row] for row in rows]
    if is_terminal():
        _rich_table(columns, texts, {*right}, {*shrink})
    else:
        _plain_table(columns, texts, {*right})


def pairs(items: Iterable[tuple[str, Cell]]) -> None:
    """Names and values, one a line, aligned."""
    items = [(name, _text(value)) for name, value in items]
    width = max((len(name) for name, _ in items), default=0)
    for name, value in items:
        click.echo(f"{name:<{width}}  {value}".rstrip())


def count(number: int, noun: str, plural: str = "") -> str:
    """«1 message», «2,000 messages»."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def milliseconds(seconds: float | None) -> str:
    """A latency as a person reads it."""
    if seconds is None:
        return "-"
    value = seconds * 1000
    return f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"


def moment(at: float | None) -> str:
    """A moment in UTC, to the second."""
    return "-" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def duration(seconds: float) -> str:
    """A length of time in its largest fitting unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def sparkline(counts: Sequence[int]) -> str:
    """A row of bars, the highest as high as a letter; what is not 0 is never invisible."""
    highest = max(counts, default=0)
    return "".join(_BARS[-(-number * 8 // highest)] if number > 0 else "·" for number in counts)


def ago(at: float | None) -> str:
    """How long since a moment."""
    return "never" if at is None else f"{duration(time.time() - at)} ago"


def size(number: int | None) -> str:
    """Bytes in a unit that a person reads."""
    if number is None:
        return "-"
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def shorten(text: str, width: int) -> str:
    """One line, at most so wide."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.1f}" if isinstance(cell, float) else plain(str(cell))


def _rich_table(columns: Sequence[str], rows: list[list[str]], right: set[str], shrink: set[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    widths = fitted(columns, rows, shrink, Console().width)
    console = Console(width=max(Console().width, sum(widths) + _GAP * len(widths)))
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name, width in zip(columns, widths, strict=True):
        side: Literal["left", "right"] = "right" if name in right else "left"
        drawn.add_column(Text(name), justify=side, width=width, no_wrap=True, overflow="ellipsis")
    for row in rows:
        drawn.add_row(*map(Text, row))
    console.print(drawn, soft_wrap=True)


def fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], shrink: set[str], room: int) -> list[int]:
    """The columns' widths in a line of `room`: the widest of those that may shrink give way, down to a few letters."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    over = sum(widths) + _GAP * (len(widths) - 1) - room
    places = [place for place, name in enumerate(columns) if name in shrink]
    while over > 0 and places:
        widest = max(places, key=lambda place: widths[place])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
        over -= 1
    return widths


def _plain_table(columns: Sequence[str], rows: list[list[str]], right: set[str]) -> None:
    lines = [list(columns), *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        cells = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, line, widths, strict=True)
        )
        click.echo("  ".join(cells).rstrip())
