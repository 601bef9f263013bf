"""The commands that put dead letters aside, bring them back, or delete them for good."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import options, output
from producer_core.cli.dlq import filter_options
from producer_core.cli.lazy_group import Failed
from producer_core.errors import ConfigError

if TYPE_CHECKING:
    from producer_core.dlq import ArchiveResult, DeadLetters


@click.command(short_help="Put dead letters aside; restore brings them back.")
@filter_options.filter_options
@options.yes
@options.store_option
@options.as_json
def archive(store_path: Path | None, yes: bool, as_json: bool, **given: Any) -> None:
    """Archive the dead letters that the selection matches: nothing is deleted. `dlq clear` is the same.

    What is being replayed stays with its replay, and you are told; a replay that was only planned leaves out what you
    archived before it came to it.

    \b
      producer-core dlq archive --topic orders --until 7d
    """
    dead = _dead(store_path)
    where = filter_options.frozen(dead, filter_options.chosen(given))
    number = dead.count(where)
    if number:
        options.confirm(f"Archive {filter_options.what(dead, where, number)}?", yes)
    result = dead.archive(where, who=options.current_user(), origin="cli")
    _say(result, as_json)
    if result.count and not as_json:
        store = f" --store {shlex.quote(str(store_path))}" if store_path else ""
        output.say(f"Undo: producer-core dlq restore --moment {result.moment!r}{store}")


@click.command(short_help="Bring archived dead letters back.")
@filter_options.filter_options
@click.option("--moment", type=float, help="Exactly what one archive put aside, by the number it printed.")
@options.yes
@options.store_option
@options.as_json
def restore(store_path: Path | None, moment: float | None, yes: bool, as_json: bool, **given: Any) -> None:
    """Bring back archived dead letters that the selection matches; they are dead letters again.

    With --moment exactly what one archive put aside, but for what somebody has changed since; you are told.
    """
    dead = _dead(store_path)
    where = filter_options.frozen(dead, filter_options.chosen(given, state="archived"))
    number = dead.count(where)
    if number and moment is None:
        options.confirm(f"Restore {filter_options.what(dead, where, number)}?", yes)
    _say(dead.restore(where, who=options.current_user(), origin="cli", moment=moment), as_json)


@click.command(short_help="Delete archived dead letters for good.")
@filter_options.filter_options
@click.option(
    "--min-age",
    type=options.DurationType(),
    default="1d",
    show_default=True,
    help="Archived at least so long ago.",
)
@click.option("--confirmation", help="What would be typed, for scripts: the words «purge» and the number.")
@options.store_option
@options.as_json
def purge(
    store_path: Path | None, min_age: float, confirmation: str | None, as_json: bool, **given: Any
) -> None:
    """Delete keys, values and attempts of archived dead letters for good. This cannot be undone.

    Only what was archived at least --min-age ago. You type «purge» and the number to confirm; a purge that was not
    confirmed is in the audit as well. Nothing reads the bytes any more, and new records use their room in the store's
    file; producer-core store compact takes them out of the file at once.
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
    _say(result, as_json)


COMMANDS = (archive, restore, purge)


def _dead(store_path: Path | None) -> DeadLetters:
    from producer_core.dlq import DeadLetters
    from producer_core.store import Store

    return DeadLetters(Store.open(store_path, create=False))


def _typed(phrase: str) -> str:
    """What a person typed; nothing where nobody is there, which is refused and written to the audit."""
    if not sys.stdin.isatty():
        return ""
    answer: str = click.prompt(
        f"This deletes for good. Type {phrase!r} to go on", default="", show_default=False
    )
    return answer


def _say(result: ArchiveResult, as_json: bool) -> None:
    output.emit(dataclasses.asdict(result)) if as_json else output.say(result.text)
