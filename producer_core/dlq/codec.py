"""Encode and decode dead letters as rows of the store and as lines of the spill file."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

import orjson

from producer_core.events import Attempt, DeadLetter

Headers = tuple[tuple[str, bytes | None], ...]

_RECORD = ("message_id", "cluster_id", "producer_id", "topic", "partition", "key")
_FAILURE = (
    *("state", "quarantined", "replayable", "verdict", "verdict_reason", "kind", "code", "error_text"),
    "fingerprint",
)
_ORIGIN = ("accepted_at", "failed_at", "source", "host", "version", "replay_count")
LETTER_COLUMNS = (
    *(*_RECORD, "value_size", *_FAILURE, "attempts", *_ORIGIN),
    *("operation_id", "state_at", "landed_partition", "landed_offset", "application", "application_version"),
)
WRITTEN_COLUMNS = (*LETTER_COLUMNS, "key_mark")
BODY_COLUMNS = ("message_id", "value", "headers", "timestamp_ms", "attempts")
WHOLE_COLUMNS = tuple(
    field.name
    for field in fields(DeadLetter)
    if field.name not in ("value", "headers", "timestamp_ms", "attempts")
)
"""The columns of `dead_letters` in the order of DeadLetter's fields; the other four fields are in the body."""
OLDEST_FIRST = "accepted_at, length(message_id), message_id"
"""The ORDER BY of acceptance. Messages of one batch have the same time, and ids that end with their number."""
_SAME = {field.name for field in fields(DeadLetter)} & {*LETTER_COLUMNS} - {"attempts"}
_FIELDS = frozenset(field.name for field in fields(DeadLetter))
_BYTES = ("key", "value")
_record_of, _failure_of, _origin_of = attrgetter(*_RECORD), attrgetter(*_FAILURE), attrgetter(*_ORIGIN)
_TEXTS = (
    "topic",
    "error_text",
    "verdict_reason",
    "source",
    "host",
    "code",
    "application",
    "application_version",
)
_texts_of = attrgetter(*_TEXTS)


def acceptance_order(dead_letter: DeadLetter) -> tuple[float, int, str]:
    """Return the sort key that corresponds to OLDEST_FIRST."""
    return dead_letter.accepted_at, len(dead_letter.message_id), dead_letter.message_id


def dead_letter_row(
    dead_letter: DeadLetter, *, now: float, operation_id: str | None = None
) -> tuple[Any, ...]:
    """Return the row of `dead_letters` for a new dead letter: LETTER_COLUMNS, in order."""
    size = None if dead_letter.value is None else len(dead_letter.value)
    return (
        *(*_record_of(dead_letter), size, *_failure_of(dead_letter), len(dead_letter.attempts)),
        *(*_origin_of(dead_letter), operation_id, now, None, None),
        *(dead_letter.application, dead_letter.application_version),
    )


def written_row(dead_letter: DeadLetter, *, now: float, operation_id: str | None = None) -> tuple[Any, ...]:
    """Return the row to write: WRITTEN_COLUMNS, in order."""
    return (*dead_letter_row(dead_letter, now=now, operation_id=operation_id), key_mark(dead_letter.key))


def key_mark(key: bytes | None) -> int | None:
    """Return a 32-bit hash of the key; in SQL `(md5_number_lower(key) & 4294967295)::UINTEGER`.

    Comparing it first finds a key among ten million dead letters in a tenth of the time. An index would be faster
    still, but writing a thousand dead letters would take three times as long.
    """
    if key is None:
        return None
    return int.from_bytes(hashlib.md5(key, usedforsecurity=False).digest()[8:12], "little")


def body_row(dead_letter: DeadLetter) -> tuple[Any, ...]:
    """Return the row of `dead_letter_bodies`: BODY_COLUMNS, in order."""
    return (
        dead_letter.message_id,
        dead_letter.value,
        write_headers(dead_letter.headers),
        dead_letter.timestamp_ms,
        write_attempts(dead_letter.attempts),
    )


def read_dead_letter(row: Mapping[str, Any], body: Mapping[str, Any] | None = None) -> DeadLetter:
    """Return the dead letter of a row, with its content if the body is given."""
    body = body or {"value": None, "headers": "[]", "timestamp_ms": None, "attempts": "[]"}
    return DeadLetter(
        **{name: row[name] for name in _SAME},
        value=body["value"],
        headers=read_headers(body["headers"]),
        timestamp_ms=body["timestamp_ms"],
        attempts=read_attempts(body["attempts"]),
    )


def whole_dead_letter(row: Sequence[Any], body: Sequence[Any] | None) -> DeadLetter:
    """Return the dead letter with the values of WHOLE_COLUMNS and BODY_COLUMNS, in half the time of `read_dead_letter`."""
    _, value, headers, timestamp_ms, attempts = body or (row[0], None, "[]", None, "[]")
    values = (
        *row[:5],
        value,
        read_headers(headers),
        row[5],
        timestamp_ms,
        *row[6:12],
        read_attempts(attempts),
    )
    return DeadLetter(*values, *row[12:])


def write_headers(headers: Headers) -> str:
    return orjson.dumps([[name, _text(value)] for name, value in headers]).decode()


def read_headers(text: str) -> Headers:
    if text == "[]":
        return ()
    return tuple((name, _bytes(value)) for name, value in orjson.loads(text))


def write_attempts(attempts: Sequence[Attempt]) -> str:
    return orjson.dumps([[one.failed_at, one.code, one.text] for one in attempts]).decode()


def read_attempts(text: str) -> tuple[Attempt, ...]:
    return tuple(Attempt(*one) for one in orjson.loads(text))


def write_line(dead_letter: DeadLetter) -> bytes:
    """Return one line of JSON; bytes are base64. It lacks the application and its version, which earlier versions reject.

    The store finds both with the producer's id.
    """
    dead_letter = encodable(dead_letter)
    record = {field.name: getattr(dead_letter, field.name) for field in fields(dead_letter)}
    record |= {name: _text(record[name]) for name in _BYTES}
    record["headers"] = [[name, _text(value)] for name, value in dead_letter.headers]
    record["attempts"] = [[one.failed_at, one.code, one.text] for one in dead_letter.attempts]
    del record["application"], record["application_version"]
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def read_line(line: bytes) -> DeadLetter:
    """Parse a line of `write_line`, also of a later version. Raise ValueError for any other line, such as a truncated one."""
    try:
        record = orjson.loads(line)
        record |= {name: _bytes(record[name]) for name in _BYTES}
        record["headers"] = tuple((name, _bytes(value)) for name, value in record["headers"])
        record["attempts"] = tuple(Attempt(*one) for one in record["attempts"])
        return DeadLetter(**{name: value for name, value in record.items() if name in _FIELDS})
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a dead letter: {error}") from error


def encodable(dead_letter: DeadLetter) -> DeadLetter:
    """Return the dead letter with texts that are valid in UTF-8, so that no error text prevents storing it."""
    every_text = "".join([text or "" for text in _texts_of(dead_letter)])
    if every_text.isascii() and all(one.text.isascii() for one in dead_letter.attempts):
        return dead_letter  # the usual case: a copy takes as long as all its columns
    texts: dict[str, Any] = {
        name: _utf8(value) for name in _TEXTS if (value := getattr(dead_letter, name)) is not None
    }
    attempts = tuple(replace(one, text=_utf8(one.text)) for one in dead_letter.attempts)
    return replace(dead_letter, **texts, attempts=attempts)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
