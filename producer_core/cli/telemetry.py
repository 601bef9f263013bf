"""The `telemetry` commands: collect the statistics of a fleet in one process."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import click

from producer_core.cli import open_store, options, output
from producer_core.cli.telemetry_output import ProgressLine, print_result

LEFT = 1


@click.group()
def telemetry() -> None:
    """Collect the telemetry of a fleet.

    \b
      producer-core telemetry collect --topic telemetry -b broker:9092 --store fleet.duckdb
      producer-core dashboard --store fleet.duckdb
    """


@telemetry.command(short_help="Merge the producers' telemetry topics into a store, without Spark.")
@click.option("--topic", "topics", multiple=True, required=True, help="Telemetry topic; repeatable.")
@options.client_options
@options.store_option
@click.option(
    "--history",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write every row as Parquet to this folder: one file per hour and kind.",
)
@click.option("--once", is_flag=True, help="Merge the current records, then exit; default: run until Ctrl-C.")
@click.option(
    "--every", type=options.DurationType(), default="1s", show_default=True, help="Time between two merges."
)
@options.as_json
def collect(
    topics: tuple[str, ...],
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    store_path: Path | None,
    history: Path | None,
    once: bool,
    every: float,
    as_json: bool,
) -> None:
    """Merge the telemetry batches of a fleet into one store, in this process.

    Each batch counts once, even if it is sent again or arrives late, or if a process is killed. The store contains the
    offsets that were merged, so the next run continues there, and a second run over the same batches adds nothing.

    \b
      producer-core telemetry collect --topic telemetry -b localhost:9092 --store fleet.duckdb --once

    The command needs neither Java nor Spark. It follows a fleet of about a thousand producers; for more, use
    producer-core pipeline telemetry. Records with a newer schema and records that are not telemetry are counted and
    stored beside the store.

    Without --once the command keeps running. At the start, the brokers, the topics and the store must be available. After
    that, it waits while one of them is unavailable, or a disk is full. Ctrl-C stops it; merged batches stay merged.

    \b
    Exit codes: 0 merged, 1 --once was interrupted and records are left, 2 the command could not run.
    """
    from producer_core._internal.stop_signal import StopSignal
    from producer_core.config import client_config
    from producer_core.pipeline.collect import collect as run
    from producer_core.pipeline.preflight import reach

    addresses, chosen = options.client_settings(servers, settings, config_file)
    reach(client_config(addresses, chosen), topics)  # before a store is created
    stop, line = StopSignal(), ProgressLine()
    with closing(open_store.opened(store_path)) as store:
        done = run(
            store, servers=addresses, topics=topics, once=once, history=history, settings=chosen, every=every,
            on_progress=line.draw, stopped=lambda: stop.requested,
        )  # fmt: skip
        line.clear()
        print_result(done, store, as_json)
    if once and stop.requested:
        output.say("Interrupted. The next run continues where this one stopped.", err=True)
        sys.exit(LEFT)
