"""The `dlq` commands that archive, restore and purge dead letters."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.plural import plural, them
from producer_core.cli import options, output
from producer_core.cli.dlq import filter_options
from producer_core.cli.lazy_group import Failed
from producer_core.errors import ConfigError

if TYPE_CHECKING:
    from producer_core.dlq import ArchiveResult, DeadLetters


@click.command(short_help="Archive dead letters; restore undoes it.")
@filter_options.filter_options
@options.yes
@options.store_option
@options.as_json
def archive(store_path: Path | None, yes: bool, as_json: bool, **given: Any) -> None:
    """Archive the selected dead letters. Nothing is deleted. "dlq clear" is the same command.

    Records of a running replay stay with the replay; the command reports them. A planned replay skips records that are
    archived before it starts.

    \b
      producer-core dlq archive --topic orders --until 7d
    """
    dead = _dead(store_path)
    where = filter_options.frozen(dead, filter_options.chosen(given))
    number = dead.count(where)
    if number:
        options.confirm(f"Archive {filter_options.summary(dead, where, number)}?", yes)
    result = dead.archive(where, who=options.current_user(), origin="cli")
    _print(result, as_json)
    if result.count and not as_json:
        store = f" --store {shlex.quote(str(store_path))}" if store_path else ""
        output.say(f"Undo: producer-core dlq restore --moment {result.moment!r}{store}")


@click.command(short_help="Restore archived dead letters.")
@filter_options.filter_options
@click.option("--moment", type=float, help="Undo one archive command, by the number it printed.")
@options.yes
@options.store_option
@options.as_json
def restore(store_path: Path | None, moment: float | None, yes: bool, as_json: bool, **given: Any) -> None:
    """Restore the selected archived dead letters, so that they are pending again.

    With --moment, restore exactly the dead letters of one archive command, except those that have changed since; the
    command reports them.

    \b
      producer-core dlq restore --topic orders
    """
    dead = _dead(store_path)
    where = filter_options.frozen(dead, filter_options.chosen(given, state="archived"))
    number = dead.count(where)
    if number and moment is None:
        options.confirm(f"Restore {filter_options.summary(dead, where, number)}?", yes)
    _print(dead.restore(where, who=options.current_user(), origin="cli", moment=moment), as_json)


@click.command(short_help="Delete archived dead letters permanently.")
@filter_options.filter_options
@click.option(
    "--min-age",
    type=options.DurationType(),
    default="1d",
    show_default=True,
    help="Minimum time since they were archived.",
)
@click.option("--confirmation", help='Confirmation for scripts: "purge" and the number of dead letters.')
@options.store_option
@options.as_json
def purge(
    store_path: Path | None, min_age: float, confirmation: str | None, as_json: bool, **given: Any
) -> None:
    """Delete the keys, values and attempts of archived dead letters permanently. This cannot be undone.

    Only dead letters that were archived at least --min-age ago are purged. To confirm, type "purge" and their number;
    the audit log also records a purge that was not confirmed. New records reuse the space in the store's file. To remove
    the bytes from the file at once, run "producer-core store compact".

    \b
      producer-core dlq purge --topic orders
    """
    dead = _dead(store_path)
    where = filter_options.frozen(dead, filter_options.chosen(given, state="archived"))
    phrase = dead.purge_phrase(where, min_age=min_age)
    typed = phrase if phrase == "purge 0" else confirmation or _typed(phrase)
    try:
        result = dead.purge(
            where, who=options.current_user(), origin="cli", confirmation=typed, min_age=min_age
        )
    except ConfigError as error:
        raise Failed(str(error), f"For scripts: --confirmation {phrase!r}.") from error
    _print(result, as_json)
    if not result.count and not as_json and (younger := dead.count(where)):
        output.say(_younger(younger))


COMMANDS = (archive, restore, purge)


def _dead(store_path: Path | None) -> DeadLetters:
    from producer_core.dlq import DeadLetters
    from producer_core.store import Store

    return DeadLetters(Store.open(store_path, create=False))


def _younger(number: int) -> str:
    """Return how to purge archived dead letters that are younger than the minimum age."""
    younger = plural(number, "matching dead letter was", "matching dead letters were")
    return f"{younger} archived more recently. Specify a lower --min-age to purge {them(number)}, for example --min-age 1h."


def _typed(phrase: str) -> str:
    """Return the typed confirmation, or "" without a terminal, which the purge refuses and records in the audit log."""
    if not sys.stdin.isatty():
        return ""
    answer: str = click.prompt(
        f"This permanently deletes the dead letters. Type {phrase!r} to continue",
        default="",
        show_default=False,
    )
    return answer


def _print(result: ArchiveResult, as_json: bool) -> None:
    output.emit(dataclasses.asdict(result)) if as_json else output.say(result.text)
