"""Functions of the C library: its properties, and the values that it rejects."""

from __future__ import annotations

import logging

from producer_core._internal import librdkafka


def test_properties_are_recognised_by_name_and_by_alias():
    assert librdkafka.knows_property("linger.ms")
    assert librdkafka.knows_property("queue.buffering.max.ms")
    assert librdkafka.knows_property("partitioner")
    assert not librdkafka.knows_property("lingr.ms")
    assert {
        "linger.ms",
        "acks",
    } <= librdkafka.property_names() or "request.required.acks" in librdkafka.property_names()


def test_a_value_is_rejected_with_a_reason():
    assert librdkafka.refusal("linger.ms", "5") is None
    assert "value -7 is outside allowed range" in librdkafka.refusal("linger.ms", "-7")
    assert "No such configuration property" in librdkafka.refusal("lingr.ms", "5")


def test_connection_settings_are_checked_without_a_connection():
    assert librdkafka.client_refusal({"bootstrap.servers": "127.0.0.1:1"}) is None
    assert librdkafka.client_refusal({"security.protocol": "telnet"})


def test_the_client_log_is_silent_unless_a_level_is_set(monkeypatch):
    log = logging.getLogger("producer_core._internal.librdkafka")
    monkeypatch.setattr(log, "level", logging.NOTSET)
    assert librdkafka.client_log().level > logging.CRITICAL

    monkeypatch.setattr(log, "level", logging.INFO)
    assert librdkafka.client_log().level == logging.INFO
