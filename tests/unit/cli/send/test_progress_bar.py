"""The progress line of a `send`: its counts and the state of the connection."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from producer_core.cli.send.progress_bar import _sentence
from producer_core.delivery.connection_state import ConnectionState

UP = {"brokers": {"b": {"state": "UP"}}}
REFUSED = KafkaError(KafkaError._TRANSPORT, "localhost:9092/1: Connect failed: Connection refused")
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


@pytest.fixture
def state():
    snapshot = SimpleNamespace(acknowledged=1000, dead=3)
    producer = SimpleNamespace(
        metrics=SimpleNamespace(snapshot=lambda: snapshot),
        pending_count=34_094,
        connection=ConnectionState(lambda notice: None),
    )
    return SimpleNamespace(
        producer=producer, read=2000, already_done=0, malformed=0, phase="settling", interrupted=False,
        started=time.monotonic(),
    )  # fmt: skip


def test_the_line_names_a_lost_broker_until_it_is_connected_again(state):
    state.producer.connection.statistics(UP)
    assert "broker" not in _sentence(state)

    state.producer.connection.failed(REFUSED)
    state.producer.connection.failed(ALL_DOWN)
    assert "waiting for 34,094; no broker is connected: localhost:9092/1: Connect failed" in _sentence(state)

    state.producer.connection.statistics(UP)
    assert _sentence(state).endswith("waiting for 34,094")


def test_one_lost_broker_of_several_is_not_a_lost_connection(state):
    state.producer.connection.statistics(UP)
    state.producer.connection.failed(REFUSED)
    assert _sentence(state).endswith("waiting for 34,094")


def test_malformed_lines_are_counted_as_malformed_and_not_as_dead(state):
    state.malformed = 2
    assert "1,000 acknowledged, 1 dead, 2 malformed" in _sentence(state)
