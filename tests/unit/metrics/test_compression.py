"""The measurement of codecs, and the codec that it recommends."""

from __future__ import annotations

import os
import random

import orjson
import pytest
from confluent_kafka import Producer

from producer_core.brokers import embedded
from producer_core.metrics.compression import (
    CompressionSample,
    TopicCompression,
    measure,
    recommended_codec,
)
from tests.support import eventually

ORDERS = [
    orjson.dumps(
        {"order": number, "customer": f"c-{number * 7919 % 1000}", "status": "paid", "currency": "EUR"}
    )
    for number in range(300)
]
RANDOM = [os.urandom(200) for _ in range(300)]


def topic(lz4=0.5, zstd=0.4, *, samples=10, size=1_000_000, per_second=0.0, seconds=(0.001, 0.003)):
    sample = CompressionSample(samples, 1000, size, int(size * lz4), int(size * zstd), *seconds)
    return TopicCompression(sample, per_second)


def test_text_becomes_smaller_and_zstd_leaves_less_than_lz4():
    found = measure(ORDERS)
    assert (found.samples, found.messages, found.bytes) == (1, 300, sum(map(len, ORDERS)))
    assert found.zstd_bytes < found.lz4_bytes < found.bytes / 2
    assert found.lz4_seconds >= 0 and found.zstd_seconds >= 0


def test_random_bytes_count_as_their_own_size_because_kafka_sends_them_as_they_are():
    found = measure(RANDOM)
    assert found.lz4_bytes == found.zstd_bytes == found.bytes == 60_000


@pytest.mark.parametrize("payload", [[], [b""], [b"x"]])
def test_an_empty_or_tiny_payload_can_be_measured(payload):
    assert measure(payload).bytes == sum(map(len, payload))


def test_a_batch_of_many_messages_is_compressed_as_one():
    alone = sum(measure([order]).zstd_bytes for order in ORDERS)
    assert measure(ORDERS).zstd_bytes < alone / 3


def test_sums_are_added_and_halved():
    one = measure(ORDERS)
    two = one.plus(one)
    assert (two.samples, two.bytes, two.zstd_bytes) == (2, 2 * one.bytes, 2 * one.zstd_bytes)
    assert two.halved() == one


@pytest.mark.parametrize(
    ("topics", "codec"),
    [
        ([], None),
        ([topic(samples=1, size=100)], None),
        ([topic(lz4=0.5, zstd=0.45)], "lz4"),
        ([topic(lz4=0.5, zstd=0.4)], "zstd"),
        ([topic(lz4=1.0, zstd=0.97)], "none"),
        ([topic(lz4=0.99, zstd=0.9)], "lz4"),
        ([topic(lz4=0.5, zstd=0.3, per_second=51_000_000)], "lz4"),  # a tenth of a core more
        ([topic(lz4=0.5, zstd=0.3, per_second=49_000_000)], "zstd"),
        ([topic(1, 1, per_second=1e6), topic(0.5, 0.3, per_second=1e3)], "none"),
        ([topic(1, 1, per_second=1e3), topic(0.5, 0.3, per_second=1e6)], "zstd"),
        ([topic(1, 1), topic(0.5, 0.3)], "lz4"),  # without rates all topics count the same
        ([topic(samples=1, size=40_000)], "zstd"),
    ],
)
def test_the_recommended_codec_follows_the_bytes_of_all_topics(topics, codec):
    assert recommended_codec(topics) == codec


def test_shares_and_core_shares():
    one = topic(0.5, 0.25, per_second=10_000_000)
    assert [one.share(codec) for codec in ("none", "lz4", "zstd", "gzip")] == [1.0, 0.5, 0.25, None]
    assert one.core_share("zstd") == pytest.approx(0.03)
    assert TopicCompression(CompressionSample()).share("lz4") is None


def sent_by_the_client(codec, payload):
    """Return the bytes of the one batch with this payload that a Kafka client sends, from its own statistics."""
    sizes = []
    with embedded.start(topics={"orders": 1}) as broker:
        client = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 1000,
                "statistics.interval.ms": 100,
                "stats_cb": lambda text: sizes.extend(
                    topic["batchsize"]["sum"] for topic in orjson.loads(text)["topics"].values()
                ),
            }
        )  # fmt: skip
        for value in payload:
            client.produce("orders", value, partition=0)
        eventually(lambda: client.poll(0.1) is not None and sum(sizes) > 0)
        client.flush(5)
    return max(sizes)


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "field"), [("lz4", "lz4_bytes"), ("zstd", "zstd_bytes")])
def test_the_codecs_leave_the_bytes_that_the_kafka_client_sends(codec, field):
    """The client's batch has a header of 61 bytes and up to 8 bytes for each record besides."""
    rng = random.Random(5)
    words = [f"word{rng.randrange(10_000)}" for _ in range(60)]
    payload = [" ".join(rng.choices(words, k=60)).encode() for _ in range(200)]
    assert sent_by_the_client(codec, payload) == pytest.approx(getattr(measure(payload), field), rel=0.1)
