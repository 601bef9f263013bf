"""How delivery goes, in one sentence, and each producer in one word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.words.moments import age
from dashboard.words.numbers import count


@dataclass(frozen=True)
class Situation:
    """What the sentence on top is made of; `causes` counts failed messages by (topic, meaning), most first."""

    acknowledged: int
    dead: int
    window: str
    connected: int
    producers: int
    closed: int
    silent_for: float | None
    connection_error: str | None
    pending: int
    causes: Sequence[tuple[str, str, int]]


def sentence(now: Situation) -> tuple[str, str]:
    """How things stand, as a tone (good, warning, bad, quiet) and one sentence or two."""
    if not now.producers and not now.closed and not now.acknowledged and not now.dead:
        return (
            "quiet",
            "No producer has written here yet. Start one on this store and this page comes to life.",
        )
    failed = _failed(now)
    if not now.producers:
        return "quiet", f"No producer is running. {failed}"
    if now.silent_for is not None and now.silent_for > 40:
        return "bad", f"No producer has been seen for {age(now.silent_for)}: it may have died. {failed}"
    if not now.connected:
        why = f": {now.connection_error}" if now.connection_error else ""
        return "bad", f"Not delivering. No broker is connected{why}. {_waits(now.pending)}"
    tone = "good" if not now.dead else "bad" if now.dead > 0.05 * (now.dead + now.acknowledged) else "warning"
    return tone, f"Delivering. {failed}"


def _waits(pending: int) -> str:
    return "1 message waits." if pending == 1 else f"{pending:,} messages wait."


def _failed(now: Situation) -> str:
    total = now.acknowledged + now.dead
    if not total:
        return f"Nothing was sent in the last {now.window}."
    if not now.dead:
        return f"All {count(total)} messages of the last {now.window} were acknowledged."
    text = f"{count(now.dead)} of {count(total)} messages failed in the last {now.window}"
    if not now.causes:
        return text + "."
    topic, meaning, most = now.causes[0]
    where = (
        f"all on {topic}"
        if all(cause[0] == topic for cause in now.causes)
        else f"most ({count(most)}) on {topic}"
    )
    return f"{text}, {where}: {meaning[:1].lower()}{meaning[1:].rstrip('.')}."


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
    if silent > 10:
        return f"not seen for {age(silent)}"
    if row["connected"]:
        return "connected"
    return f"no connection: {row['connection_error']}" if row["connection_error"] else "no connection yet"
