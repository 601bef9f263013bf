"""Ambiguous messages that were not found on a compacted topic: which of them have a newer record of their key."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.brokers import embedded
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.exactly_once.log_positions import LogPosition, LogPositions, split
from producer_core.kafka.compaction import Compaction, MissingRecord, NewerRecords
from producer_core.kafka.newer_keys import KeyIndex, LaterRecords
from producer_core.messages import ID_HEADER, MessageIds, Placement, SequenceSpan, id_text
from producer_core.testing import InMemoryTransport
from tests.fixtures.exactly_once import MemoryProgress

EARLIER, NOW, FOREIGN = (uuid.UUID(int=number) for number in (1, 2, 3))
IDS = MessageIds(NOW, first=10, earlier=[SequenceSpan(0, 10, EARLIER)])
PARTITION = ("t", 0)


@dataclass
class TopicRecord:
    """A record as a consumer returns it."""

    id: bytes
    at: float
    record_offset: int = 0
    number: int = 0

    def key(self):
        return b"k"

    def headers(self):
        return [(ID_HEADER, self.id)]

    def timestamp(self):
        return (1, int(self.at * 1000))

    def offset(self):
        return self.record_offset

    def partition(self):
        return self.number


def foreign(at, record_offset=0, number=0):
    return TopicRecord(FOREIGN.bytes + bytes(8), at, record_offset, number)


def delivery(seq, at=100.0):
    one = Delivery(IDS.of(seq), seq, "t", b"k", b"v", (), Placement(0))
    one.accepted_at = at
    return one


@pytest.mark.parametrize(
    "record, newer",
    [
        (TopicRecord(IDS.of(9), 999.0), False),  # an older message of an earlier start, written late
        (TopicRecord(IDS.of(12), 1.0), True),
        (foreign(95.0), True),  # the clock of another producer may be behind
        (foreign(50.0), False),
        (foreign(200.0, number=1), False),  # on another partition
    ],
)
def test_own_records_are_compared_by_sequence_and_others_by_time(record, newer):
    keys = KeyIndex(IDS.number, slack=10.0)
    keys.add(id_text(IDS.of(11)), b"k", 100.0, partition=0)

    keys.observe(record)

    assert list(keys.newer()) == ([id_text(IDS.of(11))] if newer else [])
    if record.number == 0:
        later = LaterRecords(IDS.number)
        later.observe(record)
        assert (later.after(11, b"k", 100.0) is not None) == newer


def test_above_the_limit_the_newest_record_applies_to_every_key():
    later = LaterRecords(IDS.number, max_keys=0)
    later.observe(TopicRecord(IDS.of(5), 1.0, record_offset=70))

    assert later.after(4, b"another", 1.0) == 70
    assert later.after(6, b"another", 1.0) is None


def test_a_second_crash_still_finds_the_newer_record_of_a_held_back_message():
    progress = MemoryProgress()
    positions = LogPositions(progress, IDS)
    positions.start_partitions({PARTITION: 3})
    later = LaterRecords(IDS.number)
    later.observe(TopicRecord(IDS.of(2), 1.0, record_offset=5))
    positions.set_found(PARTITION, [(IDS.of(2), LogPosition("t", 0, 5))])
    positions.add_later_keys(PARTITION, later, None)

    written, superseded, rest = split([delivery(1), delivery(2), delivery(3)], positions)
    positions.settle(written)
    before = positions.settled_offset(PARTITION)
    progress.settle([1])  # its dead letter is on disk
    positions.settle([(rest[0], LogPosition("t", 0, 6))])

    assert ([one.seq for one in superseded], [one.seq for one in rest]) == ([1], [3])
    assert (before, positions.settled_offset(PARTITION)) == (4, 6)


def test_a_broker_without_settings_is_not_treated_as_compacting():
    with embedded.start(brokers=1, topics={"t": 1}) as broker:
        missing = [MissingRecord(id_text(IDS.of(1)), b"k", 1.0, None)]

        answer = Compaction({"bootstrap.servers": broker.bootstrap_servers}).newer_records(
            "t", missing, number=IDS.number, timeout=10
        )

    assert answer == NewerRecords()


@pytest.mark.parametrize("known", [True, False], ids=["newer", "not known"])
def test_an_ambiguous_message_with_a_newer_record_of_its_key_is_not_sent_again(monkeypatch, known):

    made, left = [], ["_MSG_TIMED_OUT"]
    factory = InMemoryTransport.factory(made, script=lambda delivery: left.pop() if left else None)
    monkeypatch.setattr("producer_core.delivery.ambiguity._SEARCH_TIMEOUT", 0.0)
    producer = ReliableKafkaProducer(
        "memory:1", None, RetryConfig(max_retries=1, initial_delay_ms=1), store=None, transport=factory
    )
    producer.connection.acknowledged()

    def newer_records(topic, missing, *, number, timeout):
        ids = frozenset(one.message_id for one in missing)
        return NewerRecords(ids, compacted=True) if known else NewerRecords(unknown=ids, reason="no READ")

    monkeypatch.setattr(producer._engine._ambiguity._prober, "_search_newer", newer_records)

    producer.send_message("t", b"old", "k")
    producer.flush(10)

    assert made[0].log["t"] == []
    dead_letters = [(dead_letter.code, dead_letter.verdict) for dead_letter in producer.dlq.dead_letters("t")]
    assert dead_letters == [("newer_record", "inconclusive")]
    producer.close()
