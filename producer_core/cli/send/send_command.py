"""The `send` command: send the rows of a file or of standard input to a topic."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from producer_core._internal.environment_settings import STORE, is_store_disabled
from producer_core._internal.join_names import join_names
from producer_core._internal.user_callbacks import short_repr
from producer_core.cli import options, output
from producer_core.cli.send.open_rows import FORMATS, TYPES, Format, InputRows, Types, open_rows
from producer_core.errors import ConfigError

if TYPE_CHECKING:
    from producer_core.cli.send import resume_check

DELIVERIES = ("at_least_once", "exactly_once")

_HELP = """Send the rows of FILE to TOPIC. Without FILE, or with -, read standard input.

\b
  producer-core send orders orders.jsonl --key customer
  producer-core send flights flights.csv.gz --bootstrap-servers broker1:9092
  zcat events.gz | producer-core send events - --header source=backfill

FORMATS. JSON Lines: one JSON value per line, sent byte for byte; null is the value null, not a tombstone. CSV: a
header line, then one JSON object per record. Parquet: one JSON object per row; timestamps become ISO 8601, decimals
text, binary base64. A file may be compressed with gzip, or be a zip archive of one file.

CSV TYPES. By default the whole input is read once to find the type of each column. A column is numeric only if the
text of every value can be reproduced from its number: 007, 1e5 and 12345678901234567890123 stay text, and so do
versions (1.9, 1.10); prices (12.50, 3.00) are numbers. An empty field is null; so is NA, NaN or null in a column of
numbers, booleans or timestamps. true and false are booleans; 2013-01-01 05:00:00 is sent with the T of ISO 8601. --types
value types each field separately, so that standard input is sent as it arrives; --types text keeps every field as
text.

MALFORMED ROWS. A line that is not JSON, contains NaN, has the wrong number of fields, is not UTF-8 or lacks the key
becomes a dead letter with its line number and bytes; its verdict is not_sent. --strict stops at the first one
instead.

RESUMING. After a crash, a reboot or Ctrl-C, run the same command again: it resumes the send. A small state file in the
folder "sends" records the position. That folder is beside $PRODUCER_CORE_STORE if it is set, else in
$XDG_STATE_HOME/producer-core (default ~/.local/state/producer-core); --store does not change it. With another folder,
the saved position is not found. The command refuses a file or options that have changed; --restart starts over. With
--delivery exactly_once, a read_committed consumer finds every row once, in order per key; if the state file is lost,
the command reads the topic instead. With at_least_once (the default), it reads the topic from the saved position,
sends none of the rows found there, and reports how many rows may be there twice. On a compacted topic, a row that an
earlier run may have sent becomes a dead letter if its key has a newer record. A completed command that runs again
sends the file again and prints a note with at_least_once, and sends nothing with exactly_once. After a completed at_least_once run, a
file with appended rows is refused without --restart or a --skip of the rows that were sent, and so is an exactly_once
send of the same content: rows would be on the topic twice. A replaced file is sent. Standard input and --dedup cannot
be resumed.

SCHEMAS. With --value-schema, each row is written with that schema, which must be registered under the subject
TOPIC-value: .avsc is Avro, .json is JSON Schema. A row that does not fit is malformed. -X auto.register.schemas=true
registers the schema. With -X value.serializer=avro (or json) instead, the latest version of the subject is used.

LEDGER. The acknowledged rows are recorded in the store (and on --telemetry-topic), so that "producer-core pipeline
integrity" can verify the topic row by row.

SETTINGS. --config-file may be a producer's file. Its application, application_version, cluster_id, dead_letter_topic, delivery
and telemetry_topic apply unless an option sets them; a note names the other arguments of a producer, which do not.

CTRL-C stops reading, waits for the rows in flight, and prints how to resume. A second Ctrl-C abandons the rows in
flight.

\b
Exit codes: 0 every row acknowledged (or suppressed by --dedup), 1 dead letters (of
any run) or stopped by --strict, 2 the send could not run or was refused,
130 interrupted by Ctrl-C or SIGTERM.

The JSON object contains delivery, rows, already_done, accepted, acknowledged, retried, dead, malformed, duplicates,
possible_duplicates, dead_before, malformed_before, complete, blank, p50_ms, p95_ms, p99_ms, messages_per_second,
elapsed_seconds, last_position, interrupted, stopped, error, go_on and exit_code.
"""

_BURST_MS = 100
"""The time for which an unused --rate accumulates: the first second sends a tenth more. With 0, each late row would lower the rate."""


@click.command(help=_HELP, short_help="Send the rows of a file or standard input.")
@click.argument("topic")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Input format; default by file extension, jsonl for standard input.",
)
@click.option("--key", metavar="COLUMN", help="Column or field that holds the message key.")
@options.client_options
@options.store_option
@click.option("--no-store", is_flag=True, help="Keep no statistics; write dead letters to the spill file.")
@click.option(
    "--delivery",
    type=click.Choice(DELIVERIES),
    default="at_least_once",
    show_default=True,
    help="Delivery guarantee across crashes.",
)
@click.option("--restart", is_flag=True, help="Send the whole file again, with new message ids.")
@click.option("--dedup", is_flag=True, help="Send identical rows (same topic, key and bytes) once.")
@click.option(
    "--circuit-breaker", is_flag=True, help="Stop reading the input while the brokers do not respond."
)
@click.option("--strict", is_flag=True, help="Stop at the first malformed row; deliver the rows before it.")
@click.option(
    "--value-schema",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Write rows with this Avro or JSON schema.",
)
@click.option("--schema-registry", metavar="URL", help="Address of the schema registry.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Send at most N rows.")
@click.option("--rate", type=options.RateType(), metavar="N", help="Send at most N rows a second.")
@click.option(
    "--skip",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Skip the first N lines (Parquet: rows).",
)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    metavar="P",
    help="Send to this partition; default: chosen by key.",
)
@click.option(
    "--header",
    "headers",
    type=options.SettingType(),
    multiple=True,
    help="Add a header to every message; repeatable.",
)
@click.option(
    "--types",
    type=click.Choice(TYPES),
    default="column",
    show_default=True,
    help="How the types of CSV fields are determined.",
)
@click.option("--null", "nulls", multiple=True, metavar="TEXT", help="CSV text that means null; repeatable.")
@click.option(
    "--delimiter",
    metavar="CHARACTER",
    help=r"CSV field delimiter (\t is a tab); default comma, tab for .tsv.",
)
@click.option(
    "--telemetry-topic",
    metavar="TOPIC",
    help="Publish statistics and the ledger to this topic.",
)
@click.option(
    "--application",
    metavar="NAME",
    help="Application of the messages; default: $PRODUCER_CORE_APPLICATION.",
)
@click.option(
    "--dead-letter-topic",
    metavar="TOPIC",
    help="Also publish each dead letter to this topic; {topic} is the topic of the message. Requires the store.",
)
@click.option("--cluster-id", help="Refuse to send to any other cluster.")
@click.option(
    "--wait",
    type=options.DurationType(),
    default="10s",
    show_default=True,
    help="Time limit for the first response from a broker.",
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
    circuit_breaker: bool,
    strict: bool,
    value_schema: Path | None,
    schema_registry: str | None,
    limit: int | None,
    rate: float | None,
    skip: int,
    partition: int | None,
    headers: tuple[tuple[str, str], ...],
    types: str,
    nulls: tuple[str, ...],
    delimiter: str | None,
    telemetry_topic: str | None,
    application: str | None,
    dead_letter_topic: str | None,
    cluster_id: str | None,
    wait: float,
    as_json: bool,
) -> None:
    from producer_core.cli.send import progress_bar, resume_check, send_run
    from producer_core.cli.send.state_file import SendJob
    from producer_core.cli.send.value_schema import describe, with_schema_options
    from producer_core.config import client_config

    if no_store and store_path:
        raise click.UsageError("--store and --no-store contradict each other.")
    fix = "omit --no-store" if no_store else f"set {STORE}, or pass --store"
    no_store = no_store or (store_path is None and is_store_disabled(os.environ))
    if no_store and telemetry_topic:
        raise click.UsageError(f"--telemetry-topic requires the store; {fix}.")
    if no_store and dead_letter_topic:
        raise click.UsageError(f"--dead-letter-topic requires the store; {fix}.")
    send_run.check_headers(headers)
    path = None if str(file) == "-" else file
    if path is None and sys.stdin.isatty():
        output.say("Reading standard input; press Ctrl-D to end it.", err=True)
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
        of_file = options.producer_arguments(config_file)
        if ctx.get_parameter_source("delivery") is ParameterSource.DEFAULT:
            delivery = _delivery_of(of_file, delivery)
        cluster_id = cluster_id or of_file.get("cluster_id")
        application = application or of_file.get("application")
        if not no_store:
            telemetry_topic = telemetry_topic or of_file.get("telemetry_topic")
            dead_letter_topic = dead_letter_topic or of_file.get("dead_letter_topic")
        _note_unused(of_file)
        config = with_schema_options(config, value_schema, schema_registry)
        if rate is not None:
            config = {"rate_limit_burst_ms": _BURST_MS, **config, "max_messages_per_second": rate}
        rows_schema = describe(client_config(addresses, config).schemas)
        found = send_run.check_cluster(
            addresses, config, topic, cluster_id, partition=partition, timeout=wait
        )
        send_run.check_places(None if no_store else store_path, telemetry_topic, dead_letter_topic)
        resumable: resume_check.ResumableJob | None = None
        if resume_check.can_resume(path, delivery, dedup=dedup, cluster_id=found, restart=restart):
            row_options = {
                "format": form, "key": key, "types": types, "null": nulls, "delimiter": delimiter, "header": headers,
                "partition": partition, "skip": skip, "schema": rows_schema,
            }  # fmt: skip
            job = SendJob(topic, found, "", delivery, resume_check.options_of(row_options))
            resumable = stack.enter_context(
                resume_check.resumable(
                    cast("Path", path), job, client_config(addresses, config), restart=restart, limit=limit
                )
            )
        if resumable is not None and resumable.start.text:
            output.say(resumable.start.text, err=True)
        if resumable is not None and resumable.start.mode == "complete":
            _exit_complete(ctx, resumable, rows, as_json=as_json)
        listener = send_run.ReportListener()
        producer = send_run.open_producer(
            addresses,
            config,
            store=None if no_store else (store_path or "auto"),
            cluster_id=found,
            dedup=dedup,
            circuit_breaker=circuit_breaker,
            application=application,
            application_version=of_file.get("application_version"),
            telemetry_topic=telemetry_topic,
            dead_letter_topic=dead_letter_topic,
            resumable=resumable,
            listener=listener,
        )
        run = send_run.SendRun(
            producer,
            rows,
            topic,
            send_run.RowOptions(key, headers, partition, limit, strict, dedup, rows_schema is not None),
            resumable=resumable,
            listener=listener,
            command=resume_check.resume_command(ctx),
        )
        with send_run.interruptible(run), progress_bar.show_progress(run.state):
            run.run()
    summary = run.summary()
    if note := summary.note():
        output.say(f"Note: {note}", err=True)
    output.emit(summary.to_json()) if as_json else _print(summary, rows)
    ctx.exit(summary.exit_code)


_FROM_FILE = (
    "application",
    "application_version",
    "cluster_id",
    "dead_letter_topic",
    "delivery",
    "telemetry_topic",
)
"""Arguments of a producer that `send` takes from a file of settings, unless an option sets them."""


def _delivery_of(of_file: Mapping[str, Any], default: str) -> str:
    found = str(of_file.get("delivery", default))
    if found not in DELIVERIES:
        raise ConfigError(
            f"delivery={short_repr(found)} in --config-file is not valid.",
            fix=f"Use {' or '.join(DELIVERIES)}.",
        )
    return found


def _note_unused(of_file: Mapping[str, Any]) -> None:
    """Name the arguments of a producer in the file that have no effect on a send."""
    unused = sorted(of_file.keys() - set(_FROM_FILE))
    if unused:
        text = join_names(unused)
        output.say(
            f"Note: {text} in --config-file {'applies' if len(unused) == 1 else 'apply'} to producers, not to this command.",
            err=True,
        )


def _exit_complete(
    ctx: click.Context, resumable: resume_check.ResumableJob, rows: InputRows, *, as_json: bool
) -> None:
    """Exit with the summary of a send that an earlier run completed."""
    from producer_core.cli.send.summary import SendSummary

    summary = SendSummary.of_complete(resumable.job.topic, rows, resumable.start.progress)
    if as_json:
        output.emit(summary.to_json())
    ctx.exit(summary.exit_code)


def _print(summary: Any, rows: InputRows) -> None:
    for note in rows.notes:
        output.say(f"Note: {note}", err=True)
    for line in summary.lines():
        output.say(line)
