"""Validate the fields of a file's record and convert it to a dead letter."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, get_args

from producer_core._internal.plural import plural
from producer_core.dlq.files.record import Record
from producer_core.dlq.files.revision_fields import read_revisions
from producer_core.dlq.imported_verdict import imported_verdict
from producer_core.dlq.revisions.revision import Revision
from producer_core.events import Attempt, DeadLetter, Kind, State, Verdict
from producer_core.messages import id_text, parse_id

EXPORTED_IN_REPLAY = "It was exported during a replay, so it may be on its topic."

_MAX_TIME = 1e15
"""Seconds from 1970. Later times are invalid, and the store cannot convert them to hours."""

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class ImportedRecord:
    """A dead letter of a file, with the further columns of its row."""

    dead_letter: DeadLetter
    value_size: int | None
    landed_partition: int | None
    landed_offset: int | None
    was_replaying: bool
    revisions: tuple[Revision, ...] = ()


def imported_record(record: Record) -> ImportedRecord:
    """Return the dead letter of a record. Raise ValueError with the reason for an invalid record.

    A verdict that a resend is safe becomes `possibly_persisted`, because the source store may have replayed the dead
    letter since, and this store does not know. One exported during a replay also gets the state dead.
    """
    record = {**ABSENT_EARLIER, **record}
    for name, check in _CHECKS.items():
        if name not in record:
            raise ValueError(f"field {name!r} is missing")
        if not check(record[name]):
            raise ValueError(f"{name} is invalid: {_short(record[name])}")
    _check_body(record)
    fields = {name: record[name] for name in _DEAD_LETTER_FIELDS}
    dead_letter = DeadLetter(
        **fields,
        headers=tuple((name, value) for name, value in record["headers"]),
        attempts=tuple(Attempt(at, code, text) for at, code, text in record["attempts"]),
    )
    was_replaying = dead_letter.state == "replaying"
    if was_replaying:
        dead_letter = replace(
            dead_letter, state="dead", verdict="possibly_persisted", verdict_reason=EXPORTED_IN_REPLAY
        )
    else:
        verdict, reason = imported_verdict(
            dead_letter.verdict, dead_letter.verdict_reason, decided="the export",
            may_be_replayed=dead_letter.replayable and dead_letter.state in ("dead", "archived"),
        )  # fmt: skip
        dead_letter = replace(dead_letter, verdict=verdict, verdict_reason=reason)
    return ImportedRecord(
        dead_letter,
        record["value_size"],
        record["landed_partition"],
        record["landed_offset"],
        was_replaying,
        read_revisions(record["revisions"], dead_letter.message_id),
    )


def _check_body(record: Record) -> None:
    value, size = record["value"], record["value_size"]
    if record["state"] == "purged":
        if value is not None:
            raise ValueError("a purged dead letter has a value")
    elif (None if value is None else len(value)) != size:
        raise ValueError(f"value is {_size(None if value is None else len(value))} instead of {_size(size)}")


def _size(size: int | None) -> str:
    return "null" if size is None else plural(size, "byte")


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
    except (ValueError, struct.error):  # neither a UUID nor a number of at most 64 bits
        return False


def _integer(bits: int, minimum: int | None = None) -> Check:
    low = -(2 ** (bits - 1)) if minimum is None else minimum
    return lambda value: type(value) is int and low <= value < 2 ** (bits - 1)


def _time(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= _MAX_TIME  # also false for NaN


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
        isinstance(one, list | tuple) and len(one) == 3 and _time(one[0]) and _text(one[1]) and _text(one[2])
        for one in value
    )


_CHECKS: dict[str, Check] = {
    "message_id": _id,
    **dict.fromkeys(("cluster_id", "producer_id", "topic", "verdict_reason", "code"), _text),
    **dict.fromkeys(("error_text", "fingerprint", "host", "version"), _text),
    **dict.fromkeys(("application", "application_version"), _text),
    "source": _or_none(_text),
    "verdict": _one_of(Verdict),
    "kind": _one_of(Kind),
    "state": _one_of(State),
    **dict.fromkeys(("partition", "landed_partition"), _or_none(_integer(32, 0))),
    "replay_count": _integer(32, 0),
    "value_size": _or_none(_integer(64, 0)),
    "timestamp_ms": _or_none(_integer(64)),
    "landed_offset": _or_none(_integer(64)),
    **dict.fromkeys(("quarantined", "replayable"), _boolean),
    **dict.fromkeys(("accepted_at", "failed_at"), _time),
    **dict.fromkeys(("key", "value"), _or_none(_bytes)),
    "headers": _headers,
    "attempts": _attempts,
}
ABSENT_EARLIER: Record = {"application": "", "application_version": "", "revisions": None}
"""Fields that exports of earlier versions do not have, with their defaults."""
_DEAD_LETTER_FIELDS = tuple(
    name
    for name in _CHECKS
    if name not in ("headers", "attempts", "value_size", "landed_partition", "landed_offset")
)


def _short(value: Any) -> str:
    if isinstance(value, bytes | list | tuple | dict):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
