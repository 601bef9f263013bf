"""The `replay` commands: list, inspect and control replays."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.cli.dlq import approvals
from producer_core.cli.replay import replay_text

if TYPE_CHECKING:
    from producer_core.replay import Inconclusive, Newer, Operation
    from producer_core.store import Store

_NO_REPLAY = "No replay yet. Start one with producer-core dlq replay."
_NO_MATCH = "No replay of this application or cluster."


@click.group(short_help="Inspect, start, pause, resume and cancel replays.")
def replay() -> None:
    """Inspect and control replays. Each replay is an operation in the store that any process can see and control.

    Start a replay with producer-core dlq replay, in the dashboard, or from Python. A replay that needs a decision is
    "ready" after its preflight check and waits for "go".

    \b
      producer-core replay list
      producer-core replay status               the latest replay: progress, preflight check, outcomes
      producer-core replay go OPERATION_ID --newer skip
      producer-core replay pause OPERATION_ID; producer-core replay resume OPERATION_ID

    Exit codes: 0 done, 2 the replay does not exist or its state does not allow the command, 3 a second person must approve
    the replay first. For the exit codes of status, see replay status --help.
    """


@replay.command(name="list")
@options.application
@options.cluster
@options.store_option
@click.option("--limit", type=options.ROWS, default=20, show_default=True, help="Maximum number of replays.")
@options.as_json
def list_(
    application: str | None, cluster: str | None, store_path: Path | None, limit: int, as_json: bool
) -> None:
    """List the latest replays with their states.

    --application selects the replays of its dead letters; a replay of several applications is listed for each of them.

    \b
      producer-core replay list --application checkout
    """
    from producer_core.replay import list_operations

    found = list_operations(_current_store(store_path), limit=limit, application=application, cluster=cluster)
    if as_json:
        output.emit([replay_text.as_dict(operation, operation.message or "") for operation in found])
    elif not found:
        output.say(_NO_REPLAY if application is None and cluster is None else _NO_MATCH)
    else:
        columns = ("replay", "state", "started", "by", "done", "of", "failed again", "skipped", "message")
        output.table(
            columns,
            map(_row, found),
            right=("done", "of", "failed again", "skipped"),
            shrink=("by", "message"),
        )


@replay.command(short_help="Show one replay, by default the latest.")
@click.argument("operation_id", required=False)
@options.store_option
@options.as_json
@click.pass_context
def status(ctx: click.Context, /, operation_id: str | None, store_path: Path | None, as_json: bool) -> None:
    """Show one replay: state, preflight check, and outcomes by reason. Without OPERATION_ID, show the latest.

    \b
    Exit codes: 0 in progress or all delivered, 1 finished, but records failed again, were skipped, or were not sent,
    2 the replay does not exist.
    """
    from producer_core.replay import get, list_operations

    store = _current_store(store_path)
    latest = [] if operation_id else list_operations(store, limit=1)
    if not operation_id and not latest:
        output.emit(None) if as_json else output.say(_NO_REPLAY)
        return
    operation = get(store, operation_id) if operation_id else latest[0]
    if as_json:
        output.emit(replay_text.as_dict(operation, operation.message or "", store))
    else:
        output.pairs(replay_text.facts(operation))
        approvals.print_request(store, operation.operation_id)
        replay_text.print_check(store, operation)
        replay_text.print_reasons(store, operation)
        replay_text.print_doubtful(store, operation)
    ctx.exit(1 if operation.ended and operation.acknowledged + operation.landed < operation.total else 0)


@replay.command(short_help="Start a replay that is ready.")
@click.argument("operation_id")
@click.option(
    "--newer",
    type=click.Choice(["auto", "skip", "send"]),
    help="Records whose key has a newer record. Default: as planned.",
)
@click.option(
    "--inconclusive",
    type=click.Choice(["keep", "send"]),
    help="Records possibly on their topic but not found. Default: as planned.",
)
@click.option("--rate", type=options.RateType(), help="Maximum records per second.")
@click.option("--canary", type=click.IntRange(min=0), help="Records to settle before the rest.")
@click.option(
    "--stop-percent",
    type=click.FloatRange(0, 100),
    help="Stop if more than this percentage of the canary, or of the latest records, fails.",
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
    """Start a replay that is ready. A live producer that uses this store sends its records.

    The command shows the dry run again and asks for confirmation, unless --yes is given. --newer and --inconclusive are
    described in dlq replay --help.
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
        dry_run_text.print_sentences(run, err=True)
        options.confirm(f"Replay {plural(run.total, 'dead letter')}?", yes)
    with approvals.waiting_request(store, as_json=as_json):
        started = act(
            store,
            operation_id,
            newer=newer,
            inconclusive=inconclusive,
            rate=rate,
            canary=canary,
            stop_percent=stop_percent,
            **_who(),
        )
    _print_continuing(store, started, as_json)


@replay.command(short_help="Pause a replay until it is resumed.")
@click.argument("operation_id")
@options.store_option
@options.as_json
def pause(operation_id: str, store_path: Path | None, as_json: bool) -> None:
    """Pause a replay. Records in flight are settled; the rest wait until the replay is resumed."""
    from producer_core.replay import pause as act

    _print("Paused", act(_store(store_path), operation_id, **_who()), as_json)


@replay.command(short_help="Resume a paused replay.")
@click.argument("operation_id")
@click.option("--rate", type=options.RateType(), help="New maximum records per second.")
@options.store_option
@options.as_json
def resume(operation_id: str, rate: float | None, store_path: Path | None, as_json: bool) -> None:
    """Resume a paused replay. A live producer that uses this store sends its records."""
    from producer_core.replay import resume as act

    store = _store(store_path)
    with approvals.waiting_request(store, as_json=as_json):
        resumed = act(store, operation_id, rate=rate, **_who())
    _print_continuing(store, resumed, as_json)


@replay.command(short_help="Cancel a replay; unsent records remain dead letters.")
@click.argument("operation_id")
@options.yes
@options.store_option
@options.as_json
def cancel(operation_id: str, yes: bool, store_path: Path | None, as_json: bool) -> None:
    """Cancel a replay permanently. Records that were not sent remain dead letters."""
    from producer_core.replay import cancel as act
    from producer_core.replay import get

    store = _current_store(store_path)
    left = get(store, operation_id).left
    options.confirm(f"Cancel replay {operation_id}? {plural(left, 'dead letter')} will not be sent.", yes)
    operation = act(store, operation_id, **_who())
    _print(
        "Cancelled" if operation.ended else "Cancelling after the records in flight are settled",
        operation,
        as_json,
    )


def _store(path: Path | None) -> Store:
    from producer_core.store import Store

    return Store.open(path, create=False)


def _current_store(path: Path | None) -> Store:
    """Open the store and end cancelled replays whose runner is gone."""
    from producer_core.errors import StoreError
    from producer_core.replay.operation import end_abandoned

    store = _store(path)
    with contextlib.suppress(StoreError):  # the command itself only reads
        end_abandoned(store, time.time())
    return store


def _who() -> dict[str, Any]:
    return {"who": options.current_user(), "origin": "cli"}


def _print(status: str, operation: Operation, as_json: bool) -> None:
    text = f"{status}: replay {operation.operation_id}, {operation.left:,} of {operation.total:,} left."
    output.emit(replay_text.as_dict(operation, text)) if as_json else output.say(text)


def _print_continuing(store: Store, operation: Operation, as_json: bool) -> None:
    """Print which process continues the replay, and what it waits for."""
    from producer_core.replay import runners

    now = time.time()
    held = (operation.lease_until or 0.0) - now if operation.owner else 0.0
    alive = runners(store, now, cluster_id=operation.cluster_id)
    if held > 0:
        _print(
            f"Waiting up to {max(held, 1):.0f} s for its current process or the end of its lease",
            operation,
            as_json,
        )
    else:
        _print(
            "A live producer continues it within seconds" if alive else "Waiting for a runner",
            operation,
            as_json,
        )
    if not alive:
        output.say(
            "No live producer on this store can run replays. Start one, or run producer-core dlq replay with the same "
            "selection and --bootstrap-servers.",
            err=True,
        )


def _row(operation: Operation) -> tuple[str | int | None, ...]:
    from producer_core.replay.wording import STATES

    return (
        operation.operation_id,
        operation.state,
        output.ago(operation.created_at),
        operation.who,
        operation.total - operation.left,
        operation.total,
        operation.failed_again,
        operation.skipped,
        output.shorten(operation.message or STATES[operation.state], 60),
    )
