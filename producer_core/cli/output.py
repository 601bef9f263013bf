"""What a command prints: tables for a terminal, plain columns for a pipe, JSON for programs."""

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

from producer_core.cli.plain_text import in_json, plain

_GAP = 2
_NARROWEST = 5
_BARS = "·▁▂▃▄▅▆▇█"

Cell = str | int | float | None


_EARLIEST = 100_000_000.0
"""Smaller numbers are lengths of time."""
_LATEST = 10_000_000_000.0
_MOMENTS = ("at", "since", "until", "first_seen", "last_seen")
_FOREIGN = ("value", "headers", "key", "settings", "selection", "query")
"""What belongs to messages and settings is given as it is."""


def emit(value: Any) -> None:
    """JSON on standard output, indented; each moment in seconds since 1970 is given as ISO 8601, too, in `<name>_iso`."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    click.echo(in_json(orjson.dumps(_with_iso(value), default=str, option=options).decode()))


def _with_iso(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_iso(one) for one in value]
    if not isinstance(value, dict):
        return value
    found: dict[Any, Any] = {}
    for name, one in value.items():
        found[name] = one if name in _FOREIGN else _with_iso(one)
        if (
            isinstance(name, str)
            and (name in _MOMENTS or name.endswith(("_at", "_until")))
            and _is_moment(one)
        ):
            found[f"{name}_iso"] = iso(one)
    return found


def _is_moment(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _EARLIEST < value < _LATEST


def iso(at: float) -> str:
    """A moment as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def room() -> int | None:
    """Columns that a line may have: those of the terminal, in a pipe what $COLUMNS asks for; None where nothing says."""
    if is_terminal():
        from rich.console import Console

        return Console().width
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else None


def advise(text: str) -> None:
    """A sentence of advice, indented, in lines that fit."""
    indent = "  "
    say(
        textwrap.fill(
            text, room() or max(len(text), 1) + len(indent), initial_indent=indent, subsequent_indent=indent
        )
    )


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

    On a terminal that is too narrow, and in a pipe with $COLUMNS, the columns in `shrink` lose their ends; the others are
    never cut.
    """
    texts = [[_text(cell) for cell in row] for row in rows]
    if is_terminal():
        _rich_table(columns, texts, {*right}, {*shrink})
    else:
        _plain_table(columns, texts, {*right}, {*shrink})


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
    """A row of bars, the highest as high as a dead letter; what is not 0 is never invisible."""
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


def cut(text: str, width: int) -> str:
    """Text as it is where it fits, else without its end."""
    return text if len(text) <= width else text[: width - 1] + "…"


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


def _plain_table(columns: Sequence[str], rows: list[list[str]], right: set[str], shrink: set[str]) -> None:
    lines, given = [list(columns), *rows], room()
    widths = fitted(columns, rows, shrink if given else set(), given or 0)
    for line in lines:
        cells = (
            cut(cell, width).rjust(width) if name in right else cut(cell, width).ljust(width)
            for name, cell, width in zip(columns, line, widths, strict=True)
        )
        click.echo("  ".join(cells).rstrip())
