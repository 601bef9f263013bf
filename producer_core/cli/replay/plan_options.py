"""The options of a replay plan: limit, rate, canary and stop rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from producer_core.cli import options

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--dry-run", is_flag=True, help="Show what the replay would do; nothing is sent or changed."
    ),
    click.option("--limit", type=options.ROWS, help="Maximum number of records, oldest first."),
    click.option("--rate", type=options.RateType(), help="Maximum records per second."),
    click.option(
        "--canary",
        type=click.IntRange(min=0),
        help="Records to settle before the rest; 0: none.  [default: 10]",
    ),
    click.option(
        "--stop-percent",
        type=click.FloatRange(0, 100),
        help="Stop if more than this percentage of the canary, or of the latest records, fails.  [default: 50]",
    ),
    click.option(
        "--stop-last",
        type=click.IntRange(min=1),
        help="Number of latest records for --stop-percent.  [default: 50]",
    ),
    click.option(
        "--newer",
        type=click.Choice(["auto", "skip", "send"]),
        help="Records whose key has a newer record. Default: ask; auto with --yes.",
    ),
    click.option(
        "--inconclusive",
        type=click.Choice(["keep", "send"]),
        help="Records possibly on their topic but not found. Default: ask; keep with --yes.",
    ),
    click.option("--include-quarantined", is_flag=True, help="Include quarantined records."),
    click.option(
        "--to",
        "to_cluster",
        metavar="CLUSTER",
        help="Send to this cluster, even if the records come from another.",
    ),
    click.option("--reason", help="Reason for the replay, shown to other operators."),
)


def plan_options(command: F) -> F:
    """Add the plan options, named after the parameters of `replay.plan` except for --include-quarantined."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
