"""The overview beside its headline: producers, topics and the store, in words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from producer_core.dashboard.queries.situation import Situation
from producer_core.dashboard.wording.headlines import DEAD
from producer_core.dashboard.wording.numbers import count, percent, plural, rate
from producer_core.dashboard.wording.time import age

SILENT = 10.0
"""Seconds without a word after which a producer is said not to be seen; it writes once a second."""


def connection(now: Situation) -> str:
    """How many producers reach a broker."""
    if not now.producers:
        return "none runs"
    return "connected" if now.connected == now.producers else f"{now.connected} of {now.producers}"


def producer_state(row: Mapping[str, Any], now: float) -> str:
    """Whether a producer is closed, silent, connected or not, with its last connection error."""
    silent = now - row["seen_at"]
    if row["closed_at"] is not None:
        return f"closed {age(now - row['closed_at'])} ago"
    if silent > SILENT:
        return f"not seen for {age(silent)}"
    if row["connected"]:
        return "connected"
    return f"no connection: {row['connection_error']}" if row["connection_error"] else "no connection yet"


def producer_tone(row: Mapping[str, Any], now: float) -> str:
    """How loud that is said."""
    if row["closed_at"] is not None:
        return "quiet"
    silent = now - row["seen_at"]
    if silent > SILENT:
        return "bad" if silent > DEAD else "warning"
    return "good" if row["connected"] else "bad"


def reason(meaning: str) -> str:
    """Why something failed, as a part of a line."""
    return meaning.rstrip(".")


def more_reasons(number: int) -> str:
    return f" and {plural(number, 'more reason')}" if number > 0 else ""


def cured(number: int, dead: int) -> str:
    """How much of what failed on a topic was replayed since, as the end of a line."""
    if not number:
        return ""
    return "; replayed since" if number >= dead else f"; {count(number)} of them replayed since"


def failed(dead: int, share: float | None) -> str:
    return f"{count(dead)} ({percent(share)})"


def spark(topic: str, throughput: float, dead: int) -> str:
    """A sparkline for a reader without eyes."""
    ends = f"now {rate(throughput)}"
    return (
        f"{topic} over the range, {ends}; {plural(dead, 'message')} failed"
        if dead
        else f"{topic} over the range, {ends}"
    )


def topics_left(number: int, shown: int, troubled: int) -> str:
    """What a list of topics that was cut leaves out."""
    if number <= shown:
        return ""
    worse = (
        f", {troubled - shown:,} of them with trouble" if troubled > shown else ", none of them with trouble"
    )
    return f"and {plural(number - shown, 'more topic')}{worse}; choose one above"


def as_of(now_at: str, *, paused: bool, over: bool, lost: bool = False) -> str:
    """Up to when the page says something."""
    if lost:
        return f"The store cannot be read now: everything below is as of {now_at}"
    if over:
        return f"This range is over. What waits and who sends is as of {now_at}"
    return f"Paused: everything is as of {now_at}" if paused else f"As of {now_at}"


def gaps(windows: int, producers: int) -> tuple[str, str]:
    """Why the curves have gaps, or lack a part, in small print; and what to do, under the pointer. Empty without any."""
    if not windows:
        return "", ""
    return (
        f" · {plural(windows, 'window')} of {plural(producers, 'producer')} missing",
        f" · {plural(windows, 'window')} of statistics, a second each, did not come though later ones did: the curves lack "
        "them. They wait where they were made and come when the telemetry topic can be had; the alert telemetry_lost says "
        "where they had no room.",
    )


def beginning(store: str) -> tuple[str, str]:
    """What one types to see this page come to life: in a shell, and in Python."""
    return (
        f"producer-core send orders messages.jsonl --store {shlex.quote(store)}",
        "from producer_core import ReliableKafkaProducer\n\n"
        f'with ReliableKafkaProducer(["localhost:9092"], store={store!r}) as producer:\n'
        '    producer.send_message("orders", {"id": 1})',
    )
