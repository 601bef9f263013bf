"""The reading of dead-letter headers, in every dialect that we know."""

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
    """A header that we know: whose it is, which field of an Origin it fills ("" for `also`), and its encoding."""

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
    **_dialect("spring", "kafka_", _SPRING),  # the dead-letter topics of retry topics leave «dlt-» out
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
_PLACE = frozenset({"topic", "partition", "offset", "timestamp_ms"})
"""Of these the first of several headers of one name counts, where the record began; of all others the last, for it
tells why the record is here. Spring appends what it says of a place, and replaces what it says of an exception."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
END_OF_TIME = 253_402_300_799_000  # the year 9999; no date can be later
_MOST: Mapping[str, int] = {
    **dict.fromkeys(("partition", "attempts", "generation"), 2**31 - 1),
    **dict.fromkeys(("timestamp_ms", "accepted_ms", "failed_ms"), END_OF_TIME),
    "offset": 2**63 - 1,
}


def read(headers: Sequence[tuple[str, bytes | None]] | None) -> RecordOrigin:
    """What the headers of a record on a dead-letter topic say; never raises, whatever the bytes are.

    Where several dialects speak, the one of a message id is believed, then the others in the order of NAMES; the
    headers of all of them are taken away, so that they do not pile up round after round. A header that we do not know
    is the message's own, and stays as it is, with its duplicates.
    """
    ours, own = _parted(tuple(headers or ()))
    spoken = _spoken(ours)
    dialect = next((name for name in NAMES if name in spoken and _speaks(name, spoken[name])), None)
    notes: list[str] = []
    fields = _fields(dialect, ours, notes)
    others = [NAMES[name] for name in NAMES if name in spoken and name != dialect]
    if others and dialect != "producer_core":  # ours may stand beside those that we wrote ourselves
        notes.append(f"it has headers of {' and '.join(others)} too")
    return RecordOrigin(dialect, **fields, headers=own, notes=tuple(notes))


def _parted(headers: Headers) -> tuple[Headers, Headers]:
    """Headers of a dead-letter queue, and the message's own. What our own sending added is neither."""
    ours = tuple(header for header in headers if header[0] in KNOWN)
    marked = [place for place, (name, _) in enumerate(headers) if name == "dlq.message.id"]
    added = marked[-1] if marked else len(headers)
    own = tuple(
        (name, value)
        for place, (name, value) in enumerate(headers)
        if name not in KNOWN and name != ID_HEADER and not (name == ORIGINAL_TIMESTAMP and place > added)
    )
    return ours, own


def _spoken(ours: Headers) -> dict[Dialect, set[str]]:
    found: dict[Dialect, set[str]] = defaultdict(set)
    for name, _ in ours:
        if name not in KEPT:  # a record that we sent again carries these, and is no dead letter for that
            found[KNOWN[name].dialect].add(name)
    return found


def _speaks(dialect: Dialect, names: set[str]) -> bool:
    """Whether these headers say that the record is a dead letter of this dialect."""
    match dialect:
        case "producer_core":
            return "dlq.message.id" in names or "dlq.original.topic" in names
        case "spring":
            return bool(names - {"kafka_deliveryAttempt"})
    return True


def _fields(dialect: Dialect | None, ours: Headers, notes: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    also: list[tuple[str, str]] = []
    topics: dict[str, None] = {}
    for name, raw in ours:
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
            also.append((name, str(value)))
        elif known.field == "attempts":
            fields["attempts"] = max(value, fields.get("attempts", 0))
        elif known.field not in fields or not (known.field in _PLACE or "key-exception" in name):
            fields[known.field] = value
    if len(topics) > 1:
        notes.append(f"it passed through {', '.join([*topics][1:])}")
    return fields | {"also": tuple(also)}


def _decoded(known: HeaderDecoder, raw: bytes | None) -> DecodedHeader:
    if raw is None:  # an exception without a message has one in Java
        return DecodedHeader(None, None if known.decode is text else "is null")
    value, trouble = known.decode(raw)
    if known.field == "topic" and value is not None and not _TOPIC.fullmatch(value):
        return DecodedHeader(None, trouble or f"is no name of a topic ({shown(raw)})")
    if (most := _MOST.get(known.field)) is not None and value is not None and value > most:
        return DecodedHeader(None, f"is too large ({value})")
    return DecodedHeader(value, trouble)
