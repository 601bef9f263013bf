"""Dead letters, and what may be done about them, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, NamedTuple

import orjson

from producer_core._internal.masking import LONGEST, display_key, display_value, mask_headers, rules
from producer_core.dashboard.wording.numbers import plural, size
from producer_core.dashboard.wording.time import age, last, moment
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.limits import DeadLetterLimits, DeadLetterLoad, LimitExcess

VERDICTS: Mapping[str, str] = {
    "not_sent": "never left the client, safe to send again",
    "rejected": "refused by the broker, safe to send again",
    "absent": "proved not to be on the topic, safe to send again",
    "possibly_persisted": "may be on the broker; a replay looks for it first",
    "found": "is on the topic already",
    "inconclusive": "not found on the topic, but may still arrive; sent again only if you choose it",
}

STATES: Mapping[str, str] = {
    "dead": "Waits for a decision.",
    "replaying": "It is being sent again now.",
    "replayed": "It was sent again, and the broker has it.",
    "landed": "It was found on its topic, so it was not sent again.",
    "archived": "It was put aside; Restore brings it back.",
    "purged": "Its content was deleted for good.",
}

BEYOND = "Beyond a bound nothing is dropped; an alert says so."

_NAMES = {
    "topic": "topic",
    "group": "cause",
    "code": "error",
    "verdict": "verdict",
    "state": "state",
    "key": "key",
    "message_id": "message",
    "text": "error text with",
    "cluster_id": "cluster",
    "cluster_or_unknown": "unknown cluster or",
    "producer_id": "producer",
    "body": "key, value or headers with",
}
_LONGEST = 20_000
_CELL = 200
_HEADER = 2_000
_MASKED_AT_MOST = 4_000

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def accepted(seconds: float) -> str:
    """How long before its death a message was accepted."""
    return f"accepted {age(seconds)} before" if seconds >= 0.5 else "accepted less than a second before"


def act(verb: str, number: int) -> str:
    """A button's label: «Replay 43»."""
    return f"{verb} {number:,}" if number else verb


def none_match(state: str | None) -> str:
    """What an empty list says."""
    if state == "dead":
        return "None match. What cannot be delivered appears here within seconds."
    return f"None match in the state {state}." if state else "None match in any state."


def why_no_replay(state: str | None, number: int, runners: int) -> str | None:
    """Why Replay cannot be pressed; None when it can."""
    if state != "dead":
        return "Only dead letters in the state dead can be replayed."
    if not number:
        return "There is nothing to replay."
    if not runners:
        return "Replay needs a running producer on this store: it has the credentials. None is alive now."
    return None


# what is looked at


def filtered(where: DeadLetterFilter, span: str | None, zone: str | None) -> str:
    """The filter in words, «Topic payments, error _TIMED_OUT, since …»; empty for the usual one."""
    parts = [
        f"{_NAMES[field.name]} {visible_line(str(value))}"
        for field in fields(where)
        if field.name in _NAMES and (value := getattr(where, field.name)) not in (None, field.default)
    ]
    parts += ["any state"] if where.state is None else []
    if span is not None:
        parts.append(f"died in {last(span)}")
    else:
        parts += [f"died since {moment(where.since, zone)}"] if where.since is not None else []
        parts += [f"died before {moment(where.until, zone)}"] if where.until is not None else []
    parts += [f"{plural(len(where.ids), 'message')} chosen by id"] if where.ids else []
    text = ", ".join(parts)
    return text[:1].upper() + text[1:]


def about(total: int, listed: int, *, first: bool, found: bool = False) -> str:
    """How much of what matches is on the page; `found` by a search in bodies, which knows of no more."""
    if found:
        return f"The {total:,} that were found." if total > 1 else "The one that was found."
    if first and listed >= total:
        return f"All {total:,} that match." if total > 1 else "The only one that matches."
    if first:
        return f"The latest {listed:,} of {total:,} that match now."
    return f"{listed:,} of {total:,} that match now, further down."


def chosen(ids: int, states: Mapping[str, int], elsewhere: int, state: str | None) -> str:
    """What was chosen by hand, how much of it is not on this page, and what somebody else changed meanwhile."""
    text = f"{ids:,} chosen by hand"
    text += f", {elsewhere:,} of them not on this page." if elsewhere else "."
    changed = {name: number for name, number in states.items() if state is not None and name != state}
    told = [f"{number:,} {'is' if number == 1 else 'are'} {name} by now" for name, number in changed.items()]
    gone = ids - sum(states.values())
    told += [f"{gone:,} {'is' if gone == 1 else 'are'} not in this store any more"] if gone > 0 else []
    return f"{text} {'; '.join(told)}: acts leave those alone." if told else text


def searched(looked_at: int, of: int, found: int, *, complete: bool, back_to: str | None) -> str:
    """How far a search in bodies looked."""
    if complete:
        return f"Looked into all {of:,}: {found:,} found."
    back = f", back to {back_to}" if back_to else ""
    return (
        f"Looked into {looked_at:,} of {of:,}, the latest first{back}: {found:,} found so far. "
        "Bodies have no index, so one look ends after 5 s."
    )


def over(excess: Sequence[LimitExcess]) -> str:
    """The bounds that are passed, and what to do about the first."""
    return f"{' '.join(one.text for one in excess)} {BEYOND} {excess[0].advice}"


def waiting(load: DeadLetterLoad, bounds: DeadLetterLimits, now: float) -> str:
    """What waits, against its bounds."""
    many = f"{load.dead_letters:,} wait" + (
        f" of at most {bounds.dead_letters:,}" if bounds.dead_letters else ""
    )
    large = size(load.bytes) + (f" of {size(bounds.bytes)}" if bounds.bytes else "")
    old = ""
    if load.oldest is not None:
        old = f", the oldest for {age(now - load.oldest)}"
        old += f" of {age(bounds.age)}" if bounds.age else ""
    return f"{many}; {large}{old}."


# what a message holds


class RecordContent(NamedTuple):
    """Bytes as a person may look at them: what they are, in a few words, and a text to show, if there is any."""

    kind: Literal["null", "empty", "json", "text", "bytes", "hidden"]
    about: str
    text: str


def content(data: bytes | None, *, reveal: bool = False, key: bool = False) -> RecordContent:
    """JSON indented, text as it is, other bytes in hexadecimal once they are revealed; null apart from empty.

    Masked unless revealed; bytes that are not text cannot be masked, so they are only counted until then.
    """
    if data is None:
        return RecordContent("null", "null: none was given", "")
    if not data:
        return RecordContent("empty", "empty, 0 bytes", "")
    about = size(len(data))
    if not reveal and ("keys" if key else "values") in rules().hide:
        return RecordContent("hidden", f"{about}, hidden by the masking rules", "")
    if not _is_text(data):
        said = f"{about} that are not text"
        return RecordContent(
            "bytes", said if reveal else f"{said}, so they cannot be masked", _dump(data) if reveal else ""
        )
    if not reveal and len(data) > LONGEST:
        return RecordContent("hidden", f"{about}, too long to be shown masked", "")
    found = _looked_at(data, reveal=reveal, key=key)
    kind: Literal["text", "json"] = "text" if isinstance(found, str) else "json"
    return RecordContent(
        kind, f"{about}, {'JSON' if kind == 'json' else 'text'}", visible(pretty(found, _LONGEST))
    )


def _looked_at(data: bytes, *, reveal: bool, key: bool) -> Any:
    """A text or a JSON value."""
    if len(data) > LONGEST:
        return f"{data[: 4 * _LONGEST].decode(errors='replace')[:_LONGEST]}\n… {len(data):,} bytes in all"
    return display_key(data, reveal=reveal) if key else display_value(data, reveal=reveal)


def hex_dump(value: bytes, *, width: int = 16, longest: int = 1024) -> str | None:
    """Bytes that are not text, as offsets and hexadecimal; None for text."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return _dump(value, width=width, longest=longest)
    return None


def _dump(value: bytes, *, width: int = 16, longest: int = 1024) -> str:
    starts = range(0, min(len(value), longest), width)
    lines = [f"{start:08x}  {value[start : start + width].hex(' ')}" for start in starts]
    more = [f"… {len(value):,} bytes in all"] if len(value) > longest else []
    return "\n".join([*lines, *more])


def _is_text(data: bytes) -> bool:
    """Whether it is UTF-8 without the control characters that no text has."""
    try:
        return _CONTROLS.search(data.decode()) is None
    except UnicodeDecodeError:
        return False


class RecordHeader(NamedTuple):
    """A header as it is shown, in its place; `kind` tells null and empty from a text."""

    name: str
    kind: Literal["null", "empty", "text"]
    text: str


def headers(given: Sequence[tuple[str, bytes | None]], *, reveal: bool = False) -> tuple[RecordHeader, ...]:
    """All of them in their order, one that stands there twice twice; secret ones are masked."""
    masked = mask_headers(given, reveal=reveal)
    return tuple(_header(raw, name, text) for (_, raw), (name, text) in zip(given, masked, strict=True))


def _header(raw: bytes | None, name: str, value: Any) -> RecordHeader:
    name = visible_line(name) or "(no name)"
    if raw is None:
        return RecordHeader(name, "null", "null")
    if not raw:
        return RecordHeader(name, "empty", "empty")
    return RecordHeader(name, "text", visible_line(pretty(value, _MASKED_AT_MOST), _HEADER))


def pretty(value: Any, longest: int) -> str:
    """A JSON value indented, a text as it is; cut where it is too long to look at."""
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return text if len(text) <= longest else f"{text[:longest]}\n… {len(text):,} characters in all"


def visible(text: str) -> str:
    """A text in which nothing hides: controls, and what turns or hides other dead letters, are written out, ⟨U+202E⟩."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def visible_line(text: str, longest: int = _CELL) -> str:
    """The same in one line of a length that fits a table."""
    line = visible(text[: 2 * longest].replace("\r\n", "↵").replace("\n", "↵").replace("\t", "→"))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def key_cell(key: bytes | None) -> str:
    """A key in a table: masked, one line; null apart from empty, and from the text «null»."""
    if key is None:
        return "–"
    if not key:
        return "(empty)"
    if len(key) > _MASKED_AT_MOST:
        return f"{size(len(key))} long"
    return visible_line(display_key(key) or "")


def bounded(text: str) -> str:
    """A text that is short enough to be masked for a table: secrets at the cut stay beyond what is shown."""
    return text[:_MASKED_AT_MOST]


def verdicts(counts: Mapping[str, int]) -> str:
    """«40 rejected, 3 possibly persisted»."""
    return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items())


def trend(counts: Sequence[int], width: float) -> str:
    """What a sparkline shows, for those who do not see it."""
    if not counts:
        return "No trend"
    return f"Deaths per {age(width)}, {len(counts)} bars: at most {max(counts):,}, {counts[-1]:,} in the last"
