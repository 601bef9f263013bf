"""The headers of each framework's dead-letter topics are read."""

from __future__ import annotations

import pytest

from producer_core.dlq.topics import read
from tests.fixtures.dead_letter_headers import (
    CLOUD_STREAM,
    CONNECT,
    FOREIGN,
    OWN,
    PRODUCER_CORE,
    RETRY_TOPICS,
    SPRING,
)


def test_spring_headers_with_big_endian_numbers_are_read():
    origin = read(SPRING)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (
        "spring",
        "orders",
        2,
        4_294_967_338,
    )
    assert (origin.timestamp_ms, origin.consumer) == (1_700_000_000_123, "billing")
    assert origin.cause == "java.lang.IllegalStateException"
    assert origin.message == "Listener failed; no such customer"
    assert (origin.headers, origin.notes) == ((), ())


def test_headers_of_spring_retry_topics_are_read():
    origin = read(RETRY_TOPICS)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == ("spring", "orders", 1, 42)
    assert (origin.attempts, origin.timestamp_ms, origin.cause) == (
        4,
        1_700_000_000_123,
        "java.net.ConnectException",
    )
    assert origin.notes == ()
    assert read((("retry_topic-attempts", b"\x03"),)).attempts == 3


def test_spring_cloud_stream_headers_are_read():
    origin = read(CLOUD_STREAM)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (
        "spring_cloud_stream",
        "orders",
        2,
        42,
    )
    assert (origin.timestamp_ms, origin.exception, origin.message) == (
        1_700_000_000_123, "java.lang.RuntimeException", "boom",
    )  # fmt: skip


@pytest.mark.parametrize("dialect", ["connect", "streams", "share_group", "smallrye"])
def test_plain_text_dialects_are_read(dialect):
    origin = read(FOREIGN[dialect])
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (dialect, "orders", 2, 42)
    assert (origin.headers, origin.notes) == ((), ())
    assert origin.message


def test_connect_headers_contain_the_connector_and_the_stage():
    origin = read(CONNECT)
    assert (origin.consumer, origin.exception) == (
        "jdbc-sink",
        "org.apache.kafka.connect.errors.DataException",
    )
    assert ("__connect.errors.stage", "VALUE_CONVERTER") in origin.other_headers


def test_producer_core_headers_are_read():
    origin = read(PRODUCER_CORE)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (
        "producer_core",
        "orders",
        2,
        None,
    )
    assert (origin.message_id, origin.verdict) == ("01930000-0000-7000-8000-000000000001-3", "rejected")
    assert origin.generation == 0


def test_a_replayed_record_is_not_a_dead_letter():
    origin = read((("dlq.replay.generation", b"2"), ("a", b"1")))
    assert (origin.dialect, origin.generation, origin.headers) == (None, 2, (("a", b"1"),))


@pytest.mark.parametrize("headers", [*FOREIGN.values(), RETRY_TOPICS, PRODUCER_CORE])
def test_unknown_headers_are_kept_unchanged_in_order_with_duplicates(headers):
    mixed = [one for pair in zip(OWN, headers, strict=False) for one in pair] + list(headers[len(OWN) :])
    assert read(mixed).headers == OWN


def test_the_first_position_and_the_last_exception_count():
    twice = (
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\x01"),
        ("kafka_dlt-exception-message", b"first"),
        ("kafka_dlt-original-topic", b"orders-retry"),
        ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\x09"),
        ("kafka_dlt-exception-message", b"last"),
    )
    origin = read(twice)
    assert (origin.topic, origin.offset, origin.message) == ("orders", 1, "last")
    assert origin.notes == ("passed through orders-retry",)


def test_a_decimal_text_instead_of_a_binary_number_is_read_and_noted():
    origin = read((("kafka_dlt-original-offset", b"4711"), ("kafka_dlt-original-partition", b"12345")))
    assert (origin.offset, origin.partition) == (4711, 12345)
    assert all("is decimal text instead of a binary number" in note for note in origin.notes)
