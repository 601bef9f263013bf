"""The native core on real clients of an embedded broker: what it sends, what it reports, and what it refuses."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import weakref

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from producer_core._internal.librdkafka import Producer, client_log
from producer_core.brokers import embedded
from producer_core.native.library import CORE_PATH, CoreUnavailable, core_library
from producer_core.native.transaction_core import PLUGINS, TransactionCore
from tests.fixtures.native_core import SESSION, message, messages, require_core
from tests.support import ROOT, eventually


@pytest.fixture(scope="module")
def broker():
    require_core()
    with embedded.start(brokers=1, topics={"t": 4}) as started:
        yield started


@pytest.fixture
def make_core(broker, request):
    """Create cores whose clients have begun a transaction."""

    def make(**settings):
        core = TransactionCore(
            Producer,
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": request.node.name,
                "logger": client_log(),
                "linger.ms": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            },
        )
        core.client.init_transactions(30)
        core.begin()
        core.client.begin_transaction()
        return core

    return make


def report(core):
    """Wait for the reports and return the error code."""

    def is_reported():
        core.client.poll(0.01)
        return core.missing()[0] == 0

    assert eventually(is_reported, 30)
    return core.missing()[1]


def commit(core, count):
    assert report(core) == 0
    core.client.commit_transaction(30)
    return core.columns(count)


def read(broker, offsets):
    """Return the messages of the topic from these offsets on."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}, logger=client_log())
    consumer.assign([TopicPartition("t", partition, offset) for partition, offset in offsets.items()])
    found = []
    try:
        while len(found) < 6:
            found += [one for one in consumer.consume(10, 1) if one.error() is None]
    finally:
        consumer.close()
    return found


def test_a_record_has_its_id_key_value_headers_and_timestamp(broker, make_core):
    core, now = make_core(), int(time.time() * 1000) - 5000
    sent = [
        message(1, b"value", b"key", partition=3),
        message(2, None, b"tombstone", partition=3),
        message(3, b"", b"", partition=3),
        message(4, b"v", None, partition=3, headers=[("a", b"1"), ("none", None), ("empty", b"")]),
        message(5, b"v", partition=3, headers=(("ä", "ü".encode()),)),
        message(6, b"v", partition=3, timestamp_ms=now),
    ]

    assert core.produce(sent, 0) == (6, 0)
    offsets, _ = commit(core, 6)

    assert offsets == list(range(offsets[0], offsets[0] + 6))
    found = read(broker, {3: offsets[0]})
    assert [(one.key(), one.value()) for one in found] == [(one.key, one.value) for one in sent]
    assert [one.headers() for one in found] == [one.record_headers for one in sent]
    assert found[5].timestamp()[1] == now


def test_the_reports_of_four_partitions_are_in_the_order_of_the_messages(make_core):
    core = make_core()
    sent = [message(seq, partition=seq % 4) for seq in range(4000)]

    assert core.produce(sent[:1000], 0) == (1000, 0)
    assert core.produce(sent, 1000) == (3000, 0)
    offsets, timestamps = commit(core, 4000)

    for partition in range(4):
        own = offsets[partition::4]
        assert own == list(range(own[0], own[0] + 1000))
    assert min(timestamps) > 0


def test_a_full_queue_stops_the_call_and_the_rest_follows(make_core):
    core = make_core(queue_buffering_max_messages=10, linger_ms=50)
    sent = messages(25)

    passed, code = core.produce(sent, 0)
    assert (passed, code) == (10, KafkaError._QUEUE_FULL)
    while passed < 25:
        core.client.poll(0.05)
        passed += core.produce(sent, passed).passed

    assert len(set(commit(core, 25)[0])) == 25


def test_the_call_stops_before_a_message_that_the_client_refuses(make_core):
    core = make_core()
    assert core.produce([message(0)], 0) == (1, 0)
    commit(core, 1)  # the client knows the topic now
    core.begin()
    core.client.begin_transaction()

    sent = [message(1), message(2), message(3, partition=9), message(4)]
    assert core.produce(sent, 0) == (2, KafkaError._UNKNOWN_PARTITION)
    assert core.produce(sent, 3) == (1, 0)
    assert core.produce([message(3)], 0) == (1, 0), "the refused id is free again"

    assert len(set(commit(core, 4)[0])) == 4


def test_an_id_is_sent_once_in_a_transaction(make_core):
    core = make_core()
    assert core.produce([message(1), message(2), message(1), message(3)], 0) == (2, KafkaError._INCONSISTENT)
    assert core.produce([message(2)], 0) == (0, KafkaError._INCONSISTENT)
    commit(core, 2)


def test_a_report_that_is_not_a_success_is_counted_with_its_error(make_core):
    core = make_core(linger_ms=20_000)
    assert core.produce(messages(10), 0) == (10, 0)
    core.client.purge()
    assert report(core) == KafkaError._PURGE_QUEUE


def test_messages_of_others_on_the_same_client_do_not_count(make_core):
    core = make_core()
    core.client.produce("t", b"foreign", partition=0)
    core.produce(messages(3), 0)
    core.client.produce("t", b"foreign", partition=0, headers=[("pc-id", SESSION.bytes + bytes(8))])
    assert len(commit(core, 3)[0]) == 3


def test_a_transaction_does_not_begin_while_reports_of_the_previous_one_are_missing(make_core):
    core = make_core(linger_ms=20_000)
    assert core.produce(messages(1), 0) == (1, 0)
    with pytest.raises(AssertionError, match="are missing"):
        core.begin()
    with pytest.raises(AssertionError, match="fewer messages"):
        core.columns(2)


class Message:
    """A message with one attribute of another value."""

    def __init__(self, **wrong):
        for name in ("id", "topic", "value", "key", "headers", "placement"):
            setattr(self, name, wrong.get(name, getattr(message(9), name)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": b"short"}, {"id": None}, {"id": "text" * 6}, {"topic": None}, {"topic": b"t"}, {"topic": "t\0t"},
        {"topic": "\udc80"}, {"value": "text"}, {"value": 1}, {"key": "text"}, {"key": bytearray(b"k")},
        {"headers": None}, {"headers": 1}, {"headers": [None]}, {"headers": [("a",)]}, {"headers": [(1, b"b")]},
        {"headers": [("a", "b")]}, {"headers": [("a\0", b"b")]}, {"headers": [("a", b"b")] * 65},
        {"placement": None}, {"placement": ()}, {"placement": (-1, 0)}, {"placement": (1 << 31, 0)},
        {"placement": (1 << 70, 0)}, {"placement": ("1", 0)}, {"placement": (0, 0.5)}, {"placement": (0,)},
    ],
    ids=str,
)  # fmt: skip
def test_a_message_with_a_wrong_attribute_raises_and_passes_nothing_on(make_core, wrong):
    core = make_core()
    with pytest.raises((TypeError, ValueError, IndexError, OverflowError)):
        core.produce([message(1), Message(**wrong), message(2)], 0)
    assert core.missing() == (0, 0)
    core.produce([message(1)], 0)
    commit(core, 1)


def test_arguments_that_are_no_list_or_out_of_range_raise(make_core):
    core = make_core()
    for wrong in (None, (), {}, iter([])):
        with pytest.raises((TypeError, SystemError)):
            core.produce(wrong, 0)
    for start in (-1, 2, 1 << 40):
        with pytest.raises(ValueError, match="this many"):
            core.produce([message(1)], start)
    with pytest.raises(AttributeError):
        core.produce([object()], 0)


def test_a_message_that_changes_the_list_while_it_is_read_does_no_harm(make_core):
    core = make_core()

    class Emptying(Message):
        @property
        def id(self):
            sent.clear()
            gc.collect()
            return message(5).id

        @id.setter
        def id(self, value):
            pass

    sent = [message(1), Emptying(), message(2)]
    with pytest.raises(IndexError):
        core.produce(sent, 0)
    assert core.missing() == (0, 0)


def test_a_closed_client_is_not_used(make_core):
    core = make_core()
    core.client.abort_transaction(30)
    core.client.close()
    with pytest.raises(ValueError, match="has no client"):
        core.produce(messages(1), 0)


def test_a_dropped_core_drops_its_client_with_messages_in_flight(make_core):
    core = make_core(linger_ms=20_000)
    assert core.produce(messages(1000), 0) == (1000, 0)
    dropped = weakref.ref(core)
    del core
    gc.collect()
    assert dropped() is None
    assert eventually(lambda: core_library().core_live() == 0)


def test_a_client_that_is_not_created_leaves_nothing_behind(make_core):
    with pytest.raises(KafkaException):
        TransactionCore(Producer, {"bootstrap.servers": "", "transactional.id": "x", "acks": "1"})
    with pytest.raises(CoreUnavailable, match="did not load it"):
        TransactionCore(lambda settings: None, {})
    with pytest.raises(CoreUnavailable, match="another plugin"):
        TransactionCore(Producer, {PLUGINS: "other"})
    assert core_library().core_live() == 0
    Producer({"bootstrap.servers": "", PLUGINS: str(CORE_PATH)})  # a client without a core
    core = make_core()
    assert core.produce(messages(1), 0) == (1, 0)
    commit(core, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_random_calls_from_several_threads_with_forks_and_signals_end_without_a_crash(seed):
    require_core()
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.processes.native_fuzz", "4", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "transact" in done.stdout
