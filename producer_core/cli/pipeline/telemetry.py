"""The `pipeline telemetry` command: a fleet's batches from Kafka into one store."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
@click.option(
    "--topic", "topics", multiple=True, required=True, help="A telemetry topic; may be given more than once."
)
@options.client_options
@options.store_option
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, file_okay=False),
    help="How far the job has read; default: a folder beside the store.",
)
@click.option(
    "--history",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep every row as Parquet in this folder, too: one file an hour and kind.",
)
@click.option("--once", is_flag=True, help="Merge what is there now, then end. Default: go on until Ctrl-C.")
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
    """Each batch counts once, however often it is sent, however late it comes, and whatever is killed when: run it
    twice, it adds nothing.

    \b
      producer-core pipeline telemetry --topic telemetry -b localhost:9092 --store fleet.duckdb --once

    A record of a newer schema, or that is no telemetry, is set aside beside the checkpoint and counted. Without
    --once a job that runs waits for brokers that go away. Ctrl-C ends it with what is merged.

    \b
    Exit codes: 0 merged, 1 --once was interrupted and records are left, 2 it could not be done.
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
    # A store of the future, or damaged, or that does not go with the folders, is told now; a new one is made later.
    with closing(Store.open(place)) if place.exists() else nullcontext() as known:
        job.check_consistency(known, place, folder, history)
    screen = _Screen()
    with ExitStack() as stack:
        # closed before Python ends: py4j keeps the sink, and with it the store, beyond that, and DuckDB would complain
        with spark.session("telemetry", light=True) as session:
            store = stack.enter_context(closing(open_store.opened(store_path)))
            stop = StopSignal()  # after Spark, which has its own idea of Ctrl-C
            done = job.run(
                session, store, servers=addresses, topics=topics, checkpoint=folder, once=once, history=history,
                settings=chosen, every=every, on_progress=screen.draw, stopped=lambda: stop.requested,
            )  # fmt: skip
        screen.wipe()
        _end(done, store, as_json)
    if once and stop.requested:
        output.say("Interrupted: the next run goes on where this one ended.", err=True)
        sys.exit(LEFT)


class _Screen:
    """How the run stands: one line that changes on a terminal, a line each 10 seconds elsewhere. Called by two
    threads; a line too many does no harm."""

    def __init__(self) -> None:
        self._bar = sys.stderr.isatty()
        self._said = time.monotonic()
        self._last = ""

    def draw(self, going: RunningStream) -> None:
        from producer_core.pipeline.telemetry import summary

        text = going.trouble or summary(going.done, going.behind)
        if text == self._last:
            return
        if self._bar and not going.trouble:
            click.echo(f"\r\033[K{plain(text)}", err=True, nl=False)
        elif going.trouble or time.monotonic() - self._said >= _LINE_EVERY:
            output.say(text, err=True)
            self._said = time.monotonic()
        else:
            return
        self._last = text

    def wipe(self) -> None:
        if self._bar:
            click.echo("\r\033[K", err=True, nl=False)


def _end(done: MergeResult, store: Store, as_json: bool) -> None:
    from producer_core.pipeline.merge_batch import missing

    producers, batches = missing(store)
    result: dict[str, Any] = {
        "batches": done.batches, "merged": done.merged, "set_aside": done.set_aside, "missing": batches,
    }  # fmt: skip
    if as_json:
        output.emit(result)
        return
    output.say(merged(done, store.path))
    for why, count in _reasons(done.versions).items():
        output.say(f"{output.count(count, 'record was', 'records were')} set aside: {why}")
    if batches:
        who = output.count(producers, "producer")
        what = output.count(batches, f"batch of {who} has", f"batches of {who} have")
        output.say(f"{what} not come: late, damaged, or lost before they were read.")


def merged(done: MergeResult, path: Path) -> str:
    """What a run came to, in a sentence."""
    if not done.batches:
        return f"No new batches came; {path} is as it was."
    batches = output.count(done.batches, "batch", "batches")
    if not done.merged:
        return f"{batches} came, and {path} had {'it' if done.batches == 1 else 'them'} already."
    if done.merged == done.batches:
        return f"Merged {batches} into {path}."
    return f"Merged {done.merged:,} of {batches} into {path}; it had the others already."


def _reasons(versions: Mapping[int | None, int]) -> Mapping[str, int]:
    """How many were set aside, by why."""
    reasons: Counter[str] = Counter()
    for version, count in versions.items():
        reasons[_why(version)] += count
    return reasons


def _why(version: int | None) -> str:
    from producer_core.metrics.telemetry import SCHEMA_VERSION

    if version is not None and version > SCHEMA_VERSION:
        return (
            f"of schema {version}, and this producer-core knows {SCHEMA_VERSION}. Upgrade it, then run once with a new "
            "--checkpoint: it reads them again and counts nothing twice."
        )
    return "no telemetry, or damaged."
