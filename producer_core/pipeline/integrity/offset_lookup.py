"""Places: single records looked up at their very offsets, a few milliseconds each, by our own client and not by Spark's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from producer_core.errors import BrokerError
from producer_core.kafka.clients import reader
from producer_core.messages import record_id
from producer_core.pipeline.integrity.spans import Isolation

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from producer_core.config import ClientConfig

MOST = 300
"""So many are looked up in turn; for more, Spark's whole reads are quicker."""

_PATIENCE = 15.0
_NOT_THERE = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_READER = {
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": 1_024,
    "fetch.message.max.bytes": 65_536,
}


def looked_up(
    config: ClientConfig, topic: str, places: Sequence[tuple[int, int]], isolation: Isolation
) -> list[bytes | None]:
    """Of each (partition, offset) the 24 bytes of the message id that stands there; None where there is none of ours."""
    if not places:
        return []
    changes = {**_READER, "isolation.level": isolation}
    with reader(config.settings, changes, name="audit") as consumer:
        return [_standing(consumer, TopicPartition(topic, *place)) for place in places]


def _standing(consumer: Consumer, place: TopicPartition) -> bytes | None:
    consumer.assign([place])
    for message in _answers(consumer):
        error = message.error()
        if error is not None and error.code() in _NOT_THERE:
            return None
        if error is not None and not error.retriable():
            raise KafkaException(error)
        if error is None and message.partition() == place.partition and message.offset() >= place.offset:
            return record_id(message.headers()) if message.offset() == place.offset else None
    raise BrokerError(
        f"Partition {place.partition} of {place.topic} did not answer when one of its records was looked up.",
        fix="Check that it has a leader, and audit again.",
    )


def _answers(consumer: Consumer) -> Iterator[Any]:
    while (message := consumer.poll(_PATIENCE)) is not None:
        yield message
