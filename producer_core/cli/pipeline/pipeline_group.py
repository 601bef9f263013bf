"""The `pipeline` commands: Spark jobs over Kafka."""

from __future__ import annotations

import click

from producer_core.cli import output
from producer_core.cli.lazy_group import Command, LazyGroup

COMMANDS = (
    Command("telemetry", "Merge the producers' telemetry topics into a store.", "telemetry"),
    Command(
        "integrity", "Prove what is lost, duplicated and out of order on a topic, by message id.", "integrity"
    ),
    Command("reprocess", "Send a large DLQ again, in parallel, each dead letter once.", "reprocess"),
)


@click.group(cls=LazyGroup, commands_elsewhere=COMMANDS, package="producer_core.cli.pipeline")
def pipeline() -> None:
    """Jobs for a fleet, on Apache Spark: this machine by default, any master with --master.

    \b
      producer-core pipeline telemetry --topic telemetry -b broker:9092 --store fleet.duckdb --once
      producer-core dashboard --store fleet.duckdb

    They need Java 17 or newer and `pip install 'producer-core[spark]'`.
    """


@pipeline.command(short_help="Fetch Spark's Kafka connector now.")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 3600),
    default=60,
    show_default=True,
    help="Seconds without any answer after which the fetch fails.",
)
def fetch(timeout: float) -> None:
    """Resolve the connector's jars once, so that the first job need not; they are kept in the user's cache.

    Their folder can be copied to a machine without a network and named there with --jars.
    """
    from producer_core.pipeline import connector, session

    session.check_tools()
    jars = connector.fetch_connector(timeout)
    output.say(f"Spark's Kafka connector: {len(jars)} jars in {jars[0].parent}")
