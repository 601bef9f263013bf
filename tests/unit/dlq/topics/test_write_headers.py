"""The headers of a published dead letter, alone and beside those of another framework."""

from __future__ import annotations

from producer_core.dlq.topics import write
from producer_core.events import Attempt
from tests.fixtures.dead_letter_headers import OWN, PRODUCER_CORE, one


def test_producer_core_headers_are_plain_text_after_the_messages_own():
    assert write(one()) == (*OWN, *PRODUCER_CORE)


def test_unknown_values_are_not_written():
    written = dict(write(one(partition=None, timestamp_ms=None, code="NoSuchCode")))
    absent = {"dlq.original.partition", "dlq.original.timestamp_ms", "dlq.original.offset", "dlq.error.code"}
    assert not absent & written.keys()


def test_spring_headers_are_written_in_big_endian_after_producer_core_headers():
    assert write(one(), "spring") == (
        *OWN,
        *PRODUCER_CORE,
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", b"\x00\x00\x00\x02"),
        ("kafka_dlt-original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-exception-fqcn", b"POLICY_VIOLATION"),
        ("kafka_dlt-exception-message", b"Broker: Policy violation"),
    )


def test_connect_headers_are_written_as_text_after_producer_core_headers():
    assert write(one(), "connect")[len(OWN) + len(PRODUCER_CORE) :] == (
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"2"),
        ("__connect.errors.connector.name", b"01930000-0000-7000-8000-000000000001"),
        ("__connect.errors.stage", b"KAFKA_PRODUCE"),
        ("__connect.errors.exception.class.name", b"POLICY_VIOLATION"),
        ("__connect.errors.exception.message", b"Broker: Policy violation"),
    )


def test_long_texts_are_truncated_between_characters():
    written = dict(write(one(error_text="€" * 2000)))["dlq.error.message"]
    assert len(written) <= 1024
    assert written.decode().endswith("€…")


def test_the_history_has_limited_length():
    many = tuple(Attempt(float(number), "X", "y" * 1000) for number in range(50))
    written = dict(write(one(attempts=many)))
    assert len(written["dlq.history"]) < 1500
    assert written["dlq.attempts"] == b"50"
