"""send_batch: messages are claimed and journaled in groups, and each message has its own outcome."""

from __future__ import annotations

import os
import threading

import pytest
from confluent_kafka import KafkaError

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.grouping import TOGETHER, groups
from producer_core.delivery.journal import Journal
from producer_core.errors import Fenced, JournalFull, ProducerClosed
from producer_core.testing import FakeClock, InMemoryTransport
from tests.fixtures.journal import a_record, crash, kept
from tests.support import eventually


def make(tmp_path=None, script=None, **options):
    made = []
    journal = {} if tmp_path is None else {"journal_dir": tmp_path / "journal"}
    producer = ReliableKafkaProducer(
        "memory:1",
        None,
        RetryConfig(max_retries=0),
        store=None,
        transport=InMemoryTransport.factory(made, script=script),
        health_check_interval=3600,
        **journal,
        **options,
    )
    return producer, made[0]


def claimed(dedup):
    """Return the keys that are claimed and not confirmed."""
    return [key for key, held in dedup._memory._entries.items() if isinstance(held, tuple)]


def counts(result):
    return {name: result[name] for name in ("total", "sent", "failed", "duplicate")}


def make_deliveries(count, value=b"v"):
    return [Delivery(b"", seq, "orders", None, value) for seq in range(count)]


def test_messages_are_grouped_by_count():
    assert [len(group) for group in groups(make_deliveries(2 * TOGETHER + 1))] == [TOGETHER, TOGETHER, 1]
    assert list(groups([])) == []


def test_large_messages_are_grouped_by_size():
    assert [len(group) for group in groups(make_deliveries(5, b"x" * (3 << 20)))] == [2, 2, 1]
    assert len(list(groups(make_deliveries(3, None)))) == 1


def test_messages_of_a_slow_input_are_grouped_by_time():
    clock = FakeClock()

    def slow():
        for delivery in make_deliveries(3):
            yield delivery
            clock.advance(1.0)

    assert [len(group) for group in groups(slow(), clock=clock)] == [2, 1]


def test_messages_before_a_failure_of_the_input_are_yielded():
    first = make_deliveries(1)

    def broken():
        yield from first
        raise OSError("gone")

    seen = []
    with pytest.raises(OSError, match="gone"):
        seen.extend(groups(broken()))
    assert seen == [first]


def test_a_message_of_a_slow_generator_is_sent_before_the_next_one(tmp_path):
    """Regression: messages waited until the generator had yielded five hundred."""
    producer, transport = make(tmp_path)

    def slow():
        for number in range(3):
            yield {"n": number}
            eventually(lambda: len(transport.log["orders"]) == number + 1)  # before the next iteration

    assert producer.send_batch("orders", slow())["sent"] == 3
    producer.close()


def test_messages_that_a_generator_sends_keep_their_order(tmp_path):
    producer, transport = make(tmp_path)

    def sending_generator():
        yield {"n": 1}
        producer.send_message("orders", {"n": 2})
        yield {"n": 3}

    assert producer.send_batch("orders", sending_generator())["sent"] == 2
    assert [delivery.value for delivery in transport.log["orders"]] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    producer.close()


def test_messages_before_an_exception_in_a_generator_are_sent(tmp_path):
    producer, transport = make(tmp_path)

    def broken():
        yield {"n": 1}
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        producer.send_batch("orders", broken())
    producer.flush(10)
    assert len(transport.log["orders"]) == 1
    producer.close()


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
    producer, transport = make(tmp_path, enable_deduplication=True)
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
    producer, transport = make(tmp_path if journal else None, enable_deduplication=True)
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

    def interrupted(deadline, reason):
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
    producer, transport = make(enable_deduplication=True)
    producer._in_groups = True
    calls = []

    def yield_to_poller():
        calls.append(None)
        if len(calls) == interrupted_at:
            raise KeyboardInterrupt

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
    producer, transport = make(tmp_path, enable_deduplication=True)
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


def test_an_interrupt_during_a_claim_in_redis_leaves_no_claim():
    dedup = MessageDeduplicator()

    class Interrupted:
        degraded, released = False, []

        def claim(self, key, owner):
            raise KeyboardInterrupt

        def claim_many(self, keys):
            raise KeyboardInterrupt

        def release(self, key, owner):
            self.released.append(key)

    dedup._outbox = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        dedup.claim("a", "orders", b"x" * 24)
    with pytest.raises(KeyboardInterrupt):
        dedup.claim_many([("b", "orders", b"x" * 24), ("c", "orders", b"y" * 24)])

    assert not claimed(dedup)
    assert len(Interrupted.released) == 3


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

    def make_room(deadline, reason):
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
    producer, _ = make(enable_deduplication=True)
    assert (
        producer.deduplicator._memory._claim_ttl
        > producer.config.max_block + producer.config.delivery_timeout
    )
    producer.close()


def test_messages_whose_sync_failed_get_new_sequences(tmp_path, monkeypatch):
    """Regression: under their old sequences, which counted as settled, they were lost in a crash."""
    producer, transport = make(tmp_path, journal_level="power", enable_deduplication=True)
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
    producer, transport = make(tmp_path, journal_level="power")

    def interrupted(ticket):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(producer.journal._sync, "wait", interrupted)
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


def test_an_accepted_batch_ends_the_state_of_a_full_journal(tmp_path):
    """Regression: after a batch the next full journal was not reported."""
    producer, _ = make(tmp_path)
    producer._engine.enqueuer._journal_full = True

    producer.send_batch("orders", [{"n": 1}, {"n": 2}])

    assert not producer._engine.enqueuer._journal_full
    producer.close()


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


def test_equal_messages_in_one_group_are_sent_once(tmp_path):
    producer, transport = make(tmp_path, enable_deduplication=True, ordering="strict")

    result = producer.send_batch(
        "orders", [{"n": number % 3} for number in range(30)], lambda value: value["n"]
    )

    assert counts(result) == {"total": 30, "sent": 3, "failed": 0, "duplicate": 27}
    assert len(transport.log["orders"]) == 3
    producer.close()


@pytest.mark.parametrize("ordering", ["key", "strict", "none"])
def test_a_batch_may_mix_large_messages_tombstones_and_invalid_values(tmp_path, ordering):
    producer, transport = make(tmp_path, ordering=ordering)
    values = [b"x" * (10 << 20), None, {"n": float("nan")}, b"x" * (10 << 20), {"n": 5}]

    result = producer.send_batch("orders", values, lambda value: "one")

    assert counts(result) == {"total": 5, "sent": 4, "failed": 1, "duplicate": 0}
    sizes = [len(delivery.value or b"") for delivery in transport.log["orders"]]
    assert sizes == [10 << 20, 0, 10 << 20, 7]
    assert producer.close().journaled == 0


@pytest.mark.parametrize("level", ["buffered", "process", "power"])
def test_a_batch_with_a_journal_is_sent_in_order_and_settled(tmp_path, level):
    producer, transport = make(tmp_path, journal_level=level)

    result = producer.send_batch("orders", [{"n": number} for number in range(1_200)])

    assert counts(result) == {"total": 1_200, "sent": 1_200, "failed": 0, "duplicate": 0}
    sent = transport.log["orders"]
    assert [delivery.seq for delivery in sent] == sorted(delivery.seq for delivery in sent)
    assert len(set(result["message_ids"])) == 1_200
    eventually(lambda: producer.journal.unsettled() == 0)
    producer.close()


def test_a_batch_syncs_the_journal_once_for_many_messages(tmp_path, monkeypatch):
    producer, _ = make(tmp_path, journal_level="power")
    synced = []
    monkeypatch.setattr(os, "fdatasync", lambda file, sync=os.fdatasync: (synced.append(file), sync(file)))

    producer.send_batch("orders", [{"n": number} for number in range(TOGETHER)])

    assert len(synced) < 10
    producer.close()


def test_the_result_of_a_batch_counts_failures_and_duplicates(tmp_path):
    producer, _ = make(
        tmp_path,
        lambda delivery: KafkaError.POLICY_VIOLATION if b"bad" in delivery.value else None,
        enable_deduplication=True,
    )

    first = producer.send_batch("orders", [{"n": 1}, {"n": 1}, {"n": "bad"}, {"n": float("nan")}])
    second = producer.send_batch("orders", [{"n": 1}, {"n": 2}, {"n": "bad"}])

    assert counts(first) == {"total": 4, "sent": 1, "failed": 2, "duplicate": 1}
    assert counts(second) == {"total": 3, "sent": 1, "failed": 1, "duplicate": 1}
    producer.close()


def test_a_batch_that_does_not_fit_the_journal_is_accepted_one_by_one(tmp_path, monkeypatch):
    producer, _ = make(tmp_path)

    def full(records):
        raise JournalFull("no room for so many")

    monkeypatch.setattr(producer.journal, "append_many", full)
    result = producer.send_batch("orders", [{"n": 1}, {"n": 2}])

    assert counts(result) == {"total": 2, "sent": 2, "failed": 0, "duplicate": 0}
    producer.close()


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


@pytest.mark.parametrize("level", ["process", "power"])
def test_records_appended_together_survive_a_crash_together(tmp_path, level):
    path = tmp_path / "own"
    with Journal.open(path, level=level) as journal:
        journal.append_many([a_record(seq) for seq in range(5)])
        copy = crash(path, tmp_path)

    with Journal.open(copy, level=level) as again:
        assert kept(again) == [0, 1, 2, 3, 4]
        assert again.next_sequence >= 5


def test_records_that_do_not_fit_together_are_all_refused(tmp_path):
    with Journal.open(tmp_path / "own", max_bytes=20_000) as journal:
        with pytest.raises(JournalFull):
            journal.append_many([a_record(seq, b"x" * 5_000) for seq in range(10)])
        assert kept(journal) == []
        journal.append_many([a_record(seq) for seq in range(10, 12)])
        assert kept(journal) == [10, 11]


def test_records_whose_sync_failed_are_not_accepted(tmp_path, monkeypatch):
    with Journal.open(tmp_path / "own", level="power") as journal:
        monkeypatch.setattr(os, "fdatasync", lambda file: (_ for _ in ()).throw(OSError(5, "bad disk")))
        with pytest.raises(JournalFull):
            journal.append_many([a_record(seq) for seq in range(3)])
        monkeypatch.undo()
        assert kept(journal) == []


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
