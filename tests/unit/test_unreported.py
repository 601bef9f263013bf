"""Offsets that librdkafka makes up, on a broker that says that it has a batch already."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.delivery.delivery import Callbacks, Delivery
from producer_core.delivery.exactly_once.transactional_client import TransactionalClient, TransactionFailed
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings
from producer_core.delivery.report_batch import ReportBatch
from producer_core.events import Attempt
from producer_core.messages import Placement


@dataclass(frozen=True)
class Written:
    at: tuple[int, int | None]

    def partition(self):
        return self.at[0]

    def offset(self):
        return self.at[1]

    def latency(self):
        return 0.5


def sent(heard=False):
    made = Delivery(bytes(24), 0, "orders", None, b"x")
    made.callbacks = Callbacks(on_delivery=print) if heard else None
    return made


def offsets(*places, heard=False):
    """What is told of reports at these places, in this order; "dead" is one that failed."""
    batch = [
        (sent(heard), KafkaError(1), Written((0, None)))
        if place == "dead"
        else (sent(heard), None, Written(place))
        for place in places
    ]
    return [message.offset() for _, _, message in ReportBatch.of(batch).with_real_offsets()]


@pytest.mark.parametrize("heard", [False, True])
def test_offsets_that_count_on_from_none_are_taken_back(heard):
    told = functools.partial(offsets, heard=heard)
    assert told((0, None), (0, 0), (0, 1), (0, 2)) == [None] * 4
    assert told((0, None), (1, 7), (0, 0), (1, 8), (0, 1)) == [None, 7, None, 8, None]
    assert told((0, None), (0, 0), (0, None), (0, 0)) == [None] * 4


@pytest.mark.parametrize("heard", [False, True])
def test_true_offsets_stay(heard):
    told = functools.partial(offsets, heard=heard)
    assert told((0, 0), (0, 1), (1, 0)) == [0, 1, 0]
    assert told((0, 5), (0, None), (0, 6), (0, 7), (1, 0)) == [5, None, 6, 7, 0]
    assert told("dead", (0, 0), (0, 1)) == [None, 0, 1]
    assert told((0, None), "dead", (0, 0)) == [None, None, None]


@pytest.mark.parametrize("heard", [False, True])
def test_what_else_a_report_says_stays(heard):
    batch = [(sent(heard), None, Written((3, None))), (sent(heard), None, Written((3, 0)))]

    _, (_, error, message) = ReportBatch.of(batch).with_real_offsets()

    assert (error, message.partition(), message.latency(), message.offset()) == (None, 3, 0.5, None)


def test_only_what_nobody_hears_of_alone_and_came_at_the_first_try_is_plain():
    retried = sent()
    retried.attempts = ((Attempt(1.0, "_MSG_TIMED_OUT", "late"), "possibly_persisted"),)
    counted = sent()
    counted.callbacks = Callbacks(on_settled=print)

    def plain(delivery, error=None):
        return ReportBatch.of([(sent(), None, Written((0, 1))), (delivery, error, Written((0, 2)))]).plain

    assert plain(sent())
    assert plain(counted)
    assert not plain(sent(heard=True))
    assert not plain(retried)
    assert not plain(sent(), KafkaError(1))


def test_without_those_that_somebody_else_settled_the_places_stay_with_their_messages():
    deliveries = [sent() for _ in range(4)]
    batch = [(delivery, None, Written((number, 10 + number))) for number, delivery in enumerate(deliveries)]

    left = ReportBatch.of(batch).only([True, False, False, True])

    assert left.deliveries() == [deliveries[0], deliveries[3]]
    assert left.places() == ([0, 3], [10, 13], [0.5, 0.5])


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 1, "paid": 1}) as running:
        yield running


def test_nobody_is_told_an_offset_at_which_his_message_is_not(broker):
    reports = []
    config = {"linger.ms": 200}  # one batch
    with ReliableKafkaProducer(broker.bootstrap_servers, config, store=None) as producer:
        for number in range(3):
            producer.send_message("orders", number, partition=0, on_delivery=reports.append)
        producer.flush(30)
        broker.fail_next("orders", "DUPLICATE_SEQUENCE_NUMBER")
        for number in range(5):
            producer.send_message("orders", number, partition=0, on_delivery=reports.append)
        producer.flush(30)

    assert [report.error for report in reports] == [None] * 8
    assert [report.offset for report in reports] == [0, 1, 2, None, None, None, None, None]


def test_a_transaction_whose_records_lie_nobody_knows_where_is_not_committed(broker):
    settings = transactional_settings({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 200})
    client = TransactionalClient(
        settings,
        "t-0",
        statistics=lambda statistics: None,
        connection_error=lambda error: None,
        stopping=lambda: False,
    )
    deliveries = [
        Delivery(bytes(16) + seq.to_bytes(8), seq, "paid", None, b"x", [], Placement(0)) for seq in range(3)
    ]
    client.fence(lambda error: None)
    broker.fail_next("paid", "DUPLICATE_SEQUENCE_NUMBER")

    with pytest.raises(TransactionFailed, match="without its offset"):
        client.transact(deliveries, time.monotonic() + 30)
    client.destroy()
