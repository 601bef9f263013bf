"""Look up single records at their offsets with the Python client, which takes a few milliseconds each."""

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

MAX_LOOKUPS = 300
"""Records that are looked up one after another; for more, reads of whole ranges by Spark are faster."""

_TIMEOUT = 15.0
_ABSENT = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_CONSUMER = {
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": 1_024,
    "fetch.message.max.bytes": 65_536,
}


def ids_at(
    config: ClientConfig, topic: str, places: Sequence[tuple[int, int]], isolation: Isolation
) -> list[bytes | None]:
    """Return, for each (partition, offset), the 24 bytes of the message id there; None without a producer_core id."""
    if not places:
        return []
    changes = {**_CONSUMER, "isolation.level": isolation}
    with reader(config.settings, changes, name="audit") as consumer:
        return [_id_at(consumer, TopicPartition(topic, *place)) for place in places]


def _id_at(consumer: Consumer, place: TopicPartition) -> bytes | None:
    consumer.assign([place])
    for message in _answers(consumer):
        error = message.error()
        if error is not None and error.code() in _ABSENT:
            return None
        if error is not None and not error.retriable():
            raise KafkaException(error)
        if error is None and message.partition() == place.partition and message.offset() >= place.offset:
            return record_id(message.headers()) if message.offset() == place.offset else None
    raise BrokerError(
        f"Partition {place.partition} of {place.topic} did not respond to a record lookup.",
        fix="Check that it has a leader, and audit again.",
    )


def _answers(consumer: Consumer) -> Iterator[Any]:
    while (message := consumer.poll(_TIMEOUT)) is not None:
        yield message
