"""Offsets that librdkafka derives when a broker already has a batch (DUPLICATE_SEQUENCE_NUMBER)."""

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
class FakeMessage:
    at: tuple[int, int | None]

    def partition(self):
        return self.at[0]

    def offset(self):
        return self.at[1]

    def latency(self):
        return 0.5


def make_delivery(with_callback=False):
    made = Delivery(bytes(24), 0, "orders", None, b"x")
    made.callbacks = Callbacks(on_delivery=print) if with_callback else None
    return made


def offsets(*places, with_callback=False):
    """Return the offsets of reports at these places in this order; "failed" is a report with an error."""
    batch = [
        (make_delivery(with_callback), KafkaError(1), FakeMessage((0, None)))
        if place == "failed"
        else (make_delivery(with_callback), None, FakeMessage(place))
        for place in places
    ]
    return [message.offset() for _, _, message in ReportBatch.of(batch).with_real_offsets()]


@pytest.mark.parametrize("with_callback", [False, True])
def test_offsets_derived_from_an_unknown_one_are_cleared(with_callback):
    cleared = functools.partial(offsets, with_callback=with_callback)
    assert cleared((0, None), (0, 0), (0, 1), (0, 2)) == [None] * 4
    assert cleared((0, None), (1, 7), (0, 0), (1, 8), (0, 1)) == [None, 7, None, 8, None]
    assert cleared((0, None), (0, 0), (0, None), (0, 0)) == [None] * 4


@pytest.mark.parametrize("with_callback", [False, True])
def test_real_offsets_are_kept(with_callback):
    cleared = functools.partial(offsets, with_callback=with_callback)
    assert cleared((0, 0), (0, 1), (1, 0)) == [0, 1, 0]
    assert cleared((0, 5), (0, None), (0, 6), (0, 7), (1, 0)) == [5, None, 6, 7, 0]
    assert cleared("failed", (0, 0), (0, 1)) == [None, 0, 1]
    assert cleared((0, None), "failed", (0, 0)) == [None, None, None]


@pytest.mark.parametrize("with_callback", [False, True])
def test_the_other_fields_of_a_report_are_kept(with_callback):
    batch = [
        (make_delivery(with_callback), None, FakeMessage((3, None))),
        (make_delivery(with_callback), None, FakeMessage((3, 0))),
    ]

    _, (_, error, message) = ReportBatch.of(batch).with_real_offsets()

    assert (error, message.partition(), message.latency(), message.offset()) == (None, 3, 0.5, None)


def test_only_first_attempts_without_callbacks_are_plain():
    retried = make_delivery()
    retried.attempts = ((Attempt(1.0, "_MSG_TIMED_OUT", "late"), "possibly_persisted"),)
    counted = make_delivery()
    counted.callbacks = Callbacks(on_settled=print)

    def plain(delivery, error=None):
        return ReportBatch.of(
            [(make_delivery(), None, FakeMessage((0, 1))), (delivery, error, FakeMessage((0, 2)))]
        ).plain

    assert plain(make_delivery())
    assert plain(counted)
    assert not plain(make_delivery(with_callback=True))
    assert not plain(retried)
    assert not plain(make_delivery(), KafkaError(1))


def test_a_selection_of_reports_keeps_offsets_with_their_messages():
    deliveries = [make_delivery() for _ in range(4)]
    batch = [
        (delivery, None, FakeMessage((number, 10 + number))) for number, delivery in enumerate(deliveries)
    ]

    selected = ReportBatch.of(batch).only([True, False, False, True])

    assert selected.deliveries() == [deliveries[0], deliveries[3]]
    assert selected.places() == ([0, 3], [10, 13], [0.5, 0.5])


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 1, "paid": 1}) as running:
        yield running


@pytest.mark.slow
def test_a_report_never_contains_a_wrong_offset(broker):
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


@pytest.mark.slow
def test_a_transaction_with_unknown_offsets_is_not_committed(broker):
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
