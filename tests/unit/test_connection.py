"""The connection: what an operator hears of it, and how often."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from producer_core.connection import Connection

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
    return Connection(told.append, clock=lambda: 0.0)


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
