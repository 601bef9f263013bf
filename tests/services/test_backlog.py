"""A producer with a journal: what it accepted is in exactly one place, also across its death."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from confluent_kafka import KafkaError

from producer_core import MessageStatus, ReliableKafkaProducer, RetryConfig
from producer_core.delivery import enqueue, grouping
from producer_core.delivery.dedup.duplicates import DuplicateGuard
from producer_core.delivery.journal import Journal
from producer_core.delivery.journal.journal_feeder import JournalFeeder
from producer_core.errors import ConfigError, JournalError, JournalLocked, QueueFull
from producer_core.events import Hook
from producer_core.messages import id_text
from producer_core.testing import InMemoryTransport
from tests.support import eventually

QUICK = RetryConfig(max_retries=1, initial_delay_ms=1, max_delay_ms=2, jitter=False)


def make(path, script=None, *, retry=QUICK, store=None, memory=None, **options):
    made, memory = [], dict(memory or {})
    landed = memory.pop("landed", [])
    factory = InMemoryTransport.factory(made, script=script, **memory)

    def transport(config, listener):
        one = factory(config, listener)
        for delivery in landed:
            one.log[delivery.topic].append(delivery)
        return one

    producer = ReliableKafkaProducer(
        "memory:1", options.pop("config", None), retry, store=store, transport=transport,
        journal_dir=path, health_check_interval=3600, **options,
    )  # fmt: skip
    return producer, made[0]


def send(producer, numbers, topic="orders", key=None):
    return [producer.send_message(topic, b"%d" % number, key) for number in numbers]


def values(transport, topic="orders"):
    return [int(delivery.value) for delivery in transport.log[topic]]


def crash(path, tmp_path):
    copy = tmp_path / "after the crash"
    shutil.copytree(path, copy)
    return copy


def test_what_is_acknowledged_leaves_the_journal(tmp_path):
    producer, _ = make(tmp_path / "j")

    send(producer, range(50))
    report = producer.close()

    assert (report.acknowledged, report.dead, report.journaled, report.lost) == (50, 0, 0, 0)
    with Journal.open(tmp_path / "j") as journal:
        assert journal.unsettled() == 0


def test_what_close_could_not_deliver_stays_in_the_journal_and_is_sent_at_the_next_start(tmp_path):
    producer, _ = make(tmp_path / "j", lambda delivery: "hold")
    ids = send(producer, range(5), key="a")
    report = producer.close(timeout=0.1)

    assert (report.acknowledged, report.dead, report.journaled) == (0, 0, 5)
    again, transport = make(tmp_path / "j")
    again.flush(10)
    assert values(transport) == list(range(5))
    assert [again.get_message_status(one) for one in ids] == [MessageStatus.SENT] * 5
    new = again.send_message("orders", b"9")
    assert new not in ids
    again.close()


def test_a_crashed_producers_messages_are_looked_for_before_they_are_sent(tmp_path):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold" if delivery.value > b"2" else None)
    send(producer, range(6), key="a")
    eventually(lambda: transport.held == 3)
    left = crash(tmp_path / "j", tmp_path)
    landed = transport._held[0]

    again, second = make(left, memory={"landed": [landed]})  # it was on the topic all the time
    again.flush(10)

    assert sorted(values(second)) == [3, 4, 5]
    report = again.close()
    assert (report.acknowledged, report.journaled) == (3, 0)
    producer.close(timeout=0.1)


@pytest.mark.parametrize("key", ["a", None])
@pytest.mark.parametrize("landed", [True, False])
def test_a_message_of_a_crashed_producer_is_sent_once_though_the_job_sends_it_again_at_once(
    tmp_path, monkeypatch, key, landed
):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    send(producer, range(3), key=key)
    eventually(lambda: transport.held == 3)
    left = crash(tmp_path / "j", tmp_path)
    on_the_topic = [transport._held[0]] if landed else []
    look, asked = InMemoryTransport.look, threading.Event()
    monkeypatch.setattr(
        InMemoryTransport, "look", lambda *about, **how: asked.wait(20) and look(*about, **how)
    )

    again, second = make(left, memory={"landed": on_the_topic}, enable_deduplication=True)
    ends = []
    for number in (0, 1, 2, 3):
        again.send_message("orders", b"%d" % number, key, on_delivery=ends.append)
    time.sleep(0.2)
    asked.set()
    again.flush(20)

    assert sorted(values(second)) == [0, 1, 2, 3]
    assert sorted(report.duplicate for report in ends) == [False, True, True, True]
    assert again.close().journaled == 0
    producer.close(timeout=0)


@pytest.mark.parametrize("key", ["a", None])
@pytest.mark.parametrize("written", ["while its twin is looked for", "after all was handed on"])
@pytest.mark.parametrize("together", [False, True])
def test_a_copy_that_was_claimed_and_not_written_down_yet_leaves_its_claim_to_a_crashed_producers_message(
    tmp_path, monkeypatch, key, written, together
):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    send(producer, [0], key=key)
    eventually(lambda: transport.held == 1)
    left = crash(tmp_path / "j", tmp_path)
    claimed, asked = threading.Event(), threading.Event()
    look, renew = InMemoryTransport.look, DuplicateGuard.renew

    def late(take):
        def taken(*about):
            claimed.set()
            eventually(lambda: again._engine.pending)
            if written == "after all was handed on":
                eventually(lambda: not again._engine.pending_log._behind)
            take(*about)

        return taken

    monkeypatch.setattr(
        InMemoryTransport, "look", lambda *about, **how: asked.wait(20) and look(*about, **how)
    )
    monkeypatch.setattr(DuplicateGuard, "renew", lambda *about: claimed.wait(20) and renew(*about))
    monkeypatch.setattr(JournalFeeder, "take", late(JournalFeeder.take))
    monkeypatch.setattr(JournalFeeder, "take_many", late(JournalFeeder.take_many))
    again, second = make(left, memory={"landed": [transport._held[0]]}, enable_deduplication=True)
    threading.Timer(0.5, asked.set).start()
    if together:
        assert again.send_batch("orders", [b"0"], lambda value: key)["duplicate"] == 1
    else:
        ends = []
        again.send_message("orders", b"0", key, on_delivery=ends.append)
        again.flush(20)
        assert [report.duplicate for report in ends] == [True]

    assert values(second) == [0]
    assert again.close().journaled == 0
    producer.close(timeout=0)


@pytest.mark.parametrize("key", ["a", None])
def test_a_third_copy_gets_no_claim_while_a_crashed_producers_message_takes_that_of_the_second(
    tmp_path, monkeypatch, key
):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    send(producer, [0], key=key)
    eventually(lambda: transport.held == 1)
    left = crash(tmp_path / "j", tmp_path)
    claimed, asked, ends, third = threading.Event(), threading.Event(), [], []
    look, renew, take, over = (
        InMemoryTransport.look,
        DuplicateGuard.renew,
        JournalFeeder.take,
        DuplicateGuard.take_over,
    )

    def send_one():
        again.send_message("orders", b"0", key, on_delivery=ends.append)

    def late(*about):
        if not claimed.is_set():
            claimed.set()
            eventually(lambda: again._engine.pending)
        take(*about)

    def taken_over(*about):
        done = over(*about)
        if done and not third:
            third.append(threading.Thread(target=send_one))
            third[0].start()
            time.sleep(0.2)
        return done

    monkeypatch.setattr(
        InMemoryTransport, "look", lambda *about, **how: asked.wait(20) and look(*about, **how)
    )
    monkeypatch.setattr(DuplicateGuard, "renew", lambda *about: claimed.wait(20) and renew(*about))
    monkeypatch.setattr(JournalFeeder, "take", late)
    monkeypatch.setattr(DuplicateGuard, "take_over", taken_over)
    again, second = make(left, memory={"landed": [transport._held[0]]}, enable_deduplication=True)
    threading.Timer(1.0, asked.set).start()
    send_one()
    third[0].join(10)
    again.flush(20)

    assert values(second) == [0]
    assert [report.duplicate for report in ends] == [True, True]
    assert again.close().journaled == 0
    producer.close(timeout=0)


def test_a_full_client_overflows_into_the_journal_and_order_is_kept(tmp_path):
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold", memory={"capacity": 10}, config={"max_block_ms": 0}
    )
    ids = send(producer, range(200), key="a")

    assert producer.pending_count == 200
    assert producer.get_message_status(ids[150]) is MessageStatus.PENDING
    transport._script = lambda delivery: None
    transport.release()
    producer.flush(20)

    assert values(transport) == list(range(200))
    assert producer.close().acknowledged == 200


def test_callbacks_of_messages_that_overflowed_are_called(tmp_path):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", memory={"capacity": 3})
    reports = []
    for number in range(20):
        producer.send_message("orders", b"%d" % number, record_id=number, on_delivery=reports.append)
    transport._script = lambda delivery: None
    transport.release()
    producer.flush(20)

    assert sorted(report.record_id for report in reports) == list(range(20))
    producer.close()


def test_a_copy_that_overflowed_waits_for_its_twin(tmp_path):
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold", memory={"capacity": 3}, enable_deduplication=True
    )
    ends = []
    for number in [*range(8), *range(8)]:
        producer.send_message("orders", b"%d" % number, on_delivery=ends.append)
    transport._script = lambda delivery: None
    transport.release()
    producer.flush(20)

    assert sorted(values(transport)) == list(range(8))
    assert sorted(report.duplicate for report in ends) == [False] * 8 + [True] * 8
    assert producer.deduplicator.stats["duplicates_found"] == 8
    assert producer.close().journaled == 0


def test_a_copy_of_a_message_whose_claim_ran_out_in_the_journal_is_not_sent(tmp_path, monkeypatch):
    monkeypatch.setattr(grouping, "TOGETHER", 1)
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold", memory={"capacity": 1}, enable_deduplication=True
    )
    producer.deduplicator._memory._claim_ttl = 2.0
    ends = []
    send(producer, [0, 1])  # no room for the second: it is the next, and its claim is renewed
    producer.send_message("orders", b"2", on_delivery=ends.append)
    time.sleep(2.2)
    producer.send_message("orders", b"2", on_delivery=ends.append)
    transport._script = lambda delivery: None
    transport.release()
    producer.flush(20)

    assert values(transport) == [0, 1, 2]
    assert sorted(report.duplicate for report in ends) == [False, True]
    assert producer.close().journaled == 0


def test_what_waits_for_room_keeps_its_claim_and_its_place(tmp_path):
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold",
        memory={"capacity": 1}, enable_deduplication=True, ordering="strict",
    )  # fmt: skip
    ends = []
    send(producer, [0], key="another")
    for number in (1, 2):
        producer.send_message("orders", b"%d" % number, "k")
    time.sleep(0.2)  # looking for room again and again
    producer.send_message("orders", b"1", "k", on_delivery=ends.append)
    transport._script = lambda delivery: None
    transport.release()
    producer.flush(20)

    assert values(transport) == [0, 1, 2]
    assert [report.duplicate for report in ends] == [True]
    assert producer.deduplicator.stats["total_checked"] == 4
    producer.close()


@pytest.mark.parametrize("together", [1, 500])  # at first: what is read with the copies, or before they come
@pytest.mark.parametrize("room", [1, 100])
def test_of_two_copies_in_the_journal_the_first_is_sent_though_its_claim_ran_out(
    tmp_path, monkeypatch, together, room
):
    monkeypatch.setattr(grouping, "TOGETHER", together)
    monkeypatch.setattr(
        enqueue, "_MOST_HELD", 3
    )  # more copies than that cannot be held until their twins are sent
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold", memory={"capacity": 1}, enable_deduplication=True
    )
    producer.deduplicator._memory._claim_ttl = 0.3
    first, second = [], []
    for number in range(7):
        producer.send_message("orders", b"%d" % number, on_delivery=first.append)
    time.sleep(0.5)
    producer.deduplicator._memory._claim_ttl = 60.0
    monkeypatch.setattr(grouping, "TOGETHER", 500)
    for number in range(2, 7):
        producer.send_message("orders", b"%d" % number, on_delivery=second.append)
    transport._capacity = room
    transport._script = lambda delivery: None
    transport.release()
    producer.flush(20)

    assert values(transport) == list(range(7))
    assert [report.duplicate for report in first] == [False] * 7
    assert [report.duplicate for report in second] == [True] * 5
    assert producer.close().journaled == 0


def test_a_fault_while_the_backlog_is_handed_on_loses_no_callback(tmp_path):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", memory={"capacity": 1})
    produce, faults, ends = transport.produce, [RuntimeError("once")], []

    def faulty(delivery):
        if delivery.value == b"2" and faults:
            raise faults.pop()
        return produce(delivery)

    for number in range(5):
        producer.send_message("orders", b"%d" % number, on_delivery=ends.append)
    transport.produce = faulty
    transport._script = lambda delivery: None
    transport.release()
    producer.flush(20)

    assert values(transport) == list(range(5))
    assert len(ends) == 5
    producer.close()


def test_what_stands_before_damage_in_the_journal_is_sent(tmp_path, monkeypatch):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", memory={"capacity": 1})
    read = producer.journal.read

    def damaged(after=-1):
        for record in read(after):
            if record.seq == 4:
                raise JournalError("made up")
            yield record

    monkeypatch.setattr(producer.journal, "read", damaged)
    send(producer, range(6))
    transport._script = lambda delivery: None
    transport.release()

    eventually(lambda: values(transport) == [0, 1, 2, 3])
    monkeypatch.undo()
    producer.flush(20)
    assert values(transport) == list(range(6))
    producer.close()


def test_what_a_callback_sends_while_the_last_of_the_backlog_is_handed_on_is_sent_too(tmp_path):
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold",
        memory={"capacity": 3, "refuse": lambda one: KafkaError._UNKNOWN_PARTITION if one.value == b"9" else None},
    )  # fmt: skip
    ends = []

    def elsewhere(report):
        producer.send_message("orders", b"10", on_delivery=ends.append)

    send(producer, range(5))
    producer.send_message("orders", b"9", on_delivery=elsewhere)
    transport._script = lambda delivery: None
    transport.release()
    producer.flush(20)

    assert [report.error for report in ends] == [None]
    assert sorted(values(transport)) == [0, 1, 2, 3, 4, 10]
    producer.close()


def test_messages_that_come_while_an_old_backlog_is_sent_stay_behind_it(tmp_path):
    producer, _ = make(tmp_path / "j", lambda delivery: "hold")
    send(producer, range(100), key="a")
    producer.close(timeout=0)

    again, transport = make(tmp_path / "j")
    send(again, range(100, 120), key="a")
    again.flush(20)

    assert values(transport) == list(range(120))
    again.close()


def test_a_dead_letter_leaves_the_journal_once_the_store_has_it(tmp_path):
    producer, _ = make(tmp_path / "j", lambda delivery: "POLICY_VIOLATION", store=tmp_path / "s.duckdb")
    send(producer, range(3))
    report = producer.close()

    assert (report.acknowledged, report.dead, report.journaled) == (0, 3, 0)
    with Journal.open(tmp_path / "j") as journal:
        assert journal.unsettled() == 0


def test_without_a_store_a_dead_letter_stays_in_the_journal(tmp_path):
    producer, _ = make(tmp_path / "j", lambda delivery: "POLICY_VIOLATION")
    send(producer, range(3))
    report = producer.close()

    assert (report.dead, report.journaled) == (0, 3)
    again, transport = make(tmp_path / "j")
    again.flush(10)
    assert sorted(values(transport)) == [0, 1, 2]
    again.close()


def test_a_second_producer_on_the_same_journal_is_refused(tmp_path):
    producer, _ = make(tmp_path / "j")
    with pytest.raises(JournalLocked, match="open in this process already"):
        make(tmp_path / "j")
    producer.close()


def test_a_full_journal_makes_the_sender_wait_and_raises_and_heals(tmp_path, monkeypatch):
    opened = Journal.open
    monkeypatch.setattr(
        Journal, "open", lambda *a, **o: opened(*a, **{**o, "max_bytes": 600, "segment_bytes": 100})
    )
    ends = Ends()
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold", config={"max_block_ms": 50}, hooks=(ends,)
    )
    accepted = 0
    with pytest.raises(QueueFull, match="limit"):
        for _ in range(1000):
            producer.send_message("orders", b"%d" % accepted)
            accepted += 1
    transport._script = lambda delivery: None
    transport.release()
    producer.flush(10)
    producer.send_message("orders", b"%d" % accepted)

    assert [notice.kind for notice in ends.notices if notice.kind != "connected"] == ["journal_full"]
    assert producer.close().acknowledged == accepted + 1


def test_what_could_not_be_made_durable_is_not_accepted_and_what_comes_next_survives(tmp_path, monkeypatch):
    """The number of what was taken back is settled in the log: a message accepted under it would not outlive a crash."""
    producer, _ = make(tmp_path / "j", lambda delivery: "hold", journal_level="power")
    send(producer, [0])
    sync, failures = os.fdatasync, iter([OSError(5, "Input/output error")])

    def fails_once(file):
        for failure in failures:
            raise failure
        sync(file)

    monkeypatch.setattr(os, "fdatasync", fails_once)
    with pytest.raises(QueueFull, match="cannot be written"):
        send(producer, [1])
    accepted = [0, 2, 3]
    send(producer, accepted[1:])

    shutil.copytree(tmp_path / "j", tmp_path / "crashed")  # as a kill leaves it
    with Journal.open(tmp_path / "crashed") as journal:
        assert [record.value for record in journal.read()] == [b"%d" % number for number in accepted]
    producer.close(timeout=0)


def test_exactly_once_without_a_journal_is_refused_with_the_fix():
    with pytest.raises(ConfigError, match="journal_dir"):
        ReliableKafkaProducer("memory:1", store=None, delivery="exactly_once")


def test_with_a_journal_a_message_has_a_day_unless_a_time_was_given(tmp_path):
    producer, _ = make(tmp_path / "j")
    assert producer.config.delivery_timeout == 24 * 3600
    producer.close()
    producer, _ = make(tmp_path / "j", config={"delivery_timeout_ms": 60_000})
    assert producer.config.delivery_timeout == 60
    producer.close()


class Ends(Hook):
    def __init__(self):
        self.acked, self.notices = [], []

    def notice(self, notice):
        self.notices.append(notice)

    def acknowledged(self, batch):
        self.acked.extend(item.seq for item in batch)


def test_many_threads_and_a_client_that_is_often_full_send_everything_once(tmp_path):
    ends = Ends()
    producer, transport = make(tmp_path / "j", memory={"capacity": 7}, hooks=(ends,))
    threads = [
        threading.Thread(target=send, args=(producer, range(base, base + 300)), kwargs={"key": str(base)})
        for base in range(0, 1800, 300)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(60)

    assert sorted(values(transport)) == list(range(1800))
    for base in range(0, 1800, 300):
        mine = [value for value in values(transport) if base <= value < base + 300]
        assert mine == sorted(mine)
    assert producer.close().journaled == 0


CHILD = """
import sys, threading, time
from producer_core import ReliableKafkaProducer
from producer_core.testing import InMemoryTransport
made = []
producer = ReliableKafkaProducer(
    "memory:1", None, store=None, journal_dir=sys.argv[1],
    transport=InMemoryTransport.factory(made, script=lambda delivery: None if delivery.seq % 3 else "hold"),
)
while True:
    print(producer.send_message("orders", b"x", "k%d" % (time.monotonic_ns() % 5)), flush=True)
"""


def test_every_message_a_killed_producer_accepted_is_acknowledged_or_in_its_journal(tmp_path):
    path, accepted, settled = tmp_path / "j", set(), set()
    for lines in (20, 100, 300):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(lines):
            accepted.add(child.stdout.readline().strip())
        child.send_signal(signal.SIGKILL)
        accepted |= set(child.stdout.read().split("\n")[:-1])
        child.wait()
        child.stdout.close()
    with Journal.open(path) as journal:
        kept = {id_text(journal.ids.of(record.seq)) for record in journal.read()}
        settled = {one for one in accepted if journal.is_settled(int(one.rpartition("-")[2]))}

    assert accepted <= kept | settled
    assert all(int(one.rpartition("-")[2]) % 3 for one in settled)  # what was held was never acknowledged
