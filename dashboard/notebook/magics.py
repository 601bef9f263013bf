"""The magics: `%load_ext producer_core`, then `%producer_stats` and `%dlq`."""

from __future__ import annotations

import sys
from typing import Any

from dashboard.notebook import feed
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext producer_core`."""
    shell.register_magic_function(producer_stats, "line", "producer_stats")
    shell.register_magic_function(dlq, "line", "dlq")


def producer_stats(line: str = "") -> None:
    """`%producer_stats [STORE]`: how the producers of a store stand, in words."""
    _say(feed.text(feed.moment(_store(line))))


def dlq(line: str = "") -> None:
    """`%dlq [STORE]`: the causes of the dead letters that wait, each with its advice."""
    groups = DeadLetters(_store(line)).groups(DeadLetterFilter())
    for group in groups:
        _say(f"{group.count:,} x {group.code} on {', '.join(group.topics)}\n  {group.meaning} {group.advice}")
    if not groups:
        _say("No dead letters wait.")


def _store(line: str) -> Store:
    return Store.open(line.strip().strip("'\"") or None, create=False)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
