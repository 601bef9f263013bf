"""The `dlq replay` command: send dead letters again, from this process or by a live producer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.cli.dlq import approvals, filter_options
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
"""Minimum seconds between two progress lines: if the progress changed, and if it did not."""

_send_options = partial(
    options.client_options,
    brokers="Send from this process to these brokers; default: a live producer sends.",
)


@click.command(short_help="Send dead letters again.")
@filter_options.filter_options
@plan_options
@click.option("--no-wait", is_flag=True, help="Do not wait for the replay to finish; see replay status.")
@_send_options
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
    """Send the selected dead letters again, each under its own message id.

    \b
      producer-core dlq replay --topic orders --dry-run -b broker1:9092
      producer-core dlq replay --topic orders -b broker1:9092
      producer-core dlq replay --group 1f2e3d4c5b6a --limit 10
      producer-core dlq replay --rate 200 --canary 20 --stop-percent 10 --yes --reason INC-4711

    The command first runs a preflight check and shows what the replay would do: the number of records and their topics,
    records that may already be there, records that are too large, and keys with a newer record that an old value would
    overwrite. Then it asks for confirmation.

    With --yes it does not ask, but still runs the check and prints the result. It handles records whose key has a newer
    record as --newer says (auto: send them on topics that are not compacted, skip them on topics that are, or may be,
    compacted), skips records of missing topics, and tries to send records that look too large. With --no-wait as well,
    it looks up keys with newer records only if it skips them, and does not print the result of the check; see
    replay status.

    With --bootstrap-servers (or --config, --config-file) this process sends the records; otherwise a live producer that
    uses this store sends them, and this command shows the progress. A dead letter leaves the DLQ only after the broker
    has acknowledged it. The replay first searches the topic for records that may already be there. Records not found
    remain dead letters, because a late request may still arrive; --inconclusive send sends them, which may write
    duplicates. A canary is sent first. If too many records fail again, the replay stops, and the others remain
    dead letters. Ctrl-C pauses the replay; the same command resumes it.

    \b
    Exit codes: 0 all acknowledged or found on their topic, or a dry run, 1 some failed again or were
    skipped, or the replay stopped, 2 the command could not run, 3 a second person must approve the replay first; then
    repeat the command or use replay go, 130 paused by Ctrl-C.
    """
    from producer_core.cli.replay import dry_run_text
    from producer_core.cli.replay.replay_run import ReplayRun
    from producer_core.dlq import DeadLetters
    from producer_core.store import Store

    store = Store.open(store_path, create=False)
    where = filter_options.frozen(DeadLetters(store), filter_options.chosen(given))
    client, registry = _client(servers, settings, config_file)
    existing = current_operation(store, where)
    if existing is not None and existing.by_spark:
        raise Failed(
            f"Spark is already running a replay of this selection: {replay_text.existing_replay(existing)}",
            f"Continue it with producer-core pipeline reprocess --operation {existing.operation_id}.",
        )
    if not DeadLetters(store).count(where) and existing is None and not dry_run:
        text = f"Nothing to replay: {filter_options.none(DeadLetters(store), where)}"
        finish(ctx, as_json, store, None, text)
        return
    preview_options: dict[str, Any] = {"rate": rate, "limit": limit, "allow_quarantined": include_quarantined, "newer": newer,
                       "inconclusive": inconclusive}  # fmt: skip
    preview = ReplayRun(store, where, client, to_cluster=to_cluster, registry=registry)
    if dry_run:
        print_dry_run(preview, preview_options, existing, as_json=as_json)
        return
    if existing is None and (text := dry_run_text.nothing(preview.dry_run(**preview_options))):
        finish(ctx, as_json, store, None, text, skipped=True)
        return
    skip_check = no_wait and client is None and yes
    ask = must_ask(preview, preview_options, existing, yes=yes, skip_check=skip_check)
    choices = {
        "limit": limit, "rate": rate, "allow_quarantined": include_quarantined, "canary": canary,
        "stop_percent": stop_percent, "stop_last": stop_last, "newer": newer, "inconclusive": inconclusive, "reason": reason,
    }  # fmt: skip
    with (
        approvals.waiting_request(store, as_json=as_json),
        ReplayRun(store, where, client, to_cluster=to_cluster, registry=registry) as job,
    ):
        operation = plan_and_start(job, choices, existing, ask=ask, as_json=as_json, skip_check=skip_check)
        if no_wait and client is None:
            text = f"Replay {operation.operation_id} is planned; see producer-core replay status."
            finish(ctx, as_json, store, operation, text)
            return
        operation = follow(job, operation)
    finish(ctx, as_json, store, operation, replay_text.sentence(operation))


def _client(
    servers: str | None, settings: tuple[tuple[str, str], ...], config_file: Path | None
) -> tuple[tuple[str, dict[str, Any]] | None, dict[str, Any]]:
    """Return the brokers and settings of a client in this process, if there is one, and the settings of a registry."""
    from producer_core._internal.schema_settings import without_unused_registry

    addresses, chosen = options.client_settings(servers, settings, config_file)
    used = without_unused_registry(chosen)
    client = (addresses, used) if servers or config_file or used else None
    return client, chosen


def current_operation(store: Store, where: DeadLetterFilter) -> Operation | None:
    """Return the unfinished replay of this selection, which a repeated command continues."""
    from producer_core.replay import selection_text
    from producer_core.replay.operation import operation_of

    selection = selection_text(where)
    return next(iter(map(operation_of, store.rows("replay_same", selection=selection))), None)


def must_ask(
    job: ReplayRun,
    preview_options: dict[str, Any],
    existing: Operation | None,
    *,
    yes: bool,
    skip_check: bool = False,
) -> bool:
    """Return whether to ask for confirmation after the preflight check.

    Without a terminal and without --yes, print the dry run and fail. With `skip_check` no preflight check follows, so
    print now what the store knows.
    """
    from producer_core.cli.replay import dry_run_text

    if yes:
        if skip_check:
            _print_run(job.dry_run(**preview_options, operation=existing), as_json=True)
        return False
    if sys.stdin.isatty():
        return True
    run = _preview(job, preview_options, existing)
    output.say(dry_run_text.headline(run), err=True)
    _print_run(run, as_json=True)
    raise Failed(_question(run), "Standard input is not a terminal; use --yes to confirm. Nothing was sent.")


def _preview(job: ReplayRun, preview_options: dict[str, Any], existing: Operation | None) -> DryRun:
    """Return the dry run, with a check of the topics if this process can connect and no replay exists yet."""
    if job.client and existing is None:
        return job.preflight(**preview_options)
    return job.dry_run(**preview_options, operation=existing)


def plan_and_start(
    job: ReplayRun,
    choices: dict[str, Any],
    existing: Operation | None,
    *,
    ask: bool,
    as_json: bool,
    skip_check: bool = False,
) -> Operation:
    """Plan the replay, or continue the existing one, and start it."""
    newer, inconclusive = choices["newer"], choices["inconclusive"]
    planned = {**choices, "newer": newer or "auto", "inconclusive": inconclusive or "keep"}
    operation = job.plan(check_first=not skip_check, **planned)
    if existing is not None:
        output.say(
            f"A replay of this selection already exists: {replay_text.existing_replay(operation)}", err=True
        )
    return _confirm_and_start(job, operation, newer, inconclusive, choices["rate"], ask=ask, as_json=as_json)


def print_dry_run(
    job: ReplayRun, preview_options: dict[str, Any], existing: Operation | None, *, as_json: bool
) -> None:
    run = _preview(job, preview_options, existing)
    if as_json:
        output.emit(run.to_dict())
    else:
        _print_run(run, as_json=False)
    from producer_core.dlq import DeadLetters

    dead = DeadLetters(job.store)
    if existing is None and not dead.count(job.where):
        output.say(f"Dry run: {filter_options.none(dead, job.where)}", err=True)


def _print_run(run: DryRun, *, as_json: bool) -> None:
    """Print the dry run; with JSON output, print only its sentences, to standard error."""
    from producer_core.cli.replay import dry_run_text

    if as_json:
        dry_run_text.print_sentences(run, err=True)
    else:
        dry_run_text.print_tables(run)


def _question(run: DryRun) -> str:
    topics = filter_options.named_topics(list(run.by_topic))
    return f"Replay {plural(run.total, 'dead letter')} of {topics or 'no topic'}?"


def _confirm_and_start(
    job: ReplayRun,
    operation: Operation,
    newer: Newer | None,
    inconclusive: Inconclusive | None,
    rate: float | None,
    *,
    ask: bool,
    as_json: bool,
) -> Operation:
    """Start the replay after its preflight check and, if asked for, the operator's confirmation."""
    try:
        operation = _checked(job, operation)
        run = job.dry_run(operation=operation, newer=newer, inconclusive=inconclusive)
        if operation.state == "ready" and not ask and not run.safe:
            _print_run(run, as_json=True)
            output.say("Continuing because of --yes.", err=True)
        elif ask and not operation.ended:
            _print_run(run, as_json=as_json)
            if operation.state == "ready" and newer is None and run.newer_keys:
                newer = "skip" if click.confirm(_newer_question(run), default=True) else "send"
            if operation.state == "ready" and inconclusive is None and run.doubtful.count:
                inconclusive = "send" if click.confirm(_inconclusive_question(run), default=False) else "keep"
            options.confirm(_question(run), False)
    except (Failed, click.Abort, KeyboardInterrupt):
        if operation.state in ("checking", "ready"):
            job.cancel()
        raise
    return job.go(operation, newer=newer, inconclusive=inconclusive, rate=rate)


def _inconclusive_question(run: DryRun) -> str:
    from producer_core.replay.phrases import inconclusive_fact

    count = run.doubtful.count
    anyway = (
        "Send it anyway if it is not found there?" if count == 1 else "Send those not found there anyway?"
    )
    return f"{inconclusive_fact(count)}. {anyway} Duplicates are possible"


def _newer_question(run: DryRun) -> str:
    from producer_core.replay.phrases import newer_key_fact

    number = run.newer_keys
    keep = (
        "Keep this record as a dead letter?"
        if number == 1
        else f"Keep these {number:,} records as dead letters?"
    )
    return f"{newer_key_fact(number)}. {keep}"


def _checked(job: ReplayRun, operation: Operation) -> Operation:
    if operation.state == "checking":
        output.say("Checking the topics …", err=True)
        *_, operation = job.watch(operation, lambda now: now.state != "checking")
    return operation


def follow(
    job: ReplayRun, planned: Operation, on_progress: Callable[[Operation], None] = lambda operation: None
) -> Operation:
    """Show the progress until the replay ends or is paused; Ctrl-C pauses it. Each state is passed to `on_progress`."""
    last, printed, operation = 0.0, "", planned
    try:
        for operation in job.watch(planned):
            on_progress(operation)
            text, since = replay_text.progress(operation), time.monotonic() - last
            if not operation.ended and since > (_LINE_EVERY if text == printed else _CHANGE_EVERY):
                last, printed = time.monotonic(), text
                output.say(text, err=True)
    except KeyboardInterrupt:
        output.say(f"\nPausing. {job.pause_notice}", err=True)
        paused = job.pause()
        output.say(replay_text.sentence(paused), err=True)
        click.get_current_context().exit(INTERRUPTED)
    return operation


def finish(
    ctx: click.Context,
    as_json: bool,
    store: Store,
    operation: Operation | None,
    text: str,
    *,
    skipped: bool = False,
) -> None:
    """Print the result and exit with the replay's exit code. `skipped`: no replay, because all records are left out."""
    if as_json:
        output.emit(replay_text.as_dict(operation, text, store))
    else:
        output.say(text)
        replay_text.print_doubtful(store, operation)
    if operation is None or operation.state in ("planned", "running"):
        ctx.exit(int(skipped))
    ctx.exit(0 if operation.acknowledged + operation.landed == operation.total else 1)
