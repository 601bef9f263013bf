"""The words: what the page says of its numbers, in plain sentences and with units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson


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


def short(name: str, longest: int = 26) -> str:
    """A name that fits beside a chart; of a long one its beginning and its end."""
    if len(name) <= longest:
        return name
    end = longest // 3
    return f"{name[: longest - end - 1]}…{name[-end:]}"


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def count(number: float | None) -> str:
    """A whole number with thousands apart; a dash where there is none."""
    return "–" if number is None else f"{number:,.0f}"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def compact(number: float | None) -> str:
    """A number short enough for a tile: 12,480 as it is, 1.25 M above a million."""
    if number is None:
        return "–"
    for limit, unit in ((1e9, " G"), (1e6, " M")):
        if abs(number) >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:,.0f}" if abs(number) >= 100 or number == int(number) else f"{number:,.1f}"


def percent(share: float | None) -> str:
    """A share of one; small ones keep a digit that says something."""
    if share is None:
        return "–"
    if 0 < share < 0.0001:
        return "< 0.01 %"
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def milliseconds(seconds: float | None) -> str:
    """A latency in the unit that fits."""
    if seconds is None:
        return "–"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1f} ms"


def rate(per_second: float | None) -> str:
    return "–" if per_second is None else f"{compact(per_second)} /s"


def size(number: float | None) -> str:
    """Bytes, in powers of 1024."""
    if number is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024 or unit == "GiB":
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    raise AssertionError("unreachable")


def age(seconds: float) -> str:
    """How long ago, roughly."""
    seconds = max(0.0, seconds)
    for limit, length, unit in ((90, 1, "s"), (5400, 60, "min"), (129600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def when(since: float, until: float, now: float, *, lasted: float, ongoing: bool) -> str:
    """When something was found: since when it goes on, or from when to when it was, and for how long in all."""
    if not until:
        return ""
    parts = "" if lasted > 0.8 * (until - since) else f", {age(lasted)} in all"
    if ongoing:
        return f"Since {age(now - since)}{parts}."
    return f"It is over: {moment(since)[11:]} to {moment(until)[11:]} UTC{parts}, {age(now - until)} ago."


def nothing_known(window: str) -> str:
    """What stands where a diagnosis would: without numbers there is none."""
    return (
        f"No producer said anything of its client in the last {window}, so nothing can be said about it. "
        "Producers of this version do so once a second."
    )


def live(seen_at: float | None, now: float) -> bool:
    """Whether a producer was heard within the last seconds."""
    return seen_at is not None and now - seen_at < 5


def data_age(seen_at: float | None, now: float) -> str:
    """How old the newest data is."""
    if seen_at is None:
        return "no data yet"
    return "data is live" if live(seen_at, now) else f"data is {age(now - seen_at)} old"


def act(verb: str, number: int) -> str:
    """A button's label: «Replay 43»."""
    return f"{verb} {number:,}" if number else verb


VERDICTS: Mapping[str, str] = {
    "not_sent": "never left the client, safe to send again",
    "rejected": "refused by the broker, safe to send again",
    "absent": "looked for and not on the topic, safe to send again",
    "possibly_persisted": "may be on the broker; a replay looks for it first",
    "found": "is on the topic already",
    "inconclusive": "could not be looked up, may be on the broker",
}


def connection(now: Situation) -> str:
    """How many producers reach a broker."""
    if not now.producers:
        return "none runs"
    return "connected" if now.connected == now.producers else f"{now.connected} of {now.producers}"


TONES: Mapping[str, str] = {"critical": "bad", "warning": "warning", "info": "quiet"}
"""How loud an alert of a severity is said."""


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


def moment(at: float) -> str:
    """A time in UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def none_match(state: str | None) -> str:
    """What an empty list says."""
    if state == "dead":
        return "None match. What cannot be delivered appears here within seconds."
    return f"None match in the state {state}."


def why_no_replay(state: str | None, number: int, runners: int) -> str | None:
    """Why Replay cannot be pressed; None when it can."""
    if state != "dead":
        return "Only letters in the state dead can be replayed."
    if not number:
        return "There is nothing to replay."
    if not runners:
        return "Replay needs a running producer on this store: it has the credentials. None is alive now."
    return None


def hex_dump(value: bytes, *, width: int = 16, longest: int = 1024) -> str | None:
    """Bytes that are not text, as offsets and hexadecimal; None for text."""
    try:
        value.decode()
    except UnicodeDecodeError:
        starts = range(0, min(len(value), longest), width)
        lines = [f"{start:08x}  {value[start : start + width].hex(' ')}" for start in starts]
        more = [f"… {len(value):,} bytes in all"] if len(value) > longest else []
        return "\n".join([*lines, *more])
    return None


def pretty(value: Any, longest: int) -> str:
    """A JSON value indented, a text as it is; cut where it is too long to look at."""
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return text if len(text) <= longest else f"{text[:longest]}\n… {len(text):,} characters in all"


def alert(found: Mapping[str, Any], now: float) -> str:
    """An alert in a line: how bad, what, since when, what to do."""
    since = age(now - found["started_at"])
    return f"{found['severity'].capitalize()} for {since}: {found['text'].rstrip('.')}. {found['advice']}"
