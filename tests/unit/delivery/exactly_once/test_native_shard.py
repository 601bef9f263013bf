"""Exactly-once delivery with the real native core on an embedded broker: which messages it carries, and which it leaves."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import KafkaError

from producer_core._internal.id_header import ID_FORMAT_KEY
from producer_core.brokers import embedded
from producer_core.delivery.delivery import Callbacks
from producer_core.delivery.exactly_once import native_client
from producer_core.delivery.exactly_once.native_client import CommittedColumns, NativeClient, core_refusal
from producer_core.delivery.exactly_once.native_shard import report_batches
from producer_core.errors import ConfigError
from producer_core.native import library, transaction_core
from producer_core.native.library import CoreUnavailable
from tests.fixtures.exactly_once import Sender, delivery
from tests.fixtures.native_core import require_core
from tests.support import eventually


@pytest.fixture(scope="module")
def broker():
    require_core()
    with embedded.start(brokers=1, topics={"t": 4}) as started:
        yield started


@pytest.fixture
def paths(monkeypatch):
    """The sequences that each path carried, in order."""
    taken = {"native": [], "python": []}

    def spy(name, path):
        real = getattr(NativeClient, name)

        def call(self, deliveries, deadline):
            taken[path] += [one.seq for one in deliveries]
            return real(self, deliveries, deadline)

        monkeypatch.setattr(NativeClient, name, call)

    spy("pass_on", "native")
    spy("transact", "python")
    return taken


@pytest.fixture
def sender(broker):
    name = uuid.uuid4().hex
    options = {"transactional_id": name, "core": "native", "shards": 1, "latency": 0.05, "age": 0.01}
    with Sender(broker.bootstrap_servers, "t", **options) as sender:
        yield sender


def send(sender, seqs):
    for seq in seqs:
        sender.offer(sender.delivery(seq, partition=seq % 4))
    sender.wait(max(seqs) + 1)


def test_the_core_carries_all_but_the_first_messages_of_a_partition(sender, paths):
    send(sender, range(8))
    assert paths["native"] == []
    send(sender, range(8, 3000))
    assert paths["native"] == list(range(8, 3000))
    assert set(sender.listener.acknowledged) == sender.progress.done == set(range(3000))
    assert sender.listener.reported_twice == []
    assert sender.listener.kinds == []
    for partition in range(4):
        offsets = [sender.listener.acknowledged[seq] for seq in range(partition, 3000, 4)]
        assert offsets == sorted(offsets)
        assert {number for number, _ in offsets} == {partition}
        assert sender.progress.offsets["t", partition] == offsets[-1][1]


def test_one_settle_step_is_written_for_a_transaction(sender):
    send(sender, range(4))
    steps = len(sender.progress.calls)
    with sender.transport._shards[0]._changed:  # the next transaction finds all of them
        for seq in range(4, 1000):
            sender.offer(sender.delivery(seq, partition=seq % 4))
    sender.wait(1000)
    assert len(sender.progress.calls) <= steps + 2


def test_the_core_is_switched_off_and_on_while_messages_are_sent(sender, paths):
    send(sender, range(4))
    send(sender, range(4, 100))
    sender.transport.use_core("python")
    assert sender.transport.core == "python"
    send(sender, range(100, 200))
    sender.transport.use_core("native")
    assert sender.transport.core == "native"
    send(sender, range(200, 300))
    assert paths == {
        "native": [*range(4, 100), *range(200, 300)],
        "python": [*range(4), *range(100, 200)],
    }


def test_a_message_that_the_client_refuses_goes_to_the_python_path_with_those_behind_it(sender, paths):
    send(sender, range(4))
    with sender.transport._shards[0]._changed:
        for seq in range(4, 20):
            sender.offer(sender.delivery(seq, size=2_000_000 if seq == 10 else 100, partition=seq % 4))
    sender.wait(20)
    assert sender.listener.failed == {10: ("MSG_SIZE_TOO_LARGE", "not_sent")}
    assert set(sender.listener.acknowledged) == set(range(20)) - {10}
    assert 10 in paths["python"]
    assert "transactions_failing" not in sender.listener.kinds
    send(sender, range(20, 40))
    assert paths["native"][-20:] == list(range(20, 40))


def test_a_message_that_the_core_cannot_read_goes_to_the_python_path(sender, paths):
    send(sender, range(4))
    odd = sender.delivery(4, partition=0)
    odd.headers = [("a", b"b")] * 70  # more headers than the core carries
    sender.offer(odd)
    sender.wait(5)
    assert 4 in paths["python"]
    assert sender.listener.failed == {}


def test_after_a_failed_transaction_the_python_path_sends_its_messages(sender, paths, monkeypatch):
    send(sender, range(4))
    finish, failures = NativeClient.finish, [KafkaError(KafkaError._TIMED_OUT)]

    def fail_once(self, count, deadline):
        if failures:
            raise self._failed(failures.pop(), ())
        return finish(self, count, deadline)

    monkeypatch.setattr(NativeClient, "finish", fail_once)
    send(sender, range(4, 50))
    send(sender, range(50, 52))
    assert paths["python"][-2:] == [50, 51]
    assert eventually(lambda: sender.listener.kinds == ["transactions_failing", "transactions_recovered"])
    send(sender, range(52, 60))
    assert paths["native"][-8:] == list(range(52, 60))
    assert sender.listener.failed == {}
    assert sender.listener.reported_twice == []
    assert sender.progress.done == set(range(60))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({ID_FORMAT_KEY: "text"}, "message ids as bytes only"),
        ({"plugin.library.paths": "/nonexistent"}, "loads another plugin"),
    ],
)
def test_settings_that_the_core_does_not_support_are_refused_with_the_reason(settings, reason):
    assert reason in core_refusal(settings)


def test_without_the_core_a_notice_says_so_and_everything_runs_in_python(broker, monkeypatch, tmp_path):
    monkeypatch.setattr(library, "CORE_PATH", tmp_path / "core.so")
    library.core_library.cache_clear()
    try:
        options = {"transactional_id": uuid.uuid4().hex, "core": "native", "shards": 1}
        with Sender(broker.bootstrap_servers, "t", **options) as sender:
            send(sender, range(20))
            assert sender.listener.kinds == ["native_core_unavailable"]
            assert "found no C compiler" in sender.listener.notices[0].text
            assert sender.transport.core == "python"
            with pytest.raises(ConfigError, match="does not have the native core"):
                sender.transport.use_core("native")
    finally:
        library.core_library.cache_clear()


def test_a_client_that_does_not_load_the_core_runs_in_python_and_a_notice_says_why(broker, monkeypatch):
    def refuse(create, settings):
        raise CoreUnavailable("The client did not load it.")

    monkeypatch.setattr(native_client, "TransactionCore", refuse)
    options = {"transactional_id": uuid.uuid4().hex, "core": "native", "shards": 1}
    with Sender(broker.bootstrap_servers, "t", **options) as sender:
        send(sender, range(20))
        assert sender.listener.kinds == ["native_core_unavailable"]
        assert "did not load it" in sender.listener.notices[0].text
        assert sender.transport.core == "python"


def test_a_core_that_is_gone_from_the_disk_is_not_needed(broker, monkeypatch, tmp_path):
    """As after an upgrade of the package under a running producer, whose next client cannot load it."""
    monkeypatch.setattr(transaction_core, "CORE_PATH", tmp_path / "core.so")
    options = {"transactional_id": uuid.uuid4().hex, "core": "native", "shards": 1}
    with Sender(broker.bootstrap_servers, "t", **options) as sender:
        send(sender, range(20))
        assert sender.listener.kinds == ["native_core_unavailable"]
        assert "librdkafka cannot load it" in sender.listener.notices[0].text


def test_messages_in_an_open_transaction_are_committed_by_a_purge(broker):
    options = {"transactional_id": uuid.uuid4().hex, "core": "native", "shards": 1, "latency": 600}
    with Sender(broker.bootstrap_servers, "t", **options) as sender:
        sender.progress.settle((), {("t", 0): -1})
        sender.transport._positions.start_partitions({("t", 0): -1})
        sender.offer(sender.delivery(0, partition=0))
        assert eventually(lambda: sender.transport._shards[0]._current == 1)
        sender.transport.purge()
        sender.wait(1)
        assert set(sender.listener.acknowledged) == {0}


def test_reports_with_callbacks_have_the_position_and_timestamp_of_their_record():
    deliveries = [delivery(seq, partition=2 - seq) for seq in range(3)]
    deliveries[1].callbacks = Callbacks(on_delivery=print)
    columns = CommittedColumns([10, 11, 12], [100, 101, 102])

    plain, detailed = report_batches(deliveries, columns, 0.5)

    assert plain.plain
    assert plain.deliveries() == [deliveries[2], deliveries[0]]  # by partition
    assert plain.places() == ([0, 2], [12, 10], [0.5, 0.5])
    ((one, error, message),) = detailed
    assert (one, error) == (deliveries[1], None)
    assert (message.topic(), message.partition(), message.offset()) == ("t", 1, 11)
    assert (message.timestamp(), message.latency()) == ((1, 101), 0.5)
    assert len(report_batches(deliveries[:1], CommittedColumns([1], [1]), 0.1)) == 1


def test_reports_of_interleaved_partitions_are_consecutive_runs():
    deliveries = [delivery(seq, partition=seq % 3) for seq in range(300)]
    columns = CommittedColumns([10 + seq // 3 for seq in range(300)], [0] * 300)
    (batch,) = report_batches(deliveries, columns, 0.5)
    partitions, offsets, _ = batch.places()
    assert partitions == [0] * 100 + [1] * 100 + [2] * 100
    assert offsets == [*range(10, 110)] * 3
