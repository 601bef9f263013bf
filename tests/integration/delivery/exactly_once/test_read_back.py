"""A restart on a compacted topic: messages that were written but compacted away before the journal settled them."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from producer_core import ReliableKafkaProducer
from producer_core.delivery.dead_letter import delivery_of
from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.messages import ID_HEADER
from producer_core.replay.outcome import OrphanedRecord
from producer_core.replay.supervisor import Supervisor
from producer_core.replay.transactional import TransactionalReplay
from tests.fixtures.replays import dead_letter
from tests.support import eventually

pytestmark = pytest.mark.kafka

EAGER_COMPACTION = {
    "cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
}  # fmt: skip


@pytest.fixture
def topic(kafka):
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 1, 1, config=EAGER_COMPACTION)]).values():
        future.result(20)
    return name


def records(kafka, topic):
    """Return the keys and values that a read_committed consumer reads, in order."""
    records_read = []
    reader = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    reader.assign([TopicPartition(topic, 0, 0)])
    while True:
        message = reader.poll(10)
        if message.error() is None:
            records_read.append((message.key(), message.value()))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            reader.close()
            return records_read


def write(kafka, topic, rows):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for key, value, headers in rows:
        producer.produce(topic, value, key, headers=headers)
    assert producer.flush(20) == 0


def write_without_settling(kafka, topic, journal, rows, *, unsent=()):
    """Leave the state of a process that was killed after its messages were on the topic and before it settled them."""
    with Journal.open(journal) as journal_handle:
        first = journal_handle.next_sequence
        for seq, (key, value) in enumerate((*rows, *unsent), first):
            journal_handle.append(JournalRecord(seq, topic, key, value, accepted_at=time.time()))
        ids = [journal_handle.ids.of(first + index) for index in range(len(rows))]
    write(kafka, topic, [(key, value, [(ID_HEADER, id)]) for (key, value), id in zip(rows, ids, strict=True)])


def compact(kafka, topic, *removed):
    """Wait until the cleaner has removed the records. It skips the newest segment, so other records are added."""

    def is_removed():
        write(kafka, topic, [(b"filler", b"", None)])
        return not set(removed) & set(records(kafka, topic))

    eventually(is_removed, 40, every=0.3)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_compacted_old_value_is_not_sent_after_the_newer_one(kafka, topic, tmp_path, delivery):
    options = {"delivery": delivery, "journal_dir": tmp_path / "journal", "store": tmp_path / "store.duckdb"}
    with ReliableKafkaProducer(kafka.bootstrap_servers, **options) as producer:
        producer.send_message(topic, b"0", "first")
        producer.flush()
    write_without_settling(
        kafka, topic, tmp_path / "journal", [(b"k", b"old"), (b"k", b"new")], unsent=[(b"other", b"1")]
    )
    compact(kafka, topic, (b"k", b"old"))

    with ReliableKafkaProducer(kafka.bootstrap_servers, **options) as producer:
        producer.flush(60)
        dead_letters = [producer.dlq.get(message.id) for message in producer.dlq.messages]
    report = producer.close()

    assert [value for key, value in records(kafka, topic) if key == b"k"] == [b"new"]
    assert (b"other", b"1") in records(kafka, topic)
    assert [(dead_letter.value, dead_letter.verdict, dead_letter.code) for dead_letter in dead_letters] == [
        (b"old", "inconclusive", "newer_record")
    ]
    assert "A newer record with its key is on the topic" in dead_letters[0].verdict_reason
    assert (report.journaled, report.lost) == (0, 0)


@pytest.mark.parametrize("newer", [None, "send"])
def test_a_replay_that_is_taken_over_does_not_send_an_old_value_after_a_newer_one(kafka, topic, newer):
    rows = [(b"k", b"old"), (b"k", b"new"), (b"l", b"replayed"), (b"m", b"never sent")]
    old, new, other, unsent = [
        dead_letter(number, topic=topic, key=key, value=value, accepted_at=time.time() - 60)
        for number, (key, value) in enumerate(rows)
    ]

    def runner(floors):
        return TransactionalReplay(
            {"bootstrap.servers": kafka.bootstrap_servers}, topic, floors=floors, most=10, newer=newer,
            supervisor=Supervisor(lambda: False, lambda text: None),
        )  # fmt: skip

    killed, successor = runner({}), runner({topic: {0: -1}})
    killed.begin([topic])
    killed.close()
    sent = [delivery_of(one) for one in (old, new, other)]
    write(kafka, topic, [(one.key, one.value, one.record_headers) for one in sent])
    write(kafka, topic, [(b"l", b"live", None)])
    compact(kafka, topic, (b"k", b"old"), (b"l", b"replayed"))

    successor.begin([topic])
    outcomes = successor.after([OrphanedRecord(one, 0.0) for one in (old, new, other, unsent)])
    successor.close()

    results = [(one.ending, one.verdict) for one in outcomes]
    held_back = ("skipped", "inconclusive")
    # With --newer send the operator allows old values after live ones, but a replay must not break its own order.
    assert results == [
        held_back,
        ("landed", "found"),
        ("pending", None) if newer else held_back,
        ("pending", None),
    ]
    assert "A newer record with its key is on the topic" in outcomes[0].text
