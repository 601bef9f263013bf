"""The `producer-core` command."""

from __future__ import annotations

import click

from producer_core import __version__
from producer_core.cli.lazy_group import Command, LazyGroup

COMMANDS = (
    Command("send", "Send a file's rows, or standard input, to a topic.", "send.send_command"),
    Command("demo", "See what the producer does: retries, dead letters, health.", "demo"),
    Command("simulate", "Send made-up shop traffic, in one of several scenarios.", "simulate"),
    Command("stats", "What was sent, retried and lost, by topic.", "stats"),
    Command("health", "Whether producers and alerts are in order; exit code 0 or 1.", "health"),
    Command("explain", "What an error code means and what to do about it.", "explain"),
    Command("dlq", "Dead letters: look, replay, archive, restore, purge.", "dlq.dlq_group"),
    Command("replay", "Replays under way: progress, pause, resume, cancel.", "replay.replay_group"),
    Command("alerts", "Alerts: list, acknowledge, silence, rules, webhook.", "alerts"),
    Command("audit", "Who did what to dead letters and alerts, and when.", "audit"),
    Command("store", "The store's file: inventory, copy, clean-up.", "store"),
    Command("doctor", "Check brokers, topic, store, Redis and Java; each finding with its fix.", "doctor"),
    Command("broker", "Start, stop and ask about a Kafka of your own.", "broker"),
    Command(
        "pipeline", "Spark jobs for a fleet: telemetry, audit, large replays.", "pipeline.pipeline_group"
    ),
    Command("dashboard", "Open the live dashboard in a browser.", "dashboard"),
)


@click.group(
    cls=LazyGroup,
    commands_elsewhere=COMMANDS,
    package=__name__,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "--version", prog_name="producer-core")
def main() -> None:
    """A Kafka producer that tells its owner what happened to every message.

    \b
    Try it without a broker:    producer-core demo
    Send a file:                producer-core send orders orders.jsonl --key customer
    Look at what died:          producer-core dlq groups
    Find out what is wrong:     producer-core doctor

    Exit codes: 0 all is well, 1 something is not (dead letters, a bad finding), 2 it could not be done,
    130 interrupted.
    """
