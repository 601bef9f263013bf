"""The `replay` commands: replays under way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import options, show

if TYPE_CHECKING:
    from producer_core.replay import Operation
    from producer_core.store import Store


@click.group(short_help="Replays under way: progress, pause, resume, cancel.")
def replay() -> None:
    """Replays: each is an operation in the store that any process can look at, pause, and carry on.

    Begin one with producer-core dlq replay, in the dashboard, or from Python.
    """


@replay.command(name="list")
@options.store_option
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many, the latest."
)
@options.as_json
def list_(store_path: Path | None, limit: int, as_json: bool) -> None:
    """The latest replays, each with how it stands."""
    from producer_core.cli.dlq_replay import as_dict
    from producer_core.replay import list_operations

    found = list_operations(_store(store_path), limit=limit)
    if as_json:
        show.emit([as_dict(operation, operation.message or "") for operation in found])
    elif not found:
        click.echo("No replay yet. Begin one with producer-core dlq replay.")
    else:
        columns = ("replay", "state", "began", "by", "done", "of", "failed again", "skipped", "in words")
        show.table(
            columns,
            map(_row, found),
            right=("done", "of", "failed again", "skipped"),
            shrink=("by", "in words"),
        )


@replay.command()
@click.argument("operation_id", required=False)
@options.store_option
@options.as_json
def status(operation_id: str | None, store_path: Path | None, as_json: bool) -> None:
    """How one replay stands; without OPERATION_ID the latest."""
    from producer_core.cli.dlq_replay import as_dict
    from producer_core.replay import get, list_operations

    store = _store(store_path)
    latest = [] if operation_id else list_operations(store, limit=1)
    if not operation_id and not latest:
        show.emit(None) if as_json else click.echo("No replay yet. Begin one with producer-core dlq replay.")
        return
    operation = get(store, operation_id) if operation_id else latest[0]
    if as_json:
        show.emit(as_dict(operation, operation.message or ""))
        return
    show.pairs(
        [
            ("replay", operation.operation_id),
            ("state", operation.state),
            ("begun", f"{show.moment(operation.created_at)} by {operation.who} ({operation.origin})"),
            ("acknowledged", f"{operation.acknowledged:,} of {operation.total:,}"),
            ("landed already", operation.landed),
            ("failed again", operation.failed_again),
            ("skipped", operation.skipped),
            ("left", operation.left),
            ("in words", operation.message or "-"),
        ]
    )
    for row in store.rows("replay_reasons", operation=operation.operation_id)[:5]:
        click.echo(f"  {row['count']:,} {row['state']}: {row['text']}")


@replay.command(short_help="Send nothing more; the rest waits for resume.")
@click.argument("operation_id")
@options.store_option
def pause(operation_id: str, store_path: Path | None) -> None:
    """Send nothing more; what is on its way is settled, the rest waits for resume."""
    from producer_core.replay import pause as act

    _say("Paused", act(_store(store_path), operation_id, **_who()))


@replay.command()
@click.argument("operation_id")
@options.store_option
def resume(operation_id: str, store_path: Path | None) -> None:
    """Go on with a paused replay, by a live producer of this store."""
    from producer_core.replay import resume as act

    _say("Goes on", act(_store(store_path), operation_id, **_who()))


@replay.command()
@click.argument("operation_id")
@options.yes
@options.store_option
def cancel(operation_id: str, yes: bool, store_path: Path | None) -> None:
    """End a replay for good; what was not sent stays a dead letter."""
    from producer_core.replay import cancel as act
    from producer_core.replay import get

    store = _store(store_path)
    left = get(store, operation_id).left
    options.confirm(f"Cancel replay {operation_id}? {show.count(left, 'dead letter')} will not be sent.", yes)
    _say("Cancelled", act(store, operation_id, **_who()))


def _store(path: Path | None) -> Store:
    from producer_core.store import Store

    return Store.open(path, create=False)


def _who() -> dict[str, Any]:
    return {"who": options.me(), "origin": "cli"}


def _say(word: str, operation: Operation) -> None:
    click.echo(f"{word}: replay {operation.operation_id}, {operation.left:,} of {operation.total:,} left.")


def _row(operation: Operation) -> tuple[str | int | None, ...]:
    return (
        operation.operation_id,
        operation.state,
        show.ago(operation.created_at),
        operation.who,
        operation.total - operation.left,
        operation.total,
        operation.failed_again,
        operation.skipped,
        show.shorten(operation.message or "", 60),
    )
