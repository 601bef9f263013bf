"""Test the embedded broker with real clients: a fault affects only its topic, and ends on request."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
import time

import psutil
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from producer_core._internal import librdkafka
from producer_core.brokers import embedded, mock
from producer_core.cli import main
from producer_core.errors import BrokerError, ConfigError, MissingTool
from tests.support import eventually

QUIET = {"log_level": 0, "linger.ms": 0}


class Client:
    """A real producer that waits for each report."""

    def __init__(self, broker, **settings):
        self.producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **QUIET, **settings})
        self.reports = []

    def post(self, topic, value=b"v", **where):
        self.producer.produce(topic, value, on_delivery=lambda e, m: self.reports.append((e, m)), **where)

    def settle(self, timeout=20):
        assert self.producer.flush(timeout) == 0
        reports, self.reports = self.reports, []
        return [error.name() if error else "ok" for error, _ in reports]

    def send(self, topic, **where):
        self.post(topic, **where)
        return self.settle()[0]


@pytest.fixture
def broker():
    with embedded.start(topics={"orders": 4, "payments": 2}) as running:
        yield running


@pytest.fixture
def client(broker):
    return Client(broker)


def test_a_consumer_reads_a_producers_messages(broker, client):
    for number in range(20):
        client.post("orders", str(number).encode())
    assert set(client.settle()) == {"ok"}

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["orders"])
    read = set()

    def all_read():
        if (message := consumer.poll(0.2)) and not message.error():
            read.add(int(message.value()))
        return len(read) == 20

    eventually(all_read)
    consumer.close()

    assert read == set(range(20))


def test_a_topic_has_the_requested_number_of_partitions(broker, client):
    topics = client.producer.list_topics(timeout=10).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"orders": 4, "payments": 2}


def test_fail_next_fails_the_exact_number_of_requests_on_any_partition(broker, client):
    broker.fail_next("orders", "POLICY_VIOLATION", times=3)

    outcomes = [client.send("orders", partition=number % 4) for number in range(5)]

    assert outcomes == ["POLICY_VIOLATION"] * 3 + ["ok"] * 2


def test_an_error_on_one_topic_does_not_affect_the_others(broker, client):
    used = [f"made-by-use-{number}" for number in range(5)]
    for topic in used:
        client.send(topic)

    broker.reject("orders")

    later = [f"made-later-{number}" for number in range(5)]
    assert client.send("orders") == "POLICY_VIOLATION"
    assert {
        client.send(topic, partition=n % 4) for topic in ("payments", *used, *later) for n in range(2)
    } == {"ok"}


def test_the_client_retries_a_retriable_error_until_it_ends(broker, client):
    broker.fail_next("orders", "NOT_ENOUGH_REPLICAS", times=2)
    assert client.send("orders") == "ok"


def test_an_error_code_can_be_given_as_a_number(broker, client):
    broker.fail_next("orders", 10)
    assert client.send("orders") == "MSG_SIZE_TOO_LARGE"


def test_an_unknown_code_raises_at_the_call(broker):
    with pytest.raises(ConfigError, match="POLICY_VIOLATOIN"):
        broker.fail_next("orders", "POLICY_VIOLATOIN")


def test_reject_covers_a_burst_larger_than_its_error_stack(broker, client):
    broker.reject("orders", "MSG_SIZE_TOO_LARGE")

    for number in range(3000):
        client.post("orders", partition=number % 4)
        client.producer.poll(0)

    assert set(client.settle()) == {"MSG_SIZE_TOO_LARGE"}


def test_accept_ends_a_rejection_at_once(broker, client):
    for _ in range(5):
        broker.reject("orders")
        assert client.send("orders") == "POLICY_VIOLATION"

        broker.accept("orders")

        assert [client.send("orders") for _ in range(4)] == ["ok"] * 4


def test_accept_ends_a_rejection_while_responses_are_slow(broker, client):
    broker.set_latency(0.4)
    broker.reject("orders")

    broker.accept("orders")

    assert client.send("orders") == "ok"


def test_accept_during_an_outage_applies_after_it(broker, client):
    broker.reject("orders")
    broker.down(broker.leader("orders"))
    broker.accept("orders")
    broker.up(broker.leader("orders"))

    assert client.send("orders") == "ok"


def test_reject_after_accept_during_an_outage_applies_after_it(broker, client):
    broker.down()
    broker.reject("orders")
    broker.accept("orders")
    broker.reject("orders")
    broker.up()

    assert client.send("orders") == "POLICY_VIOLATION"


def test_faults_can_be_injected_into_an_auto_created_topic(broker, client):
    assert client.send("by-use") == "ok"

    broker.reject("by-use")

    assert client.send("by-use") == "POLICY_VIOLATION"
    assert client.send("orders") == "ok"


def test_injected_latency_delays_responses_until_it_is_removed(broker, client):
    client.send("orders")

    broker.set_latency(0.3, broker.leader("orders"))
    client.post("orders")
    client.producer.flush(20)
    slow = client.reports.pop()[1].latency()
    broker.set_latency(0)
    client.post("orders")
    client.producer.flush(20)

    assert slow >= 0.3
    assert client.reports.pop()[1].latency() < slow


def test_messages_wait_during_an_outage_of_all_brokers(broker):
    client = Client(broker, **{"reconnect.backoff.max.ms": 100})
    client.send("orders")

    broker.down()
    client.post("orders", b"during")
    client.producer.flush(0.5)
    assert client.reports == []
    broker.up()

    assert client.settle() == ["ok"]


def test_an_outage_of_one_leader_does_not_affect_other_topics(broker, client):
    client.send("orders")
    broker.down(broker.leader("orders"))

    client.post("orders")
    assert Client(broker).send("payments") == "ok"
    assert client.reports == []
    broker.up(broker.leader("orders"))

    assert client.settle() == ["ok"]


def test_a_topic_created_during_an_outage_is_down(broker):
    broker.down()
    broker.create_topic("late", 1)
    client = Client(broker, **{"reconnect.backoff.max.ms": 100})

    client.post("late")
    client.producer.flush(0.3)
    assert client.reports == []
    broker.up()

    assert client.settle() == ["ok"]


def test_creating_an_existing_topic_keeps_its_records(broker, client):
    client.send("orders", partition=0)
    broker.create_topic("orders", 9)

    client.post("orders", partition=0)
    client.producer.flush(20)

    assert client.reports[0][1].offset() == 1


def test_two_clusters_in_a_process_are_independent():
    with embedded.start(topics={"t": 1}) as one, embedded.start(topics={"t": 1}) as two:
        one.reject("t")

        assert (Client(one).send("t"), Client(two).send("t")) == ("POLICY_VIOLATION", "ok")
        assert one.cluster_id != two.cluster_id


def test_stop_leaves_no_thread_and_no_socket():
    this = psutil.Process()
    threads, sockets = this.num_threads(), len(this.net_connections())

    broker = embedded.start(brokers=3, topics={"orders": 4})
    broker.reject("orders")
    broker.down(1)
    broker.stop()
    broker.stop()

    eventually(lambda: this.num_threads() <= threads and len(this.net_connections()) <= sockets)
    assert "embedded-broker-rejections" not in {thread.name for thread in threading.enumerate()}


def test_a_stopped_broker_raises_an_error(broker):
    broker.stop()
    for call in (lambda: broker.fail_next("orders", 44), broker.down, lambda: broker.create_topic("x")):
        with pytest.raises(BrokerError, match="was stopped"):
            call()


def test_an_unknown_broker_is_an_error(broker):
    with pytest.raises(BrokerError, match="Broker 17 does not exist"):
        broker.down(17)
    with pytest.raises(ConfigError):
        embedded.start(brokers=0)


def test_the_interpreter_exits_cleanly_without_a_call_of_stop():
    script = (
        "from producer_core.brokers import embedded\n"
        "broker = embedded.start(topics={'orders': 2}); broker.reject('orders'); kept = [broker]; kept.append(kept)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "")


def test_faults_can_be_changed_from_many_threads(broker, client):
    errors = []

    def play():
        try:
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                broker.reject("orders")
                broker.fail_next("payments", 44)
                broker.set_latency(0.001)
                broker.accept("orders")
                broker.accept("payments")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=play) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    assert errors == []
    assert client.send("orders") == client.send("payments") == "ok"


def test_a_librdkafka_without_the_mock_cluster_is_reported(monkeypatch):
    monkeypatch.setattr(mock, "library", lambda: ctypes.CDLL(None))
    mock._library.cache_clear()
    try:
        with pytest.raises(MissingTool, match="confluent-kafka"):
            embedded.start()
    finally:
        mock._library.cache_clear()


def test_the_mock_uses_the_library_of_confluent_kafka():
    assert librdkafka.library()._name.startswith(os.sep)


# the limits that docs/concepts/guarantees.md states


def consumed(servers, **settings):
    """Return the values of the partition, and the error at which the consumer stops."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "limits",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **settings,
        }
    )
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition("orders", 0, 0)])
        values = []
        while (message := consumer.poll(30)).error() is None:
            values.append(message.value())
        return values, message.error().name()


def transactional(servers):
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "limits"})
    producer.init_transactions(30)
    return producer


def test_the_documented_limits_of_transactions_are_those_of_the_broker():
    with embedded.start(brokers=1, topics={"orders": 1}) as broker:
        servers = broker.bootstrap_servers
        producer = transactional(servers)
        producer.begin_transaction()
        producer.produce("orders", b"open", partition=0)
        producer.flush(30)
        while_open = consumed(servers)
        producer.abort_transaction(30)
        aborted, checked = consumed(servers), consumed(servers, **{"check.crcs": True})

        transactional(servers)  # would fence the first one
        producer.begin_transaction()
        producer.produce("orders", b"not fenced", partition=0)
        producer.commit_transaction(30)
        committed = consumed(servers)

    assert while_open == aborted == ([b"open"], "_PARTITION_EOF")
    assert checked == ([b"open"], "_BAD_MSG")
    assert committed == ([b"open", b"not fenced"], "_PARTITION_EOF")


def test_the_limits_of_exactly_once_are_documented_where_the_broker_is_started():
    started = " ".join(CliRunner().invoke(main, ["broker", "start", "--help"]).output.split())

    assert "The embedded broker of the demo and the examples does not guarantee exactly_once." in started
    assert "takes an offset" in started
    assert "check.crcs" in embedded.__doc__
    assert "without the guarantee" in embedded.__doc__
