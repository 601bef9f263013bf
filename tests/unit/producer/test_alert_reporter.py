"""A producer notifies its alert routes, and a slow route delays neither sending nor closing."""

from __future__ import annotations

import threading
import time

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.errors import ConfigError
from producer_core.store import Store
from producer_core.testing import InMemoryTransport
from tests.fixtures.alerts import named_function
from tests.support import eventually


def test_alert_routes_require_a_store():
    with pytest.raises(ConfigError, match="alert_routes needs a store"):
        ReliableKafkaProducer(store=None, transport=InMemoryTransport, alert_routes=[named_function])


def open_producer(tmp_path, *routes):
    return ReliableKafkaProducer(
        transport=InMemoryTransport, store=tmp_path / "store.duckdb", alert_routes=routes, cluster_id="test"
    )


@pytest.mark.slow
def test_a_producer_notifies_its_callbacks(tmp_path, monkeypatch):
    monkeypatch.setattr("producer_core.producer.alert_reporter._FIRST_CHECK_S", 0.0)
    names = []

    def mine(payload):
        names.append(payload["groupLabels"]["alertname"])

    (tmp_path / "alerts.toml").write_text('every = "0.1s"')
    with open_producer(tmp_path, mine) as producer:
        producer._engine.notice(_notice())
        eventually(lambda: "fatal_error" in names)


@pytest.mark.slow
def test_callbacks_that_hang_or_raise_delay_neither_sending_nor_closing(tmp_path, monkeypatch):
    monkeypatch.setattr("producer_core.producer.alert_reporter._FIRST_CHECK_S", 0.0)
    hanging, called = threading.Event(), []

    def hangs(payload):
        called.append("hangs")
        hanging.wait()

    def raises(payload):
        called.append("raises")
        raise ValueError

    (tmp_path / "alerts.toml").write_text('every = "0.1s"')
    producer = open_producer(tmp_path, hangs, raises)
    try:
        producer._engine.notice(_notice())
        eventually(lambda: {"hangs", "raises"} <= set(called))
        for number in range(500):
            producer.send_message("orders", {"n": number})
        producer.flush(30)
        producer.close(10)  # returns although one function hangs until it is released below
        assert not hanging.is_set()
    finally:
        hanging.set()


def _notice():
    from producer_core.events import Notice

    return Notice("fatal_error", "critical", "The client broke.", time.time())


@pytest.mark.slow
def test_a_store_deleted_under_a_producer_fires_an_alert_that_outlives_the_producer(tmp_path, caplog):
    path = tmp_path / "store.duckdb"
    producer = open_producer(tmp_path)
    eventually(lambda: Store.open(path).rows("producers"))
    path.unlink()
    producer.close(10)

    (found,) = (row for row in Store.open(path).rows("alerts_list") if row["rule"] == "store_replaced")
    assert found["state"] == "firing" and "Dead letters stored until now may be missing" in found["text"]
    assert "the store was replaced" in caplog.text
    assert "dead letters may be missing from the store" in caplog.text
