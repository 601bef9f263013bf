"""Messages sent together: claimed and written down in groups, each of which ends for itself."""

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
from tests.support import eventually
from tests.unit.journaling import a_record, crash, kept


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
    """What is claimed and not confirmed."""
    return [key for key, held in dedup._memory._entries.items() if isinstance(held, tuple)]


def counts(result):
    return {name: result[name] for name in ("total", "sent", "failed", "duplicate")}


def some(count, value=b"v"):
    return [Delivery(b"", seq, "orders", None, value) for seq in range(count)]


def test_messages_come_in_groups_of_a_size_the_last_one_smaller():
    assert [len(group) for group in groups(some(2 * TOGETHER + 1))] == [TOGETHER, TOGETHER, 1]
    assert list(groups([])) == []


def test_a_group_of_large_messages_is_a_small_one():
    assert [len(group) for group in groups(some(5, b"x" * (3 << 20)))] == [2, 2, 1]
    assert len(list(groups(some(3, None)))) == 1


def test_of_messages_that_are_made_slowly_only_two_go_together():
    clock = FakeClock()

    def slow():
        for delivery in some(3):
            yield delivery
            clock.advance(1.0)

    assert [len(group) for group in groups(slow(), clock=clock)] == [2, 1]


def test_what_came_before_the_input_failed_is_handed_on():
    first = some(1)

    def broken():
        yield from first
        raise OSError("gone")

    seen = []
    with pytest.raises(OSError, match="gone"):
        seen.extend(groups(broken()))
    assert seen == [first]


def test_what_a_generator_gave_is_sent_before_it_gives_the_next(tmp_path):
    """It was kept until five hundred were there: for as long as the generator took."""
    producer, transport = make(tmp_path)

    def slow():
        for number in range(3):
            yield {"n": number}
            eventually(lambda: len(transport.log["orders"]) == number + 1)  # before the next round

    assert producer.send_batch("orders", slow())["sent"] == 3
    producer.close()


def test_a_generator_that_sends_keeps_its_order(tmp_path):
    producer, transport = make(tmp_path)

    def sends():
        yield {"n": 1}
        producer.send_message("orders", {"n": 2})
        yield {"n": 3}

    assert producer.send_batch("orders", sends())["sent"] == 2
    assert [delivery.value for delivery in transport.log["orders"]] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    producer.close()


def test_a_generator_that_raises_leaves_what_came_before_sent(tmp_path):
    producer, transport = make(tmp_path)

    def broken():
        yield {"n": 1}
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        producer.send_batch("orders", broken())
    producer.flush(10)
    assert len(transport.log["orders"]) == 1
    producer.close()


class Stopping:
    """Takes so many, then something else happens at each."""

    def __init__(self, transport, at, error):
        self._produce, self._left, self._error = transport.produce, at, error
        transport.produce = self

    def __call__(self, delivery):
        if not self._left:
            raise self._error
        self._left -= 1
        self._produce(delivery)


def test_a_transaction_fenced_in_the_middle_of_a_batch_leaves_those_before_it_sent_and_the_others_failed(
    tmp_path,
):
    """The whole batch raised, and two of its messages were sent."""
    producer, transport = make(tmp_path, enable_deduplication=True)
    Stopping(transport, 2, Fenced())

    result = producer.send_batch("orders", [{"n": number} for number in range(5)])

    assert counts(result) == {"total": 5, "sent": 2, "failed": 3, "duplicate": 0}
    eventually(lambda: producer.journal.unsettled() == 0)  # raised means not sent, at the next start either
    assert not claimed(producer.deduplicator)
    producer.close()


@pytest.mark.parametrize("journal", [True, False])
def test_an_interrupt_in_the_middle_of_a_batch_leaves_no_claim_and_nothing_half_accepted(tmp_path, journal):
    """The claims of the seven that were not sent stayed: their copies were held back for minutes."""
    producer, transport = make(tmp_path if journal else None, enable_deduplication=True)
    producer._in_groups = True
    stopping = Stopping(transport, 3, KeyboardInterrupt())
    values = [{"n": number} for number in range(10)]

    with pytest.raises(KeyboardInterrupt):
        producer.send_batch("orders", values)
    producer.flush(10)

    assert len(transport.log["orders"]) == 3
    assert not claimed(producer.deduplicator)
    transport.produce = stopping._produce
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

    def interrupted(deadline, why):
        raise KeyboardInterrupt

    monkeypatch.setattr(producer._engine.enqueuer, "_wait_for_room", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.send_batch("orders", [{"n": number} for number in range(6)])

    assert len(claimed(producer.deduplicator)) == 2  # those that are in flight
    eventually(lambda: made[0].held == 2)
    made[0].release()
    assert producer.close().acknowledged == 2


@pytest.mark.parametrize("interrupted_at", [1, 2])
def test_an_interrupt_while_a_batch_stands_aside_leaves_no_claim(monkeypatch, interrupted_at):
    """The second time a thousand of its messages are on their way."""
    producer, transport = make(enable_deduplication=True)
    producer._in_groups = True
    calls = []

    def aside():
        calls.append(None)
        if len(calls) == interrupted_at:
            raise KeyboardInterrupt

    monkeypatch.setattr(transport, "yield_to_poller", aside)
    with pytest.raises(KeyboardInterrupt):
        producer.send_batch("orders", [{"n": number} for number in range(1100)])
    producer.flush(10)

    assert len(transport.log["orders"]) == (0, 1000)[interrupted_at - 1]
    assert len(calls) == interrupted_at
    assert not claimed(producer.deduplicator)
    assert not producer.pending_count
    producer.close()


def test_a_message_is_nowhere_yet_while_its_sender_stands_aside(tmp_path, monkeypatch):
    producer, transport = make(tmp_path, enable_deduplication=True)
    seen = []

    def aside():
        seen.append(
            (
                producer.pending_count,
                producer.journal.unsettled(),
                len(claimed(producer.deduplicator)),
            )
        )

    monkeypatch.setattr(transport, "yield_to_poller", aside)
    for number in range(1025):
        producer.send_message("orders", {"n": number})
        if number == 1023:
            producer.flush(10)
    producer.close()

    assert seen == [(0, 0, 0), (0, 0, 0)]


def test_an_interrupt_while_redis_is_asked_leaves_no_claim():
    dedup = MessageDeduplicator()

    class Interrupted:
        degraded, released = False, []

        def claim(self, key, owner):
            raise KeyboardInterrupt

        def claim_many(self, asked):
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


def test_a_claim_is_renewed_when_its_message_finds_room_at_last():
    """Claims of a group whose first waited long had expired when the last was sent: a copy of it went out too."""
    made, clock = [], FakeClock()
    producer = ReliableKafkaProducer(
        "memory:1", store=None, enable_deduplication=True, health_check_interval=3600,
        transport=InMemoryTransport.factory(made, capacity=1, script=lambda delivery: "hold"),
    )  # fmt: skip
    producer._in_groups = True
    memory = producer.deduplicator._memory
    memory._clock = clock
    lives = []  # how long the claim of each lives that goes to the client
    produce = made[0].produce

    def seen(delivery):
        produce(delivery)
        lives.append(memory._entries[delivery.checksum][0] - clock.now)

    def room(deadline, why):
        clock.advance(100.0)
        eventually(lambda: made[0].held == 1)
        made[0].release()

    made[0].produce = seen
    producer._engine.enqueuer._wait_for_room = room
    values = [{"n": number} for number in range(3)]
    sender = threading.Thread(target=producer.send_batch, args=("orders", values))
    sender.start()
    eventually(lambda: len(lives) == 3)
    eventually(lambda: made[0].held == 1)
    made[0].release()
    sender.join(10)

    assert min(lives) >= memory._claim_ttl - 100
    producer.close()


def test_a_claim_outlives_the_wait_for_room_and_the_delivery():
    """It ended while the message was in flight that had waited for room, and a copy was sent beside it."""
    producer, _ = make(enable_deduplication=True)
    assert (
        producer.deduplicator._memory._claim_ttl
        > producer.config.max_block + producer.config.delivery_timeout
    )
    producer.close()


def test_messages_whose_sync_failed_are_not_sent_under_their_old_numbers(tmp_path, monkeypatch):
    """Sent again under them they were accepted, and a crash forgot them: their numbers counted as done."""
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
    assert not producer._engine.enqueuer._journal_full  # told again when it begins again
    producer.close()


def test_an_interrupt_while_the_disk_is_waited_for_leaves_nothing_in_the_journal(tmp_path, monkeypatch):
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


def test_a_batch_that_is_taken_ends_the_trouble_with_a_full_journal(tmp_path):
    """After a batch the next want of room was told to nobody."""
    producer, _ = make(tmp_path)
    producer._engine.enqueuer._journal_full = True

    producer.send_batch("orders", [{"n": 1}, {"n": 2}])

    assert not producer._engine.enqueuer._journal_full
    producer.close()


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("journal", [True, False])
def test_a_message_that_waits_for_room_while_the_producer_closes_is_refused_not_lost(
    tmp_path, journal, batch
):
    """It was taken by a client that nobody polls any more: accepted, and never heard of again."""
    made, ended = [], []
    where = {"journal_dir": tmp_path / "journal", "ordering": "none"} if journal else {}
    producer = ReliableKafkaProducer(
        "memory:1", store=None, health_check_interval=3600, **where,
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
            ended.append(result)
        except ProducerClosed as error:
            ended.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    eventually(lambda: (producer._engine.waiting >= (2 if journal else 1) and sender.is_alive()) or ended)
    report = producer.close(0.2)
    sender.join(10)

    assert not sender.is_alive()
    accepted = 1 + (journal and (batch or isinstance(ended[0], str)))
    assert report.acknowledged + report.dead + report.journaled == accepted
    assert not producer._engine.pending
    if not journal:
        assert ended[0]["failed"] == 1 if batch else isinstance(ended[0], ProducerClosed)


def test_equal_messages_in_one_group_are_sent_once(tmp_path):
    producer, transport = make(tmp_path, enable_deduplication=True, ordering="strict")

    result = producer.send_batch(
        "orders", [{"n": number % 3} for number in range(30)], lambda value: value["n"]
    )

    assert counts(result) == {"total": 30, "sent": 3, "failed": 0, "duplicate": 27}
    assert len(transport.log["orders"]) == 3
    producer.close()


@pytest.mark.parametrize("ordering", ["key", "strict", "none"])
def test_large_messages_tombstones_and_what_cannot_be_written_in_one_batch(tmp_path, ordering):
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


def test_a_batch_syncs_once_for_many(tmp_path, monkeypatch):
    producer, _ = make(tmp_path, journal_level="power")
    synced = []
    monkeypatch.setattr(os, "fdatasync", lambda file, sync=os.fdatasync: (synced.append(file), sync(file)))

    producer.send_batch("orders", [{"n": number} for number in range(TOGETHER)])

    assert len(synced) < 10
    producer.close()


def test_a_batch_tells_which_failed_and_which_were_there_before(tmp_path):
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


def test_a_batch_that_the_journal_cannot_take_at_once_goes_one_by_one(tmp_path, monkeypatch):
    producer, _ = make(tmp_path)

    def full(records):
        raise JournalFull("no room for so many")

    monkeypatch.setattr(producer.journal, "append_many", full)
    result = producer.send_batch("orders", [{"n": 1}, {"n": 2}])

    assert counts(result) == {"total": 2, "sent": 2, "failed": 0, "duplicate": 0}
    producer.close()


def test_a_batch_larger_than_the_clients_queue_waits_in_the_journal_and_is_told_all_the_same(tmp_path):
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


def test_of_records_that_have_no_room_together_none_is_kept(tmp_path):
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


def test_what_waits_in_the_journal_while_the_producer_closes_stays_there(tmp_path):
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
