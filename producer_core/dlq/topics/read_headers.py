"""Read dead-letter headers in all known dialects."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from producer_core.dlq.topics.header_values import (
    DecodedHeader,
    attempts,
    big_integer,
    decimal,
    int32,
    int64,
    shown,
    text,
)
from producer_core.dlq.topics.origin import KEPT, NAMES, Dialect, Headers, RecordOrigin
from producer_core.messages import ID_HEADER, ORIGINAL_TIMESTAMP

Decode = Callable[[bytes], DecodedHeader]


class HeaderDecoder(NamedTuple):
    """A known header: its dialect, its field of RecordOrigin ("" for `other_headers`), and its decoder."""

    dialect: Dialect
    field: str
    decode: Decode


def _dialect(
    dialect: Dialect, prefix: str, fields: Mapping[str, tuple[str, Decode]]
) -> dict[str, HeaderDecoder]:
    return {prefix + name: HeaderDecoder(dialect, *rest) for name, rest in fields.items()}


_SPRING_ORIGINAL: Mapping[str, tuple[str, Decode]] = {
    "original-topic": ("topic", text),
    "original-partition": ("partition", int32),
    "original-offset": ("offset", int64),
    "original-timestamp": ("timestamp_ms", int64),
    "original-timestamp-type": ("", text),
}
_SPRING: Mapping[str, tuple[str, Decode]] = {
    **_SPRING_ORIGINAL,
    "original-consumer-group": ("consumer", text),
    "exception-fqcn": ("exception", text),
    "exception-cause-fqcn": ("cause", text),
    "exception-message": ("message", text),
    "exception-stacktrace": ("stacktrace", text),
    "key-exception-fqcn": ("exception", text),
    "key-exception-message": ("message", text),
    "key-exception-stacktrace": ("stacktrace", text),
}
_CANONICAL: Mapping[str, tuple[str, Decode]] = {
    "original.topic": ("topic", text),
    "original.partition": ("partition", decimal),
    "original.timestamp_ms": ("timestamp_ms", decimal),
    "original.cluster_id": ("cluster_id", text),
    "message.id": ("message_id", text),
    "error.type": ("exception", text),
    "error.code": ("", decimal),
    "error.kind": ("kind", text),
    "error.message": ("message", text),
    "error.fingerprint": ("fingerprint", text),
    "exception.type": ("", text),
    "exception.stacktrace": ("stacktrace", text),
    "attempts": ("attempts", decimal),
    "accepted_ms": ("accepted_ms", decimal),
    "first_attempt_ms": ("", decimal),
    "failed_ms": ("failed_ms", decimal),
    "delivery.verdict": ("verdict", text),
    "delivery.reason": ("verdict_reason", text),
    "client.id": ("client_id", text),
    "client.host": ("host", text),
    "client.version": ("version", text),
    "client.application": ("application", text),
    "client.application_version": ("application_version", text),
    "source": ("source", text),
    "replayable": ("replayable", text),
    "history": ("history", text),
    "replay.generation": ("generation", decimal),
    "replay.operation_id": ("operation_id", text),
    "edit_of": ("", text),
}
KNOWN: Mapping[str, HeaderDecoder] = {
    **_dialect("producer_core", "dlq.", _CANONICAL),
    **_dialect("spring", "kafka_dlt-", _SPRING),
    **_dialect("spring", "kafka_", _SPRING),  # retry topics write these headers without "dlt-"
    **_dialect(
        "spring",
        "",
        {
            "kafka_deliveryAttempt": ("attempts", int32),
            "retry_topic-attempts": ("attempts", attempts),
            "retry_topic-original-timestamp": ("timestamp_ms", big_integer),
            "retry_topic-backoff-timestamp": ("", big_integer),
        },
    ),
    **_dialect(
        "spring_cloud_stream",
        "x-",
        {
            **_SPRING_ORIGINAL,
            "exception-fqcn": ("exception", text),
            "exception-message": ("message", text),
            "exception-stacktrace": ("stacktrace", text),
        },
    ),
    **_dialect(
        "connect",
        "__connect.errors.",
        {
            "topic": ("topic", text),
            "partition": ("partition", decimal),
            "offset": ("offset", decimal),
            "connector.name": ("consumer", text),
            "task.id": ("", text),
            "stage": ("", text),
            "class.name": ("", text),
            "exception.class.name": ("exception", text),
            "exception.message": ("message", text),
            "exception.stacktrace": ("stacktrace", text),
        },
    ),
    **_dialect(
        "streams",
        "__streams.errors.",
        {
            "topic": ("topic", text),
            "partition": ("partition", decimal),
            "offset": ("offset", decimal),
            "exception": ("exception", text),
            "message": ("message", text),
            "stacktrace": ("stacktrace", text),
        },
    ),
    **_dialect(
        "share_group",
        "__dlq.errors.",
        {
            "topic": ("topic", text),
            "partition": ("partition", decimal),
            "offset": ("offset", decimal),
            "group": ("consumer", text),
            "delivery.count": ("attempts", decimal),
            "message": ("message", text),
        },
    ),
    **_dialect(
        "smallrye",
        "dead-letter-",
        {
            "topic": ("topic", text),
            "partition": ("partition", decimal),
            "offset": ("offset", decimal),
            "reason": ("message", text),
            "cause": ("", text),
            "exception-class-name": ("exception", text),
            "cause-class-name": ("cause", text),
        },
    ),
}
_FIRST_COUNTS = frozenset({"topic", "partition", "offset", "timestamp_ms"})
"""Fields for which the first of repeated headers counts, because it has the original position. For all others the last
counts, because it has the latest error. Spring appends headers for positions and replaces those for exceptions."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
MAX_TIMESTAMP_MS = 253_402_300_799_000  # the end of the year 9999, the latest time of datetime
_MAX_VALUES: Mapping[str, int] = {
    **dict.fromkeys(("partition", "attempts", "generation"), 2**31 - 1),
    **dict.fromkeys(("timestamp_ms", "accepted_ms", "failed_ms"), MAX_TIMESTAMP_MS),
    "offset": 2**63 - 1,
}


def read(headers: Sequence[tuple[str, bytes | None]] | None) -> RecordOrigin:
    """Return the origin in the headers of a dead-letter record. Never raises, for any bytes.

    If a record has headers of several dialects, the first one in the order of NAMES counts. The headers of all dialects
    are removed, so that repeated replays do not accumulate them. Unknown headers belong to the message and are kept
    unchanged, with duplicates.
    """
    dead_letter_headers, own_headers = _split(tuple(headers or ()))
    names = _names_by_dialect(dead_letter_headers)
    dialect = next((name for name in NAMES if name in names and _identifies(name, names[name])), None)
    notes: list[str] = []
    fields = _fields(dialect, dead_letter_headers, notes)
    others = [NAMES[name] for name in NAMES if name in names and name != dialect]
    if others and dialect != "producer_core":  # `publish` itself writes headers of a second dialect
        notes.append(f"also has headers of {' and '.join(others)}")
    return RecordOrigin(dialect, **fields, headers=own_headers, notes=tuple(notes))


def _split(headers: Headers) -> tuple[Headers, Headers]:
    """Return the dead-letter headers and the message's own headers, without those that the producer adds."""
    dead_letter_headers = tuple(header for header in headers if header[0] in KNOWN)
    id_indexes = [index for index, (name, _) in enumerate(headers) if name == "dlq.message.id"]
    added_from = id_indexes[-1] if id_indexes else len(headers)
    own_headers = tuple(
        (name, value)
        for index, (name, value) in enumerate(headers)
        if name not in KNOWN and name != ID_HEADER and not (name == ORIGINAL_TIMESTAMP and index > added_from)
    )
    return dead_letter_headers, own_headers


def _names_by_dialect(headers: Headers) -> dict[Dialect, set[str]]:
    found: dict[Dialect, set[str]] = defaultdict(set)
    for name, _ in headers:
        if name not in KEPT:  # replayed records have these headers without being dead letters
            found[KNOWN[name].dialect].add(name)
    return found


def _identifies(dialect: Dialect, names: set[str]) -> bool:
    """Return whether these headers identify a dead letter of this dialect."""
    match dialect:
        case "producer_core":
            return "dlq.message.id" in names or "dlq.original.topic" in names
        case "spring":
            return bool(names - {"kafka_deliveryAttempt"})
    return True


def _fields(dialect: Dialect | None, headers: Headers, notes: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    other_headers: list[tuple[str, str]] = []
    topics: dict[str, None] = {}
    for name, raw in headers:
        known = KNOWN[name]
        if known.dialect != dialect and name not in KEPT:
            continue
        value, trouble = _decoded(known, raw)
        if trouble:
            notes.append(f"{name} {trouble}")
        if value is None:
            continue
        if known.field == "topic":
            topics[value] = None
        if not known.field:
            other_headers.append((name, str(value)))
        elif known.field == "attempts":
            fields["attempts"] = max(value, fields.get("attempts", 0))
        elif known.field not in fields or not (known.field in _FIRST_COUNTS or "key-exception" in name):
            fields[known.field] = value
    if len(topics) > 1:
        notes.append(f"passed through {', '.join([*topics][1:])}")
    return fields | {"other_headers": tuple(other_headers)}


def _decoded(known: HeaderDecoder, raw: bytes | None) -> DecodedHeader:
    if raw is None:  # Java writes a null header for an exception without a message
        return DecodedHeader(None, None if known.decode is text else "is null")
    value, trouble = known.decode(raw)
    if known.field == "topic" and value is not None and not _TOPIC.fullmatch(value):
        return DecodedHeader(None, trouble or f"is not a valid topic name ({shown(raw)})")
    if (limit := _MAX_VALUES.get(known.field)) is not None and value is not None and value > limit:
        return DecodedHeader(None, f"is too large ({value})")
    return DecodedHeader(value, trouble)
