"""Confirming losses: their very offsets are looked up once more, one by one, by another client than Spark's.

Nothing is called lost because a read left something out: Spark's reader skips what a leader does not have at that
moment, and what retention takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from producer_core.asking import reader
from producer_core.errors import BrokerError, PipelineError
from producer_core.messages import id_text, record_id
from producer_core.pipeline.integrity.report import AuditReport

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from producer_core.config import ClientConfig

MOST = 300
"""Losses that are looked up, a few milliseconds each, spread evenly over more: what a read leaves out are stretches."""
_PATIENCE = 15.0
_NOT_THERE = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_READER = {
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": 1_024,
    "fetch.message.max.bytes": 65_536,
}


def confirm(config: ClientConfig, report: AuditReport) -> None:
    """PipelineError when one of them stands where it was acknowledged."""
    places = [row for row in report.rows("lost") if _in_range(report, row)]
    chosen = places[:: max(1, -(-len(places) // MOST))]
    if not chosen:
        return
    changes = {**_READER, "isolation.level": report.isolation}
    with reader(config.settings, changes, name="audit") as consumer:
        found = [row for row in chosen if _stands(consumer, report.topic, row)]
    if found:
        first = found[0]
        raise PipelineError(
            f"Spark did not read {len(found):,} of {len(chosen):,} records that seemed lost and are there, such as "
            f"{first['message_id']} in partition {first['partition']} at offset {first['offset']:,}.",
            fix="A partition's leader may have changed meanwhile: audit again.",
        )


def _in_range(report: AuditReport, row: dict[str, Any]) -> bool:
    span = report.spans.get(row["partition"])
    return span is not None and row["offset"] is not None and row["offset"] < span.end


def _stands(consumer: Consumer, topic: str, row: dict[str, Any]) -> bool:
    """Whether the record at that offset is that message."""
    place = TopicPartition(topic, row["partition"], row["offset"])
    consumer.assign([place])
    for message in _answers(consumer):
        error = message.error()
        if error is not None and error.code() in _NOT_THERE:
            return False
        if error is not None and not error.retriable():
            raise KafkaException(error)
        if error is None and message.partition() == place.partition and message.offset() >= place.offset:
            found = record_id(message.headers()) if message.offset() == place.offset else None
            return found is not None and id_text(found) == row["message_id"]
    raise BrokerError(
        f"Partition {place.partition} of {topic} did not answer when a loss was to be confirmed.",
        fix="Check that it has a leader, and audit again.",
    )


def _answers(consumer: Consumer) -> Iterator[Any]:
    while (message := consumer.poll(_PATIENCE)) is not None:
        yield message
