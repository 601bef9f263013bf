"""The output of commands: tables on a terminal, plain columns in a pipe, and JSON."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import click
import orjson

from producer_core._internal.plural import plural
from producer_core.cli.plain_text import in_json, plain

_GAP = 2
_MIN_WIDTH = 5
_BARS = "·▁▂▃▄▅▆▇█"

Cell = str | int | float | None


_EARLIEST = 100_000_000.0
"""Smaller numbers are durations, not times."""
_LATEST = 10_000_000_000.0
_TIME_KEYS = ("at", "since", "until", "first_seen", "last_seen")
_OPAQUE_KEYS = ("value", "headers", "key", "settings", "selection", "query")
"""The values of these keys come from messages and settings and are printed unchanged."""


def emit(value: Any) -> None:
    """Print indented JSON. Each time in seconds since 1970 is also printed as ISO 8601, under `<name>_iso`."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    click.echo(in_json(orjson.dumps(_with_iso(value), default=str, option=options).decode()))


def _with_iso(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_iso(item) for item in value]
    if not isinstance(value, dict):
        return value
    found: dict[Any, Any] = {}
    for name, item in value.items():
        found[name] = item if name in _OPAQUE_KEYS else _with_iso(item)
        if (
            isinstance(name, str)
            and (name in _TIME_KEYS or name.endswith(("_at", "_until")))
            and _is_time(item)
        ):
            found[f"{name}_iso"] = iso(item)
    return found


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _EARLIEST < value < _LATEST


def iso(at: float) -> str:
    """Return a time as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line_width() -> int | None:
    """Return the width of the terminal, or of $COLUMNS in a pipe; None without a limit."""
    if is_terminal():
        from rich.console import Console

        return Console().width
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) > 0 else None


def advise(text: str) -> None:
    """Print a sentence of advice, indented and wrapped."""
    indent = "  "
    width = line_width() or max(len(text), 1) + len(indent)
    say(textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent))


def say(text: str, *, err: bool = False, sign: str = "") -> None:
    """Print text that may contain text from records, escaped by `plain`. `sign` is printed unescaped before it."""
    click.echo(sign + plain(text), err=err)


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    right: Iterable[str] = (),
    shrink: Iterable[str] = (),
) -> None:
    """Print rows under their column names. The columns in `right` are right-aligned.

    Where the line is too narrow (a terminal, or a pipe with $COLUMNS), only the columns in `shrink` are truncated.
    """
    texts = [[_text(cell) for cell in row] for row in rows]
    if is_terminal():
        _rich_table(columns, texts, {*right}, {*shrink})
    else:
        _plain_table(columns, texts, {*right}, {*shrink})


def pairs(items: Iterable[tuple[str, Cell]]) -> None:
    """Print names and values, one pair per line, aligned."""
    items = [(name, _text(value)) for name, value in items]
    width = max((len(name) for name, _ in items), default=0)
    for name, value in items:
        click.echo(f"{name:<{width}}  {value}".rstrip())


def milliseconds(seconds: float | None) -> str:
    """Return a latency in milliseconds as text."""
    if seconds is None:
        return "-"
    value = seconds * 1000
    return f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"


def moment(at: float | None) -> str:
    """Return a time in UTC, with seconds."""
    return "-" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def duration(seconds: float) -> str:
    """Return a duration in its largest fitting unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def sparkline(counts: Sequence[int]) -> str:
    """Return a bar chart in one line. Every count above 0 has a visible bar."""
    highest = max(counts, default=0)
    return "".join(_BARS[-(-number * 8 // highest)] if number > 0 else "·" for number in counts)


def ago(at: float | None) -> str:
    """Return the time since then as text."""
    return "never" if at is None else f"{duration(time.time() - at)} ago"


def became_dead(settled: int) -> str:
    """Return the base of a share of dead letters, after `… of`."""
    return plural(settled, "settled message became a dead letter", "settled messages became dead letters")


def size(number: int | None) -> str:
    """Return a number of bytes in a fitting unit."""
    if number is None:
        return "-"
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def cut(text: str, width: int) -> str:
    """Return the text truncated to `width` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def shorten(text: str, width: int) -> str:
    """Return the text as one line of at most `width` characters."""
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


def fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], shrink: set[str], limit: int) -> list[int]:
    """Return the column widths for a line of `limit` characters. The widest columns in `shrink` shrink first."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    excess = sum(widths) + _GAP * (len(widths) - 1) - limit
    candidates = [index for index, name in enumerate(columns) if name in shrink]
    while excess > 0 and candidates:
        widest = max(candidates, key=lambda index: widths[index])
        if widths[widest] <= _MIN_WIDTH:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def _plain_table(columns: Sequence[str], rows: list[list[str]], right: set[str], shrink: set[str]) -> None:
    lines, limit = [list(columns), *rows], line_width()
    widths = fitted(columns, rows, shrink if limit else set(), limit or 0)
    for line in lines:
        cells = (
            cut(cell, width).rjust(width) if name in right else cut(cell, width).ljust(width)
            for name, cell, width in zip(columns, line, widths, strict=True)
        )
        click.echo("  ".join(cells).rstrip())
