"""Exactly-once delivery on three real brokers, read independently by kcat: no loss, no duplicates, order kept.

Every test runs over both cores.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter

import pytest
from confluent_kafka import Producer

from producer_core.delivery.exactly_once.read_back import ReadBack
from producer_core.delivery.transport import ClientQueueFull
from producer_core.errors import Fenced
from tests.factories import CORE
from tests.fixtures.exactly_once import Sender, read_topic, verify_topic
from tests.fixtures.native_core import require_core
from tests.support import ROOT, eventually

pytestmark = [pytest.mark.kafka3, pytest.mark.usefixtures("kcat")]

KILLS = int(os.environ.get("PRODUCER_CORE_KILLS", "5"))
"""The number of kills of one process; `make native-long` sets more."""
SHORT_TIMEOUTS = {"request.timeout.ms": 5000, "socket.timeout.ms": 6000, "reconnect.backoff.max.ms": 500}


@pytest.fixture(params=["python", "native"], autouse=True)
def core(request, monkeypatch):
    if request.param == "native":
        require_core()
    monkeypatch.setenv(CORE, request.param)
    return request.param


@pytest.fixture
def topic(kafka3):
    name = f"once-{uuid.uuid4().hex[:8]}"
    kafka3.create_topic(name, partitions=4)
    return name


def test_thousands_of_messages_arrive_once_and_in_order_and_reports_have_their_offsets(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic, messages=1000) as sender:
        sender.send(range(8000))
        sender.wait(8000)

        by_partition = verify_topic(kafka3, topic, range(8000))
        assert len(by_partition) == 4
        assert sender.listener.failed == {}
        assert sender.listener.reported_twice == []
        assert sender.progress.done == set(range(8000))
        assert sender.listener.kinds == []
        eventually(lambda: sender.listener.statistics_received, 60)
        assert "eos" not in sender.listener.statistics_received[-1]
    for number, seqs in by_partition.items():
        offsets = [sender.listener.acknowledged[seq][1] for seq in seqs]
        assert offsets == sorted(set(offsets))
        assert {sender.listener.acknowledged[seq][0] for seq in seqs} == {number}
        assert sender.progress.offsets[topic, number] == offsets[-1]


def test_delivery_continues_when_a_broker_is_killed(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic, settings=SHORT_TIMEOUTS, messages=200) as sender:
        sender.send(range(2000))
        sender.wait(500)
        kafka3.kill(2)
        try:
            sender.send(range(2000, 4000))
            sender.wait(4000, 120)
        finally:
            kafka3.start_node(2)
            kafka3.wait_ready()

    verify_topic(kafka3, topic, range(4000))
    assert sender.listener.failed == {}
    assert sender.listener.reported_twice == []


def test_messages_that_the_topic_always_rejects_do_not_block_the_others(kafka3, topic):
    small, bad = f"{topic}-small", {100, 251}
    kafka3.create_topic(small, partitions=2, config={"max.message.bytes": "5000"})
    settings = {"compression.type": "none"}
    with Sender(kafka3.bootstrap_servers, small, shards=1, settings=settings, messages=12) as sender:
        for seq in range(300):
            sender.offer(sender.delivery(seq, size=6000 if seq in bad else 300, partition=seq % 2))
        sender.wait(300, 120)

    assert sender.listener.failed == dict.fromkeys(bad, ("MSG_SIZE_TOO_LARGE", "rejected"))
    assert sender.progress.done == set(range(300)) - bad  # the dead letter's owner settles its message
    verify_topic(kafka3, small, set(range(300)) - bad)


def test_a_message_for_a_partition_that_does_not_exist_is_rejected(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic) as sender:
        sender.offer(sender.delivery(0, partition=99))
        sender.offer(sender.delivery(1, partition=0))
        sender.wait(2)
    assert sender.listener.failed == {0: ("_UNKNOWN_PARTITION", "not_sent")}
    verify_topic(kafka3, topic, [1])


def test_a_second_process_with_the_same_id_takes_over_and_the_first_is_fenced(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic, shards=1) as first:
        first.send(range(100))
        first.wait(100)
        with Sender(kafka3.bootstrap_servers, topic, shards=1) as second:
            second.send(range(1000, 1100))
            second.wait(100)
            sent = 0
            # each takes the id back when it has something to send
            while "fenced" not in first.listener.kinds:
                with contextlib.suppress(Fenced):
                    first.send([100 + sent])
                second.send([1100 + sent])
                sent += 1
                second.wait(100 + sent)
            with pytest.raises(Fenced, match=r"its own transactional id.*No message is lost"):
                first.transport.produce(first.delivery(5000))
            second.send([1100 + sent])
            second.wait(101 + sent)
        first.transport.purge()

    assert "fenced" not in second.listener.kinds
    by_partition = read_topic(kafka3, topic)
    counts = Counter(seq for seqs in by_partition.values() for seq in seqs)
    assert counts == Counter([*first.listener.acknowledged, *range(1000, 1101 + sent)])
    for seqs in by_partition.values():  # in the order of each process
        assert sorted(seqs, key=lambda seq: seq >= 1000) == sorted(seqs)
    assert first.listener.failed
    assert first.progress.done == set(first.listener.acknowledged)  # the others stay in its journal


def test_a_late_request_of_a_killed_process_with_the_same_id_does_not_stop_the_only_producer(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic, shards=1) as sender:
        sender.send(range(100))
        sender.wait(100)
        late = Producer({"bootstrap.servers": kafka3.bootstrap_servers, "transactional.id": f"{topic}-id-0"})
        late.init_transactions(60)  # no transaction follows it

        sender.send(range(100, 200))
        sender.wait(200)

        assert "transactions_failing" in sender.listener.kinds
        assert "fenced" not in sender.listener.kinds
    verify_topic(kafka3, topic, range(200))
    assert sender.listener.failed == {}


def test_records_that_an_earlier_process_committed_but_did_not_settle_are_read_back_not_sent(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic) as before:
        before.send(range(50))
        before.wait(50)
        stored = dict(before.progress.offsets), set(before.progress.done)
        before.send(range(50, 100))
        before.wait(100)
    before.progress.offsets, before.progress.done = (
        stored  # killed after the commit, before the journal was written
    )

    with Sender(
        kafka3.bootstrap_servers, topic, progress=before.progress, session=before.session, shards=3
    ) as after:
        after.send(range(50, 150))
        after.wait(100)

    verify_topic(kafka3, topic, range(150))
    assert {seq: after.listener.acknowledged[seq] for seq in range(50, 100)} == {
        seq: before.listener.acknowledged[seq] for seq in range(50, 100)
    }
    assert before.progress.done == set(range(150))


def test_a_start_waits_for_the_open_transaction_of_another_producer_and_reports_it(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic) as before:
        before.offer(before.delivery(0, partition=0))
        before.wait(1)
    foreign = Producer({"bootstrap.servers": kafka3.bootstrap_servers, "transactional.id": f"other-{topic}"})
    foreign.init_transactions(60)
    foreign.begin_transaction()
    foreign.produce(topic, b"7777 not ours", partition=0)
    assert foreign.flush(60) == 0

    with Sender(kafka3.bootstrap_servers, topic, progress=before.progress, session=before.session) as sender:
        sender.offer(sender.delivery(1, partition=0))
        eventually(lambda: "read_back_waits" in sender.listener.kinds, 60)
        assert sender.listener.settled() == 0
        with pytest.raises(ClientQueueFull):  # its partition cannot be chosen yet
            sender.transport.produce(sender.delivery(2))
        foreign.commit_transaction(60)
        sender.wait(1)
        assert "read_back_done" in sender.listener.kinds

    assert read_topic(kafka3, topic)[0] == [0, 7777, 1]


def test_a_transport_stopped_without_a_broker_ends_at_once_and_confirms_no_message(kafka3, topic):
    with Sender("127.0.0.1:9", topic) as sender:
        sender.offer(sender.delivery(0, partition=0))
        with pytest.raises(ClientQueueFull):
            sender.transport.produce(sender.delivery(1))
        sender.transport.purge()
    assert sender.listener.failed == {0: ("_PURGE_QUEUE", None)}
    assert sender.progress.done == set()


def start_child(kafka3, topic, folder, *options):
    command = [sys.executable, "-m", "tests.processes.exactly_once", kafka3.bootstrap_servers, topic]
    return subprocess.Popen([*command, folder / "journal", folder / "accepted", *options], cwd=ROOT)


def read_accepted(folder):
    accepted_seqs = folder / "accepted"
    return (
        [int(line) for line in accepted_seqs.read_text().split("\n")[:-1]] if accepted_seqs.exists() else []
    )


@pytest.mark.parametrize("seed", [20261121])
def test_no_message_is_lost_or_repeated_when_a_process_is_killed_repeatedly(kafka3, topic, tmp_path, seed):
    rng, kills = random.Random(seed), KILLS
    for _ in range(kills):
        goal = len(read_accepted(tmp_path)) + rng.randrange(50, 1200)
        process = start_child(kafka3, topic, tmp_path)
        try:
            eventually(
                lambda goal=goal: len(read_accepted(tmp_path)) >= goal or process.poll() is not None, 60
            )
        finally:
            process.kill()
            process.wait()
    assert start_child(kafka3, topic, tmp_path, "--finish").wait(120) == 0

    by_partition = read_topic(kafka3, topic)
    counts = Counter(seq for seqs in by_partition.values() for seq in seqs)
    accepted_seqs = read_accepted(tmp_path)
    assert (sorted(set(accepted_seqs) - counts.keys()), [seq for seq in counts if counts[seq] > 1]) == (
        [],
        [],
    )
    # A process may be killed after the journal's write and before the test's own.
    assert len(counts) - len(accepted_seqs) <= kills
    assert all(seqs == sorted(seqs) for number, seqs in by_partition.items())


@pytest.mark.parametrize("recreated", [False, True])
def test_a_read_back_does_not_wait_for_a_topic_that_was_deleted(kafka3, topic, monkeypatch, recreated):
    with Sender(kafka3.bootstrap_servers, topic) as sender:
        sender.send(range(100))
        sender.wait(100)
    monkeypatch.setattr("producer_core.delivery.exactly_once.read_back._DELETED_AFTER_S", 3.0)
    original_ranges = ReadBack._ranges

    def delete_after(self, offsets, result):
        by_partition = original_ranges(self, offsets, result)
        kafka3.delete_topic(topic)
        if recreated:
            eventually(lambda: kafka3.create_topic(topic, partitions=4) or True, 30)
        return by_partition

    monkeypatch.setattr(ReadBack, "_ranges", delete_after)
    read_back = ReadBack(
        {"bootstrap.servers": kafka3.bootstrap_servers}, time.sleep, lambda *_: None, lambda _: None
    )

    result = read_back({(topic, number): -1 for number in range(4)}, lambda _: True)

    assert {partition[1] for partition in result.gone} == {0, 1, 2, 3}
    assert {kind for kind, _ in result.notices} == {"topic_gone"}
