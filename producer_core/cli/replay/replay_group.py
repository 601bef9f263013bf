"""The `replay` commands: replays under way."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import options, output
from producer_core.cli.replay import replay_text

if TYPE_CHECKING:
    from producer_core.replay import Inconclusive, Newer, Operation
    from producer_core.store import Store

_BEGIN = "No replay yet. Begin one with producer-core dlq replay."


@click.group(short_help="Replays under way: progress, go, pause, resume, cancel.")
def replay() -> None:
    """Replays: each is an operation in the store that any process can look at, pause, and carry on.

    Begin one with producer-core dlq replay, in the dashboard, or from Python. One that was asked to look ahead first
    is «ready» when that is done, and waits for go.

    \b
      producer-core replay list
      producer-core replay status               the latest: progress, what the look ahead found, outcomes
      producer-core replay go OPERATION_ID --newer skip
      producer-core replay pause OPERATION_ID; producer-core replay resume OPERATION_ID

    Exit codes: 0 done, 2 it could not be done: there is no such replay, or it is in no state for that. See
    replay status --help for its own.
    """


@replay.command(name="list")
@options.store_option
@click.option(
    "--limit", type=options.ROWS, default=20, show_default=True, help="At most so many, the latest."
)
@options.as_json
def list_(store_path: Path | None, limit: int, as_json: bool) -> None:
    """The latest replays, each with how it stands."""
    from producer_core.replay import list_operations

    found = list_operations(_looked_after(store_path), limit=limit)
    if as_json:
        output.emit([replay_text.as_dict(operation, operation.message or "") for operation in found])
    elif not found:
        output.say(_BEGIN)
    else:
        columns = ("replay", "state", "began", "by", "done", "of", "failed again", "skipped", "in words")
        output.table(
            columns,
            map(_row, found),
            right=("done", "of", "failed again", "skipped"),
            shrink=("by", "in words"),
        )


@replay.command(short_help="How a replay stands; the latest, unless named.")
@click.argument("operation_id", required=False)
@options.store_option
@options.as_json
@click.pass_context
def status(ctx: click.Context, /, operation_id: str | None, store_path: Path | None, as_json: bool) -> None:
    """How one replay stands, what its look ahead found, and its outcomes by reason; without OPERATION_ID the latest.

    \b
    Exit codes: 0 it goes on or all went well, 1 it ended with some failed again, skipped or not sent,
    2 there is no such replay.
    """
    from producer_core.replay import get, list_operations

    store = _looked_after(store_path)
    latest = [] if operation_id else list_operations(store, limit=1)
    if not operation_id and not latest:
        output.emit(None) if as_json else output.say(_BEGIN)
        return
    operation = get(store, operation_id) if operation_id else latest[0]
    if as_json:
        output.emit(replay_text.as_dict(operation, operation.message or "", store))
    else:
        output.pairs(replay_text.facts(operation))
        replay_text.say_check(store, operation)
        replay_text.say_reasons(store, operation)
        replay_text.say_doubtful(store, operation)
    ctx.exit(1 if operation.ended and operation.acknowledged + operation.landed < operation.total else 0)


@replay.command(short_help="Start a replay whose look ahead is done.")
@click.argument("operation_id")
@click.option(
    "--newer",
    type=click.Choice(["auto", "skip", "send"]),
    help="Records whose key has a newer one on the topic: skip them, send them all the same, or (auto) skip them on "
    "topics that are compacted, or of which nobody can tell. As it was planned, unless given.",
)
@click.option(
    "--inconclusive",
    type=click.Choice(["keep", "send"]),
    help="Records that may be on their topic and are not found there: keep them as dead letters, or send them anyway, "
    "which may write a second copy. As it was planned, unless given.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many a second.")
@click.option("--canary", type=click.IntRange(min=0), help="So many are settled before the rest goes.")
@click.option(
    "--stop-percent",
    type=click.FloatRange(0, 100),
    help="It stops itself when more of the canary, or of the last ones, fail again.",
)
@options.yes
@options.store_option
@options.as_json
def go(
    operation_id: str,
    newer: Newer | None,
    inconclusive: Inconclusive | None,
    rate: float | None,
    canary: int | None,
    stop_percent: float | None,
    yes: bool,
    store_path: Path | None,
    as_json: bool,
) -> None:
    """Start a replay whose look ahead is done; a live producer of this store sends.

    Shows the dry run again and asks, unless --yes.
    """
    from producer_core.cli.replay import dry_run_text
    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay import get
    from producer_core.replay import go as act
    from producer_core.replay.dry_run import dry_run

    store = _store(store_path)
    operation = get(store, operation_id)
    if operation.state == "ready" and not yes:
        run = dry_run(
            store, DeadLetterFilter(), operation=operation, newer=newer, inconclusive=inconclusive, rate=rate
        )
        dry_run_text.say(run, err=True)
        options.confirm(f"Replay {output.count(run.total, 'dead letter')}?", yes)
    begun = act(
        store,
        operation_id,
        newer=newer,
        inconclusive=inconclusive,
        rate=rate,
        canary=canary,
        stop_percent=stop_percent,
        **_who(),
    )
    _say_goes(store, begun, as_json)


@replay.command(short_help="Send nothing more; the rest waits for resume.")
@click.argument("operation_id")
@options.store_option
@options.as_json
def pause(operation_id: str, store_path: Path | None, as_json: bool) -> None:
    """Send nothing more; what is on its way is settled, the rest waits for resume."""
    from producer_core.replay import pause as act

    _say("Paused", act(_store(store_path), operation_id, **_who()), as_json)


@replay.command(short_help="Go on with a paused replay.")
@click.argument("operation_id")
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), help="From now on at most so many a second."
)
@options.store_option
@options.as_json
def resume(operation_id: str, rate: float | None, store_path: Path | None, as_json: bool) -> None:
    """Go on with a paused replay, by a live producer of this store."""
    from producer_core.replay import resume as act

    store = _store(store_path)
    begun = act(store, operation_id, rate=rate, **_who())
    _say_goes(store, begun, as_json)


@replay.command(short_help="End a replay; what was not sent stays dead.")
@click.argument("operation_id")
@options.yes
@options.store_option
@options.as_json
def cancel(operation_id: str, yes: bool, store_path: Path | None, as_json: bool) -> None:
    """End a replay for good; what was not sent stays a dead letter."""
    from producer_core.replay import cancel as act
    from producer_core.replay import get

    store = _looked_after(store_path)
    left = get(store, operation_id).left
    options.confirm(
        f"Cancel replay {operation_id}? {output.count(left, 'dead letter')} will not be sent.", yes
    )
    done = act(store, operation_id, **_who())
    _say(
        "Cancelled" if done.ended else "Is being cancelled, as soon as what is on its way is settled",
        done,
        as_json,
    )


def _store(path: Path | None) -> Store:
    from producer_core.store import Store

    return Store.open(path, create=False)


def _looked_after(path: Path | None) -> Store:
    """The store, in which a cancelled replay that nobody holds any more has ended."""
    from producer_core.errors import StoreError
    from producer_core.replay.operation import end_abandoned

    store = _store(path)
    with contextlib.suppress(StoreError):  # to look is all that was asked for
        end_abandoned(store, time.time())
    return store


def _who() -> dict[str, Any]:
    return {"who": options.current_user(), "origin": "cli"}


def _say(word: str, operation: Operation, as_json: bool) -> None:
    text = f"{word}: replay {operation.operation_id}, {operation.left:,} of {operation.total:,} left."
    output.emit(replay_text.as_dict(operation, text)) if as_json else output.say(text)


def _say_goes(store: Store, operation: Operation, as_json: bool) -> None:
    """Who goes on with it, and for what it waits."""
    from producer_core.replay import runners

    now = time.time()
    held = (operation.lease_until or 0.0) - now if operation.owner else 0.0
    alive = runners(store, now, cluster_id=operation.cluster_id)
    if held > 0:
        wait = f"for the process that has it, or for the end of its lease, within {max(held, 1):.0f} s"
        _say(f"Waits {wait}", operation, as_json)
    else:
        _say(
            "A live producer goes on with it within seconds" if alive else "Waits for a runner",
            operation,
            as_json,
        )
    if not alive:
        output.say(
            "No live producer of this store runs replays: it waits for one, or for producer-core dlq replay with the "
            "same selection and --bootstrap-servers.",
            err=True,
        )


def _row(operation: Operation) -> tuple[str | int | None, ...]:
    return (
        operation.operation_id,
        operation.state,
        output.ago(operation.created_at),
        operation.who,
        operation.total - operation.left,
        operation.total,
        operation.failed_again,
        operation.skipped,
        output.shorten(operation.message or replay_text.STATES[operation.state], 60),
    )
