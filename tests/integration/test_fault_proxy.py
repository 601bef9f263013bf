"""The fault proxy in front of the embedded broker: each fault has its effect, and ends with its rule."""

from __future__ import annotations

import struct

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from producer_core.brokers import embedded
from producer_core.errors import ConfigError
from tests.proxy import (
    BlackHole,
    Delay,
    FaultProxy,
    Hold,
    Partition,
    Refuse,
    Reset,
    Rewrite,
    Rule,
    Slow,
    Swallow,
    Tap,
)
from tests.proxy.connection import transactional_id
from tests.support import eventually

PATIENCE = 30


class Client:
    """A connected producer behind the proxy, with its delivery reports."""

    def __init__(self, servers, **settings):
        self.errors, self.reports = [], []
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 0,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
                "error_cb": self.errors.append,
                **settings,
            }
        )
        self.send("warm")
        self.settled()

    def send(self, value):
        self.producer.produce("orders", value.encode(), on_delivery=self.on_delivery)

    def on_delivery(self, error, message):
        self.reports.append((message.value(), error and error.name()))

    def settled(self):
        assert self.producer.flush(PATIENCE) == 0
        reports, self.reports = self.reports, []
        return reports


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 1}) as running:
        yield running


@pytest.fixture
def proxy(broker):
    with FaultProxy(seed=5) as standing:
        broker.advertise(standing.listen)
        yield standing


@pytest.fixture
def client(proxy):
    return Client(proxy.bootstrap_servers)


def on_log(broker, value):
    """Return how often the value is on the topic, read without the proxy."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
    try:
        _, end = reader.get_watermark_offsets(TopicPartition("orders", 0), timeout=10)
        reader.assign([TopicPartition("orders", 0, 0)])
        found, at = 0, 0
        while at < end:
            if (message := reader.poll(PATIENCE)) is not None and message.error() is None:
                found, at = found + (message.value() == value.encode()), message.offset() + 1
        return found
    finally:
        reader.close()


def test_a_proxy_without_rules_only_counts_requests(proxy, client, broker):
    client.send("a")

    assert client.settled() == [(b"a", None)]
    assert on_log(broker, "a") == 1
    assert proxy.counts["Produce"] == 2
    assert proxy.faults == 0


def test_a_reset_request_is_lost_and_retried(proxy, client, broker):
    with proxy.during(Rule(Reset(), api="Produce", times=1)):
        client.send("reset")

        assert client.settled() == [(b"reset", None)]

    assert (on_log(broker, "reset"), proxy.counts["Reset"]) == (1, 1)


def test_a_request_with_a_dropped_response_reaches_the_broker(proxy, client, broker):
    """The embedded broker keeps both copies of a plain client's retry; a real one would drop the second."""
    with proxy.during(Rule(Swallow(after=0.1), api="Produce", times=1)):
        client.send("swallowed")

        assert client.settled() == [(b"swallowed", None)]

    assert (on_log(broker, "swallowed"), proxy.counts["Swallow"]) == (2, 1)


def test_a_request_in_a_black_hole_is_lost_until_the_connection_is_reset(proxy, client, broker):
    with proxy.during(Rule(BlackHole(after=0.2), api="Produce", times=1)):
        client.send("hole")

        assert client.settled() == [(b"hole", None)]

    assert on_log(broker, "hole") == 1


def test_a_held_request_arrives_after_the_clients_own_retry(proxy, client, broker):
    with proxy.during(Rule(Hold(0.5), api="Produce", times=1)):
        client.send("held")

        assert client.settled() == [(b"held", None)]

    eventually(lambda: proxy.counts["held requests answered"] == 1, PATIENCE)
    assert on_log(broker, "held") == 2


def test_delayed_requests_arrive_in_order(proxy, client):
    with proxy.during(Rule(Delay(0.05, up_to=0.2), api="Produce")):
        for number in range(5):
            client.send(str(number))

        assert [value for value, _ in client.settled()] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("way", ["both", "requests", "answers"])
def test_data_held_by_a_partition_arrives_when_it_ends(proxy, client, way):
    with proxy.during(Rule(Partition(way))):
        client.send("held back")
        client.producer.flush(0.3)
        assert client.reports == []

    assert client.settled() == [(b"held back", None)]
    assert client.errors == []


def test_refused_clients_reconnect(proxy, client):
    with proxy.during(Rule(Refuse())):
        client.send("refused")
        eventually(lambda: client.producer.poll(0.05) or client.errors, PATIENCE)

    assert client.settled() == [(b"refused", None)]


def test_a_slow_network_loses_no_message(proxy, client):
    with proxy.during(Rule(Slow(200_000))):
        for _ in range(20):
            client.send("x" * 1000)

        assert len(client.settled()) == 20


@pytest.mark.parametrize("code", ["NOT_ENOUGH_REPLICAS_AFTER_APPEND", "POLICY_VIOLATION"])
def test_a_rewritten_response_reports_an_error_for_a_written_record(proxy, client, broker, code):
    with proxy.during(Rule(Rewrite(getattr(KafkaError, code)), api="Produce", times=1)):
        client.send(code)
        ((_, error),) = client.settled()

    retried = code == "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    assert error == (None if retried else code)
    assert on_log(broker, code) == (2 if retried else 1), "this client is not idempotent"


def test_a_tap_receives_requests_and_responses(proxy, client):
    heard = []
    with proxy.during(
        Rule(Tap(lambda frame: heard.append("request")), api="Produce", times=1),
        Rule(Tap(lambda frame: heard.append("answer"), answer=True), api="Produce"),
    ):
        client.send("a")
        client.settled()
        client.send("b")
        client.settled()

    assert heard == ["request", "answer"]


def test_rules_match_by_content_and_can_skip_requests(proxy, client):
    with proxy.during(
        Rule(Reset(), api="Produce", containing=b"another topic"),
        Rule(Reset(), api="Produce", containing=b"orders", skip=1, times=1),
    ):
        client.send("first")
        client.settled()
        assert proxy.counts["Reset"] == 0

        client.send("second")
        client.settled()
        assert proxy.counts["Reset"] == 1


def test_the_same_seed_gives_the_same_decisions():
    def decisions(seed):
        with FaultProxy(seed=seed) as one:
            one.add(Rule(Reset(), api="Produce", chance=0.3))
            return [one.decide(1, 0, b"") is not None for _ in range(200)]

    assert decisions(1) == decisions(1) != decisions(2)
    assert 30 < sum(decisions(1)) < 90


def test_a_rule_that_can_never_match_is_rejected():
    with pytest.raises(ConfigError, match="Produced"):
        Rule(Reset(), api="Produced")
    with pytest.raises(ConfigError, match="whole connections"):
        Rule(Partition(), api="Produce")


def test_the_transactional_id_is_read_from_an_end_txn_request():
    head = struct.pack(">ihhih", 0, 26, 1, 7, 3) + b"abc"
    flexible = struct.pack(">ihhih", 0, 26, 3, 7, 3) + b"abc\0"

    assert transactional_id(head + struct.pack(">h", 4) + b"shop" + bytes(11)) == b"shop"
    assert transactional_id(flexible + bytes([5]) + b"shop" + bytes(12)) == b"shop"


def test_connections_can_be_reset_on_request(proxy, client):
    before = proxy.counts["connections"]
    proxy.reset_connections()
    client.send("again")

    assert client.settled() == [(b"again", None)]
    assert proxy.counts["connections"] > before


def test_stopping_a_proxy_twice_does_nothing(broker):
    standing = FaultProxy()
    standing.stop()
    standing.stop()
