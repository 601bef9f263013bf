"""Fill the reference pages of the site from the code, as a hook of MkDocs.

A page contains a marker such as `<!-- reference: cli -->`. The hook replaces it with the text of the function of this
name.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import producer_core  # noqa: E402
from producer_core import errors  # noqa: E402
from producer_core.cli import main  # noqa: E402
from producer_core.config import DEFAULTS, NAMES, RetryConfig  # noqa: E402
from producer_core.kafka.classify import lookup  # noqa: E402
from producer_core.kafka.error_codes import TABLE  # noqa: E402
from producer_core.store.migrate import migrations  # noqa: E402

_MARKER = re.compile(r"<!-- reference: (\w+) -->")
_COLUMN = re.compile(r"^\s*\"?(\w+)\"?\s+([A-Z]+(?:\[\])?)([^-]*?),?\s*(?:--\s*(.*))?$")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each marker of a page."""
    return _MARKER.sub(lambda match: SECTIONS[match[1]](), markdown)


def settings() -> str:
    """Return the client defaults and the accepted names as tables."""
    defaults = _table(
        ("setting", "default"), ((f"`{name}`", f"`{value}`") for name, value in DEFAULTS.items())
    )
    names = _table(
        ("accepted name", "librdkafka's name"),
        ((f"`{name}`", f"`{to}`") for name, to in sorted(NAMES.items())),
    )
    retry = _table(
        ("field", "default"),
        (
            (f"`{field.name}`", f"`{getattr(RetryConfig(), field.name)}`")
            for field in dataclasses.fields(RetryConfig)
        ),
    )
    return f"### Client defaults\n\n{defaults}\n\n### Names\n\n{names}\n\n### RetryConfig\n\n{retry}"


def cli() -> str:
    """Return the help of every command, one section each."""
    return "\n\n".join(_commands(main, click.Context(main, info_name="producer-core"), 2))


def error_codes() -> str:
    """Return the table of error codes by kind."""
    sections = []
    for kind in dict.fromkeys(row[1] for row in TABLE):
        rows = (
            (f"`{code}`", str(lookup(code).number or ""), f"`{verdict}`", meaning, advice)
            for code, of_kind, verdict, meaning, advice in TABLE
            if of_kind == kind
        )
        sections.append(
            f"### Kind: {kind}\n\n{_table(('code', 'number', 'verdict', 'meaning', 'advice'), rows)}"
        )
    return "\n\n".join(sections)


def exceptions() -> str:
    """Return the tree of exceptions as errors.py draws it."""
    return f"```text\n{(errors.__doc__ or '').partition(chr(10) * 2)[2].strip()}\n```"


def store() -> str:
    """Return the tables of the store with their columns and the comments of the migrations."""
    tables: dict[str, list[tuple[str, str, str]]] = {}
    for migration in migrations():
        for name, body in re.findall(r"CREATE TABLE (\w+) \(((?s:.*?)\n|.*)\);", migration.sql):
            tables[name] = [
                (f"`{match[1]}`", match[2], match[4] or "")
                for match in map(_COLUMN.match, body.splitlines())
                if match and match[1] not in ("PRIMARY", "UNIQUE")
            ]
        added = r"ALTER TABLE (\w+) ADD COLUMN (\w+) ([A-Z]+)[^;\n]*;(?:\s*--\s*(.*))?"
        for table, column, kind, comment in re.findall(added, migration.sql):
            tables.setdefault(table, []).append((f"`{column}`", kind, comment))
    return "\n\n".join(
        f"### {name}\n\n{_table(('column', 'type', ''), columns)}" for name, columns in sorted(tables.items())
    )


def api() -> str:
    """Return a directive of mkdocstrings for each public name."""
    return "\n\n".join(
        f"::: producer_core.{module}.{name}" for name, module in sorted(producer_core._MODULES.items())
    )


def _commands(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    name = context.command_path
    yield f"{'#' * min(level, 4)} {name}\n\n```text\n{command.get_help(context)}\n```"
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None:
                inner = click.Context(found, info_name=child, parent=context, max_content_width=100)
                yield from _commands(found, inner, level + 1)


def _table(head: tuple[str, ...], rows: Any) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in lines
    )


SECTIONS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "cli": cli,
    "error_codes": error_codes,
    "exceptions": exceptions,
    "store": store,
    "api": api,
}
