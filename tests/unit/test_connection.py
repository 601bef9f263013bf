"""The connection: what an operator hears of it, and how often."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError

from producer_core import ReliableKafkaProducer
from producer_core.brokers.ports import free_ports
from producer_core.delivery.connection_state import ConnectionState
from tests.support import eventually

UP = {"brokers": {"1": {"state": "UP"}}}
DOWN = {"brokers": {"1": {"state": "CONNECT"}}}
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


def refused(milliseconds=12, broker="b1"):
    text = f"sasl_ssl://{broker}:9092/bootstrap: SASL authentication error: no (after {milliseconds}ms in state AUTH_REQ)"
    return KafkaError(KafkaError._AUTHENTICATION, text)


@pytest.fixture
def told():
    return []


@pytest.fixture
def connection(told):
    return ConnectionState(told.append, clock=lambda: 0.0)


def test_a_refusal_that_repeats_is_told_once_until_a_connection_was_made(connection, told):
    for milliseconds in (12, 15, 11):
        connection.failed(refused(milliseconds))
        connection.failed(ALL_DOWN)
        connection.statistics(DOWN)
    assert [notice.kind for notice in told] == ["connection_refused"]
    assert told[0].text == connection.error == "sasl_ssl://b1:9092/bootstrap: SASL authentication error: no"

    connection.statistics(UP)
    connection.failed(refused())
    assert [notice.kind for notice in told] == ["connection_refused", "connected", "connection_refused"]


def test_each_broker_that_refuses_is_told(connection, told):
    for broker in ("b1", "b2", "b1", "b2"):
        connection.failed(refused(broker=broker))
    assert len(told) == 2


def test_a_connection_that_never_came_about_is_told_once_with_its_reason(connection, told):
    connection.failed(KafkaError(KafkaError._TRANSPORT, "b1:9092: Connection refused"))
    connection.failed(ALL_DOWN)
    for _ in range(5):
        connection.statistics(DOWN)
    (notice,) = told
    assert (notice.kind, notice.severity) == ("connection_lost", "critical")
    assert notice.text == "No broker is connected: b1:9092: Connection refused"


def test_brokers_that_are_down_without_a_reason_point_to_the_protocol(connection, told):
    connection.failed(ALL_DOWN)
    for _ in range(5):
        connection.statistics(DOWN)
    (notice,) = told
    assert "security_protocol" in notice.text


def test_a_client_that_connects_at_its_second_try_tells_no_loss(connection, told):
    connection.failed(KafkaError(KafkaError._TRANSPORT, "[::1]:9092: Connection refused"))
    connection.failed(ALL_DOWN)
    connection.statistics(DOWN)
    connection.statistics(UP)
    assert [notice.kind for notice in told] == ["connected"]


def test_a_lost_connection_is_told_once(connection, told):
    connection.statistics(UP)
    connection.failed(ALL_DOWN)
    for _ in range(5):
        connection.statistics(DOWN)
    assert [notice.kind for notice in told] == ["connected", "connection_lost"]
    connection.statistics(UP)
    assert told[-1].kind == "connected"


def test_an_acknowledgement_proves_a_connection_before_the_first_statistics(connection, told):
    connection.acknowledged()

    assert connection.connected


def test_a_late_acknowledgement_does_not_end_a_loss_that_was_told(connection, told):
    connection.acknowledged()
    connection.failed(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    connection.acknowledged()

    assert not connection.connected


# reached or not


def refused_connection(after="0ms in state CONNECT, 5 identical error(s) suppressed"):
    return KafkaError(
        KafkaError._TRANSPORT,
        f"b1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after {after})",
    )


def test_the_reason_is_librdkafkas_without_its_counts(connection):
    connection.failed(refused_connection())

    assert connection.error == "b1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"


def test_brokers_are_unreachable_once_the_first_attempts_failed_and_until_one_is_there(connection):
    assert connection.unreachable is None
    assert connection.failed(refused_connection()) is not None
    assert connection.unreachable is None  # another broker of the list may be there
    assert connection.failed(ALL_DOWN) is None

    assert connection.unreachable.endswith("Connection refused")
    connection.statistics(UP)
    assert connection.unreachable is None


def transmitting(requests, messages=0):
    return {"brokers": {"1": {"state": "UP", "req": {"Produce": requests}}}, "txmsgs": messages}


def test_a_message_is_proved_unsent_where_nothing_was_transmitted_since_it_was_accepted(told):
    now = [100.0]
    connection = ConnectionState(told.append, clock=lambda: now[0])
    accepted, produced = 100.0, time.monotonic()
    connection.statistics(transmitting(0))
    assert not connection.may_have_sent(accepted, produced)

    now[0] = 101.0
    connection.statistics(transmitting(1, 5))
    assert connection.may_have_sent(accepted, produced)
    assert connection.may_have_sent(101.5, produced)  # the clock was set
    assert not connection.may_have_sent(101.5, time.monotonic())

    connection.statistics(transmitting(1, 5))
    assert not connection.may_have_sent(101.5, time.monotonic())
    connection.client_failed(ALL_DOWN, sent=True)
    assert connection.may_have_sent(101.5, time.monotonic())
    connection.statistics(transmitting(1, 5))  # of another client
    assert connection.may_have_sent(100.5, time.monotonic())


def counting(node=1, **counters):
    return {"brokers": {f"b{node}:9092/{node}": {"state": "UP", "nodeid": node, **counters}}}


@pytest.mark.parametrize(
    "interrupted",
    [
        counting(disconnects=3),
        counting(disconnects=2, req_timeouts=1),
        counting(disconnects=1),  # dropped in an outage, and known again
        {"brokers": {}},
    ],
    ids=["disconnect", "time-out", "counted from zero", "dropped"],
)
def test_a_message_may_have_been_transmitted_twice_once_a_connection_was_interrupted(connection, interrupted):
    accepted = 0.0  # of a clock that stands
    connection.statistics(counting(disconnects=2))
    before = time.monotonic()
    connection.statistics(counting(disconnects=2))
    assert not connection.may_have_repeated(accepted, before)

    connection.statistics(interrupted)
    assert connection.may_have_repeated(accepted, before)
    assert not connection.may_have_repeated(accepted, time.monotonic())


def test_a_retry_of_another_request_says_nothing_about_messages(connection):
    connection.statistics(counting(disconnects=2))
    before = time.monotonic()
    connection.statistics(counting(disconnects=2, txretries=1))
    assert not connection.may_have_repeated(0.0, before)


def test_what_a_bootstrap_address_counts_says_nothing_about_messages(connection):
    connection.statistics(counting(-1, disconnects=0))
    before = time.monotonic()
    connection.statistics(counting(-1, disconnects=4))
    assert not connection.may_have_repeated(0.0, before)


def test_the_cause_of_a_message_that_never_left_has_advice_that_helps(connection):
    connection.failed(refused_connection())
    assert connection.cause == "_ALL_BROKERS_DOWN"
    connection.failed(refused())
    assert connection.cause == "_AUTHENTICATION"


def test_without_a_broker_health_and_the_dead_letters_say_why():
    """Through real librdkafka, on a port where nobody listens."""
    (port,) = free_ports(1)
    producer = ReliableKafkaProducer(f"127.0.0.1:{port}", store=None)
    producer.send_message("orders", b"1")
    eventually(lambda: producer.get_health_status()["status"] == "unhealthy", 60)
    (issue,) = producer.get_health_status()["issues"]
    producer.close(0.1)

    (dead_letter,) = producer.dlq.dead_letters("orders")
    assert f":{port}" in issue and "Connection refused" in issue
    assert (dead_letter.code, dead_letter.verdict) == ("_ALL_BROKERS_DOWN", "not_sent")
    assert f":{port}" in dead_letter.error_text and "Connection refused" in dead_letter.error_text
