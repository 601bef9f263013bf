"""Faults on the client's side: rejections, outages and delays."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.brokers import embedded
from producer_core.simulate.client_faults import ClientFaults
from producer_core.simulate.faults import OutageFault, SlowFault
from producer_core.testing import InMemoryTransport
from tests.fixtures.shop import REFUSED
from tests.support import eventually


@pytest.fixture
def client_faults():
    return ClientFaults(InMemoryTransport.factory())


@pytest.fixture
def producer(client_faults):
    with ReliableKafkaProducer(
        "localhost:1", store=None, transport=client_faults.transport, cluster_id="c"
    ) as producer:
        yield producer


def test_a_message_rejected_on_the_client_side_is_not_sent(client_faults, producer):
    client_faults.apply(frozenset({REFUSED}))

    producer.send_message("payments", {"n": 1})
    producer.send_message("orders", {"n": 2})
    producer.flush(5)

    [dead_letter] = producer.get_dlq_messages("payments")
    assert "fault schedule" in dead_letter.last_error
    assert producer.get_stats()["messages_sent"] == 1


def test_an_outage_on_the_client_side_holds_messages_in_order():
    made = []
    client_faults = ClientFaults(InMemoryTransport.factory(made))
    with ReliableKafkaProducer(
        "localhost:1", store=None, transport=client_faults.transport, cluster_id="c"
    ) as producer:
        client_faults.apply(frozenset({OutageFault()}))
        for number in range(100):
            producer.send_message("orders", number)
        assert producer.pending_count == 100

        client_faults.apply(frozenset())
        for number in range(100, 200):
            producer.send_message("orders", number)
        producer.flush(10)

    assert [delivery.value for delivery in made[0].log["orders"]] == [
        str(number).encode() for number in range(200)
    ]


def test_a_held_message_becomes_a_dead_letter_with_verdict_not_sent():
    client_faults = ClientFaults(InMemoryTransport.factory())
    producer = ReliableKafkaProducer(
        "localhost:1", store=None, transport=client_faults.transport, cluster_id="c"
    )
    client_faults.apply(frozenset({OutageFault()}))
    producer.send_message("orders", 1)

    report = producer.close(0.1)

    assert (report.acknowledged, report.dead, report.lost) == (0, 1, 0)


@pytest.mark.slow
def test_a_real_clients_latencies_include_an_injected_delay():
    client_faults = ClientFaults()
    with embedded.start(topics={"orders": 1, "payments": 1}) as broker:
        with ReliableKafkaProducer(
            broker.bootstrap_servers,
            store=None,
            transport=client_faults.transport,
            cluster_id=broker.cluster_id,
        ) as producer:
            client_faults.apply(frozenset({REFUSED, SlowFault(0.1)}))
            producer.send_message("payments", 1)
            producer.send_message("orders", 1)
            eventually(lambda: producer.get_stats()["messages_sent"] == 1)
            client_faults.apply(frozenset())

            assert producer.replay_dlq_messages("payments") == 1

    assert producer.get_stats()["latency_stats"]["max_ms"] > 95


def test_a_held_message_reported_during_its_release_is_still_retried():
    class Hasty(InMemoryTransport):
        """Reports before `produce` returns, as when the sending thread is descheduled."""

        tries = 0

        def produce(self, delivery):
            self.tries += 1
            self._report([(delivery, KafkaError._TIMED_OUT_QUEUE if self.tries == 1 else None)])

    client_faults = ClientFaults(Hasty)
    retry = RetryConfig(max_retries=2, initial_delay_ms=1, max_delay_ms=2, jitter=False)
    with ReliableKafkaProducer(
        "localhost:1", None, retry, store=None, transport=client_faults.transport, cluster_id="c"
    ) as producer:
        client_faults.apply(frozenset({SlowFault(0.01)}))
        reports = []
        producer.send_message("orders", 1, on_delivery=reports.append)
        eventually(lambda: reports)

    assert [(one.error, one.attempts) for one in reports] == [(None, 2)]
    assert reports[0].latency > 0.005
