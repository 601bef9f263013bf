"""Read the telemetry records of a ledger topic with the Python client, a few megabytes at a time.

A ledger has a few bytes per acknowledged message, so one client is faster than the plan and the tasks of a Spark job. It
needs none of Spark's cores, which read the audited topic in the meantime.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from producer_core.errors import BrokerError
from producer_core.kafka.classify import failure_of
from producer_core.kafka.clients import NO_SUCH, reader

if TYPE_CHECKING:
    import pyarrow
    from confluent_kafka import Consumer, Message

    from producer_core.pipeline.integrity.spans import PartitionBounds

_SLICE_BYTES = 16 << 20
_MESSAGES = 32
"""Records of one request to the client; a record of telemetry has 1 MB at most."""
_TIMEOUT = 60.0
"""Seconds without a record or the end of a partition's bounds after which the read fails."""
_WAIT = 0.5
_CLIENT = {"queued.max.messages.kbytes": 32_768, "fetch.message.max.bytes": 4 << 20}


def telemetry(
    settings: Mapping[str, object], topic: str, bounds: Mapping[int, PartitionBounds]
) -> Iterator[pyarrow.Table]:
    """Yield (source, position, at, value) of all records between the bounds of a ledger topic.

    `at` is the record's timestamp in seconds. Raise BrokerError when a partition does not respond or stays shorter than
    its bounds, and KafkaException for an error that is not transient.
    """
    ends = {number: bound.stable for number, bound in bounds.items() if bound.low < bound.stable}
    if not ends:
        return
    with reader(settings, _CLIENT, name="audit-ledger", on_error=_raise_lasting) as consumer:
        consumer.assign([TopicPartition(topic, number, bounds[number].low) for number in ends])
        found: list[Message] = []
        size = 0
        for message in _messages(consumer, topic, ends):
            found.append(message)
            size += len(message)
            if size >= _SLICE_BYTES:
                yield _table(found)
                found, size = [], 0
        if found:
            yield _table(found)


def _messages(consumer: Consumer, topic: str, ends: dict[int, int]) -> Iterator[Message]:
    """Yield the records below the ends; remove a partition from `ends` when its end is reached.

    A partition may report an earlier end for a moment, for example after a change of its leader. The read continues
    then: the records below the end were acknowledged, and an audit without them would report a loss.
    """
    answered = time.monotonic()
    short: dict[int, int] = {}
    while ends:
        for message in consumer.consume(_MESSAGES, timeout=_WAIT):
            number, error = message.partition(), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                _raise_lasting(error)
                continue
            if number not in ends:
                continue
            if error is not None and message.offset() < ends[number]:
                short[number] = message.offset()
                continue
            answered = time.monotonic()
            short.pop(number, None)
            if error is None and message.offset() < ends[number]:
                yield message
            if error is not None or message.offset() >= ends[number] - 1:
                del ends[number]
                consumer.pause([TopicPartition(topic, number)])
        if ends and time.monotonic() > answered + _TIMEOUT:
            raise _incomplete(topic, ends, short)


def _incomplete(topic: str, ends: Mapping[int, int], short: Mapping[int, int]) -> BrokerError:
    """Return the error for the partitions that did not reach their ends in time."""
    for number in ends:
        if number in short:
            return BrokerError(
                f"Partition {number} of ledger topic {topic} ends at offset {short[number]}, but ended at offset "
                f"{ends[number]} when the audit began.",
                fix="It may have lost records, or its leader is not up to date. Check its replicas, and audit again.",
            )
    return BrokerError(
        f"Partition {min(ends)} of ledger topic {topic} did not respond in {_TIMEOUT:.0f} seconds.",
        fix="Check that it has a leader, and audit again.",
    )


def _raise_lasting(error: KafkaError) -> None:
    """Raise an error that another attempt does not solve; the client repeats requests after any other.

    A user may lack permission for the client's group: the client looks for the group's coordinator, and reads without it.
    """
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return
    if error.code() in NO_SUCH or failure_of(error).kind not in ("temporary", "timed_out"):
        raise KafkaException(error)


def _table(messages: list[Message]) -> pyarrow.Table:
    import pyarrow as pa

    return pa.table(
        {
            "source": pa.array([f"{one.topic()}-{one.partition()}" for one in messages], pa.string()),
            "position": pa.array([one.offset() for one in messages], pa.int64()),
            "at": pa.array([one.timestamp()[1] / 1000 for one in messages], pa.float64()),
            "value": pa.array([_text(one.value()) for one in messages], pa.string()),
        }
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")
