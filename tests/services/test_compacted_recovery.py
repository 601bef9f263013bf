"""A restart on a compacted topic: messages that were written, and compacted away before the journal knew."""

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
from producer_core.replay.transactional import Supervisor, TransactionalReplay
from tests.support import eventually
from tests.unit.replaying import dead_letter

pytestmark = pytest.mark.kafka

COMPACTS_AT_ONCE = {
    "cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
}  # fmt: skip


@pytest.fixture
def topic(kafka):
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, 1, 1, config=COMPACTS_AT_ONCE)]).values():
        made.result(20)
    return name


def records(kafka, topic):
    """Keys and values that a read_committed reader sees, in their order."""
    found = []
    reader = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    reader.assign([TopicPartition(topic, 0, 0)])
    while True:
        message = reader.poll(10)
        if message.error() is None:
            found.append((message.key(), message.value()))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            reader.close()
            return found


def write(kafka, topic, rows):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for key, value, headers in rows:
        producer.produce(topic, value, key, headers=headers)
    assert producer.flush(20) == 0


def written_and_not_noted(kafka, topic, journal, rows, *, unsent=()):
    """What a process leaves that dies after the broker has its messages and before its journal knows."""
    with Journal.open(journal) as opened:
        first = opened.next_sequence
        for seq, (key, value) in enumerate((*rows, *unsent), first):
            opened.append(JournalRecord(seq, topic, key, value, accepted_at=time.time()))
        ids = [opened.ids.of(first + place) for place in range(len(rows))]
    write(kafka, topic, [(key, value, [(ID_HEADER, id)]) for (key, value), id in zip(rows, ids, strict=True)])


def compact(kafka, topic, *gone):
    """Waits until the cleaner has removed records; it leaves the newest segment alone, so others follow."""

    def cleaned():
        write(kafka, topic, [(b"filler", b"", None)])
        return not set(gone) & set(records(kafka, topic))

    eventually(cleaned, 40, every=0.3)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_an_old_value_that_was_compacted_away_is_not_sent_after_the_newer_one(
    kafka, topic, tmp_path, delivery
):
    options = {"delivery": delivery, "journal_dir": tmp_path / "journal", "store": tmp_path / "store.duckdb"}
    with ReliableKafkaProducer(kafka.bootstrap_servers, **options) as producer:
        producer.send_message(topic, b"0", "first")
        producer.flush()
    written_and_not_noted(
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
    assert "A newer record of its key is on the topic" in dead_letters[0].verdict_reason
    assert (report.journaled, report.lost) == (0, 0)


@pytest.mark.parametrize("newer", [None, "send"])
def test_a_replay_that_is_taken_over_does_not_send_an_old_value_again_after_a_newer_one(kafka, topic, newer):
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

    dead, taking_over = runner({}), runner({topic: {0: -1}})
    dead.begin([topic])
    dead.close()
    sent = [delivery_of(one) for one in (old, new, other)]
    write(kafka, topic, [(one.key, one.value, one.record_headers) for one in sent])
    write(kafka, topic, [(b"l", b"live", None)])
    compact(kafka, topic, (b"k", b"old"), (b"l", b"replayed"))

    taking_over.begin([topic])
    outcomes = taking_over.after([OrphanedRecord(one, 0.0) for one in (old, new, other, unsent)])
    taking_over.close()

    told = [(one.ending, one.verdict) for one in outcomes]
    held = ("skipped", "inconclusive")
    # With --newer send the operator chose that old values come after live ones, not that a replay breaks its own order.
    assert told == [held, ("landed", "found"), ("pending", None) if newer else held, ("pending", None)]
    assert "A newer record of its key is on the topic" in outcomes[0].text
