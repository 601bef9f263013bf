"""Dead letters, and what may be done about them, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

VERDICTS: Mapping[str, str] = {
    "not_sent": "never left the client, safe to send again",
    "rejected": "refused by the broker, safe to send again",
    "absent": "looked for and not on the topic, safe to send again",
    "possibly_persisted": "may be on the broker; a replay looks for it first",
    "found": "is on the topic already",
    "inconclusive": "could not be looked up, may be on the broker",
}


def act(verb: str, number: int) -> str:
    """A button's label: «Replay 43»."""
    return f"{verb} {number:,}" if number else verb


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
