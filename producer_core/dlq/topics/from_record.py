"""Convert a record of a dead-letter topic, in any known dialect, to a dead letter."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, replace
from typing import Any, get_args

import orjson

from producer_core.dlq.imported_verdict import imported_verdict
from producer_core.dlq.topics.header_values import shown
from producer_core.dlq.topics.origin import GENERATION, NAMES, OPERATION_ID, Headers, RecordOrigin
from producer_core.dlq.topics.read_headers import read
from producer_core.events import Attempt, DeadLetter, Kind, Verdict
from producer_core.kafka.classify import fingerprint
from producer_core.messages import id_bytes, id_text, parse_id, record_id

_NAMESPACE = uuid.UUID("6d2a3c1e-0b7f-5c64-9a58-d3f0c1b2a497")
UNKNOWN = "DEAD_LETTERED"
"""The error code of a record whose headers have none."""
QUARANTINE_AFTER = 3


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """The topic that records are fetched from; `topic_id` distinguishes it from a deleted topic of the same name."""

    cluster_id: str
    topic: str
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """A record of a dead-letter topic; `timestamp_ms` is None if it has no timestamp."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None


def derived_id(source_topic: SourceTopic, partition: int, offset: int) -> str:
    """Return the message id for a record without one. It depends only on the record's topic, partition and offset."""
    name = "\0".join((source_topic.cluster_id, source_topic.topic, source_topic.topic_id, str(partition)))
    return id_text(id_bytes(uuid.uuid5(_NAMESPACE, name), offset))


def dead_letter_of(
    record: DeadLetterRecord,
    source_topic: SourceTopic,
    *,
    now: float,
    original_topic: str | None = None,
    quarantine_after: int = QUARANTINE_AFTER,
) -> DeadLetter:
    """Return the record as a dead letter with unchanged key and value, and the message's own headers.

    `original_topic` is the topic for records whose headers do not name one; without it they are not replayable. A dead
    letter that came back from `quarantine_after` replays is quarantined.
    """
    origin = read(record.headers)
    failed_ms = next(
        (ms for ms in (origin.failed_ms, record.timestamp_ms) if ms is not None), int(now * 1000)
    )
    timestamp_ms = record.timestamp_ms if origin.timestamp_ms is None else origin.timestamp_ms
    if origin.dialect == "producer_core":
        timestamp_ms = origin.timestamp_ms
    accepted_ms = next(
        (ms for ms in (origin.accepted_ms, origin.timestamp_ms, record.timestamp_ms) if ms is not None),
        failed_ms,
    )
    topic = origin.topic or original_topic
    why_not = _not_replayable(record, origin, topic)
    code, text = _error(origin)
    verdict, reason = _verdict(origin, source_topic, replayable=why_not is None)
    generation = origin.generation or 0
    dead_letter = DeadLetter(
        message_id=_own_id(origin) or derived_id(source_topic, record.partition, record.offset),
        cluster_id=origin.cluster_id or source_topic.cluster_id,
        producer_id=origin.client_id or origin.consumer or "",
        topic=topic or source_topic.topic,
        key=record.key,
        value=record.value,
        headers=origin.headers,
        partition=origin.partition,
        timestamp_ms=timestamp_ms,
        verdict=verdict,
        verdict_reason=reason,
        kind=_one_of(Kind, origin.kind, "permanent"),
        code=code,
        error_text=text,
        fingerprint=origin.fingerprint or fingerprint(code, text),
        attempts=_attempts(origin, code, text, failed_ms / 1000),
        accepted_at=accepted_ms / 1000,
        failed_at=failed_ms / 1000,
        replayable=why_not is None,
        source=_source(record, source_topic, origin, why_not),
        host=origin.host or "",
        version=origin.version or "",
        application=origin.application or "",
        application_version=origin.application_version or "",
        replay_count=generation,
        quarantined=generation >= quarantine_after,
    )
    return replace(dead_letter, headers=_replay_headers(dead_letter.headers, origin, generation + 1))


def _own_id(origin: RecordOrigin) -> str | None:
    """Return the message id in the producer_core headers, if it is valid."""
    if origin.message_id is None:
        return None
    try:
        return id_text(parse_id(origin.message_id))
    except (ValueError, struct.error):
        return None


def _error(origin: RecordOrigin) -> tuple[str, str]:
    """Return the error code, by which dead letters are grouped, and the error text."""
    code = origin.cause or origin.exception or UNKNOWN
    return code, origin.message or (
        f"{code}, without a message" if code != UNKNOWN else "The headers contain no error."
    )


def _attempts(origin: RecordOrigin, code: str, text: str, failed_at: float) -> tuple[Attempt, ...]:
    """Return the known attempts; the last one has the full text with the stack trace."""
    earlier = _history(origin.history)
    details = [
        f"{name}: {value}" for name, value in origin.other_headers if origin.dialect != "producer_core"
    ]
    full_text = "\n".join(filter(None, (text, *details, origin.stacktrace)))
    return (*earlier[:-1], Attempt(earlier[-1].failed_at if earlier else failed_at, code, full_text))


def _history(encoded: str | None) -> list[Attempt]:
    try:
        return [
            Attempt(int(ms) / 1000, str(code), str(line)) for ms, code, line in orjson.loads(encoded or "[]")
        ]
    except (ValueError, TypeError):
        return []


def _verdict(origin: RecordOrigin, source_topic: SourceTopic, *, replayable: bool) -> tuple[Verdict, str]:
    """Return the verdict and its reason. A record of a dead-letter topic never proves that a replay is safe.

    A consumer's dead letter was read from its topic, so the original is there. A producer's dead letter may have been
    replayed since it was published; a replay therefore first looks for its message id on the topic.
    """
    match origin.dialect:
        case "producer_core":
            verdict = _one_of(Verdict, origin.verdict, "possibly_persisted")
            reason = origin.verdict_reason or "The headers contain no reason."
            return imported_verdict(verdict, reason, decided="publication", may_be_replayed=replayable)
        case None:
            return (
                "possibly_persisted",
                f"The record in {source_topic.topic} has no dead-letter headers; the original may be on its topic.",
            )
    consumer = _consumer(origin)
    if origin.topic is None or origin.partition is None or origin.offset is None:
        return "possibly_persisted", (
            f"{consumer} read the message and could not process it. The original is on its topic, but the headers do not "
            "give its offset. A replay writes a second copy."
        )
    return "found", (
        f"{consumer} read the message at {origin.topic}[{origin.partition}]@{origin.offset} and could not process it. The "
        "original is on that topic. A replay writes a second copy for all its consumers."
    )


def _consumer(origin: RecordOrigin) -> str:
    name = NAMES[origin.dialect] if origin.dialect else "unknown"
    return f"{origin.consumer} ({name})" if origin.consumer else f"A consumer ({name})"


def _not_replayable(record: DeadLetterRecord, origin: RecordOrigin, topic: str | None) -> str | None:
    if origin.replayable == "false":
        return "not replayable: the dead letter was published as not replayable"
    if topic is None:
        return "not replayable: no header contains the original topic"
    if origin.dialect == "share_group" and record.key is None and record.value is None:
        return (
            "not replayable: the share group does not copy records (errors.deadletterqueue.copy.record.enable), so key "
            "and value are missing"
        )
    return None


def _source(
    record: DeadLetterRecord, source_topic: SourceTopic, origin: RecordOrigin, why_not: str | None
) -> str:
    """Describe where the record was fetched from, its origin, and any invalid headers."""
    name = NAMES[origin.dialect] if origin.dialect else "unknown dialect"
    parts = [f"{source_topic.topic}[{record.partition}]@{record.offset} ({name})"]
    if origin.dialect not in (None, "producer_core"):
        parts.append(_read_from(origin))
    if origin.dialect == "producer_core" and origin.source:
        parts.append(f"before: {origin.source.partition('; before: ')[0]}")
    if why_not:
        parts.append(why_not)
    if origin.message_id is not None and _own_id(origin) is None:
        parts.append(f"dlq.message.id is invalid ({shown(origin.message_id.encode(errors='replace'))})")
    if origin.dialect != "producer_core" and (raw := record_id(record.headers)) is not None:
        parts.append(f"the record has the message id {id_text(raw)}")
    if origin.dialect == "share_group":
        parts.append("share groups do not keep the record's headers")
    return "; ".join((*parts, *origin.notes))


def _read_from(origin: RecordOrigin) -> str:
    partition = "?" if origin.partition is None else origin.partition
    offset = "?" if origin.offset is None else origin.offset
    by = f" by {origin.consumer}" if origin.consumer else ""
    times = "once" if origin.attempts == 1 else f"{origin.attempts} times"
    attempts = f", delivered {times}" if origin.attempts else ""
    return f"read{by} from {origin.topic or '?'}[{partition}]@{offset}{attempts}"


def _replay_headers(headers: Headers, origin: RecordOrigin, generation: int) -> Headers:
    """Return the message's own headers with the generation that its next replay has."""
    operation = ((OPERATION_ID, origin.operation_id.encode()),) if origin.operation_id else ()
    return (*headers, (GENERATION, str(generation).encode()), *operation)


def _one_of(literal: Any, value: str | None, default: Any) -> Any:
    return value if value in get_args(literal) else default
