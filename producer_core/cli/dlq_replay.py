"""The `dlq replay` command: dead letters sent again, by this process or by a live producer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import options, selection, show
from producer_core.cli.lazy import INTERRUPTED

if TYPE_CHECKING:
    from producer_core.cli.replaying import Replaying
    from producer_core.replay import Operation


@click.command(short_help="Send dead letters again.")
@selection.filter_options
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, the oldest first.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many a second.")
@click.option("--include-quarantined", is_flag=True, help="Those too that failed again and again.")
@click.option(
    "--to", "to_cluster", metavar="CLUSTER", help="Send to this cluster, though they come from another."
)
@click.option("--no-wait", is_flag=True, help="Do not wait for the end; see replay status.")
@options.client_options
@options.yes
@options.store_option
@options.as_json
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    store_path: Path | None,
    limit: int | None,
    rate: float | None,
    include_quarantined: bool,
    to_cluster: str | None,
    no_wait: bool,
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    yes: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Send the dead letters that the selection matches again, each under its own message id.

    \b
      producer-core dlq replay --topic orders --bootstrap-servers broker1:9092
      producer-core dlq replay --group 1f2e3d4c5b6a --limit 10

    With --bootstrap-servers (or --config, --config-file) this process sends; else a live producer of this store does,
    and this command watches. A dead letter leaves the DLQ only when the broker acknowledged it. What may be on its
    topic already is looked for there first. Ctrl-C pauses; the same command goes on.

    \b
    Exit codes: 0 all acknowledged or found on their topic, 1 some failed again or were
    skipped, 2 it could not be done, 130 paused by Ctrl-C.
    """
    from producer_core.cli.replaying import Replaying
    from producer_core.dlq import DeadLetters
    from producer_core.store import Store

    store, where = Store.open(store_path, create=False), selection.chosen(given)
    dead = DeadLetters(store)
    number = dead.count(where)
    if not number and not _under_way(store, where):
        _end(ctx, as_json, None, "Nothing to replay.")
        return
    client = (
        options.client_settings(servers, settings, config_file)
        if servers or settings or config_file
        else None
    )
    job = Replaying(store, where, client, to_cluster=to_cluster)
    with job:
        sent = min(number, limit or number)
        click.echo(selection.risks(dead.count_by(where, "verdict")), err=True)
        options.confirm(
            f"Replay {'the oldest ' if sent < number else ''}{selection.what(dead, where, sent)}?", yes
        )
        operation = job.plan(limit=limit, rate=rate, include_quarantined=include_quarantined)
        if no_wait and client is None:
            _end(
                ctx,
                as_json,
                operation,
                f"Replay {operation.operation_id} is planned; see producer-core replay status.",
            )
            return
        operation = _watch(job, operation)
    _end(ctx, as_json, operation, _sentence(operation))


def _under_way(store: Any, where: Any) -> bool:
    """Whether a replay of this selection has not ended: asking again is asking for that one."""
    import orjson

    asked = orjson.dumps(where.to_query(), option=orjson.OPT_SORT_KEYS).decode()
    return bool(store.rows("replay_same", selection=asked))


def _watch(job: Replaying, planned: Operation) -> Operation:
    """Until it has ended or was paused; Ctrl-C pauses it."""
    last, operation = 0.0, planned
    try:
        for operation in job.watch(planned):
            if time.monotonic() - last > 2 and not operation.ended:
                last = time.monotonic()
                click.echo(_progress(operation), err=True)
    except KeyboardInterrupt:
        paused = job.pause()
        click.echo(f"\n{_sentence(paused)}", err=True)
        click.get_current_context().exit(INTERRUPTED)
    return operation


def _progress(operation: Operation) -> str:
    done = operation.total - operation.left
    return f"replay {operation.operation_id}: {done:,} of {operation.total:,}, {operation.failed_again:,} failed again"


def _sentence(operation: Operation) -> str:
    if operation.state == "paused":
        return (
            f"Replay {operation.operation_id} is paused with {operation.left:,} of {operation.total:,} left. "
            "Go on with the same command."
        )
    return f"{operation.message or 'No answer yet'}."


def _end(ctx: click.Context, as_json: bool, operation: Operation | None, text: str) -> None:
    if as_json:
        show.emit(as_dict(operation, text))
    else:
        click.echo(text)
    if operation is None or operation.state in ("planned", "running"):
        ctx.exit(0)
    ctx.exit(0 if operation.acknowledged + operation.landed == operation.total else 1)


def as_dict(operation: Operation | None, text: str) -> dict[str, Any]:
    """An operation for programs; times are seconds since 1970."""
    import dataclasses

    import orjson

    if operation is None:
        return {
            "operation_id": None,
            "state": "done",
            "total": 0,
            "acknowledged": 0,
            "failed_again": 0,
            "message": text,
        }
    found = dataclasses.asdict(operation)
    return {**found, "selection": orjson.loads(operation.selection), "left": operation.left, "message": text}
