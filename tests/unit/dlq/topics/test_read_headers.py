"""The headers of each framework's dead-letter topics are read."""

from __future__ import annotations

import pytest

from producer_core.dlq.topics import read
from tests.fixtures.dead_letter_headers import (
    CLOUD_STREAM,
    CONNECT,
    FOREIGN,
    OURS,
    OWN,
    RETRY_TOPICS,
    SPRING,
)


def test_spring_says_the_place_in_big_endian_numbers():
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


def test_spring_retry_topics_leave_dlt_out_and_write_times_as_short_as_they_are():
    origin = read(RETRY_TOPICS)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == ("spring", "orders", 1, 42)
    assert (origin.attempts, origin.timestamp_ms, origin.cause) == (
        4,
        1_700_000_000_123,
        "java.net.ConnectException",
    )
    assert origin.notes == ()
    assert read((("retry_topic-attempts", b"\x03"),)).attempts == 3


def test_spring_cloud_stream_is_read():
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
def test_dialects_in_plain_text_are_read(dialect):
    origin = read(FOREIGN[dialect])
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (dialect, "orders", 2, 42)
    assert (origin.headers, origin.notes) == ((), ())
    assert origin.message


def test_connect_names_its_connector_and_what_it_did():
    origin = read(CONNECT)
    assert (origin.consumer, origin.exception) == (
        "jdbc-sink",
        "org.apache.kafka.connect.errors.DataException",
    )
    assert ("__connect.errors.stage", "VALUE_CONVERTER") in origin.also


def test_ours_is_read():
    origin = read(OURS)
    assert (origin.dialect, origin.topic, origin.partition, origin.offset) == (
        "producer_core",
        "orders",
        2,
        None,
    )
    assert (origin.message_id, origin.verdict) == ("01930000-0000-7000-8000-000000000001-3", "rejected")
    assert origin.generation == 0


def test_a_record_that_we_sent_again_is_no_dead_letter_for_that():
    origin = read((("dlq.replay.generation", b"2"), ("a", b"1")))
    assert (origin.dialect, origin.generation, origin.headers) == (None, 2, (("a", b"1"),))


@pytest.mark.parametrize("headers", [*FOREIGN.values(), RETRY_TOPICS, OURS])
def test_headers_that_we_do_not_know_stay_byte_for_byte_in_order_with_duplicates(headers):
    mixed = [one for pair in zip(OWN, headers, strict=False) for one in pair] + list(headers[len(OWN) :])
    assert read(mixed).headers == OWN


def test_of_a_place_named_twice_the_first_counts_and_of_an_exception_the_last():
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
    assert origin.notes == ("it passed through orders-retry",)


def test_a_number_as_text_where_binary_belongs_is_read_and_said():
    origin = read((("kafka_dlt-original-offset", b"4711"), ("kafka_dlt-original-partition", b"12345")))
    assert (origin.offset, origin.partition) == (4711, 12345)
    assert all("is text where a binary number belongs" in note for note in origin.notes)
