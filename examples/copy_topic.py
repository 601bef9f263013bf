"""Copy one topic to another without loss, even after kill -9, with the same partitions and the same order.

    python examples/copy_topic.py orders orders-copy --bootstrap-servers localhost:9092
    python examples/copy_topic.py orders orders-copy --exactly-once copy-journal/

At least once (default): the program commits an offset of the source only when every earlier record is acknowledged on
the target. After a crash it copies the uncommitted records again. The header `copied-from` of a copy identifies its
source record and is the same after each restart, so consumers can drop second copies:

    unique(messages, Seen(header="copied-from"))

Exactly once: the program writes each record to the journal before it reads the next one, and sends it in a
transaction. After a crash it sends the journal first, and then resumes after the last copy on the target.
`read_committed` consumers find every record once. Run one process at a time, because the journal's folder and its
transactional id belong to one process.

The target needs as many partitions as the source. A record that the target rejects permanently becomes a dead letter in
the store, and the program continues.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
import threading
import uuid
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from producer_core import ReliableKafkaProducer, UpstreamOffsets
from producer_core.errors import StoreError

COPIED_FROM = "copied-from"
_OURS = (COPIED_FROM, "pc-id")  # headers of a source that is itself a copy, or that producer_core wrote

log = logging.getLogger("copy_topic")


def main() -> None:
    options = arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with contextlib.closing(consumer(options.bootstrap_servers, options.group)) as source:
        copy(source, options, stop)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument(
        "--group", default="copy-topic", help="consumer group that commits the offsets of the source"
    )
    parser.add_argument(
        "--exactly-once", metavar="FOLDER", help="copy exactly once, with the journal in this folder"
    )
    parser.add_argument(
        "--store", default="auto", help="store for dead letters; default: the producer's default store"
    )
    parser.add_argument("--once", action="store_true", help="stop at the current end of the source")
    return parser.parse_args()


def copy(source: Consumer, options: argparse.Namespace, stop: threading.Event) -> None:
    """Copy all records after the position of the last run. After an error the process exits, and the next run resumes."""
    partitions = partitions_of(source, options.source)
    to_read = {number: end_of(source, options.source, number) for number in partitions}
    promise: dict[str, Any] = {}
    if options.exactly_once:
        promise = {"delivery": "exactly_once", "journal_dir": options.exactly_once}
    with ReliableKafkaProducer(options.bootstrap_servers, store=options.store, **promise) as producer:
        offsets = UpstreamOffsets(dead="commit", kept=lambda message_id: is_kept(producer, message_id))
        starts = committed(source, options.source, partitions)
        if options.exactly_once:
            producer.flush()  # send the records that the last run left in its journal
            copied = last_copied(options, partitions)
            starts = {number: max(starts[number], copied.get(number, -1) + 1) for number in partitions}
        log.info("copying %s to %s from %s", options.source, options.target, starts)
        source.assign([TopicPartition(options.source, *start) for start in starts.items()])
        to_read = {number: end for number, end in to_read.items() if end > starts[number]}
        while not stop.is_set() and (to_read or not options.once):
            for message in source.consume(500, timeout=0.2):
                forward(message, producer, offsets, options.target)
                if reached(message) >= to_read.get(message.partition(), sys.maxsize):
                    del to_read[message.partition()]
            commit(source, offsets)
        report = producer.close()
    commit(source, offsets)
    log.info(
        "%d acknowledged, %d dead; committed %s", report.acknowledged, report.dead, offsets.committable()
    )


def forward(message: Message, producer: ReliableKafkaProducer, offsets: UpstreamOffsets, target: str) -> None:
    if (error := message.error()) is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        return
    origin = (message.topic(), message.partition())
    headers = [pair for pair in message.headers() or [] if pair[0] not in _OURS]
    producer.send_message(
        target,
        message.value(),
        message.key(),
        headers=[*headers, (COPIED_FROM, copy_id(*origin, message.offset()))],
        partition=message.partition(),
        timestamp_ms=max(0, message.timestamp()[1]),
        record_id=offsets.accepted(origin, message.offset()),
        on_delivery=offsets.report,
    )


def reached(message: Message) -> int:
    """Return the next offset of the message's partition. An end-of-partition event skips transaction markers."""
    return int(message.offset()) + (message.error() is None)


def copy_id(topic: str, partition: int, offset: int) -> bytes:
    """Return the id of a source record: 16 bytes for its partition, 8 bytes for its offset."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"kafka:{topic}/{partition}").bytes + offset.to_bytes(8, "big")


def is_kept(producer: ReliableKafkaProducer, message_id: str) -> bool:
    try:
        return producer.dlq.get(message_id) is not None
    except StoreError:
        return False  # queried again at the next commit


def commit(source: Consumer, offsets: UpstreamOffsets) -> None:
    if safe := offsets.topic_partitions():
        with contextlib.suppress(KafkaException):  # the next commit includes these offsets
            source.commit(offsets=safe, asynchronous=False)


# the start positions


def consumer(servers: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )


def partitions_of(source: Consumer, topic: str) -> list[int]:
    found = source.list_topics(topic, timeout=30).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return sorted(found.partitions)


def end_of(source: Consumer, topic: str, partition: int) -> int:
    return int(source.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1])


def committed(source: Consumer, topic: str, partitions: list[int]) -> dict[int, int]:
    asked = source.committed([TopicPartition(topic, number) for number in partitions], timeout=30)
    return {found.partition: max(0, found.offset) for found in asked}


def last_copied(options: argparse.Namespace, partitions: list[int]) -> dict[int, int]:
    """Return by partition the highest source offset that was copied. Order holds, so the last copy has it."""
    with contextlib.closing(consumer(options.bootstrap_servers, f"{options.group}-look")) as target:
        found = {number: search(target, options, number) for number in partitions}
    return {number: offset for number, offset in found.items() if offset is not None}


def search(target: Consumer, options: argparse.Namespace, partition: int) -> int | None:
    """Read backwards from the end, in increasing steps, until a copy is found."""
    where = TopicPartition(options.target, partition)
    low, end = target.get_watermark_offsets(where, timeout=30)
    mark, step = copy_id(options.source, partition, 0)[:16], 1_000
    while end > low:
        begin = max(low, end - step)
        copies = [raw for raw in headers_between(target, where, begin, end) if raw[:16] == mark]
        if copies:
            return max(int.from_bytes(raw[16:]) for raw in copies)
        end, step = begin, step * 4
    return None


def headers_between(target: Consumer, where: TopicPartition, begin: int, end: int) -> list[bytes]:
    target.assign([TopicPartition(where.topic, where.partition, begin)])
    found: list[bytes] = []
    while (message := target.poll(30)) is not None:
        if message.error() is None and message.offset() < end:
            found += [value for name, value in message.headers() or [] if name == COPIED_FROM]
        if message.offset() >= end - 1:  # a record, or the end of the partition
            return found
    raise TimeoutError(f"{where.topic}, partition {where.partition} could not be read to its end.")


if __name__ == "__main__":
    main()
