"""Write dead-letter headers: those of producer_core in plain text, and optionally those of another dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import orjson

from producer_core.dlq.topics.header_values import decimal, truncate
from producer_core.dlq.topics.origin import GENERATION, OPERATION_ID, Headers, WrittenDialect
from producer_core.dlq.topics.read_headers import KNOWN
from producer_core.errors import ConfigError
from producer_core.events import Attempt, DeadLetter
from producer_core.kafka.classify import lookup

MESSAGE = 1024
STACKTRACE = 8192
HISTORY = 5
"""The maximum numbers of bytes of an error text and of a stack trace, and of attempts, in the headers of a record."""

Pairs = Iterator[tuple[str, bytes]]


def write(dead_letter: DeadLetter, dialect: WrittenDialect = "producer_core") -> Headers:
    """Return the headers for a record with this dead letter: the message's own headers, then the dead-letter headers.

    Dead-letter headers of the same dialects from an earlier publication are replaced, so that records do not grow. A
    failed send has no offset, so no offset is written.
    """
    added = [*_canonical(dead_letter), *_dialects()[dialect](dead_letter)]
    replaced = {name for name, _ in added} | {
        name for name, known in KNOWN.items() if known.dialect == "producer_core"
    }
    if dialect != "producer_core":
        replaced |= {name for name, known in KNOWN.items() if known.dialect == dialect}
    return (*(header for header in dead_letter.headers if header[0] not in replaced), *added)


def generation(headers: Headers) -> int | None:
    """Return how often a record with these headers has come back from a dead-letter topic, or None."""
    found = [decimal(value).value for name, value in headers if name == GENERATION and value is not None]
    return next((number for number in reversed(found) if number is not None), None)


def _dialects() -> Mapping[WrittenDialect, Callable[[DeadLetter], Pairs]]:
    return {"producer_core": lambda dead_letter: iter(()), "spring": _spring, "connect": _connect}


def _canonical(dead_letter: DeadLetter) -> Pairs:
    last = dead_letter.attempts[-1] if dead_letter.attempts else None
    yield "dlq.message.id", dead_letter.message_id.encode()
    yield "dlq.original.topic", dead_letter.topic.encode()
    if dead_letter.partition is not None:
        yield "dlq.original.partition", _number(dead_letter.partition)
    if dead_letter.timestamp_ms is not None:
        yield "dlq.original.timestamp_ms", _number(dead_letter.timestamp_ms)
    if dead_letter.cluster_id:
        yield "dlq.original.cluster_id", dead_letter.cluster_id.encode()
    yield "dlq.error.type", truncate(dead_letter.code, MESSAGE)
    if (number := _protocol_number(dead_letter.code)) is not None:
        yield "dlq.error.code", _number(number)
    yield "dlq.error.kind", dead_letter.kind.encode()
    yield "dlq.error.message", truncate(dead_letter.error_text, MESSAGE)
    yield "dlq.error.fingerprint", dead_letter.fingerprint.encode()
    if "." in dead_letter.code:  # a Java class, so the dead letter is from a consumer
        yield "dlq.exception.type", truncate(dead_letter.code, MESSAGE)
    if last is not None and "\n" in last.text:
        yield "dlq.exception.stacktrace", truncate(last.text.partition("\n")[2], STACKTRACE)
    yield "dlq.attempts", _number(len(dead_letter.attempts))
    yield "dlq.accepted_ms", _ms(dead_letter.accepted_at)
    if dead_letter.attempts:
        yield "dlq.first_attempt_ms", _ms(dead_letter.attempts[0].failed_at)
    yield "dlq.failed_ms", _ms(dead_letter.failed_at)
    yield "dlq.delivery.verdict", dead_letter.verdict.encode()
    yield "dlq.delivery.reason", truncate(dead_letter.verdict_reason, MESSAGE)
    yield "dlq.client.id", dead_letter.producer_id.encode()
    if dead_letter.host:
        yield "dlq.client.host", dead_letter.host.encode()
    if dead_letter.version:
        yield "dlq.client.version", dead_letter.version.encode()
    if dead_letter.application:
        yield "dlq.client.application", truncate(dead_letter.application, MESSAGE)
    if dead_letter.application_version:
        yield "dlq.client.application_version", truncate(dead_letter.application_version, MESSAGE)
    if dead_letter.source:
        yield "dlq.source", truncate(dead_letter.source, MESSAGE)
    if not dead_letter.replayable:
        yield "dlq.replayable", b"false"
    yield "dlq.history", history(dead_letter.attempts)
    yield GENERATION, _number(_generation(dead_letter))
    yield from (
        (name, value) for name, value in dead_letter.headers if name == OPERATION_ID and value is not None
    )


def _spring(dead_letter: DeadLetter) -> Pairs:
    yield "kafka_dlt-original-topic", dead_letter.topic.encode()
    if dead_letter.partition is not None:
        yield "kafka_dlt-original-partition", dead_letter.partition.to_bytes(4, "big", signed=True)
    if dead_letter.timestamp_ms is not None:
        yield "kafka_dlt-original-timestamp", dead_letter.timestamp_ms.to_bytes(8, "big", signed=True)
        yield "kafka_dlt-original-timestamp-type", b"CreateTime"
    yield "kafka_dlt-exception-fqcn", truncate(dead_letter.code, MESSAGE)
    yield "kafka_dlt-exception-message", truncate(dead_letter.error_text, MESSAGE)


def _connect(dead_letter: DeadLetter) -> Pairs:
    yield "__connect.errors.topic", dead_letter.topic.encode()
    if dead_letter.partition is not None:
        yield "__connect.errors.partition", _number(dead_letter.partition)
    yield "__connect.errors.connector.name", truncate(dead_letter.producer_id, MESSAGE)
    yield "__connect.errors.stage", b"KAFKA_PRODUCE"
    yield "__connect.errors.exception.class.name", truncate(dead_letter.code, MESSAGE)
    yield "__connect.errors.exception.message", truncate(dead_letter.error_text, MESSAGE)


def history(attempts: tuple[Attempt, ...]) -> bytes:
    """Return the first attempt and the last few as JSON: [milliseconds, code, first line of the text]."""
    kept = attempts if len(attempts) <= HISTORY else (attempts[0], *attempts[1 - HISTORY :])
    lines = [
        [
            round(one.failed_at * 1000),
            truncate(one.code, 200).decode(),
            truncate(one.text.partition("\n")[0], 200).decode(),
        ]
        for one in kept
    ]
    return orjson.dumps(lines)


def _generation(dead_letter: DeadLetter) -> int:
    """Return how often the message came back. The header of a fetched dead letter counts its next replay already."""
    return max(dead_letter.replay_count, (generation(dead_letter.headers) or 1) - 1)


def _protocol_number(code: str) -> int | None:
    try:
        return lookup(code).number
    except ConfigError:
        return None


def _number(number: int) -> bytes:
    return str(number).encode()


def _ms(seconds: float) -> bytes:
    return _number(round(seconds * 1000))
