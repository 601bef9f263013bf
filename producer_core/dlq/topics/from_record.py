"""A dead letter from a record of a dead-letter topic, whoever put it there."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, replace
from typing import Any, get_args

import orjson

from producer_core.dlq.topics.header_values import shown
from producer_core.dlq.topics.origin import GENERATION, NAMES, OPERATION_ID, Headers, RecordOrigin
from producer_core.dlq.topics.read_headers import read
from producer_core.events import SAFE_VERDICTS, Attempt, DeadLetter, Kind, Verdict
from producer_core.kafka.classify import fingerprint
from producer_core.messages import id_bytes, id_text, parse_id, record_id

_NAMESPACE = uuid.UUID("6d2a3c1e-0b7f-5c64-9a58-d3f0c1b2a497")
UNKNOWN = "DEAD_LETTERED"
"""The code of a record that does not say what happened to it."""
QUARANTINE_AFTER = 3


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """A topic of a cluster; `topic_id` tells it from one of the same name before it."""

    cluster_id: str
    topic: str
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """A record as it was read, at its partition and offset; `timestamp_ms` None where it has none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None


def derived_id(place: RecordPlace, partition: int, offset: int) -> str:
    """The message id of a record that has none: the same for the same record, whoever reads it and how often."""
    name = "\0".join((place.cluster_id, place.topic, place.topic_id, str(partition)))
    return id_text(id_bytes(uuid.uuid5(_NAMESPACE, name), offset))


def dead_letter_of(
    record: DeadLetterRecord,
    place: RecordPlace,
    *,
    now: float,
    original_topic: str | None = None,
    quarantine_after: int = QUARANTINE_AFTER,
) -> DeadLetter:
    """The record as a dead letter: key and value byte for byte, and the message's own headers.

    `original_topic` is where records go whose headers do not say it; without it such a dead letter is not replayable.
    A dead letter that came back `quarantine_after` times from replays is quarantined: it goes round in circles.
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
    verdict, reason = _verdict(origin, place, replayable=why_not is None)
    rounds = _rounds(origin)
    dead_letter = DeadLetter(
        message_id=_own_id(origin) or derived_id(place, record.partition, record.offset),
        cluster_id=origin.cluster_id or place.cluster_id,
        producer_id=origin.client_id or origin.consumer or "",
        topic=topic or place.topic,
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
        source=_source(record, place, origin, why_not),
        host=origin.host or "",
        version=origin.version or "",
        replay_count=rounds,
        quarantined=rounds >= quarantine_after,
    )
    return replace(dead_letter, headers=_for_the_next_round(dead_letter.headers, origin, rounds))


def _own_id(origin: RecordOrigin) -> str | None:
    """The id that a dead letter of ours had, if it is one."""
    if origin.message_id is None:
        return None
    try:
        return id_text(parse_id(origin.message_id))
    except (ValueError, struct.error):
        return None


def _error(origin: RecordOrigin) -> tuple[str, str]:
    """The code that groups it, and the text."""
    code = origin.cause or origin.exception or UNKNOWN
    return code, origin.message or (
        f"{code}, without a message" if code != UNKNOWN else "Its headers do not say why it is here."
    )


def _attempts(origin: RecordOrigin, code: str, text: str, failed_at: float) -> tuple[Attempt, ...]:
    """What is known of its tries; the last one has the whole text, with the stack trace."""
    earlier = _history(origin.history)
    details = [f"{name}: {value}" for name, value in origin.also if origin.dialect != "producer_core"]
    whole = "\n".join(filter(None, (text, *details, origin.stacktrace)))
    return (*earlier[:-1], Attempt(earlier[-1].failed_at if earlier else failed_at, code, whole))


def _history(written: str | None) -> list[Attempt]:
    try:
        return [
            Attempt(int(ms) / 1000, str(code), str(line)) for ms, code, line in orjson.loads(written or "[]")
        ]
    except (ValueError, TypeError):
        return []


def _verdict(origin: RecordOrigin, place: RecordPlace, *, replayable: bool) -> tuple[Verdict, str]:
    """Whether a resend is safe, as far as a record of a dead-letter topic can tell: never for sure.

    A consumer gives up what it has read, so the original is on its topic. What a producer could not send may have
    been replayed by whoever published it; its own id tells, when the topic is looked at before it is sent.
    """
    match origin.dialect:
        case "producer_core":
            verdict = _one_of(Verdict, origin.verdict, "possibly_persisted")
            reason = origin.verdict_reason or "Its headers do not say why."
            if verdict not in SAFE_VERDICTS or not replayable:
                return verdict, reason
            return "possibly_persisted", (
                f"When it was published it was {verdict}: {reason} It may have been replayed from there since, so it is "
                "looked for on its topic, by its id, before it is sent."
            )
        case None:
            return (
                "possibly_persisted",
                f"Nothing says how it came to {place.topic}; the original may be on its topic.",
            )
    by = _consumer(origin)
    if origin.topic is None or origin.partition is None or origin.offset is None:
        return "possibly_persisted", (
            f"{by} gave it up, and a consumer has read what it gives up: the original is on a topic, but its headers do "
            "not say where. A replay writes a second copy."
        )
    return "found", (
        f"{by} gave it up after it read it at {origin.topic}[{origin.partition}]@{origin.offset}: the original is on "
        "its topic. A replay writes a second copy there, for everyone who reads the topic."
    )


def _consumer(origin: RecordOrigin) -> str:
    name = NAMES[origin.dialect] if origin.dialect else "somebody"
    return f"{origin.consumer} ({name})" if origin.consumer else f"A consumer ({name})"


def _not_replayable(record: DeadLetterRecord, origin: RecordOrigin, topic: str | None) -> str | None:
    if origin.replayable == "false":
        return "it could not be replayed where it was published"
    if topic is None:
        return "it cannot be replayed: no header says which topic it belongs to"
    if origin.dialect == "share_group" and record.key is None and record.value is None:
        return (
            "it cannot be replayed: the group copies no records (errors.deadletterqueue.copy.record.enable), so its "
            "content is only where it was read"
        )
    return None


def _source(record: DeadLetterRecord, place: RecordPlace, origin: RecordOrigin, why_not: str | None) -> str:
    """Where it was fetched from, where its headers say it came from, and what was wrong with them."""
    name = NAMES[origin.dialect] if origin.dialect else "no dialect that we know"
    said = [f"{place.topic}[{record.partition}]@{record.offset} ({name})"]
    if origin.dialect not in (None, "producer_core"):
        said.append(_read_from(origin))
    if origin.dialect == "producer_core" and origin.source:
        said.append(f"before: {origin.source.partition('; before: ')[0]}")
    if why_not:
        said.append(why_not)
    if origin.message_id is not None and _own_id(origin) is None:
        said.append(f"dlq.message.id is no id of ours ({shown(origin.message_id.encode(errors='replace'))})")
    if origin.dialect != "producer_core" and (raw := record_id(record.headers)) is not None:
        said.append(f"its record carried the message id {id_text(raw)}")
    if origin.dialect == "share_group":
        said.append("a share group keeps no headers of the record")
    return "; ".join((*said, *origin.notes))


def _read_from(origin: RecordOrigin) -> str:
    partition = "?" if origin.partition is None else origin.partition
    offset = "?" if origin.offset is None else origin.offset
    by = f" by {origin.consumer}" if origin.consumer else ""
    tries = f", delivered {origin.attempts} times" if origin.attempts else ""
    return f"read{by} from {origin.topic or '?'}[{partition}]@{offset}{tries}"


def _rounds(origin: RecordOrigin) -> int:
    return origin.generation or 0


def _for_the_next_round(headers: Headers, origin: RecordOrigin, rounds: int) -> Headers:
    """The message's own headers, and how often it will have come back when it is sent again."""
    operation = ((OPERATION_ID, origin.operation_id.encode()),) if origin.operation_id else ()
    return (*headers, (GENERATION, str(rounds + 1).encode()), *operation)


def _one_of(words: Any, word: str | None, otherwise: Any) -> Any:
    return word if word in get_args(words) else otherwise
