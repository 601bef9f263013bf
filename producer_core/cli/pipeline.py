"""The `pipeline` commands: Spark jobs over Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import options, show

if TYPE_CHECKING:
    from producer_core.pipeline.telemetry import Merged


@click.group(short_help="Spark jobs: telemetry of a fleet into a store.")
def pipeline() -> None:
    """Jobs for a fleet, on Apache Spark: this machine by default, any master with --master.

    \b
      producer-core pipeline telemetry --topic telemetry -b broker:9092 --store fleet.duckdb --once
      producer-core dashboard --store fleet.duckdb

    They need Java 17 or newer and `pip install 'producer-core[spark]'`.
    """


@pipeline.command(short_help="Merge the producers' telemetry topics into a store.")
@click.option(
    "--topic", "topics", multiple=True, required=True, help="A telemetry topic; may be given more than once."
)
@click.option("-b", "--bootstrap-servers", required=True, help="host:port, comma-separated.")
@options.store_option
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, file_okay=False),
    help="How far the job has read; default: a folder beside the store.",
)
@click.option(
    "--history",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep every row as Parquet in this folder, too.",
)
@click.option("--once", is_flag=True, help="Merge what is there now, then end. Default: go on until Ctrl-C.")
@click.option("--master", default="local[2,4]", show_default=True, help="The Spark master.")
@click.option(
    "--jars",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="The connector's jars, where they cannot be fetched.",
)
@click.option("--verbose", is_flag=True, help="Show Spark's own log.")
@options.as_json
def telemetry(
    topics: tuple[str, ...],
    bootstrap_servers: str,
    store_path: Path | None,
    checkpoint: Path | None,
    history: Path | None,
    once: bool,
    master: str,
    jars: tuple[Path, ...],
    verbose: bool,
    as_json: bool,
) -> None:
    """Each batch counts once, however often it is sent or the job is killed: run it twice, it adds nothing.

    \b
      producer-core pipeline telemetry --topic telemetry -b localhost:9092 --store fleet.duckdb --once

    A record of a newer schema, or that is no telemetry, is set aside beside the checkpoint and counted.
    """
    from producer_core.cluster import Cluster
    from producer_core.config import client_config
    from producer_core.pipeline import session, telemetry
    from producer_core.stopping import Stop
    from producer_core.store import Store

    session.check_tools()
    servers = client_config(bootstrap_servers)
    cluster = Cluster(servers)
    cluster.view(timeout=8.0)  # Spark itself would wait a minute for a broker that is not there
    for topic in topics:
        cluster.require_topic(topic)
    store = Store.open(store_path)
    stop = Stop()
    click.echo(f"Starting Spark on {master} …", err=True)
    spark = session.open_session(name="producer-core telemetry", master=master, jars=jars, verbose=verbose)
    try:
        done = telemetry.run(
            spark,
            store,
            servers=servers.bootstrap_servers,
            topics=topics,
            checkpoint=checkpoint or store.path.with_name(store.path.name + ".telemetry"),
            once=once,
            history=history,
            told=_say,
            stopped=lambda: stop.asked,
        )
    finally:
        spark.stop()
    _end(done, store.path, as_json)


@pipeline.command(short_help="Fetch Spark's Kafka connector now.")
def fetch() -> None:
    """Resolve the connector's jars once, so that the first job need not; they are kept in the user's cache."""
    from producer_core.pipeline import session

    session.check_tools()
    click.echo(f"Spark's Kafka connector: {len(session.fetch_connector())} jars")


def _say(done: Merged) -> None:
    click.echo(f"merged {done.merged:,} of {done.batches:,} batches", err=True)


def _end(done: Merged, path: Path, as_json: bool) -> None:
    result: dict[str, Any] = {"batches": done.batches, "merged": done.merged, "set_aside": done.set_aside}
    if as_json:
        show.emit(result)
        return
    click.echo(f"Merged {done.merged:,} new batches of {done.batches:,} into {path}.")
    if done.set_aside:
        click.echo(f"{done.set_aside:,} records were set aside: a newer schema, or no telemetry.")
