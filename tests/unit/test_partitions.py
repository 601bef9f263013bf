"""Where messages go: keys as Java's clients put them, the others by their id, and no waiting for a count."""

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
"""Of 1,000 partitions, from kafka-python's test_murmur2_java_compatibility."""


@pytest.mark.parametrize("key", JAVA)
@pytest.mark.parametrize("count", [1, 3, 12, 1000, 2**31 - 1])
def test_a_key_lands_where_java_puts_it(key, count):
    assert murmur2(key, count) == (JAVA[key] & 0x7FFFFFFF) % count


@pytest.mark.parametrize("key", KAFKA_PYTHON)
def test_a_key_lands_where_kafka_python_puts_it(key):
    assert murmur2(key, 1000) == KAFKA_PYTHON[key]


def test_a_message_without_a_key_goes_by_its_id_evenly_and_always_the_same_way():
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


def test_other_partitioners_of_the_library_are_followed():
    chosen = {
        name: Partitioner(lambda topic, timeout: 1000, partitioner=name).choose("orders", b"abc", b"")
        for name in ("murmur2", "consistent_random", "fnv1a_random")
    }
    assert chosen["murmur2"] == 107
    assert len(set(chosen.values())) == 3


def test_while_the_count_is_unknown_only_the_first_message_waits():
    asked, answer = [], threading.Event()

    def count(topic, timeout):
        asked.append((topic, timeout))
        if len(asked) > 1:
            answer.wait(30)
        return 4 if len(asked) > 1 else None

    clock = FakeClock()
    partitioner = Partitioner(count, patience=1.0, clock=clock)

    assert partitioner.choose("orders", b"k", b"") == -1
    assert partitioner.choose("orders", b"k", b"") == -1
    assert asked == [("orders", 1.0)]
    clock.advance(1.0)
    assert partitioner.choose("orders", b"k", b"") == -1  # asked by another thread meanwhile
    answer.set()

    assert eventually(lambda: partitioner.count("orders")) == 4
    assert len(asked) == 2


def test_a_count_is_refreshed_now_and_then_and_kept_when_nobody_answers():
    counts, clock = [4, None, 8], FakeClock()
    partitioner = Partitioner(lambda topic, timeout: counts.pop(0), refresh=60.0, clock=clock)
    assert partitioner.count("orders") == 4

    clock.advance(61)
    assert partitioner.count("orders") == 4
    eventually(lambda: len(counts) == 1)
    assert partitioner.count("orders") == 4

    def grown():
        clock.advance(61)
        return partitioner.count("orders") == 8

    eventually(grown)


def test_the_brokers_are_asked_for_the_count():
    with embedded.start(topics={"orders": 5}) as broker:
        count = metadata_count({"bootstrap.servers": broker.bootstrap_servers})
        assert count("orders", 10.0) == 5
    assert metadata_count({"bootstrap.servers": "127.0.0.1:9"})("orders", 0.1) is None
