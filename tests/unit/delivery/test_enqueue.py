"""Accepted messages: claims, room in the client and in the journal, interrupts, and close."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from confluent_kafka import KafkaError

from producer_core import ReliableKafkaProducer
from producer_core.delivery import grouping
from producer_core.delivery.grouping import TOGETHER
from producer_core.delivery.journal import Journal
from producer_core.errors import Fenced, JournalFull, ProducerClosed, QueueFull
from producer_core.testing import FakeClock, InMemoryTransport
from tests.fixtures.enqueueing import claimed, counts, memory_producer, quick_producer
from tests.fixtures.journal import crash, kept
from tests.support import eventually


class FailingProduce:
    """Accepts `count` messages and raises `error` for each later one."""

    def __init__(self, transport, count, error):
        self._produce, self._left, self._error = transport.produce, count, error
        transport.produce = self

    def __call__(self, delivery):
        if not self._left:
            raise self._error
        self._left -= 1
        self._produce(delivery)


def test_a_transaction_fenced_during_a_batch_fails_only_the_messages_that_were_not_sent(
    tmp_path,
):
    """Regression: the whole batch raised although two of its messages were sent."""
    producer, transport = memory_producer(tmp_path, enable_deduplication=True)
    FailingProduce(transport, 2, Fenced())

    result = producer.send_batch("orders", [{"n": number} for number in range(5)])

    assert counts(result) == {"total": 5, "sent": 2, "failed": 3, "duplicate": 0}
    eventually(
        lambda: producer.journal.unsettled() == 0
    )  # a failed message is not sent at the next start either
    assert not claimed(producer.deduplicator)
    producer.close()


@pytest.mark.parametrize("journal", [True, False])
def test_an_interrupt_during_a_batch_leaves_no_claim_and_no_partly_accepted_message(tmp_path, journal):
    """Regression: the claims of seven unsent messages stayed, and their duplicates were held for minutes."""
    producer, transport = memory_producer(tmp_path if journal else None, enable_deduplication=True)
    producer._in_groups = True
    failing_produce = FailingProduce(transport, 3, KeyboardInterrupt())
    values = [{"n": number} for number in range(10)]

    with pytest.raises(KeyboardInterrupt):
        producer.send_batch("orders", values)
    producer.flush(10)

    assert len(transport.log["orders"]) == 3
    assert not claimed(producer.deduplicator)
    transport.produce = failing_produce._produce
    again = producer.send_batch("orders", values)
    assert counts(again) == {"total": 10, "sent": 7, "failed": 0, "duplicate": 3}
    assert producer.close().journaled == 0


def test_an_interrupt_while_a_batch_waits_for_room_leaves_no_claim(monkeypatch):
    made = []
    producer = ReliableKafkaProducer(
        "memory:1", store=None, enable_deduplication=True, health_check_interval=3600,
        transport=InMemoryTransport.factory(made, capacity=2, script=lambda delivery: "hold"),
    )  # fmt: skip
    producer._in_groups = True

    def interrupted(delivery, deadline, reason):
        raise KeyboardInterrupt

    monkeypatch.setattr(producer._engine.enqueuer, "_wait_for_room", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.send_batch("orders", [{"n": number} for number in range(6)])

    assert len(claimed(producer.deduplicator)) == 2  # of the messages in flight
    eventually(lambda: made[0].held == 2)
    made[0].release()
    assert producer.close().acknowledged == 2


@pytest.mark.parametrize("interrupted_at", [1, 2])
def test_an_interrupt_while_a_batch_yields_to_the_poll_thread_leaves_no_claim(monkeypatch, interrupted_at):
    """At the second yield a thousand messages of the batch are in flight."""
    producer, transport = memory_producer(enable_deduplication=True)
    producer._in_groups = True
    calls = []

    def yield_to_poller():
        calls.append(None)
        if len(calls) == interrupted_at:
            raise KeyboardInterrupt

    monkeypatch.setattr(grouping, "_MAX_WAIT", 3600)  # on a busy machine a group would be smaller
    monkeypatch.setattr(transport, "yield_to_poller", yield_to_poller)
    with pytest.raises(KeyboardInterrupt):
        producer.send_batch("orders", [{"n": number} for number in range(1100)])
    producer.flush(10)

    assert len(transport.log["orders"]) == (0, 1000)[interrupted_at - 1]
    assert len(calls) == interrupted_at
    assert not claimed(producer.deduplicator)
    assert not producer.pending_count
    producer.close()


def test_a_message_is_not_accepted_yet_while_its_sender_yields_to_the_poll_thread(tmp_path, monkeypatch):
    producer, transport = memory_producer(tmp_path, enable_deduplication=True)
    seen = []

    def yield_to_poller():
        seen.append(
            (
                producer.pending_count,
                producer.journal.unsettled(),
                len(claimed(producer.deduplicator)),
            )
        )

    monkeypatch.setattr(transport, "yield_to_poller", yield_to_poller)
    for number in range(1025):
        producer.send_message("orders", {"n": number})
        if number == 1023:
            producer.flush(10)
    producer.close()

    assert seen == [(0, 0, 0), (0, 0, 0)]


def test_a_claim_is_renewed_when_its_message_finds_room():
    """Regression: claims of a group expired while its first message waited for room, and a duplicate was sent."""
    made, clock = [], FakeClock()
    producer = ReliableKafkaProducer(
        "memory:1", store=None, enable_deduplication=True, health_check_interval=3600,
        transport=InMemoryTransport.factory(made, capacity=1, script=lambda delivery: "hold"),
    )  # fmt: skip
    producer._in_groups = True
    memory = producer.deduplicator._memory
    memory._clock = clock
    lifetimes = []  # of the claim of each message when the client receives it
    produce = made[0].produce

    def produce_and_record(delivery):
        produce(delivery)
        lifetimes.append(memory._entries[delivery.checksum][0] - clock.now)

    def make_room(delivery, deadline, reason):
        clock.advance(100.0)
        eventually(lambda: made[0].held == 1)
        made[0].release()

    made[0].produce = produce_and_record
    producer._engine.enqueuer._wait_for_room = make_room
    values = [{"n": number} for number in range(3)]
    sender = threading.Thread(target=producer.send_batch, args=("orders", values))
    sender.start()
    eventually(lambda: len(lifetimes) == 3)
    eventually(lambda: made[0].held == 1)
    made[0].release()
    sender.join(10)

    assert min(lifetimes) >= memory._claim_ttl - 100
    producer.close()


def test_a_claim_lasts_for_the_wait_for_room_and_the_delivery():
    """Regression: a claim expired while its message was in flight after a wait for room, and a duplicate was sent."""
    producer, _ = memory_producer(enable_deduplication=True)
    assert (
        producer.deduplicator._memory._claim_ttl
        > producer.config.max_block + producer.config.delivery_timeout
    )
    producer.close()


def test_messages_whose_sync_failed_get_new_sequences(tmp_path, monkeypatch):
    """Regression: under their old sequences, which counted as settled, they were lost in a crash."""
    producer, transport = memory_producer(tmp_path, journal_level="power", enable_deduplication=True)
    values = [{"n": number} for number in range(5)]
    sync = os.fdatasync
    failing = [True]

    def fdatasync(file):
        if failing:
            failing.clear()
            raise OSError(5, "bad disk")
        sync(file)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    result = producer.send_batch("orders", values)

    assert counts(result) == {"total": 5, "sent": 0, "failed": 5, "duplicate": 0}
    assert not transport.log["orders"]
    again = producer.send_batch("orders", values)
    assert counts(again) == {"total": 5, "sent": 5, "failed": 0, "duplicate": 0}
    assert not producer._engine.enqueuer._journal_full  # the next full journal is reported again
    producer.close()


def test_an_interrupt_during_a_sync_leaves_no_record_in_the_journal(tmp_path, monkeypatch):
    producer, transport = memory_producer(tmp_path, journal_level="power")

    def interrupted(file):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.send_message("orders", {"n": 1})
        with pytest.raises(KeyboardInterrupt):
            producer.send_batch("orders", [{"n": 2}, {"n": 3}])

    assert producer.journal.unsettled() == 0
    copy = crash(tmp_path / "journal", tmp_path)
    producer.close()
    with Journal.open(copy) as again:
        assert kept(again) == []
    assert not transport.log["orders"]


@pytest.fixture
def signal_during_sync(monkeypatch):
    """Return a function that sets a signal handler. The signal arrives during the next sync, on the syncing thread."""
    before = signal.getsignal(signal.SIGUSR1)
    sync = os.fdatasync

    def interrupted(file):
        monkeypatch.setattr(os, "fdatasync", sync)
        signal.raise_signal(signal.SIGUSR1)
        sync(file)

    def handle(handler):
        signal.signal(signal.SIGUSR1, lambda *_: handler())
        monkeypatch.setattr(os, "fdatasync", interrupted)

    yield handle
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("together", [False, True])
def test_close_in_a_signal_handler_during_a_sync_ends(tmp_path, signal_during_sync, together):
    """Regression: close() waited forever for the sync that the signal had interrupted. The message is in the journal, so the
    call accepts it: the next start sends it."""
    producer, transport = memory_producer(tmp_path, journal_level="power")
    producer.send_message("orders", {"n": 0})
    producer.flush(10)
    reports = []
    signal_during_sync(lambda: reports.append(producer.close(10)))

    if together:
        assert counts(producer.send_batch("orders", [{"n": 1}]))["failed"] == 0
    else:
        assert producer.send_message("orders", {"n": 1}) is not None

    assert [(report.acknowledged, report.journaled) for report in reports] == [(1, 1)]
    assert len(transport.log["orders"]) == 1
    with Journal.open(tmp_path / "journal") as journal:
        assert journal.unsettled() == 1


def test_a_message_sent_in_a_signal_handler_during_a_sync_is_accepted(tmp_path, signal_during_sync):
    producer, transport = memory_producer(tmp_path, journal_level="power")
    signal_during_sync(lambda: producer.send_message("orders", {"n": 2}))

    producer.send_message("orders", {"n": 1})

    assert producer.close(10).acknowledged == 2
    assert len(transport.log["orders"]) == 2


@pytest.mark.parametrize("batch", [False, True])
def test_a_journal_that_has_room_for_a_moment_is_reported_once_a_minute(tmp_path, monkeypatch, batch):
    notices, now = [], [1000.0]
    producer, _ = memory_producer(tmp_path)
    enqueuer = producer._engine.enqueuer
    monkeypatch.setattr(enqueuer._hooks, "notice", lambda notice: notices.append(notice.kind))
    monkeypatch.setattr("producer_core.delivery.enqueue.time.monotonic", lambda: now[0])

    def send():
        producer.send_batch("orders", [{"n": 1}]) if batch else producer.send_message("orders", {"n": 1})

    for _ in range(3):  # at its limit
        enqueuer._report_full_journal("full")
        send()
    assert notices == ["journal_full", "journal_available", "journal_full"]
    now[0] += 1.0
    send()
    send()
    assert notices == ["journal_full", "journal_available"] * 2
    producer.close()


def test_an_accepted_batch_ends_the_state_of_a_full_journal(tmp_path):
    """Regression: after a batch the next full journal was not reported."""
    producer, _ = memory_producer(tmp_path)
    producer._engine.enqueuer._journal_full = True

    producer.send_batch("orders", [{"n": 1}, {"n": 2}])

    assert not producer._engine.enqueuer._journal_full
    producer.close()


@pytest.mark.slow
@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("journal", [True, False])
def test_a_message_that_waits_for_room_during_close_is_refused_and_not_lost(tmp_path, journal, batch):
    """Regression: a client that was no longer polled accepted the message, which was lost."""
    made, results = [], []
    journal_options = {"journal_dir": tmp_path / "journal", "ordering": "none"} if journal else {}
    producer = ReliableKafkaProducer(
        "memory:1", store=None, health_check_interval=3600, **journal_options,
        transport=InMemoryTransport.factory(made, capacity=1, script=lambda delivery: "hold"),
    )  # fmt: skip
    producer._in_groups = True
    producer.send_message("orders", {"n": 0})

    def send():
        try:
            result = (
                producer.send_batch("orders", [{"n": 1}])
                if batch
                else producer.send_message("orders", {"n": 1})
            )
            results.append(result)
        except ProducerClosed as error:
            results.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    eventually(lambda: (producer._engine.waiting >= (2 if journal else 1) and sender.is_alive()) or results)
    report = producer.close(0.2)
    sender.join(10)

    assert not sender.is_alive()
    accepted = 1 + (journal and (batch or isinstance(results[0], str)))
    assert report.acknowledged + report.dead + report.journaled == accepted
    assert not producer._engine.pending
    if not journal:
        assert results[0]["failed"] == 1 if batch else isinstance(results[0], ProducerClosed)


@pytest.mark.parametrize("ordering", ["key", "strict", "none"])
def test_a_batch_may_mix_large_messages_tombstones_and_invalid_values(tmp_path, ordering):
    producer, transport = memory_producer(tmp_path, ordering=ordering)
    values = [b"x" * (10 << 20), None, {"n": float("nan")}, b"x" * (10 << 20), {"n": 5}]

    result = producer.send_batch("orders", values, lambda value: "one")

    assert counts(result) == {"total": 5, "sent": 4, "failed": 1, "duplicate": 0}
    sizes = [len(delivery.value or b"") for delivery in transport.log["orders"]]
    assert sizes == [10 << 20, 0, 10 << 20, 7]
    assert producer.close().journaled == 0


@pytest.mark.parametrize("level", ["buffered", "process", "power"])
def test_a_batch_with_a_journal_is_sent_in_order_and_settled(tmp_path, level):
    producer, transport = memory_producer(tmp_path, journal_level=level)

    result = producer.send_batch("orders", [{"n": number} for number in range(1_200)])

    assert counts(result) == {"total": 1_200, "sent": 1_200, "failed": 0, "duplicate": 0}
    sent = transport.log["orders"]
    assert [delivery.seq for delivery in sent] == sorted(delivery.seq for delivery in sent)
    assert len(set(result["message_ids"])) == 1_200
    eventually(lambda: producer.journal.unsettled() == 0)
    producer.close()


def test_a_batch_syncs_the_journal_once_for_many_messages(tmp_path, monkeypatch):
    producer, _ = memory_producer(tmp_path, journal_level="power")
    synced = []
    monkeypatch.setattr(os, "fdatasync", lambda file, sync=os.fdatasync: (synced.append(file), sync(file)))

    producer.send_batch("orders", [{"n": number} for number in range(TOGETHER)])

    assert len(synced) < 10
    producer.close()


def test_a_batch_that_does_not_fit_the_journal_is_accepted_one_by_one(tmp_path, monkeypatch):
    producer, _ = memory_producer(tmp_path)

    def full(records):
        raise JournalFull("no room for so many")

    monkeypatch.setattr(producer.journal, "append_many", full)
    result = producer.send_batch("orders", [{"n": 1}, {"n": 2}])

    assert counts(result) == {"total": 2, "sent": 2, "failed": 0, "duplicate": 0}
    producer.close()


@pytest.mark.slow
def test_a_batch_larger_than_the_clients_queue_waits_in_the_journal_and_is_reported(tmp_path):
    made = []
    producer = ReliableKafkaProducer(
        "memory:1", store=None, transport=InMemoryTransport.factory(made, capacity=50),
        journal_dir=tmp_path / "journal", health_check_interval=3600,
    )  # fmt: skip

    result = producer.send_batch("orders", [{"n": number} for number in range(700)])

    assert counts(result) == {"total": 700, "sent": 700, "failed": 0, "duplicate": 0}
    assert len(made[0].log["orders"]) == 700
    producer.close()


def test_messages_that_wait_in_the_journal_during_close_stay_there(tmp_path):
    made = []
    producer = ReliableKafkaProducer(
        "memory:1", store=None, journal_dir=tmp_path / "journal", health_check_interval=3600,
        transport=InMemoryTransport.factory(made, capacity=1, script=lambda delivery: "hold"),
    )  # fmt: skip
    for number in range(3):
        producer.send_message("orders", {"n": number})
    producer._engine.enqueuer.end()

    feeder = producer._engine.pending_log._thread
    feeder.join(10)

    assert not feeder.is_alive()
    assert producer.close(0.1).journaled == 3


def test_a_full_queue_blocks_up_to_max_block_then_raises_and_drops_nothing():
    producer, transport = quick_producer(
        lambda delivery: "hold", config={"max_block_ms": 50}, memory={"capacity": 2}
    )

    producer.send_message("orders", {})
    producer.send_message("orders", {})
    with pytest.raises(QueueFull, match="queue is still full"):
        producer.send_message("orders", {})
    assert producer.pending_count == 2
    eventually(lambda: transport.held == 2)
    transport.release()
    producer.flush(5)
    assert producer.get_stats()["messages_sent"] == 2
    producer.close()


def test_a_sender_blocked_by_a_full_queue_continues_when_there_is_room():
    producer, transport = quick_producer(lambda delivery: "hold", memory={"capacity": 1})
    producer.send_message("orders", {"n": 1})
    eventually(lambda: transport.held == 1)

    waiting = threading.Thread(target=producer.send_message, args=("orders", {"n": 2}))
    waiting.start()
    transport.release()
    waiting.join(5)

    assert not waiting.is_alive()
    eventually(lambda: transport.held == 1)
    transport.release()
    producer.close()


def test_a_callback_that_sends_to_a_full_queue_gets_an_error_at_once():
    """The callback runs on the thread that makes room, so waiting would block all reports until the timeout."""
    errors = []

    def send_more(ok, message, report):
        try:
            for _ in range(3):
                producer.send_message("other", b"x")
        except QueueFull as error:
            errors.append(str(error))

    script = lambda delivery: "hold" if delivery.topic == "other" else None  # noqa: E731
    producer, transport = quick_producer(script, memory={"capacity": 2}, config={"max_block_ms": 60_000})
    producer.send_message("orders", b"1", callback=send_more)
    eventually(lambda: errors)

    assert "callback cannot wait" in errors[0]
    transport.release()
    producer.close(timeout=5)


def test_a_client_that_fails_while_it_receives_a_message_does_not_have_it():
    class FailingTransport(InMemoryTransport):
        def produce(self, delivery):
            self._listener.fatal(KafkaError(KafkaError._FATAL), 0)
            super().produce(delivery)

    producer = ReliableKafkaProducer(
        "memory:1", store=None, transport=lambda config, listener: FailingTransport(config, listener)
    )
    reports = []
    producer.send_message("orders", {"n": 1}, on_delivery=reports.append)
    producer.flush(5)

    assert [(report.error, report.attempts) for report in reports] == [(None, 1)]
    assert producer.metrics.snapshot().total("failed_attempts") == 0
    producer.close()
