"""The `dlq replay` command: dead letters sent again, by this process or by a live producer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import options, output
from producer_core.cli.dlq import filter_options
from producer_core.cli.lazy_group import INTERRUPTED, Failed
from producer_core.cli.replay import replay_text
from producer_core.cli.replay.plan_options import plan_options

if TYPE_CHECKING:
    from producer_core.cli.replay.replay_run import ReplayRun
    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay import Inconclusive, Newer, Operation
    from producer_core.replay.dry_run import DryRun
    from producer_core.store import Store

_CHANGE_EVERY, _LINE_EVERY = 2.0, 15.0
"""Seconds between two lines of a replay's progress, at least: of one that changed, and of one that did not."""

_from_here = partial(
    options.client_options,
    brokers="Send from this process, to these brokers; without it a live producer of the store sends.",
)


@click.command(short_help="Send dead letters again.")
@filter_options.filter_options
@plan_options
@click.option("--no-wait", is_flag=True, help="Do not wait for the end; see replay status.")
@_from_here
@options.yes
@options.store_option
@options.as_json
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    store_path: Path | None,
    dry_run: bool,
    limit: int | None,
    rate: float | None,
    canary: int | None,
    stop_percent: float | None,
    stop_last: int | None,
    newer: Newer | None,
    inconclusive: Inconclusive | None,
    include_quarantined: bool,
    to_cluster: str | None,
    reason: str | None,
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
      producer-core dlq replay --topic orders --dry-run -b broker1:9092
      producer-core dlq replay --topic orders -b broker1:9092
      producer-core dlq replay --group 1f2e3d4c5b6a --limit 10
      producer-core dlq replay --rate 200 --canary 20 --stop-percent 10 --yes --reason INC-4711

    First it looks ahead and says what it would do: how many, to which topics, what may be there already, what is
    too large now, and for which keys a newer record is there, which an old value would overwrite. Then it asks.

    With --yes nobody is asked. It looks ahead all the same, says what it found, and goes on: records whose key has a
    newer one are treated as --newer says (auto: sent on topics that are not compacted; skipped on others, and where
    nobody can tell), those of a topic that is gone are left out, and what looks too large is tried. With --no-wait as
    well, newer keys are looked for only where they are skipped, and nothing is said before it is sent: see replay status.

    With --bootstrap-servers (or --config, --config-file) this process sends; else a live producer of this store does,
    and this command watches. A dead letter leaves the DLQ only when the broker acknowledged it. What may be on its
    topic already is looked for there first; what is not found stays a dead letter, because a late request may still
    arrive, unless you choose --inconclusive send. The canary goes first; when too many fail again it stops itself, and the
    rest stays dead letters. Ctrl-C pauses; the same command goes on.

    \b
    Exit codes: 0 all acknowledged or found on their topic (or a dry run was made), 1 some failed
    again, were skipped, or it stopped itself, 2 it could not be done, 130 paused by Ctrl-C.
    """
    from producer_core.cli.replay.replay_run import ReplayRun
    from producer_core.dlq import DeadLetters
    from producer_core.store import Store

    store = Store.open(store_path, create=False)
    where = filter_options.frozen(DeadLetters(store), filter_options.chosen(given))
    client = (
        options.client_settings(servers, settings, config_file)
        if servers or settings or config_file
        else None
    )
    under_way = same(store, where)
    if under_way is not None and under_way.by_spark:
        raise Failed(
            f"Spark has a replay of this selection: {replay_text.standing(under_way)}",
            f"Go on with producer-core pipeline reprocess --operation {under_way.operation_id}.",
        )
    if not DeadLetters(store).count(where) and under_way is None and not dry_run:
        end(ctx, as_json, store, None, f"Nothing to replay: {filter_options.none(DeadLetters(store), where)}")
        return
    counted = {"rate": rate, "limit": limit, "allow_quarantined": include_quarantined, "newer": newer,
               "inconclusive": inconclusive}  # fmt: skip
    if dry_run:
        only_say(ReplayRun(store, where, client, to_cluster=to_cluster), counted, under_way, as_json=as_json)
        return
    unseen = no_wait and client is None and yes
    seen = ReplayRun(store, where, client, to_cluster=to_cluster)
    asks = agreed(seen, counted, under_way, yes=yes, unseen=unseen)
    choices = {
        "limit": limit, "rate": rate, "allow_quarantined": include_quarantined, "canary": canary,
        "stop_percent": stop_percent, "stop_last": stop_last, "newer": newer, "inconclusive": inconclusive, "reason": reason,
    }  # fmt: skip
    with ReplayRun(store, where, client, to_cluster=to_cluster) as job:
        operation = decided(job, choices, under_way, asks=asks, as_json=as_json, unseen=unseen)
        if no_wait and client is None:
            words = f"Replay {operation.operation_id} is planned; see producer-core replay status."
            end(ctx, as_json, store, operation, words)
            return
        operation = watched(job, operation)
    end(ctx, as_json, store, operation, replay_text.sentence(operation))


def same(store: Store, where: DeadLetterFilter) -> Operation | None:
    """The replay of this selection that has not ended: asking again is asking for that one."""
    from producer_core.replay import selection_text
    from producer_core.replay.operation import operation_of

    asked = selection_text(where)
    return next(iter(map(operation_of, store.rows("replay_same", selection=asked))), None)


def agreed(
    job: ReplayRun,
    counted: dict[str, Any],
    under_way: Operation | None,
    *,
    yes: bool,
    unseen: bool = False,
) -> bool:
    """Whether somebody is to be asked once the look ahead is made; where nobody can be, --yes must have said so, and
    who forgot it is told what would be sent. `unseen`: nobody waits for the look ahead, so it is said now what is
    known without one."""
    from producer_core.cli.replay import dry_run_text

    if yes:
        if unseen:
            _tell(job.counted(**counted, operation=under_way), as_json=True)
        return False
    if sys.stdin.isatty():
        return True
    seen = _seen(job, counted, under_way)
    output.say(dry_run_text.headline(seen), err=True)
    _tell(seen, as_json=True)
    raise Failed(_question(seen), "Nobody is there to ask: give --yes to send them. Nothing was sent.")


def _seen(job: ReplayRun, counted: dict[str, Any], under_way: Operation | None) -> DryRun:
    """The dry run with a look at the topics, where this process can look; of a replay under way what its runner saw."""
    if job.client and under_way is None:
        return job.look_ahead(**counted)
    return job.counted(**counted, operation=under_way)


def decided(
    job: ReplayRun,
    choices: dict[str, Any],
    under_way: Operation | None,
    *,
    asks: bool,
    as_json: bool,
    unseen: bool = False,
) -> Operation:
    """The operation as it is planned, or under way already, and to be carried out now."""
    newer, inconclusive = choices["newer"], choices["inconclusive"]
    planned = {**choices, "newer": newer or "auto", "inconclusive": inconclusive or "keep"}
    operation = job.plan(check_first=not unseen, **planned)
    if under_way is not None:
        output.say(
            f"There is a replay of this selection already: {replay_text.standing(operation)}", err=True
        )
    return _decide(job, operation, newer, inconclusive, choices["rate"], asks=asks, as_json=as_json)


def only_say(job: ReplayRun, counted: dict[str, Any], under_way: Operation | None, *, as_json: bool) -> None:
    run = _seen(job, counted, under_way)
    if as_json:
        output.emit(run.to_dict())
    else:
        _tell(run, as_json=False)
    from producer_core.dlq import DeadLetters

    dead = DeadLetters(job.store)
    if under_way is None and not dead.count(job.where):
        output.say(f"Dry run: {filter_options.none(dead, job.where)}", err=True)


def _tell(run: DryRun, *, as_json: bool) -> None:
    """The whole dry run for a person; the sentences alone, beside the answer, for programs."""
    from producer_core.cli.replay import dry_run_text

    if as_json:
        dry_run_text.say(run, err=True)
    else:
        dry_run_text.tell(run)


def _question(run: DryRun) -> str:
    topics = list(run.by_topic)
    more = f" and {len(topics) - 3} more topics" if len(topics) > 3 else ""
    return f"Replay {output.count(run.total, 'dead letter')} of {', '.join(topics[:3]) or 'no topic'}{more}?"


def _decide(
    job: ReplayRun,
    operation: Operation,
    newer: Newer | None,
    inconclusive: Inconclusive | None,
    rate: float | None,
    *,
    asks: bool,
    as_json: bool,
) -> Operation:
    """The operation under way: at once where nobody is to be asked, else when the dry run was seen."""
    try:
        operation = _looked_ahead(job, operation)
        run = job.counted(operation=operation, newer=newer, inconclusive=inconclusive)
        if operation.state == "ready" and not asks and not run.safe:
            _tell(run, as_json=True)
            output.say("Goes on, because --yes was given.", err=True)
        elif asks and not operation.ended:
            _tell(run, as_json=as_json)
            if operation.state == "ready" and newer is None and run.newer_keys:
                newer = "skip" if click.confirm(_offer(run), default=True) else "send"
            if operation.state == "ready" and inconclusive is None and run.doubtful.count:
                inconclusive = "send" if click.confirm(_offer_inconclusive(run), default=False) else "keep"
            options.confirm(_question(run), False)
    except (Failed, click.Abort, KeyboardInterrupt):
        if operation.state in ("checking", "ready"):
            job.cancel()
        raise
    return job.go(operation, newer=newer, inconclusive=inconclusive, rate=rate)


def _offer_inconclusive(run: DryRun) -> str:
    records = output.count(run.doubtful.count, "record")
    return f"Of the {records} that may be on their topic: send those that are not found anyway? A second copy is possible"


def _offer(run: DryRun) -> str:
    return f"Skip the {output.count(run.newer_keys, 'record')} for whose key a newer one is there?"


def _looked_ahead(job: ReplayRun, operation: Operation) -> Operation:
    if operation.state == "checking":
        output.say("Looking ahead …", err=True)
        *_, operation = job.watch(operation, lambda now: now.state != "checking")
    return operation


def watched(
    job: ReplayRun, planned: Operation, told: Callable[[Operation], None] = lambda operation: None
) -> Operation:
    """Until it has ended or was paused; Ctrl-C pauses it, and what that waits for is said at once. `told` hears how it
    goes on."""
    last, said, operation = 0.0, "", planned
    try:
        for operation in job.watch(planned):
            told(operation)
            text, since = replay_text.progress(operation), time.monotonic() - last
            if not operation.ended and since > (_LINE_EVERY if text == said else _CHANGE_EVERY):
                last, said = time.monotonic(), text
                output.say(text, err=True)
    except KeyboardInterrupt:
        output.say(f"\nPausing. {job.waits_for}", err=True)
        paused = job.pause()
        output.say(replay_text.sentence(paused), err=True)
        click.get_current_context().exit(INTERRUPTED)
    return operation


def end(ctx: click.Context, as_json: bool, store: Store, operation: Operation | None, text: str) -> None:
    if as_json:
        output.emit(replay_text.as_dict(operation, text, store))
    else:
        output.say(text)
        replay_text.say_doubtful(store, operation)
    if operation is None or operation.state in ("planned", "running"):
        ctx.exit(0)
    ctx.exit(0 if operation.acknowledged + operation.landed == operation.total else 1)
