"""A producer with a journal: each accepted message is in exactly one place, even after the process is killed."""

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
from producer_core.errors import ConfigError, JournalError, JournalLocked, ProducerClosed, QueueFull
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


def acknowledge(transport, *, held, capacity=None):
    """Acknowledge all messages: those that the script holds, and later ones."""
    eventually(lambda: transport.held == held)
    if capacity is not None:
        transport._capacity = capacity
    transport._script = lambda delivery: None
    transport.release()


def values(transport, topic="orders"):
    return [int(delivery.value) for delivery in transport.log[topic]]


def crash(path, tmp_path):
    copy = tmp_path / "after the crash"  # the state that a killed process leaves
    shutil.copytree(path, copy)
    return copy


def test_acknowledged_messages_are_settled_in_the_journal(tmp_path):
    producer, _ = make(tmp_path / "j")

    send(producer, range(50))
    report = producer.close()

    assert (report.acknowledged, report.dead, report.journaled, report.lost) == (50, 0, 0, 0)
    with Journal.open(tmp_path / "j") as journal:
        assert journal.unsettled() == 0


def test_messages_that_close_cannot_deliver_are_sent_at_the_next_start(tmp_path):
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


def test_messages_of_a_crashed_producer_are_probed_before_they_are_sent(tmp_path):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold" if delivery.value > b"2" else None)
    send(producer, range(6), key="a")
    eventually(lambda: transport.held == 3)
    crashed = crash(tmp_path / "j", tmp_path)
    landed = transport._held[0]

    # The first held message was appended to the topic before the crash.
    again, second = make(crashed, memory={"landed": [landed]})
    again.flush(10)

    assert sorted(values(second)) == [3, 4, 5]
    report = again.close()
    assert (report.acknowledged, report.journaled) == (3, 0)
    producer.close(timeout=0.1)


@pytest.mark.parametrize("key", ["a", None])
@pytest.mark.parametrize("landed", [True, False])
def test_a_message_of_a_crashed_producer_is_sent_once_if_the_job_sends_it_again(
    tmp_path, monkeypatch, key, landed
):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    send(producer, range(3), key=key)
    eventually(lambda: transport.held == 3)
    crashed = crash(tmp_path / "j", tmp_path)
    on_the_topic = [transport._held[0]] if landed else []
    probe, may_probe = InMemoryTransport.find_records, threading.Event()
    monkeypatch.setattr(
        InMemoryTransport,
        "find_records",
        lambda *args, **kwargs: may_probe.wait(20) and probe(*args, **kwargs),
    )

    again, second = make(crashed, memory={"landed": on_the_topic}, enable_deduplication=True)
    reports = []
    for number in (0, 1, 2, 3):
        again.send_message("orders", b"%d" % number, key, on_delivery=reports.append)
    time.sleep(0.2)
    may_probe.set()
    again.flush(20)

    assert sorted(values(second)) == [0, 1, 2, 3]
    assert sorted(report.duplicate for report in reports) == [False, True, True, True]
    assert again.close().journaled == 0
    producer.close(timeout=0)


@pytest.mark.parametrize("key", ["a", None])
@pytest.mark.parametrize("written", ["while the original is probed", "after the backlog"])
@pytest.mark.parametrize("together", [False, True])
def test_a_claimed_duplicate_not_journaled_yet_gives_its_claim_to_a_recovered_message(
    tmp_path, monkeypatch, key, written, together
):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    send(producer, [0], key=key)
    eventually(lambda: transport.held == 1)
    crashed = crash(tmp_path / "j", tmp_path)
    claimed, may_probe = threading.Event(), threading.Event()
    probe, renew = InMemoryTransport.find_records, DuplicateGuard.renew

    def delayed(take):
        def take_later(*args):
            claimed.set()
            eventually(lambda: again._engine.pending)
            if written == "after the backlog":
                eventually(lambda: not again._engine.pending_log._behind)
            take(*args)

        return take_later

    monkeypatch.setattr(
        InMemoryTransport,
        "find_records",
        lambda *args, **kwargs: may_probe.wait(20) and probe(*args, **kwargs),
    )
    monkeypatch.setattr(DuplicateGuard, "renew", lambda *args: claimed.wait(20) and renew(*args))
    monkeypatch.setattr(JournalFeeder, "take", delayed(JournalFeeder.take))
    monkeypatch.setattr(JournalFeeder, "take_many", delayed(JournalFeeder.take_many))
    again, second = make(crashed, memory={"landed": [transport._held[0]]}, enable_deduplication=True)
    threading.Timer(0.5, may_probe.set).start()
    if together:
        assert again.send_batch("orders", [b"0"], lambda value: key)["duplicate"] == 1
    else:
        reports = []
        again.send_message("orders", b"0", key, on_delivery=reports.append)
        again.flush(20)
        assert [report.duplicate for report in reports] == [True]

    assert values(second) == [0]
    assert again.close().journaled == 0
    producer.close(timeout=0)


@pytest.mark.parametrize("key", ["a", None])
def test_a_third_duplicate_gets_no_claim_while_a_recovered_message_takes_over_the_second(
    tmp_path, monkeypatch, key
):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", enable_deduplication=True)
    send(producer, [0], key=key)
    eventually(lambda: transport.held == 1)
    crashed = crash(tmp_path / "j", tmp_path)
    claimed, may_probe, reports, third = threading.Event(), threading.Event(), [], []
    probe, renew, take, take_over = (
        InMemoryTransport.find_records,
        DuplicateGuard.renew,
        JournalFeeder.take,
        DuplicateGuard.take_over,
    )

    def send_one():
        again.send_message("orders", b"0", key, on_delivery=reports.append)

    def delayed_take(*args):
        if not claimed.is_set():
            claimed.set()
            eventually(lambda: again._engine.pending)
        take(*args)

    def take_over_and_send(*args):
        done = take_over(*args)
        if done and not third:
            third.append(threading.Thread(target=send_one))
            third[0].start()
            time.sleep(0.2)
        return done

    monkeypatch.setattr(
        InMemoryTransport,
        "find_records",
        lambda *args, **kwargs: may_probe.wait(20) and probe(*args, **kwargs),
    )
    monkeypatch.setattr(DuplicateGuard, "renew", lambda *args: claimed.wait(20) and renew(*args))
    monkeypatch.setattr(JournalFeeder, "take", delayed_take)
    monkeypatch.setattr(DuplicateGuard, "take_over", take_over_and_send)
    again, second = make(crashed, memory={"landed": [transport._held[0]]}, enable_deduplication=True)
    threading.Timer(1.0, may_probe.set).start()
    send_one()
    third[0].join(10)
    again.flush(20)

    assert values(second) == [0]
    assert [report.duplicate for report in reports] == [True, True]
    assert again.close().journaled == 0
    producer.close(timeout=0)


def test_messages_beyond_a_full_client_wait_in_the_journal_in_order(tmp_path):
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold", memory={"capacity": 10}, config={"max_block_ms": 0}
    )
    ids = send(producer, range(200), key="a")

    assert producer.pending_count == 200
    assert producer.get_message_status(ids[150]) is MessageStatus.PENDING
    acknowledge(transport, held=10)
    producer.flush(20)

    assert not producer.pending_count
    assert values(transport) == list(range(200))
    assert producer.close().acknowledged == 200


def test_callbacks_of_messages_that_waited_in_the_journal_are_called(tmp_path):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", memory={"capacity": 3})
    reports = []
    for number in range(20):
        producer.send_message("orders", b"%d" % number, record_id=number, on_delivery=reports.append)
    acknowledge(transport, held=3)
    producer.flush(20)

    assert sorted(report.record_id for report in reports) == list(range(20))
    producer.close()


def test_a_duplicate_in_the_journal_waits_for_its_original(tmp_path):
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold", memory={"capacity": 3}, enable_deduplication=True
    )
    reports = []
    for number in [*range(8), *range(8)]:
        producer.send_message("orders", b"%d" % number, on_delivery=reports.append)
    acknowledge(transport, held=3)
    producer.flush(20)

    assert sorted(values(transport)) == list(range(8))
    assert sorted(report.duplicate for report in reports) == [False] * 8 + [True] * 8
    assert producer.deduplicator.stats["duplicates_found"] == 8
    assert producer.close().journaled == 0


def test_a_duplicate_of_a_message_whose_claim_expired_in_the_journal_is_not_sent(tmp_path, monkeypatch):
    monkeypatch.setattr(grouping, "TOGETHER", 1)
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold", memory={"capacity": 1}, enable_deduplication=True
    )
    producer.deduplicator._memory._claim_ttl = 2.0
    reports = []
    send(producer, [0, 1])  # no room for the second: its claim is renewed, because it is next
    producer.send_message("orders", b"2", on_delivery=reports.append)
    time.sleep(2.2)
    producer.send_message("orders", b"2", on_delivery=reports.append)
    acknowledge(transport, held=1)
    producer.flush(20)

    assert values(transport) == [0, 1, 2]
    assert sorted(report.duplicate for report in reports) == [False, True]
    assert producer.close().journaled == 0


def test_a_message_that_waits_for_room_keeps_its_claim_and_its_order(tmp_path):
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold",
        memory={"capacity": 1}, enable_deduplication=True, ordering="strict",
    )  # fmt: skip
    reports = []
    send(producer, [0], key="another")
    for number in (1, 2):
        producer.send_message("orders", b"%d" % number, "k")
    time.sleep(0.2)  # the feeder tries to find room repeatedly
    producer.send_message("orders", b"1", "k", on_delivery=reports.append)
    acknowledge(transport, held=1)
    producer.flush(20)

    assert values(transport) == [0, 1, 2]
    assert [report.duplicate for report in reports] == [True]
    assert producer.deduplicator.stats["total_checked"] == 4
    producer.close()


# the first batch is read before the duplicates arrive, or with them
@pytest.mark.parametrize("together", [1, 500])
@pytest.mark.parametrize("room", [1, 100])
def test_the_first_of_two_duplicates_in_the_journal_is_sent_after_its_claim_expired(
    tmp_path, monkeypatch, together, room
):
    monkeypatch.setattr(grouping, "TOGETHER", together)
    monkeypatch.setattr(enqueue, "_MAX_HELD", 3)  # fewer than the duplicates that wait for their originals
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
    acknowledge(transport, held=1, capacity=room)
    producer.flush(20)

    assert values(transport) == list(range(7))
    assert [report.duplicate for report in first] == [False] * 7
    assert [report.duplicate for report in second] == [True] * 5
    assert producer.close().journaled == 0


def test_an_exception_while_the_journal_is_fed_loses_no_callback(tmp_path):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", memory={"capacity": 1})
    produce, faults, reports = transport.produce, [RuntimeError("once")], []

    def faulty(delivery):
        if delivery.value == b"2" and faults:
            raise faults.pop()
        return produce(delivery)

    for number in range(5):
        producer.send_message("orders", b"%d" % number, on_delivery=reports.append)
    transport.produce = faulty
    acknowledge(transport, held=1)
    producer.flush(20)

    assert values(transport) == list(range(5))
    assert len(reports) == 5
    producer.close()


def test_records_before_damage_in_the_journal_are_sent(tmp_path, monkeypatch):
    producer, transport = make(tmp_path / "j", lambda delivery: "hold", memory={"capacity": 1})
    read = producer.journal.read

    def damaged(after=-1):
        for record in read(after):
            if record.seq == 4:
                raise JournalError("damaged")
            yield record

    monkeypatch.setattr(producer.journal, "read", damaged)
    send(producer, range(6))
    acknowledge(transport, held=1)

    eventually(lambda: values(transport) == [0, 1, 2, 3])
    monkeypatch.undo()
    producer.flush(20)
    assert values(transport) == list(range(6))
    producer.close()


def test_a_message_sent_by_a_callback_at_the_end_of_the_backlog_is_sent(tmp_path):
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold",
        memory={"capacity": 3, "refuse": lambda one: KafkaError._UNKNOWN_PARTITION if one.value == b"9" else None},
    )  # fmt: skip
    reports = []

    def send_another(report):
        producer.send_message("orders", b"10", on_delivery=reports.append)

    send(producer, range(5))
    producer.send_message("orders", b"9", on_delivery=send_another)
    acknowledge(transport, held=3)
    producer.flush(20)

    assert [report.error for report in reports] == [None]
    assert sorted(values(transport)) == [0, 1, 2, 3, 4, 10]
    producer.close()


def test_new_messages_stay_behind_a_backlog_that_is_being_sent(tmp_path):
    producer, _ = make(tmp_path / "j", lambda delivery: "hold")
    send(producer, range(100), key="a")
    producer.close(timeout=0)

    again, transport = make(tmp_path / "j")
    send(again, range(100, 120), key="a")
    again.flush(20)

    assert values(transport) == list(range(120))
    again.close()


def test_a_message_is_settled_in_the_journal_once_the_store_has_its_dead_letter(tmp_path):
    producer, _ = make(tmp_path / "j", lambda delivery: "POLICY_VIOLATION", store=tmp_path / "s.duckdb")
    send(producer, range(3))
    report = producer.close()

    assert (report.acknowledged, report.dead, report.journaled) == (0, 3, 0)
    with Journal.open(tmp_path / "j") as journal:
        assert journal.unsettled() == 0


def test_without_a_store_the_message_of_a_dead_letter_stays_in_the_journal(tmp_path):
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
    with pytest.raises(JournalLocked, match="already open in this process"):
        make(tmp_path / "j")
    producer.close()


def test_a_full_journal_blocks_the_sender_then_raises_and_recovers(tmp_path, monkeypatch):
    opened = Journal.open
    monkeypatch.setattr(
        Journal, "open", lambda *a, **o: opened(*a, **{**o, "max_bytes": 600, "segment_bytes": 100})
    )
    events = Events()
    producer, transport = make(
        tmp_path / "j", lambda delivery: "hold", config={"max_block_ms": 50}, hooks=(events,)
    )
    accepted = 0
    with pytest.raises(QueueFull, match="limit"):
        for _ in range(1000):
            producer.send_message("orders", b"%d" % accepted)
            accepted += 1
    acknowledge(transport, held=accepted)
    producer.flush(10)
    producer.send_message("orders", b"%d" % accepted)

    assert [notice.kind for notice in events.notices if notice.kind != "connected"] == [
        "journal_full",
        "journal_available",
    ]
    assert producer.close().acknowledged == accepted + 1


def test_a_message_whose_sync_fails_is_refused_and_later_ones_survive_a_crash(tmp_path, monkeypatch):
    """The sequence of a withdrawn message counts as settled, so a message accepted under it would be lost in a crash."""
    producer, _ = make(tmp_path / "j", lambda delivery: "hold", journal_level="power")
    send(producer, [0])
    sync, failures = os.fdatasync, iter([OSError(5, "Input/output error")])

    def fail_once(file):
        for failure in failures:
            raise failure
        sync(file)

    monkeypatch.setattr(os, "fdatasync", fail_once)
    with pytest.raises(QueueFull, match="cannot be written"):
        send(producer, [1])
    accepted = [0, 2, 3]
    send(producer, accepted[1:])

    shutil.copytree(tmp_path / "j", tmp_path / "crashed")  # the state that a killed process leaves
    with Journal.open(tmp_path / "crashed") as journal:
        assert [record.value for record in journal.read()] == [b"%d" % number for number in accepted]
    producer.close(timeout=0)


def test_exactly_once_without_a_journal_is_refused_with_a_hint():
    with pytest.raises(ConfigError, match="journal_dir"):
        ReliableKafkaProducer("memory:1", store=None, delivery="exactly_once")


def test_with_a_journal_the_delivery_timeout_is_a_day_unless_set(tmp_path):
    producer, _ = make(tmp_path / "j")
    assert producer.config.delivery_timeout == 24 * 3600
    producer.close()
    producer, _ = make(tmp_path / "j", config={"delivery_timeout_ms": 60_000})
    assert producer.config.delivery_timeout == 60
    producer.close()


class Events(Hook):
    def __init__(self):
        self.acked, self.notices = [], []

    def notice(self, notice):
        self.notices.append(notice)

    def acknowledged(self, batch):
        self.acked.extend(item.seq for item in batch)


def test_many_threads_with_a_client_that_is_often_full_send_each_message_once(tmp_path):
    events = Events()
    producer, transport = make(tmp_path / "j", memory={"capacity": 7}, hooks=(events,))
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
        own = [value for value in values(transport) if base <= value < base + 300]
        assert own == sorted(own)
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


def test_each_accepted_message_of_a_killed_producer_is_acknowledged_or_in_its_journal(tmp_path):
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
    # every third message was held and never acknowledged
    assert all(int(one.rpartition("-")[2]) % 3 for one in settled)


@pytest.mark.parametrize("batch", [False, True])
def test_a_message_that_was_synced_while_the_producer_closed_is_accepted(tmp_path, monkeypatch, batch):
    """Regression: the call raised ProducerClosed, and the next start sent the message nevertheless."""
    producer, _ = make(tmp_path / "j", lambda delivery: "hold", journal_level="power")
    feeder = producer._engine.pending_log

    def closed_meanwhile(delivery):
        producer.journal.close()
        raise ProducerClosed

    monkeypatch.setattr(feeder._sender, "offer", closed_meanwhile)
    if batch:
        deliveries = [producer._delivery("orders", b"%d" % n, None, None, None, None, None) for n in range(3)]
        assert producer._enqueuer.accept_many(deliveries) == [True] * 3
    else:
        assert producer.send_message("orders", b"1") is not None

    feeder.stop()
    with Journal.open(tmp_path / "j") as journal:
        assert journal.unsettled() == (3 if batch else 1)
