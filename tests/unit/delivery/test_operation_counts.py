"""The cost of a message in function calls and system calls, which `make check` can hold on any machine."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, Message

from producer_core import ReliableKafkaProducer
from producer_core.delivery import sending_client
from producer_core.delivery.journal import Journal, JournalRecord
from tests.fixtures.journal import a_record
from tests.fixtures.operation_counts import counts_of
from tests.support import eventually
from tests.unit.delivery.test_hot_path_cost import Client, ManualTransport

MESSAGES = 1_000
THREADS = 16
BATCH = 500


REJECTION = KafkaError(KafkaError.POLICY_VIOLATION, "the topic's policy does not allow it")
STATISTICS = '{"msg_cnt": 0, "time": 0, "ts": 0, "brokers": {}, "topics": {}}'


class RejectingClient(Client):
    """Reports each message as permanently rejected."""

    def report(self):
        for report in self._waiting:
            report(REJECTION, Message(topic="orders", partition=0, latency=0.004))
        self._waiting.clear()


@pytest.fixture
def send_and_settle(monkeypatch):
    """Return a function that sends messages with a producer of these options, and settles them in batches."""
    opened = []

    def with_options(*, topics=1, batch=MESSAGES, on_delivery=None, client=Client, store=None, **options):
        monkeypatch.setattr(sending_client, "Producer", client)
        made = []

        def factory(config, listener):
            made.append(ManualTransport(config, listener))
            return made[0]

        producer = ReliableKafkaProducer("localhost:1", store=store, transport=factory, **options)
        opened.append(producer)

        def send(number):
            topic = f"orders-{number % topics}"
            producer.send_message(topic, {"order": number}, "key", on_delivery=on_delivery)

        def send_all():
            for first in range(0, MESSAGES, batch):
                for number in range(first, first + batch):
                    send(number)
                made[0].report()
            if client is RejectingClient:
                made[0]._statistics(STATISTICS)  # decide the verdicts

        send_all()  # the first messages of a topic cost more
        return send_all

    yield with_options
    for producer in opened:
        producer.close()


def test_a_message_takes_few_function_calls_and_no_system_call(send_and_settle):
    """It took 13 calls when this test was written, to send and to settle."""
    counts = counts_of(send_and_settle())

    assert counts.calls / MESSAGES <= 17
    assert counts.system.total() <= MESSAGES / 50


@pytest.mark.parametrize(
    ("level", "mapped", "calls", "writes"),
    [("buffered", True, 32, 0.1), ("process", True, 32, 0.1), ("process", False, 40, 1.1)],
)
def test_a_message_in_the_journal_takes_few_calls_and_no_sync(
    send_and_settle, tmp_path, monkeypatch, level, mapped, calls, writes
):
    """It took 24, 24 and 34 calls when this test was written. Where files cannot be mapped, a record takes a system call."""
    monkeypatch.setattr("producer_core.delivery.journal.journal.can_map", lambda folder: mapped)
    counts = counts_of(send_and_settle(journal_dir=tmp_path / "journal", journal_level=level))

    assert counts.calls / MESSAGES <= calls
    written = sum(counts.system[name] for name in ("write", "writev", "pwrite", "pwritev"))
    assert written <= writes * MESSAGES
    assert counts.system["fsync"] + counts.system["fdatasync"] <= 2


def test_a_message_of_a_batch_with_a_thousand_topics_takes_few_calls(send_and_settle):
    """It took 21 calls when this test was written; a batch then has one message of each topic."""
    counts = counts_of(send_and_settle(topics=1_000))

    assert counts.calls / MESSAGES <= 24


def test_a_rejected_message_takes_few_calls_on_the_poll_thread(send_and_settle, tmp_path):
    """It took 79 calls when this test was written, to send it and to make a dead letter that the recorder writes."""
    counts = counts_of(send_and_settle(client=RejectingClient, store=tmp_path / "store.duckdb"))

    assert counts.calls / MESSAGES <= 84
    assert counts.system.total() <= MESSAGES / 50


def test_a_callback_of_a_small_batch_follows_few_calls(send_and_settle):
    """It took 35 calls a message when this test was written; at 1,000 messages per second, a response has about five."""
    delivered = []
    send_all = send_and_settle(batch=5, on_delivery=delivered.append)
    delivered.clear()

    counts = counts_of(send_all)

    assert len(delivered) == MESSAGES
    assert counts.calls / MESSAGES <= 37
    assert counts.system.total() <= MESSAGES / 50


def test_a_synced_message_takes_few_calls_one_write_and_one_sync(send_and_settle, tmp_path):
    """It took 49 calls when this test was written."""
    counts = counts_of(send_and_settle(journal_dir=tmp_path / "journal", journal_level="power"))

    assert counts.calls / MESSAGES <= 60
    assert counts.system["pwrite"] <= 1.1 * MESSAGES
    assert counts.system["fsync"] + counts.system["fdatasync"] <= MESSAGES + 2


def test_threads_that_write_during_a_sync_share_the_next_one(tmp_path, monkeypatch):
    """One system call writes their messages, and one syncs them."""
    started, released, calls = threading.Event(), threading.Event(), []
    real = {name: getattr(os, name) for name in ("pwrite", "fdatasync")}

    def pwrite(*args):
        calls.append("pwrite")
        return real["pwrite"](*args)

    def fdatasync(file):
        calls.append("fdatasync")
        started.set()
        assert released.wait(20)
        real["fdatasync"](file)

    with (
        Journal.open(tmp_path / "journal", level="power") as journal,
        ThreadPoolExecutor(THREADS) as pool,
        monkeypatch.context() as patch,
    ):
        journal.append(a_record(0))  # the first message creates files
        patch.setattr(os, "pwrite", pwrite)
        patch.setattr(os, "fdatasync", fdatasync)
        sends = [pool.submit(journal.append, a_record(1))]
        assert started.wait(20)
        sends += [pool.submit(journal.append, a_record(seq)) for seq in range(2, THREADS + 1)]
        eventually(lambda: journal.unsettled() == THREADS + 1)
        released.set()
        for send in sends:
            send.result(20)
        assert calls == ["pwrite", "fdatasync"] * 2


def a_plain_record(seq):
    return JournalRecord(seq, "orders", b"key", bytes(180))


@pytest.mark.parametrize(("level", "syncs"), [("buffered", 0), ("process", 0), ("power", 1)])
def test_a_batch_in_the_journal_takes_few_calls_per_record_and_one_write(tmp_path, level, syncs):
    """It took 3.3 calls per record when this test was written, and 8.1 with a checksum per record."""
    with Journal.open(tmp_path / "journal", level=level) as journal:
        journal.append_many([a_plain_record(seq) for seq in range(BATCH)])
        records = [a_plain_record(seq) for seq in range(BATCH, 2 * BATCH)]
        counts = counts_of(lambda: journal.append_many(records))

    assert counts.calls / BATCH <= 4.5
    assert counts.system["pwrite"] <= 1
    assert counts.system["fsync"] + counts.system["fdatasync"] == syncs
