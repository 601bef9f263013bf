"""Texts of the overview below its headline: producers, topics and the store."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from producer_core._internal.plural import plural
from producer_core.dashboard.queries.situation import Situation
from producer_core.dashboard.wording.headlines import LOST_AFTER
from producer_core.dashboard.wording.numbers import count, percent, rate
from producer_core.dashboard.wording.time import age

SILENT = 10.0
"""Seconds without a heartbeat after which the page reports a producer as not seen; producers write once a second."""


def connection(now: Situation) -> str:
    """Return how many producers are connected to a broker."""
    if not now.producers:
        return "none running"
    return "connected" if now.connected == now.producers else f"{now.connected} of {now.producers}"


def producer_state(row: Mapping[str, Any], now: float) -> str:
    """Return whether a producer is closed, silent, connected or disconnected, with its last connection error, or has
    an open circuit."""
    silent = now - row["seen_at"]
    if row["closed_at"] is not None:
        return f"closed {age(now - row['closed_at'])} ago"
    if silent > SILENT:
        return f"not seen for {age(silent)}"
    if row["connected"] and row.get("circuit"):
        return str(row["circuit"]).removeprefix("The ").rstrip(".")
    if row["connected"]:
        return "connected"
    return f"no connection: {row['connection_error']}" if row["connection_error"] else "not connected yet"


def producer_tone(row: Mapping[str, Any], now: float) -> str:
    """Return the tone of `producer_state`."""
    if row["closed_at"] is not None:
        return "quiet"
    silent = now - row["seen_at"]
    if silent > SILENT:
        return "bad" if silent > LOST_AFTER else "warning"
    return "good" if row["connected"] and not row.get("circuit") else "bad"


def reason(meaning: str) -> str:
    """Return a meaning as part of a line."""
    return meaning.rstrip(".")


def more_reasons(number: int) -> str:
    return f" and {plural(number, 'more reason')}" if number > 0 else ""


def replayed_note(number: int, dead: int) -> str:
    """Return how many of a topic's failed messages were replayed, as the end of a line."""
    if not number:
        return ""
    return "; replayed since" if number >= dead else f"; {count(number)} replayed since"


def failed(dead: int, share: float | None) -> str:
    return f"{count(dead)} ({percent(share)})"


def spark(topic: str, throughput: float, dead: int) -> str:
    """Return the text alternative of a sparkline."""
    failures = f"; {plural(dead, 'message')} failed" if dead else ""
    return f"{topic} over the range, now {rate(throughput)}{failures}"


def course(label: str) -> str:
    """Return the text alternative of a tile's sparkline."""
    return f"{label} over the range"


def topics_left(number: int, shown: int, troubled: int) -> str:
    """Return how many topics the list leaves out."""
    if number <= shown:
        return ""
    problems = f"{troubled - shown:,} with problems" if troubled > shown else "none with problems"
    return f"and {plural(number - shown, 'more topic')}, {problems}; select one above"


def as_of(now_at: str, *, paused: bool, over: bool, lost: bool = False) -> str:
    """Return the time that the data is from."""
    if lost:
        return f"Store unavailable; showing data as of {now_at}"
    if over:
        return f"Past range; producers and dead letters as of {now_at}"
    return f"Paused; data as of {now_at}" if paused else f"As of {now_at}"


def gaps(windows: int, producers: int) -> tuple[str, str]:
    """Return a note about missing statistics and its tooltip; both are empty where nothing is missing."""
    if not windows:
        return "", ""
    return (
        f" · {plural(windows, 'window')} from {plural(producers, 'producer')} missing",
        f" · {plural(windows, 'one-second window')} of statistics missing from the charts although later ones arrived. "
        "Producers keep the missing windows and send them when the telemetry topic is available; the alert telemetry_lost reports "
        "windows that no longer fit into the producer's buffer.",
    )


def getting_started(store: str) -> tuple[str, str]:
    """Return the first steps: a shell command, and Python code."""
    return (
        f"producer-core send orders messages.jsonl --store {shlex.quote(store)}",
        "from producer_core import ReliableKafkaProducer\n\n"
        f'with ReliableKafkaProducer(["localhost:9092"], store={store!r}) as producer:\n'
        '    producer.send_message("orders", {"id": 1})',
    )
