"""A group of commands, whose modules are imported only when a command is called."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from producer_core.cli.plain_text import plain
from producer_core.errors import ApprovalRequired, ProducerError

_EXTRAS = {
    **dict.fromkeys(("streamlit", "plotly", "pandas"), "dashboard"),
    **dict.fromkeys(("faker", "numpy"), "simulate"),
    "jgo": "broker",
    "pyspark": "spark",
    "redis": "redis",
}
INTERRUPTED = 130
WAITING = 3
"""The exit code of a command whose replay waits for the approval of a second person."""


class Command(NamedTuple):
    """A command's name (also the name of its function), its help line, and its module in the group's package."""

    name: str
    help: str
    module: str


class Failed(click.ClickException):
    """The command failed: one line with the problem, one with the fix; exit code 2."""

    exit_code = 2

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.fix = fix

    def show(self, file: Any = None) -> None:
        click.echo(f"Error: {plain(self.message)}", err=True)
        if self.fix:
            click.echo(f"  {plain(self.fix)}", err=True)


class WaitsForApproval(Failed):
    """The replay of the command waits for the approval of a second person; exit code 3."""

    exit_code = WAITING


class LazyGroup(click.Group):
    """Prints its help without importing a command, and a ProducerError as problem and fix without a traceback."""

    def __init__(
        self, *args: Any, commands_elsewhere: Sequence[Command] = (), package: str = "", **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._elsewhere = {command.name: command for command in commands_elsewhere}
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._elsewhere, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._elsewhere:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(
            _import(f"{self._package}.{self._elsewhere[cmd_name].module}"), cmd_name
        )
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], known, n=1)
            hint = f" Did you mean {close[0]}?" if close else f" Commands: {', '.join(known)}."
            ctx.fail(f"Unknown command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            own = [(name, command.get_short_help_str(80)) for name, command in sorted(self.commands.items())]
            formatter.write_dl(
                [*((command.name, command.help) for command in self._elsewhere.values()), *own]
            )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ProducerError as error:
            failure = WaitsForApproval if isinstance(error, ApprovalRequired) else Failed
            raise failure(error.what, error.fix) from error
        except KeyboardInterrupt:
            click.echo("\nInterrupted.", err=True)
            ctx.exit(INTERRUPTED)


def _import(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise Failed(
            f"This command requires the Python package {error.name!r}, which is not installed.",
            f"pip install 'producer-core[{extra}]'",
        ) from error
