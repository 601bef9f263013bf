"""The headers of a published dead letter, alone and beside those of another framework."""

from __future__ import annotations

from producer_core.dlq.topics import write
from producer_core.events import Attempt
from tests.fixtures.dead_letter_headers import OURS, OWN, one


def test_canonical_headers_are_plain_text_after_the_messages_own():
    assert write(one()) == (*OWN, *OURS)


def test_what_nobody_knows_is_not_written():
    written = dict(write(one(partition=None, timestamp_ms=None, code="NoSuchCode")))
    absent = {"dlq.original.partition", "dlq.original.timestamp_ms", "dlq.original.offset", "dlq.error.code"}
    assert not absent & written.keys()


def test_spring_is_written_in_big_endian_beside_ours():
    assert write(one(), "spring") == (
        *OWN,
        *OURS,
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", b"\x00\x00\x00\x02"),
        ("kafka_dlt-original-timestamp", b"\x00\x00\x01\x8b\xcf\xe5\x68\x7b"),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-exception-fqcn", b"POLICY_VIOLATION"),
        ("kafka_dlt-exception-message", b"Broker: Policy violation"),
    )


def test_connect_is_written_in_text_beside_ours():
    assert write(one(), "connect")[len(OWN) + len(OURS) :] == (
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"2"),
        ("__connect.errors.connector.name", b"01930000-0000-7000-8000-000000000001"),
        ("__connect.errors.stage", b"KAFKA_PRODUCE"),
        ("__connect.errors.exception.class.name", b"POLICY_VIOLATION"),
        ("__connect.errors.exception.message", b"Broker: Policy violation"),
    )


def test_long_texts_are_cut_between_two_characters():
    written = dict(write(one(error_text="€" * 2000)))["dlq.error.message"]
    assert len(written) <= 1024
    assert written.decode().endswith("€…")


def test_the_history_stays_short():
    many = tuple(Attempt(float(number), "X", "y" * 1000) for number in range(50))
    written = dict(write(one(attempts=many)))
    assert len(written["dlq.history"]) < 1500
    assert written["dlq.attempts"] == b"50"
