"""What a command prints: tables for a terminal, plain columns for a pipe, JSON for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import orjson

Cell = str | int | float | None


def emit(value: Any) -> None:
    """JSON on standard output, indented."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    click.echo(orjson.dumps(value, default=str, option=options).decode())


def is_terminal() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty()


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: Iterable[str] = ()) -> None:
    """Rows under their columns' names; numbers, and the columns named in `right`, stand to the right."""
    texts = [[_text(cell) for cell in row] for row in rows]
    numeric = {*right}
    if is_terminal():
        _rich_table(columns, texts, numeric)
    else:
        _plain_table(columns, texts, numeric)


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
    return f"{cell:,.1f}" if isinstance(cell, float) else str(cell)


def _rich_table(columns: Sequence[str], rows: list[list[str]], right: set[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        drawn.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))
    Console().print(drawn)


def _plain_table(columns: Sequence[str], rows: list[list[str]], right: set[str]) -> None:
    lines = [list(columns), *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        cells = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, line, widths, strict=True)
        )
        click.echo("  ".join(cells).rstrip())
