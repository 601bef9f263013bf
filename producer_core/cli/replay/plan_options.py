"""The options of a replay's plan: how much, how fast, and when it stops itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from producer_core.cli import options

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--dry-run", is_flag=True, help="Only say what it would do; nothing is sent or changed."),
    click.option("--limit", type=options.ROWS, help="At most so many, the oldest first."),
    click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many a second."),
    click.option(
        "--canary",
        type=click.IntRange(min=0),
        help="So many are settled before the rest goes; 0: none.  [default: 10]",
    ),
    click.option(
        "--stop-percent",
        type=click.FloatRange(0, 100),
        help="It stops itself when more of the canary, or of the last ones, fail again.  [default: 50]",
    ),
    click.option(
        "--stop-last",
        type=click.IntRange(min=1),
        help="How many last ones that rule looks at.  [default: 50]",
    ),
    click.option(
        "--newer",
        type=click.Choice(["auto", "skip", "send"]),
        help="Records whose key has a newer one on the topic: skip them, send them all the same, or (auto) "
        "skip them on topics that are compacted, or of which nobody can tell. Unless given you are asked; with --yes it "
        "is auto.",
    ),
    click.option(
        "--inconclusive",
        type=click.Choice(["keep", "send"]),
        help="Records that may be on their topic and are not found there: keep them as dead letters, or send them "
        "anyway, which may write a second copy. Unless given you are asked; with --yes they are kept.",
    ),
    click.option("--include-quarantined", is_flag=True, help="Those too that failed again and again."),
    click.option(
        "--to", "to_cluster", metavar="CLUSTER", help="Send to this cluster, though they come from another."
    ),
    click.option("--reason", help="Why, in your words; kept with the replay."),
)


def plan_options(command: F) -> F:
    """All of them, by the names of `replay.plan`'s choices but for --include-quarantined."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
