"""The `send` command: the rows of a file, or of standard input, to a topic."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from producer_core.cli import options, output
from producer_core.cli.send.open_rows import FORMATS, TYPES, Format, InputRows, Types, open_rows

if TYPE_CHECKING:
    from producer_core.cli.send import resume_check

_HELP = """Send the rows of FILE to TOPIC; - or no FILE reads standard input.

\b
  producer-core send orders orders.jsonl --key customer
  producer-core send flights flights.csv.gz --bootstrap-servers broker1:9092
  zcat events.gz | producer-core send events - --header source=backfill

JSON LINES: any JSON value a line (null too: it is the value null, not a tombstone), sent as the very bytes of the
line. CSV: a header line, then one JSON object a record. Parquet: one JSON object a row; moments become ISO 8601,
decimals text, binary base64. Files may be gzipped, or a zip of one file.

TYPES OF CSV: the whole input is read once before, and a column is a number only if every value in it is one whose
text can be made from the number again: 007, 1e5 and 12345678901234567890123 stay text, so do versions (1.9, 1.10);
prices (12.50, 3.00) are numbers. Empty is null; so is NA, NaN or null in a column of numbers, booleans or moments.
true and false are booleans, 2013-01-01 05:00:00 gets ISO 8601's T. --types value judges each field by itself, which
lets standard input flow; --types text changes nothing.

A MALFORMED LINE (no JSON, NaN, a wrong number of fields, not UTF-8, no such key) becomes a dead letter with its line
number and raw bytes: verdict not_sent. --strict stops at the first one instead.

KILLED IN THE MIDDLE (kill -9, reboot, Ctrl-C), a file is gone on with by the same command. How far it is stands in
a small file in the state folder; a file or options that have changed since are refused, and --restart begins again.
With --delivery exactly_once a read_committed reader finds every row once, in order per key; when the state file is
lost, the topic is read instead. With at_least_once (default) it says how many rows may be there twice. A send that
ended is over: at_least_once sends the file again, exactly_once does not. Standard input and --dedup cannot resume.

THE LEDGER of what the broker acknowledged goes to the store (and to --telemetry-topic): «producer-core pipeline
integrity» proves from it, row by row, what is on the topic.

CTRL-C stops reading, waits for what was sent, and says how to go on; a second one gives up what is on its way.

\b
Exit codes: 0 every row acknowledged (or suppressed by --dedup), 1 dead letters (of
any run) or stopped by --strict, 2 it could not run or was refused, 130 interrupted
by Ctrl-C or SIGTERM.

The JSON has delivery, rows, already_done, accepted, acknowledged, retried, dead, malformed, duplicates,
possible_duplicates, dead_before, malformed_before, complete, blank, p50_ms, p95_ms, p99_ms, messages_per_second,
elapsed_seconds, last_position, interrupted, stopped, error, go_on and exit_code.
"""


@click.command(help=_HELP, short_help="Send a file's rows, or standard input, to a topic.")
@click.argument("topic")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="The format where the name does not tell; for - jsonl.",
)
@click.option("--key", metavar="COLUMN", help="The column or field whose value is the message's key.")
@options.client_options
@options.store_option
@click.option(
    "--no-store", is_flag=True, help="Keep no statistics; dead letters go to a file in the state folder."
)
@click.option(
    "--delivery",
    type=click.Choice(("at_least_once", "exactly_once")),
    default="at_least_once",
    show_default=True,
    help="What a crash may cost: some rows twice, or nothing.",
)
@click.option(
    "--restart", is_flag=True, help="Send all of it again, whatever was sent before, under new message ids."
)
@click.option("--dedup", is_flag=True, help="Send identical rows (same topic, key and bytes) once.")
@click.option(
    "--strict", is_flag=True, help="Stop at the first malformed line; what was read before is delivered."
)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Send at most N rows.")
@click.option(
    "--skip",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Leave out the first N lines (Parquet: rows).",
)
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="P", help="Send to this partition; default by the key."
)
@click.option(
    "--header",
    "headers",
    type=options.SettingType(),
    multiple=True,
    help="A header for every message; repeatable.",
)
@click.option(
    "--types", type=click.Choice(TYPES), default="column", show_default=True, help="How CSV fields are typed."
)
@click.option(
    "--null", "nulls", multiple=True, metavar="TEXT", help="A CSV text that means null, anywhere; repeatable."
)
@click.option(
    "--delimiter", metavar="CHARACTER", help=r"Between CSV fields (\t is a tab); default comma, for .tsv tab."
)
@click.option(
    "--telemetry-topic",
    metavar="TOPIC",
    help="Publish statistics and the ledger there, for a fleet's pipeline.",
)
@click.option("--cluster-id", help="Refuse to send to any other cluster than this one.")
@click.option(
    "--wait",
    type=options.DurationType(),
    default="10s",
    show_default=True,
    help="How long a broker may take to answer first.",
)
@options.as_json
@click.pass_context
def send(
    ctx: click.Context,
    topic: str,
    file: Path,
    form: str | None,
    key: str | None,
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    store_path: Path | None,
    no_store: bool,
    delivery: str,
    restart: bool,
    dedup: bool,
    strict: bool,
    limit: int | None,
    skip: int,
    partition: int | None,
    headers: tuple[tuple[str, str], ...],
    types: str,
    nulls: tuple[str, ...],
    delimiter: str | None,
    telemetry_topic: str | None,
    cluster_id: str | None,
    wait: float,
    as_json: bool,
) -> None:
    from producer_core.cli.send import progress_bar, resume_check, send_run
    from producer_core.cli.send.state_file import SendJob
    from producer_core.config import client_config

    if no_store and store_path:
        raise click.UsageError("--store and --no-store contradict each other.")
    if no_store and telemetry_topic:
        raise click.UsageError("--telemetry-topic needs the store: leave --no-store out.")
    send_run.check_headers(headers)
    path = None if str(file) == "-" else file
    if path is None and sys.stdin.isatty():
        output.say("Reading standard input; end it with Ctrl-D.", err=True)
    rows = open_rows(
        path,
        format=cast("Format | None", form),
        skip=skip,
        types=cast("Types", types),
        nulls=nulls,
        delimiter=delimiter,
    )
    with contextlib.closing(rows), contextlib.ExitStack() as stack:
        addresses, config = options.client_settings(servers, settings, config_file)
        found = send_run.check_cluster(
            addresses, config, topic, cluster_id, partition=partition, timeout=wait
        )
        send_run.check_places(None if no_store else store_path, telemetry_topic)
        ready: resume_check.ResumableJob | None = None
        if resume_check.can_resume(path, delivery, dedup=dedup, cluster_id=found, restart=restart):
            asked = {
                "format": form, "key": key, "types": types, "null": nulls, "delimiter": delimiter, "header": headers,
                "partition": partition, "skip": skip,
            }  # fmt: skip
            job = SendJob(topic, found, "", delivery, resume_check.options_of(asked))
            ready = stack.enter_context(
                resume_check.resumable(
                    cast("Path", path), job, client_config(addresses, config), restart=restart
                )
            )
        if ready is not None and ready.begun.text:
            output.say(ready.begun.text, err=True)
        if ready is not None and ready.begun.how == "complete":
            _nothing_to_do(ctx, ready, rows, as_json=as_json)
        listener = send_run.ReportListener()
        producer = send_run.open_producer(
            addresses,
            config,
            store=None if no_store else (store_path or "auto"),
            cluster_id=found,
            dedup=dedup,
            telemetry_topic=telemetry_topic,
            ready=ready,
            listener=listener,
        )
        run = send_run.SendRun(
            producer,
            rows,
            topic,
            send_run.RowOptions(key, headers, partition, limit, strict, dedup),
            ready=ready,
            listener=listener,
            again=resume_check.same_again(ctx),
        )
        with send_run.interruptible(run), progress_bar.shown(run):
            run.run()
    summary = run.summary()
    output.emit(summary.to_json()) if as_json else _say(summary, rows)
    ctx.exit(summary.exit_code)


def _nothing_to_do(
    ctx: click.Context, ready: resume_check.ResumableJob, rows: InputRows, *, as_json: bool
) -> None:
    from producer_core.cli.send.summary import SendSummary

    summary = SendSummary.of_before(ready.job.topic, rows, ready.begun.progress)
    if as_json:
        output.emit(summary.to_json())
    ctx.exit(summary.exit_code)


def _say(summary: Any, rows: InputRows) -> None:
    for note in rows.notes:
        output.say(f"Note: {note}", err=True)
    for line in summary.lines():
        output.say(line)
