"""Messages sent together: claimed and written down in groups, each of which ends for itself."""

from __future__ import annotations

import os

import pytest
from confluent_kafka import KafkaError

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.batches import TOGETHER, groups
from producer_core.errors import JournalFull
from producer_core.journal import Journal
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


def counts(result):
    return {name: result[name] for name in ("total", "sent", "failed", "duplicate")}


def test_items_come_in_groups_of_a_size_the_last_one_smaller():
    assert [len(group) for group in groups(range(2 * TOGETHER + 1))] == [TOGETHER, TOGETHER, 1]
    assert list(groups([])) == []


def test_of_a_slow_input_only_two_go_together():
    clock = FakeClock()

    def slow():
        for number in range(3):
            yield number
            clock.advance(1.0)

    assert list(groups(slow(), clock=clock)) == [[0, 1], [2]]


def test_what_came_before_the_input_failed_is_handed_on():
    def broken():
        yield 1
        raise OSError("gone")

    seen = []
    with pytest.raises(OSError, match="gone"):
        seen.extend(groups(broken()))
    assert seen == [[1]]


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
