"""compression_type="auto" on Apache Kafka: the codec of the batches on the broker's disk, and each message once."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import uuid
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaError

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core._internal.librdkafka import library
from producer_core.store import Store
from producer_core.store.compression_samples import load_compression
from tests.support import eventually

pytestmark = pytest.mark.kafka

AUTO = {"compression_type": "auto"}
CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


@pytest.fixture
def topic(kafka):
    name = f"compressed-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=1)
    return name


def order(number):
    return {
        "number": number,
        "customer": f"c-{number % 97}",
        "status": "paid",
        "currency": "EUR",
        "note": "fragile, " * 5,
    }


def codecs_on_disk(kafka, topic):
    """Return the codec of each record batch in the segments of the topic, in their order (KIP-98's format)."""
    found = []
    for segment in sorted(kafka.nodes[0].data.glob(f"{topic}-*/*.log")):
        content, at = segment.read_bytes(), 0
        while at + 61 <= len(content):
            (length,) = struct.unpack_from(">i", content, at + 8)
            (attributes,) = struct.unpack_from(">h", content, at + 21)
            if length <= 0:
                break
            if not attributes & 0x20:  # a marker of a transaction
                found.append(CODECS[attributes & 7])
            at += 12 + length
    return found


def on_topic(kafka, topic):
    """Return the value of every committed record, in the order of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    values = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            break
        values.append(message.value())
    consumer.close()
    return values


def send_until_sampled(producer, topic, make):
    """Send until the store would keep samples; return the number of messages."""
    recorder = producer._components.dead_letter_backend._compression
    sent = 0

    def is_enough():
        nonlocal sent
        for _ in range(500):
            producer.send_message(topic, make(sent))
            sent += 1
        return any(one.is_enough for one in recorder._topics().values())

    eventually(is_enough, timeout=60)
    return sent


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_the_next_producer_starts_with_the_codec_that_suits_what_the_first_one_sent(
    kafka, topic, tmp_path, delivery
):
    options = {"store": tmp_path / "s.duckdb", "application": "shop", "delivery": delivery}
    if delivery == "exactly_once":
        options |= {"journal_dir": tmp_path / "journal", "transactional_id": topic}
    with ReliableKafkaProducer(kafka.bootstrap_servers, AUTO, **options) as first:
        sent = send_until_sampled(first, topic, order)
    assert set(codecs_on_disk(kafka, topic)) == {"lz4"}
    before = len(codecs_on_disk(kafka, topic))

    with ReliableKafkaProducer(kafka.bootstrap_servers, AUTO, **options) as second:
        for number in range(sent, sent + 500):
            second.send_message(topic, order(number))
    assert set(codecs_on_disk(kafka, topic)[before:]) == {"zstd"}
    assert [json.loads(value)["number"] for value in on_topic(kafka, topic)] == list(range(sent + 500))


def test_content_that_is_compressed_already_is_sent_without_a_codec(kafka, topic, tmp_path):
    options = {"store": tmp_path / "s.duckdb", "application": "images"}
    with ReliableKafkaProducer(kafka.bootstrap_servers, AUTO, **options) as first:
        send_until_sampled(first, topic, lambda number: os.urandom(600))
    (found,) = load_compression(Store.open(tmp_path / "s.duckdb"), application="images")
    assert found.share("lz4") > 0.95
    before = len(codecs_on_disk(kafka, topic))
    with ReliableKafkaProducer(kafka.bootstrap_servers, AUTO, **options) as second:
        for _ in range(100):
            second.send_message(topic, os.urandom(600))
    assert set(codecs_on_disk(kafka, topic)[before:]) == {"none"}


def test_a_client_that_replaces_a_failed_one_uses_the_codec_that_was_chosen_meanwhile(kafka, topic, tmp_path):
    reports = []
    with ReliableKafkaProducer(
        kafka.bootstrap_servers,
        {**AUTO, "statistics.interval.ms": 100},
        RetryConfig(max_retries=8, initial_delay_ms=20, max_delay_ms=200),
        store=tmp_path / "s.duckdb",
        ordering="key",
    ) as producer:
        for number in range(2000):
            producer.send_message(topic, order(number), "k", on_delivery=reports.append)
            if number == 500:
                producer.flush(60)
                producer.config.compression.codec = "zstd"
            if number == 1000:
                assert set(codecs_on_disk(kafka, topic)) == {"lz4"}, "the client keeps its codec"
                break_client(producer)
        producer.flush(60)
    assert [report.error for report in reports] == [None] * 2000
    assert set(codecs_on_disk(kafka, topic)) == {"lz4", "zstd"}
    numbers = [json.loads(value)["number"] for value in on_topic(kafka, topic)]
    assert sorted(set(numbers)) == list(range(2000))
    assert list(Counter(numbers)) == sorted(set(numbers)), "the first copies are in order"


def break_client(producer):
    """Call librdkafka's function for tests. The client's handle is the word after the Python object header."""
    client = producer._engine.transport._live[0]
    handle = ctypes.c_void_p.from_address(id(client) + 2 * ctypes.sizeof(ctypes.c_void_p)).value
    function = library().rd_kafka_test_fatal_error
    function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    assert function(handle, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"test") == 0
