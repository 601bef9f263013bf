"""Partitions of messages: keys as in Java's clients, other messages by their id, without waiting for the count."""

from __future__ import annotations

import threading
import uuid
from collections import Counter

import pytest

from producer_core.brokers import embedded
from producer_core.kafka.partitioner import Partitioner, metadata_count, murmur2
from producer_core.messages import id_bytes
from producer_core.testing import FakeClock
from tests.support import eventually

JAVA = {  # org.apache.kafka.common.utils.UtilsTest.testMurmur2, also in kafka-python's test_partitioner.py
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
KAFKA_PYTHON = {b"": 681, b"a": 524, b"ab": 434, b"abc": 107, b"123456789": 566, b"\x00 ": 742}
"""Partitions out of 1,000, from kafka-python's test_murmur2_java_compatibility."""


@pytest.mark.parametrize("key", JAVA)
@pytest.mark.parametrize("count", [1, 3, 12, 1000, 2**31 - 1])
def test_a_key_has_the_same_partition_as_in_java(key, count):
    assert murmur2(key, count) == (JAVA[key] & 0x7FFFFFFF) % count


@pytest.mark.parametrize("key", KAFKA_PYTHON)
def test_a_key_has_the_same_partition_as_in_kafka_python(key):
    assert murmur2(key, 1000) == KAFKA_PYTHON[key]


def test_messages_without_a_key_are_distributed_evenly_and_consistently_by_id():
    partitioner = Partitioner(lambda topic, timeout: 6)
    session = uuid.UUID(int=7)
    ids = [id_bytes(session, number) for number in range(6000)]

    chosen = [partitioner.choose("orders", None, one) for one in ids]

    assert chosen == [partitioner.choose("orders", None, one) for one in ids]
    assert min(Counter(chosen).values()) > 800
    assert len(Counter(chosen)) == 6


def test_an_empty_key_is_a_key():
    partitioner = Partitioner(lambda topic, timeout: 1000)
    assert {partitioner.choose("orders", b"", id_bytes(uuid.UUID(int=7), n)) for n in range(9)} == {681}


def test_librdkafkas_other_partitioners_are_supported():
    chosen = {
        name: Partitioner(lambda topic, timeout: 1000, partitioner=name).choose("orders", b"abc", b"")
        for name in ("murmur2", "consistent_random", "fnv1a_random")
    }
    assert chosen["murmur2"] == 107
    assert len(set(chosen.values())) == 3


def test_only_the_first_message_waits_for_an_unknown_count():
    calls, release = [], threading.Event()

    def count(topic, timeout):
        calls.append((topic, timeout))
        if len(calls) > 1:
            release.wait(30)
        return 4 if len(calls) > 1 else None

    clock = FakeClock()
    partitioner = Partitioner(count, first_timeout=1.0, clock=clock)

    assert partitioner.choose("orders", b"k", b"") == -1
    assert partitioner.choose("orders", b"k", b"") == -1
    assert calls == [("orders", 1.0)]
    clock.advance(1.0)
    assert partitioner.choose("orders", b"k", b"") == -1  # another thread is querying
    release.set()

    assert eventually(lambda: partitioner.count("orders")) == 4
    assert len(calls) == 2


def test_a_count_is_refreshed_periodically_and_kept_when_no_broker_responds():
    counts, clock = [4, None, 8], FakeClock()
    partitioner = Partitioner(lambda topic, timeout: counts.pop(0), refresh_interval=60.0, clock=clock)
    assert partitioner.count("orders") == 4

    clock.advance(61)
    assert partitioner.count("orders") == 4
    eventually(lambda: len(counts) == 1)
    assert partitioner.count("orders") == 4

    def sees_new_count():
        clock.advance(61)
        return partitioner.count("orders") == 8

    eventually(sees_new_count)


def test_the_count_comes_from_the_brokers():
    with embedded.start(topics={"orders": 5}) as broker:
        count = metadata_count({"bootstrap.servers": broker.bootstrap_servers})
        assert count("orders", 10.0) == 5
    assert metadata_count({"bootstrap.servers": "127.0.0.1:9"})("orders", 0.1) is None
