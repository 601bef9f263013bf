"""The `pipeline` commands: Spark jobs over Kafka."""

from __future__ import annotations

import click

from producer_core._internal.plural import plural
from producer_core.cli import output
from producer_core.cli.lazy_group import Command, LazyGroup

COMMANDS = (
    Command("telemetry", "Merge the producers' telemetry topics into a store.", "telemetry"),
    Command("integrity", "Find lost, duplicated and reordered messages on a topic.", "integrity"),
    Command("reprocess", "Replay a large DLQ in parallel, exactly once.", "reprocess"),
)


@click.group(cls=LazyGroup, commands_elsewhere=COMMANDS, package="producer_core.cli.pipeline")
def pipeline() -> None:
    """Run Apache Spark jobs for a fleet, on this machine or on the Spark master set with --master.

    \b
      producer-core pipeline telemetry --topic telemetry -b broker:9092 --store fleet.duckdb --once
      producer-core dashboard --store fleet.duckdb

    The jobs need Java 17 or newer and `pip install 'producer-core[spark]'`.
    """


@pipeline.command(short_help="Fetch Spark's Kafka connector now.")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 3600),
    default=60,
    show_default=True,
    help="Seconds without a response after which the fetch fails.",
)
def fetch(timeout: float) -> None:
    """Fetch the jars of Spark's Kafka connector into the user's cache, so that the first job starts faster.

    For a machine without network access, copy their folder there and pass it with --jars.
    """
    from producer_core.pipeline import connector, session

    session.check_tools()
    jars = connector.fetch_connector(timeout)
    output.say(f"Spark's Kafka connector: {plural(len(jars), 'jar')} in {jars[0].parent}")
