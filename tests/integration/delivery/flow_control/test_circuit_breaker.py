"""The circuit breaker at default settings through outages of real brokers."""

from __future__ import annotations

import threading
import time

import pytest

from producer_core import CircuitBreaker, CircuitOpen, ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.brokers import kafka as real
from producer_core.events import Hook
from tests.support import eventually

pytestmark = pytest.mark.slow

OPENS_WITHIN = 9
"""Statistics of the client, one a second, from an outage until the circuit is open at default settings: 10 s."""


class Seconds(Hook):
    """Counts the client's statistics, which show how long a circuit took on a machine of any speed."""

    def __init__(self):
        self.count = 0

    def client_statistics(self, statistics):
        self.count += 1


class Sender:
    """Sends messages on two threads until it is stopped, and counts which ones were accepted."""

    def __init__(self, producer, topic):
        self._producer, self._topic = producer, topic
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self.accepted = self.refused = 0
        self._threads = [threading.Thread(target=self._run) for _ in range(2)]
        for thread in self._threads:
            thread.start()

    def _run(self):
        while not self._stopping.wait(0.002):
            try:
                self._producer.send_message(self._topic, {"sent": True})
            except CircuitOpen:
                with self._lock:
                    self.refused += 1
            else:
                with self._lock:
                    self.accepted += 1

    def stop(self):
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def state(producer):
    return producer.circuits.cluster.state


def wait_until_closed(producer):
    eventually(lambda: state(producer) == "closed", timeout=90)
    before = producer.get_stats()["messages_sent"]
    eventually(lambda: producer.get_stats()["messages_sent"] > before)


@pytest.fixture(scope="module")
def kafka1(tmp_path_factory):
    """A node of its own, because the tests stop it."""
    with real.start(nodes=1, folder=tmp_path_factory.mktemp("kafka") / "outage") as cluster:
        yield cluster


@pytest.fixture
def broker():
    with embedded.start(brokers=2, topics={"orders": 2}) as started:
        yield started


def run_outage(producer, seconds, topic, *, begin, end, during=lambda: None):
    """Send through an outage; return the statistics until the circuit was open, and the number of accepted messages."""
    sender = Sender(producer, topic)
    try:
        eventually(lambda: producer.get_stats()["messages_sent"] > 100)
        assert state(producer) == "closed" and not sender.refused
        begin()
        before = seconds.count
        eventually(lambda: state(producer) == "open")
        took = seconds.count - before
        eventually(lambda: sender.refused)
        during()
        end()
        wait_until_closed(producer)
    finally:
        sender.stop()
    return took, sender.accepted


def test_an_outage_of_all_brokers_opens_the_circuit_and_their_return_closes_it(broker):
    seconds = Seconds()
    with ReliableKafkaProducer(
        broker.bootstrap_servers, store=None, circuit_breaker=True, hooks=[seconds]
    ) as producer:
        took, accepted = run_outage(producer, seconds, "orders", begin=broker.down, end=broker.up)
        report = producer.close()

    assert took <= OPENS_WITHIN
    assert (report.acknowledged, report.dead, report.lost) == (accepted, 0, 0)


def test_a_broker_that_hangs_opens_the_circuit_and_every_accepted_message_arrives(kafka1):
    """A stopped process keeps its connections open: only the age of the messages in flight shows the outage."""
    kafka1.create_topic("hanging", partitions=2)
    seconds = Seconds()
    with ReliableKafkaProducer(
        kafka1.bootstrap_servers, store=None, circuit_breaker=True, hooks=[seconds]
    ) as producer:
        took, accepted = run_outage(
            producer, seconds, "hanging", begin=lambda: kafka1.pause(1), end=lambda: kafka1.resume(1)
        )
        report = producer.close()

    assert took <= OPENS_WITHIN
    assert (report.acknowledged, report.dead, report.lost) == (accepted, 0, 0)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_with_a_journal_every_message_is_accepted_through_a_killed_broker(kafka1, tmp_path, delivery):
    topic = f"journaled-{delivery}"
    kafka1.create_topic(topic, partitions=2)

    with ReliableKafkaProducer(
        kafka1.bootstrap_servers, store=None, circuit_breaker=True, journal_dir=tmp_path / "journal",
        delivery=delivery,
    ) as producer:  # fmt: skip
        sender = Sender(producer, topic)
        try:
            eventually(lambda: producer.get_stats()["messages_sent"] > 100)
            kafka1.kill(1)
            eventually(lambda: state(producer) == "open")
            before = sender.accepted
            eventually(lambda: sender.accepted > before + 100)
            kafka1.start_node(1)
            wait_until_closed(producer)
        finally:
            sender.stop()
        assert not sender.refused
        producer.flush(60)
        report = producer.close()

    assert (report.acknowledged, report.dead, report.journaled, report.lost) == (sender.accepted, 0, 0, 0)


def test_a_killed_broker_opens_the_circuit_which_is_an_alert_and_a_notice_in_the_store(kafka1, tmp_path):
    kafka1.create_topic("stored", partitions=1)
    seconds = Seconds()
    with ReliableKafkaProducer(
        kafka1.bootstrap_servers, store=tmp_path / "store.duckdb", circuit_breaker=True, hooks=[seconds]
    ) as producer:
        store = eventually(lambda: producer.store)

        def alerts():
            return {row["rule"]: row for row in store.rows("alerts_firing", now=time.time())}

        def is_shown():
            alert = eventually(lambda: alerts().get("circuit_opened"))
            assert alert["text"].startswith("The circuit of the cluster is open: ")
            assert store.rows("producers", since=None)[0]["circuit"] == alert["text"]

        took, accepted = run_outage(
            producer, seconds, "stored",
            begin=lambda: kafka1.kill(1), during=is_shown, end=lambda: kafka1.start_node(1),
        )  # fmt: skip
        eventually(lambda: "circuit_opened" not in alerts())
        report = producer.close()

    assert took <= OPENS_WITHIN
    assert (report.acknowledged, report.dead, report.lost) == (accepted, 0, 0)
    with store.borrow() as connection:
        kinds = connection.execute(
            "SELECT kind, severity FROM notices WHERE kind LIKE 'circuit%' ORDER BY noticed_at"
        ).fetchall()
    assert kinds[:2] == [("circuit_opened", "critical"), ("circuit_closed", "info")]


def test_a_call_that_waits_for_room_in_the_clients_queue_learns_about_the_outage():
    """Regression: it waited for the whole max_block_ms and raised QueueFull."""
    with embedded.start(topics={"orders": 1}) as broker:
        breaker = CircuitBreaker(max_in_flight_age_s=1.0)
        config = {
            "queue_buffering_max_messages": 10,
            "statistics_interval_ms": 500,
            "max_block_ms": 600_000,
        }
        with ReliableKafkaProducer(
            broker.bootstrap_servers, config, store=None, circuit_breaker=breaker
        ) as producer:
            producer.send_message("orders", 0)
            producer.flush(30)
            broker.down()
            accepted = 1
            with pytest.raises(CircuitOpen):
                for number in range(1000):
                    producer.send_message("orders", number)
                    accepted += 1
            broker.up()
            report = producer.close()

    assert accepted == 11 and report.acknowledged == 11
