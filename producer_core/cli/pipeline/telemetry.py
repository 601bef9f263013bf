"""The `pipeline telemetry` command: merge a fleet's telemetry batches from Kafka into one store."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path

import click

from producer_core.cli import open_store, options, output
from producer_core.cli.pipeline.spark_options import SparkChoice, spark_options
from producer_core.cli.telemetry_output import ProgressLine, print_result

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
    screen = ProgressLine()
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
        print_result(done, store, as_json)
    if once and stop.requested:
        output.say("Interrupted. The next run continues where this one stopped.", err=True)
        sys.exit(LEFT)
