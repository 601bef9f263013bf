"""A record of a file, checked field by field, as the dead letter that it was."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, get_args

from producer_core.dlq.files.record import Record
from producer_core.events import Attempt, DeadLetter, Kind, State, Verdict
from producer_core.messages import id_text, parse_id

UNDER_WAY = "It was being replayed when it was exported, so it may be on its topic."

_FARTHEST = 1e15
"""Seconds from 1970: beyond it no clock was ever set, and the store cannot count hours."""

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class ImportedRecord:
    """A dead letter out of a file, and what the store knows of it besides."""

    dead_letter: DeadLetter
    value_size: int | None
    landed_partition: int | None
    landed_offset: int | None
    was_replaying: bool


def imported_record(record: Record) -> ImportedRecord:
    """ValueError, with the reason in words, for a record that is not a whole dead letter.

    One that was being replayed is dead here, for nobody here replays it, and doubtful.
    """
    for name, check in _CHECKS.items():
        if name not in record:
            raise ValueError(f"it has no field {name!r}")
        if not check(record[name]):
            raise ValueError(f"its {name} is not one: {_short(record[name])}")
    _check_body(record)
    fields = {name: record[name] for name in _LETTER}
    dead_letter = DeadLetter(
        **fields,
        headers=tuple((name, value) for name, value in record["headers"]),
        attempts=tuple(Attempt(at, code, text) for at, code, text in record["attempts"]),
    )
    under_way = dead_letter.state == "replaying"
    if under_way:
        dead_letter = replace(
            dead_letter, state="dead", verdict="possibly_persisted", verdict_reason=UNDER_WAY
        )
    return ImportedRecord(
        dead_letter, record["value_size"], record["landed_partition"], record["landed_offset"], under_way
    )


def _check_body(record: Record) -> None:
    value, size = record["value"], record["value_size"]
    if record["state"] == "purged":
        if value is not None:
            raise ValueError("it was purged, and has a value all the same")
    elif (None if value is None else len(value)) != size:
        has = "none" if value is None else f"{len(value):,} bytes"
        raise ValueError(
            f"its value should have {'no' if size is None else f'{size:,}'} bytes, and has {has}"
        )


def _text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _id(value: Any) -> bool:
    try:
        return isinstance(value, str) and id_text(parse_id(value)) == value
    except (ValueError, struct.error):  # no UUID, no number, or one beyond 64 bits
        return False


def _whole(bits: int, least: int | None = None) -> Check:
    low = -(2 ** (bits - 1)) if least is None else least
    return lambda value: type(value) is int and low <= value < 2 ** (bits - 1)


def _moment(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= _FARTHEST  # false for NaN, too


def _bytes(value: Any) -> bool:
    return isinstance(value, bytes)


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _one_of(words: Any) -> Check:
    return lambda value: isinstance(value, str) and value in get_args(words)


def _boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _headers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and _text(pair[0]) and _or_none(_bytes)(pair[1])
        for pair in value
    )


def _attempts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(one, list | tuple)
        and len(one) == 3
        and _moment(one[0])
        and _text(one[1])
        and _text(one[2])
        for one in value
    )


_CHECKS: dict[str, Check] = {
    "message_id": _id,
    **dict.fromkeys(("cluster_id", "producer_id", "topic", "verdict_reason", "code"), _text),
    **dict.fromkeys(("error_text", "fingerprint", "host", "version"), _text),
    "source": _or_none(_text),
    "verdict": _one_of(Verdict),
    "kind": _one_of(Kind),
    "state": _one_of(State),
    **dict.fromkeys(("partition", "landed_partition"), _or_none(_whole(32, 0))),
    "replay_count": _whole(32, 0),
    "value_size": _or_none(_whole(64, 0)),
    "timestamp_ms": _or_none(_whole(64)),
    "landed_offset": _or_none(_whole(64)),
    **dict.fromkeys(("quarantined", "replayable"), _boolean),
    **dict.fromkeys(("accepted_at", "failed_at"), _moment),
    **dict.fromkeys(("key", "value"), _or_none(_bytes)),
    "headers": _headers,
    "attempts": _attempts,
}
_LETTER = tuple(
    name
    for name in _CHECKS
    if name not in ("headers", "attempts", "value_size", "landed_partition", "landed_offset")
)


def _short(value: Any) -> str:
    if isinstance(value, bytes | list | tuple | dict):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
