"""The log lines of an outage, and handlers that block, on a real client."""

from __future__ import annotations

import logging

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from tests.fixtures.log_lines import Lines
from tests.support import eventually


@pytest.fixture
def lines():
    log, made = logging.getLogger("producer_core"), Lines()
    log.addHandler(made)
    yield made
    made.free.set()
    log.removeHandler(made)


@pytest.fixture
def broker():
    with embedded.start(brokers=2, topics={"orders": 2}) as started:
        yield started


def make(broker, **settings):
    return ReliableKafkaProducer(broker.bootstrap_servers, settings, store=None)


def reasons(lines):
    return [record.reason for record in list(lines.records) if hasattr(record, "reason")]


def test_an_outage_is_logged_with_the_address_the_reason_and_its_duration(broker, lines):
    with make(broker) as producer:
        producer.send_message("orders", b"1")
        producer.flush(30)
        broker.down()
        eventually(lambda: any(text.startswith("no broker is connected") for text in lines.texts))
        # The reason is in this line, or in the line of a failed connection if librdkafka reported the outage first.
        eventually(lambda: any("127.0.0.1:" in reason and "refused" in reason for reason in reasons(lines)))
        broker.up()
        producer.send_message("orders", b"2")
        eventually(lambda: any(text.startswith("broker connection restored") for text in lines.texts))

    assert all(record.levelno == logging.WARNING for record in lines.records)
    (restored,) = (record for record in lines.records if hasattr(record, "down_s"))
    assert restored.down_s > 0 and restored.getMessage().endswith(f"down_s={restored.down_s}")


def test_a_blocked_handler_of_librdkafkas_own_log_delays_no_delivery(broker, monkeypatch):
    log, blocked = logging.getLogger("producer_core._internal.librdkafka"), Lines()
    monkeypatch.setattr(log, "handlers", [blocked])
    monkeypatch.setattr(log, "level", logging.DEBUG)
    log.manager._clear_cache()  # type: ignore[attr-defined]
    blocked.free.clear()
    producer = make(broker, debug="broker")
    try:
        producer.send_message("orders", b"1")
        producer.flush(20)
        assert producer.get_basic_stats()["messages_sent"] == 1
    finally:
        blocked.free.set()
        producer.close()
        monkeypatch.undo()
        log.manager._clear_cache()  # type: ignore[attr-defined]
    assert eventually(lambda: blocked.records)
