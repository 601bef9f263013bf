"""The `producer-core` command."""

from __future__ import annotations

import click

from producer_core import __version__
from producer_core.cli.lazy_group import Command, LazyGroup

COMMANDS = (
    Command("send", "Send the rows of a file or standard input.", "send.send_command"),
    Command("demo", "Demonstrate retries, dead letters, deduplication and health.", "demo"),
    Command("simulate", "Send simulated shop traffic.", "simulate"),
    Command("stats", "Show sent, retried and dead messages by topic.", "stats"),
    Command("health", "Check producers and alerts; exit code 0 or 1.", "health"),
    Command("explain", "Explain an error code and how to fix it.", "explain"),
    Command("dlq", "List, edit, replay, archive and purge dead letters.", "dlq.dlq_group"),
    Command("replay", "Show, pause, resume and cancel replays.", "replay.replay_group"),
    Command("alerts", "List, acknowledge and silence alerts; check rules.", "alerts"),
    Command("metrics", "Serve metrics to Prometheus.", "metrics"),
    Command("telemetry", "Collect the statistics of a fleet without Spark.", "telemetry"),
    Command("audit", "Show operator actions on dead letters and alerts.", "audit"),
    Command("store", "Inspect, copy and clean up the store.", "store"),
    Command("incident", "Export an incident to one file; show and import it.", "incident"),
    Command("schema", "Check schemas against a registry.", "schema"),
    Command("doctor", "Check brokers, topics, store, Redis and Java.", "doctor"),
    Command("broker", "Start and stop a local Kafka.", "broker"),
    Command(
        "pipeline", "Run Spark jobs: telemetry, integrity audit, large replays.", "pipeline.pipeline_group"
    ),
    Command("dashboard", "Serve the live dashboard and print its address.", "dashboard"),
)


@click.group(
    cls=LazyGroup,
    commands_elsewhere=COMMANDS,
    package=__name__,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "--version", prog_name="producer-core")
def main() -> None:
    """A reliable Kafka producer that reports the outcome of every message.

    \b
    Try it without a broker:    producer-core demo
    Send a file:                producer-core send orders orders.jsonl --key customer
    List the dead letters:      producer-core dlq groups
    Diagnose a problem:         producer-core doctor

    Exit codes: 0 success, 1 completed with problems (dead letters, a failed check), 2 could not run,
    3 waits for the approval of a second person, 130 interrupted.
    """
