"""Exactly once on three real brokers, read independently by kcat: nothing lost, nothing twice, order kept."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from producer_core.delivery.exactly_once.read_back import ReadBack
from producer_core.delivery.transport import ClientQueueFull
from producer_core.errors import Fenced
from tests.exactly_once import Sender, read, verify
from tests.support import eventually

pytestmark = [pytest.mark.kafka3, pytest.mark.usefixtures("kcat")]

QUICK = {"request.timeout.ms": 5000, "socket.timeout.ms": 6000, "reconnect.backoff.max.ms": 500}


@pytest.fixture
def topic(kafka3):
    name = f"once-{uuid.uuid4().hex[:8]}"
    kafka3.create_topic(name, partitions=4)
    return name


def test_thousands_arrive_once_and_in_order_and_reports_tell_where(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic, messages=1000) as sender:
        sender.send(range(8000))
        sender.wait(8000)

        found = verify(kafka3, topic, range(8000))
        assert len(found) == 4
        assert sender.heard.failed == {}
        assert sender.heard.twice == []
        assert sender.progress.done == set(range(8000))
        assert sender.heard.kinds == []
        eventually(lambda: sender.heard.statistics_seen, 60)
        assert "eos" not in sender.heard.statistics_seen[-1]
    for number, seqs in found.items():
        offsets = [sender.heard.acknowledged[seq][1] for seq in seqs]
        assert offsets == sorted(set(offsets))
        assert {sender.heard.acknowledged[seq][0] for seq in seqs} == {number}
        assert sender.progress.offsets[topic, number] == offsets[-1]


def test_a_broker_is_killed_in_the_middle(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic, settings=QUICK, messages=200) as sender:
        sender.send(range(2000))
        sender.wait(500)
        kafka3.kill(2)
        try:
            sender.send(range(2000, 4000))
            sender.wait(4000, 120)
        finally:
            kafka3.start_node(2)
            kafka3.wait_ready()

    verify(kafka3, topic, range(4000))
    assert sender.heard.failed == {}
    assert sender.heard.twice == []


def test_messages_that_the_topic_never_takes_do_not_block_the_others(kafka3, topic):
    small, bad = f"{topic}-small", {100, 251}
    kafka3.create_topic(small, partitions=2, config={"max.message.bytes": "5000"})
    settings = {"compression.type": "none"}
    with Sender(kafka3.bootstrap_servers, small, shards=1, settings=settings, messages=12) as sender:
        for seq in range(300):
            sender.offer(sender.delivery(seq, size=6000 if seq in bad else 300, partition=seq % 2))
        sender.wait(300, 120)

    assert sender.heard.failed == dict.fromkeys(bad, ("MSG_SIZE_TOO_LARGE", "rejected"))
    assert sender.progress.done == set(range(300)) - bad  # a dead letter is settled by its owner
    verify(kafka3, small, set(range(300)) - bad)


def test_a_message_for_a_partition_or_topic_that_is_not_there_is_refused(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic) as sender:
        sender.offer(sender.delivery(0, partition=99))
        sender.offer(sender.delivery(1, partition=0))
        sender.wait(2)
    assert sender.heard.failed == {0: ("_UNKNOWN_PARTITION", "not_sent")}
    verify(kafka3, topic, [1])


def test_a_second_process_with_the_same_id_takes_over_and_the_first_is_told(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic, shards=1) as first:
        first.send(range(100))
        first.wait(100)
        with Sender(kafka3.bootstrap_servers, topic, shards=1) as second:
            second.send(range(1000, 1100))
            second.wait(100)
            sent = 0
            while "fenced" not in first.heard.kinds:  # each takes the id back when it has something to send
                with contextlib.suppress(Fenced):
                    first.send([100 + sent])
                second.send([1100 + sent])
                sent += 1
                second.wait(100 + sent)
            with pytest.raises(Fenced, match=r"transactional id of its own.*Nothing is lost"):
                first.transport.produce(first.delivery(5000))
            second.send([1100 + sent])
            second.wait(101 + sent)
        first.transport.purge()

    assert "fenced" not in second.heard.kinds
    found = read(kafka3, topic)
    counts = Counter(seq for seqs in found.values() for seq in seqs)
    assert counts == Counter([*first.heard.acknowledged, *range(1000, 1101 + sent)])
    for seqs in found.values():  # in order of each process
        assert sorted(seqs, key=lambda seq: seq >= 1000) == sorted(seqs)
    assert first.heard.failed
    assert first.progress.done == set(first.heard.acknowledged)  # the others stay in its journal


def test_a_late_request_of_a_killed_process_with_the_same_id_does_not_stop_the_only_producer(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic, shards=1) as sender:
        sender.send(range(100))
        sender.wait(100)
        late = Producer({"bootstrap.servers": kafka3.bootstrap_servers, "transactional.id": f"{topic}-id-0"})
        late.init_transactions(60)  # nothing follows it

        sender.send(range(100, 200))
        sender.wait(200)

        assert "transactions_failing" in sender.heard.kinds
        assert "fenced" not in sender.heard.kinds
    verify(kafka3, topic, range(200))
    assert sender.heard.failed == {}


def test_what_an_earlier_process_committed_but_did_not_write_down_is_found_not_sent(kafka3, topic):
    with Sender(kafka3.bootstrap_servers, topic) as before:
        before.send(range(50))
        before.wait(50)
        known = dict(before.progress.offsets), set(before.progress.done)
        before.send(range(50, 100))
        before.wait(100)
    before.progress.offsets, before.progress.done = known  # killed after the commit, before the journal knew

    with Sender(
        kafka3.bootstrap_servers, topic, progress=before.progress, session=before.session, shards=3
    ) as after:
        after.send(range(50, 150))
        after.wait(100)

    verify(kafka3, topic, range(150))
    assert {seq: after.heard.acknowledged[seq] for seq in range(50, 100)} == {
        seq: before.heard.acknowledged[seq] for seq in range(50, 100)
    }
    assert before.progress.done == set(range(150))


def test_behind_a_foreign_open_transaction_the_start_waits_and_says_so(kafka3, topic):
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
        eventually(lambda: "read_back_waits" in sender.heard.kinds, 60)
        assert sender.heard.settled() == 0
        with pytest.raises(ClientQueueFull):  # where it goes cannot be chosen yet
            sender.transport.produce(sender.delivery(2))
        foreign.commit_transaction(60)
        sender.wait(1)
        assert "read_back_done" in sender.heard.kinds

    assert read(kafka3, topic)[0] == [0, 7777, 1]


def test_stopped_while_no_broker_answers_it_ends_at_once_and_nothing_counts_as_sent(kafka3, topic):
    with Sender("127.0.0.1:9", topic) as sender:
        sender.offer(sender.delivery(0, partition=0))
        with pytest.raises(ClientQueueFull):
            sender.transport.produce(sender.delivery(1))
        sender.transport.purge()
    assert sender.heard.failed == {0: ("_PURGE_QUEUE", None)}
    assert sender.progress.done == set()


def child(kafka3, topic, folder, *options):
    command = [sys.executable, "-m", "tests.exactly_once_child", kafka3.bootstrap_servers, topic]
    return subprocess.Popen(
        [*command, folder / "journal", folder / "accepted", *options], cwd=Path(__file__).parents[2]
    )


def accepted(folder):
    book = folder / "accepted"
    return [int(line) for line in book.read_text().split("\n")[:-1]] if book.exists() else []


@pytest.mark.parametrize("seed", [20261121])
def test_a_process_is_killed_again_and_again(kafka3, topic, tmp_path, seed):
    chance, kills = random.Random(seed), 5
    for _ in range(kills):
        goal = len(accepted(tmp_path)) + chance.randrange(50, 1200)
        process = child(kafka3, topic, tmp_path)
        try:
            eventually(lambda goal=goal: len(accepted(tmp_path)) >= goal or process.poll() is not None, 60)
        finally:
            process.kill()
            process.wait()
    assert child(kafka3, topic, tmp_path, "--finish").wait(120) == 0

    found = read(kafka3, topic)
    counts = Counter(seq for seqs in found.values() for seq in seqs)
    book = accepted(tmp_path)
    assert (sorted(set(book) - counts.keys()), [seq for seq in counts if counts[seq] > 1]) == ([], [])
    assert len(counts) - len(book) <= kills  # killed between the journal's promise and the test's book
    assert all(seqs == sorted(seqs) for number, seqs in found.items())


@pytest.mark.parametrize("made_again", [False, True])
def test_a_topic_that_is_deleted_while_it_is_read_back_is_not_waited_for_without_end(
    kafka3, topic, monkeypatch, made_again
):
    with Sender(kafka3.bootstrap_servers, topic) as sender:
        sender.send(range(100))
        sender.wait(100)
    monkeypatch.setattr("producer_core.delivery.exactly_once.read_back._GONE", 3.0)
    ranges = ReadBack._ranges

    def deleted_after(self, offsets, seen):
        found = ranges(self, offsets, seen)
        kafka3.delete_topic(topic)
        if made_again:
            eventually(lambda: kafka3.create_topic(topic, partitions=4) or True, 30)
        return found

    monkeypatch.setattr(ReadBack, "_ranges", deleted_after)
    read_back = ReadBack(
        {"bootstrap.servers": kafka3.bootstrap_servers}, time.sleep, lambda *_: None, lambda _: None
    )

    seen = read_back({(topic, number): -1 for number in range(4)}, lambda _: True)

    assert {where[1] for where in seen.gone} == {0, 1, 2, 3}
    assert {kind for kind, _ in seen.remarks} == {"topic_gone"}
