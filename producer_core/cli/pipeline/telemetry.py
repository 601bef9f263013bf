"""The `pipeline telemetry` command: merge a fleet's telemetry batches from Kafka into one store."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.plural import plural
from producer_core.cli import open_store, options, output
from producer_core.cli.pipeline.spark_options import SparkChoice, spark_options
from producer_core.cli.plain_text import plain

if TYPE_CHECKING:
    from producer_core.pipeline.sink import MergeResult
    from producer_core.pipeline.telemetry import RunningStream
    from producer_core.store import Store

_LINE_EVERY = 10.0
LEFT = 1


@click.command(short_help="Merge the producers' telemetry topics into a store.")
@click.option("--topic", "topics", multiple=True, required=True, help="Telemetry topic; repeatable.")
@options.client_options
@options.store_option
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the job's read position; default: beside the store.",
)
@click.option(
    "--history",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write every row as Parquet to this folder: one file per hour and kind.",
)
@click.option("--once", is_flag=True, help="Merge the current records, then exit; default: run until Ctrl-C.")
@click.option(
    "--every", type=options.DurationType(), default="1s", show_default=True, help="Time between two merges."
)
@spark_options
@options.as_json
def telemetry(
    topics: tuple[str, ...],
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    store_path: Path | None,
    checkpoint: Path | None,
    history: Path | None,
    once: bool,
    every: float,
    spark: SparkChoice,
    as_json: bool,
) -> None:
    """Merge the telemetry batches of a fleet into one store.

    Each batch counts once, even if it is sent again or arrives late, or if a process is killed. A second run over the
    same batches adds nothing.

    \b
      producer-core pipeline telemetry --topic telemetry -b localhost:9092 --store fleet.duckdb --once

    Records with a newer schema and records that are not telemetry are counted and stored beside the checkpoint. Without
    --once the job keeps running and waits for unavailable brokers. Ctrl-C stops it; merged batches stay merged.

    \b
    Exit codes: 0 merged, 1 --once was interrupted and records are left, 2 the command could not run.
    """
    from producer_core._internal.stop_signal import StopSignal
    from producer_core.config import client_config
    from producer_core.pipeline import telemetry as job
    from producer_core.store import Store
    from producer_core.store.paths import resolve

    spark.check()
    addresses, chosen = options.client_settings(servers, settings, config_file)
    place = resolve(store_path)
    folder = checkpoint or job.default_checkpoint(place)
    job.check(client_config(addresses, chosen), topics, folder)
    # Fail early for a store that is newer, damaged, or inconsistent with the folders; a new store is created later.
    with closing(Store.open(place)) if place.exists() else nullcontext() as known:
        job.check_consistency(known, place, folder, history)
    screen = _Screen()
    with ExitStack() as stack:
        # py4j keeps a reference to the store until after Python's shutdown, where DuckDB fails to close it.
        with spark.session("telemetry", light=True) as session:
            store = stack.enter_context(closing(open_store.opened(store_path)))
            stop = StopSignal()  # after Spark, which installs its own Ctrl-C handler
            done = job.run(
                session, store, servers=addresses, topics=topics, checkpoint=folder, once=once, history=history,
                settings=chosen, every=every, on_progress=screen.draw, stopped=lambda: stop.requested,
            )  # fmt: skip
        screen.clear()
        _print_result(done, store, as_json)
    if once and stop.requested:
        output.say("Interrupted. The next run continues where this one stopped.", err=True)
        sys.exit(LEFT)


class _Screen:
    """Print the progress: one updated line on a terminal, else a line every 10 seconds.

    Two threads call it; a rare extra line does no harm.
    """

    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._printed_at = time.monotonic()
        self._last = ""

    def draw(self, stream: RunningStream) -> None:
        from producer_core.pipeline.telemetry import summary

        text = stream.trouble or summary(stream.done, stream.behind)
        if text == self._last:
            return
        if self._on_terminal and not stream.trouble:
            click.echo(f"\r\033[K{plain(text)}", err=True, nl=False)
        elif stream.trouble or time.monotonic() - self._printed_at >= _LINE_EVERY:
            output.say(text, err=True)
            self._printed_at = time.monotonic()
        else:
            return
        self._last = text

    def clear(self) -> None:
        if self._on_terminal:
            click.echo("\r\033[K", err=True, nl=False)


def _print_result(done: MergeResult, store: Store, as_json: bool) -> None:
    from producer_core.pipeline.merge_batch import missing

    producers, batches = missing(store)
    result: dict[str, Any] = {
        "batches": done.batches, "merged": done.merged, "set_aside": done.set_aside, "missing": batches,
    }  # fmt: skip
    if as_json:
        output.emit(result)
        return
    output.say(merged(done, store.path))
    for reason, count in _reasons(done.versions).items():
        output.say(f"{plural(count, 'record was', 'records were')} set aside: {reason}")
    if batches:
        of_producers = plural(producers, "producer")
        missing_batches = plural(batches, f"batch of {of_producers} is", f"batches of {of_producers} are")
        output.say(f"{missing_batches} missing: late, damaged, or lost before being read.")


def merged(done: MergeResult, path: Path) -> str:
    """Return the result of a run as a sentence."""
    if not done.batches:
        return f"No new batches arrived; {path} is unchanged."
    batches = plural(done.batches, "batch", "batches")
    if not done.merged:
        return f"{batches} arrived; {path} already had {'it' if done.batches == 1 else 'them'}."
    if done.merged == done.batches:
        return f"Merged {batches} into {path}."
    return f"Merged {done.merged:,} of {batches} into {path}, which already had {'the other' if done.batches - done.merged == 1 else 'the others'}."


def _reasons(versions: Mapping[int | None, int]) -> Mapping[str, int]:
    """Return the number of records set aside, by reason."""
    reasons: Counter[str] = Counter()
    for version, count in versions.items():
        reasons[_reason(version)] += count
    return reasons


def _reason(version: int | None) -> str:
    from producer_core.metrics.telemetry import SCHEMA_VERSION

    if version is not None and version > SCHEMA_VERSION:
        return (
            f"schema version {version}, but this producer-core supports version {SCHEMA_VERSION}. Upgrade producer-core, "
            "then run once with a new --checkpoint: the job reads everything again and counts nothing twice."
        )
    return "not telemetry, or damaged."
