"""Texts about dead letters and their contents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, NamedTuple

import orjson

from producer_core._internal.masking import LONGEST, display_key, display_value, mask_headers, rules
from producer_core._internal.plural import plural, them
from producer_core.dashboard.wording.numbers import size
from producer_core.dashboard.wording.time import age, last, moment
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.limits import EXPLANATION, DeadLetterLimits, DeadLetterLoad, LimitExcess

VERDICTS: Mapping[str, str] = {
    "not_sent": "never left the client; safe to resend",
    "rejected": "not stored by the broker; safe to resend",
    "absent": "confirmed not to be on the topic; safe to resend",
    "possibly_persisted": "may be on the broker; a replay checks first",
    "found": "already on the topic",
    "inconclusive": "not found on the topic but may still arrive; resent only on request",
}

STATES: Mapping[str, str] = {
    "dead": "Pending.",
    "replaying": "Replay in progress.",
    "replayed": "Replayed and acknowledged by the broker.",
    "landed": "Found on its topic, so it was not resent.",
    "archived": "Archived. Restore makes it pending again.",
    "purged": "Its content was permanently deleted.",
}

STATE_PHRASES: Mapping[str, str] = {
    "dead": "pending",
    "replaying": "being replayed",
    "replayed": "replayed",
    "landed": "found on the topic",
    "archived": "archived",
    "purged": "purged",
}
"""As STATES, for use after "is" or "are"."""

OVER_LIMIT = EXPLANATION

_FILTER_NAMES = {
    "topic": "topic",
    "group": "cause",
    "code": "error",
    "verdict": "verdict",
    "state": "state",
    "key": "key",
    "message_id": "message",
    "text": "error text contains",
    "cluster_id": "cluster",
    "cluster_or_unknown": "unknown cluster or",
    "producer_id": "producer",
    "application": "application",
    "body": "key, value or headers contain",
}
MAX_CONTENT = 20_000
MAX_HEX = 4_096
_MAX_CELL = 200
_MAX_HEADER = 2_000
_MAX_MASKED = 4_000

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def accepted(seconds: float) -> str:
    """Return how long before it failed a message was accepted."""
    return f"accepted {age(seconds)} earlier" if seconds >= 0.5 else "accepted less than a second earlier"


def button_label(verb: str, number: int) -> str:
    """Return a button label such as "Replay 43"."""
    return f"{verb} {number:,}" if number else verb


def none_match(state: str | None) -> str:
    """Return the text of an empty list."""
    if state == "dead":
        return "No matching dead letters. Messages that cannot be delivered appear here within seconds."
    return (
        f"No matching dead letters in state {state}." if state else "No matching dead letters in any state."
    )


def why_no_replay(state: str | None, number: int, runners: int) -> str | None:
    """Return why the Replay button is disabled; None where it is enabled."""
    if state != "dead":
        return "Only pending dead letters can be replayed."
    if not number:
        return "Nothing to replay."
    if not runners:
        return "Replay needs a running producer on this store, because producers hold the credentials. None is running."
    return None


# the selection


def filtered(where: DeadLetterFilter, span: str | None, zone: str | None) -> str:
    """Return the filter, such as "Topic payments, error _TIMED_OUT, failed since …"; empty for the default filter."""
    parts = [
        f"{_FILTER_NAMES[field.name]} {visible_line(str(value)) or '(none)'}"
        for field in fields(where)
        if field.name in _FILTER_NAMES and (value := getattr(where, field.name)) not in (None, field.default)
    ]
    parts += ["any state"] if where.state is None else []
    if span is not None:
        parts.append(f"failed in {last(span)}")
    else:
        parts += [f"failed since {moment(where.since, zone)}"] if where.since is not None else []
        parts += [f"failed before {moment(where.until, zone)}"] if where.until is not None else []
    parts += [f"{plural(len(where.ids), 'message')} selected by id"] if where.ids else []
    text = ", ".join(parts)
    return text[:1].upper() + text[1:]


def about(total: int, listed: int, *, first: bool, found: bool = False) -> str:
    """Return how many of the matching dead letters the page lists; `found` marks the result of a body search."""
    if found:
        return f"{plural(total, 'dead letter')} found."
    if first and listed >= total:
        return (
            f"Showing all {total:,} matching dead letters."
            if total > 1
            else "Showing the only matching dead letter."
        )
    if first:
        return f"Showing the latest {listed:,} of {total:,} matching dead letters."
    return f"Showing {plural(listed, 'older dead letter')}; {total:,} match."


def chosen(ids: int, states: Mapping[str, int], elsewhere: int, state: str | None) -> str:
    """Return the size of the selection, and how much of it is on other pages or was changed by someone else."""
    text = f"{ids:,} selected"
    if elsewhere:
        text += f", {plural(elsewhere, 'on another page', 'on other pages')}"
    text += "."
    changed = {name: number for name, number in states.items() if state is not None and name != state}
    skipped = [
        f"the {plural(number, 'that is', 'that are')} now {STATE_PHRASES.get(name, name)}"
        for name, number in changed.items()
    ]
    gone = ids - sum(states.values())
    skipped += [f"the {plural(gone, 'that is', 'that are')} no longer in this store"] if gone > 0 else []
    return f"{text} Actions skip {' and '.join(skipped)}." if skipped else text


def searched(looked_at: int, of: int, found: int, *, complete: bool, back_to: str | None) -> str:
    """Return the progress of a body search."""
    if complete:
        return f"Searched {plural(of, 'dead letter')}: {found:,} found."
    back = f", back to {back_to}" if back_to else ""
    return (
        f"Searched the latest {looked_at:,} of {of:,}{back}: {found:,} found so far. "
        "Values are not indexed, so each search stops after 5 s."
    )


def over(excess: Sequence[LimitExcess]) -> str:
    """Return the exceeded limits, and the advice for the first."""
    return f"{' '.join(one.text for one in excess)} An alert fires; nothing is dropped. {excess[0].advice}"


def waiting(load: DeadLetterLoad, bounds: DeadLetterLimits, now: float) -> str:
    """Return the pending dead letters against their limits."""
    number = f"{plural(load.dead_letters, 'dead letter')} pending"
    number += f" (limit {bounds.dead_letters:,})" if bounds.dead_letters else ""
    number += f", and {load.removed:,} of clusters that no longer exist" if load.removed else ""
    volume = size(load.bytes) + (f" (limit {size(bounds.bytes)})" if bounds.bytes else "")
    oldest = ""
    if load.oldest is not None:
        oldest = f", oldest {age(now - load.oldest)}"
        oldest += f" (limit {age(bounds.age)})" if bounds.age else ""
    return f"{number}; {volume}{oldest}."


def of_removed_clusters(count: int) -> str:
    """Return what dead letters of clusters that no longer exist mean, and what to do."""
    return (
        f"{plural(count, 'dead letter is', 'dead letters are')} of a cluster that no longer exists. No alert counts "
        f"{them(count)}. Archive {them(count)}, or replay {them(count)} to another cluster: producer-core dlq replay --to."
    )


def of_removed_cluster(cluster_id: str) -> str:
    return f"{visible_line(cluster_id, 80)} no longer exists. No alert counts this dead letter."


# content of a record


class RecordContent(NamedTuple):
    """Describes bytes for display: their kind, a short description, and the text to show, if any.

    `undecoded` is set for bytes whose schema is not known at this time.
    """

    kind: Literal["null", "empty", "json", "text", "bytes", "hidden"]
    about: str
    text: str
    undecoded: bool = False


def content(data: bytes | None, *, reveal: bool = False, key: bool = False) -> RecordContent:
    """Return JSON indented, text unchanged, and other bytes in hexadecimal once revealed; null is distinct from empty.

    Content is masked unless `reveal` is set. Bytes that are not text cannot be masked, so only their size is shown.
    """
    if data is None:
        return RecordContent("null", "null", "")
    if not data:
        return RecordContent("empty", "empty, 0 bytes", "")
    about = size(len(data))
    if not reveal and ("keys" if key else "values") in rules().hide:
        return RecordContent("hidden", f"{about}, hidden by the masking rules", "")
    if not _is_text(data):
        binary = f"{about} of binary data"
        return RecordContent(
            "bytes", binary if reveal else f"{binary}, which cannot be masked", _dump(data) if reveal else ""
        )
    if not reveal and len(data) > LONGEST:
        return RecordContent("hidden", f"{about}, too long to mask", "")
    found = _decoded(data, reveal=reveal, key=key)
    kind: Literal["text", "json"] = "text" if isinstance(found, str) else "json"
    return RecordContent(
        kind, f"{about}, {'JSON' if kind == 'json' else 'text'}", visible(pretty(found, MAX_CONTENT))
    )


def _decoded(data: bytes, *, reveal: bool, key: bool) -> Any:
    """Return text or a JSON value."""
    if len(data) > LONGEST:
        return f"{data[: 4 * MAX_CONTENT].decode(errors='replace')[:MAX_CONTENT]}\n… {len(data):,} bytes in total"
    return display_key(data, reveal=reveal) if key else display_value(data, reveal=reveal)


def raw_text(data: bytes) -> str:
    """Return the stored bytes as text, with bytes that are not UTF-8 as escapes; cut after MAX_CONTENT characters."""
    return visible(pretty(data.decode(errors="backslashreplace"), MAX_CONTENT))


def hexadecimal(data: bytes) -> str:
    """Return the first bytes as offsets and hexadecimal, whether they are text or not."""
    return _dump(data, longest=MAX_HEX)


def hex_dump(value: bytes, *, width: int = 16, longest: int = 1024) -> str | None:
    """Return binary data as offsets and hexadecimal; None for text."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return _dump(value, width=width, longest=longest)
    return None


def _dump(value: bytes, *, width: int = 16, longest: int = 1024) -> str:
    starts = range(0, min(len(value), longest), width)
    lines = [f"{start:08x}  {value[start : start + width].hex(' ')}" for start in starts]
    more = [f"… {len(value):,} bytes in total"] if len(value) > longest else []
    return "\n".join([*lines, *more])


def _is_text(data: bytes) -> bool:
    """Return whether the data is UTF-8 without control characters."""
    try:
        return _CONTROLS.search(data.decode()) is None
    except UnicodeDecodeError:
        return False


class RecordHeader(NamedTuple):
    """A header for display; `kind` distinguishes null and empty values from text."""

    name: str
    kind: Literal["null", "empty", "text"]
    text: str


def headers(given: Sequence[tuple[str, bytes | None]], *, reveal: bool = False) -> tuple[RecordHeader, ...]:
    """Return all headers in order, repeated ones included, with secret values masked."""
    masked = mask_headers(given, reveal=reveal)
    return tuple(_header(raw, name, text) for (_, raw), (name, text) in zip(given, masked, strict=True))


def _header(raw: bytes | None, name: str, value: Any) -> RecordHeader:
    name = visible_line(name) or "(no name)"
    if raw is None:
        return RecordHeader(name, "null", "null")
    if not raw:
        return RecordHeader(name, "empty", "empty")
    return RecordHeader(name, "text", visible_line(pretty(value, _MAX_MASKED), _MAX_HEADER))


def pretty(value: Any, longest: int) -> str:
    """Return a JSON value indented or a text unchanged, cut after `longest` characters."""
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return text if len(text) <= longest else f"{text[:longest]}\n… {len(text):,} characters in total"


def visible(text: str) -> str:
    """Return the text with control, bidirectional and invisible characters written out, such as ⟨U+202E⟩."""
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def visible_line(text: str, longest: int = _MAX_CELL) -> str:
    """Return `visible` text on one line that fits a table cell."""
    line = visible(text[: 2 * longest].replace("\r\n", "↵").replace("\n", "↵").replace("\t", "→"))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def key_cell(key: bytes | None) -> str:
    """Return a key for a table: masked, on one line, with null distinct from empty and from the text "null"."""
    if key is None:
        return "–"
    if not key:
        return "(empty)"
    if len(key) > _MAX_MASKED:
        return f"{size(len(key))} key"
    return visible_line(display_key(key) or "")


def bounded(text: str) -> str:
    """Cut a text before masking it for a table; a secret at the cut lies beyond the characters that a table shows."""
    return text[:_MAX_MASKED]


def verdicts(counts: Mapping[str, int]) -> str:
    """Return counts by verdict, such as "40 rejected, 3 possibly persisted"."""
    return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items())


def trend(counts: Sequence[int], width: float) -> str:
    """Return the text alternative of a sparkline."""
    if not counts:
        return "No trend"
    return f"Dead letters per {age(width)}, {plural(len(counts), 'bar')}: maximum {max(counts):,}, latest {counts[-1]:,}"
