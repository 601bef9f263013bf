"""A response is lost while another topic of the same client rejects a record: the duplicate is counted."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Consumer, TopicPartition

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.delivery.duplicate_check import read_gaps
from producer_core.delivery.duplicate_check.offset_gaps import OffsetGap, PartitionGaps
from producer_core.messages import record_id
from tests.proxy import FaultProxy, Rule, Swallow
from tests.support import eventually

TIMEOUT = 60


@pytest.fixture(scope="module")
def broker():
    topics = ["gaps", *(f"{name}-{closing}" for name in ("orders", "refused") for closing in (False, True))]
    with embedded.start(brokers=1, topics=dict.fromkeys(topics, 1)) as running:
        yield running


@pytest.fixture
def proxy(broker):
    with FaultProxy(seed=5) as running:
        broker.advertise(running.listen)
        yield running


class Sending:
    """Runs a producer and counts its delivery reports."""

    def __init__(self, servers, *topics):
        self.reports = Counter()
        self.producer = ReliableKafkaProducer(
            servers,
            {"linger.ms": 0, "reconnect.backoff.max.ms": 200, "statistics.interval.ms": 100},
            store=None,
            health_check_interval=3600,
        )
        for topic in topics:
            self.send(topic, "warm")
        self.producer.flush(TIMEOUT)

    def send(self, topic, value):
        self.producer.send_message(topic, value, partition=0, on_delivery=self.on_report)

    def on_report(self, report):
        self.reports[report.topic, report.error is None] += 1

    def possible_duplicates(self):
        return self.producer.get_stats()["possible_duplicates"]


def ids_on(broker, topic):
    """Return the ids on partition 0 of a topic in order."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
    try:
        _, end = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        reader.assign([TopicPartition(topic, 0, 0)])
        found = []
        while len(found) < end:
            if (message := reader.poll(TIMEOUT)) is not None and message.error() is None:
                found.append(record_id(message.headers()))
        return found
    finally:
        reader.close()


def lose_a_response_while_another_topic_rejects(broker, proxy, sending, orders, refused, count):
    """Reproduce kafka-real-notes 1.1: the batch returns to the queue, the epoch rises, and the batch is written again."""
    with proxy.during(Rule(Swallow(TIMEOUT), api="Produce", times=1)):
        for number in range(count):
            sending.send(orders, f"order {number}")
        eventually(lambda: proxy.counts["Swallow"], TIMEOUT)
    broker.fail_next(refused, "INVALID_RECORD")
    sending.send(refused, "refused")
    eventually(lambda: sending.reports[refused, False], TIMEOUT)
    proxy.reset_connections()
    sending.producer.flush(TIMEOUT)


@pytest.mark.parametrize("closing", [False, True], ids=["while running", "at close"])
def test_each_copy_is_counted_although_every_message_is_reported_as_sent(broker, proxy, closing):
    orders, refused = f"orders-{closing}", f"refused-{closing}"
    sending = Sending(proxy.bootstrap_servers, orders, refused)

    lose_a_response_while_another_topic_rejects(broker, proxy, sending, orders, refused, 30)
    if not closing:
        eventually(lambda: sending.possible_duplicates() > 0, TIMEOUT)
    sending.producer.close(TIMEOUT)

    copies = sum(count - 1 for count in Counter(ids_on(broker, orders)).values())
    assert sending.reports[orders, True] == 31
    assert copies > 0, "no record was written twice"
    assert sending.possible_duplicates() == copies


def test_gaps_are_read_completely_and_records_between_them_are_skipped(broker, proxy):
    sending = Sending(broker.bootstrap_servers)
    for number in range(60):
        sending.send("gaps", str(number))
    sending.producer.close(TIMEOUT)
    ids, where = ids_on(broker, "gaps"), ("gaps", 0)

    gaps = [
        OffsetGap(where, None, 3, ids[3], 0),
        OffsetGap(where, 10, 12, ids[12], 0),
        OffsetGap(where, 58, 60, ids[0], 0),
    ]
    found = read_gaps({"bootstrap.servers": broker.bootstrap_servers})(
        [PartitionGaps(*where, tuple(gaps), 50)], TIMEOUT
    )

    offsets = [0, 1, 2, 10, 11, 58, 59]
    assert found.records == [(where, offset, ids[offset]) for offset in offsets]
    assert (found.unread, found.incomplete) == ({}, False)


def test_gaps_of_a_deleted_topic_are_unread():
    where = ("never-made", 0)
    with embedded.start(brokers=1) as broker:
        read = read_gaps({"bootstrap.servers": broker.bootstrap_servers})
        found = read([PartitionGaps(*where, (OffsetGap(where, 5, 9, b"", 0),), 4)], 2.0)

    assert (found.records, found.unread) == ([], {where: 4})
