"""The log lines of a producer name the file, the reason and the fix in their text."""

from __future__ import annotations

import logging
import os
import threading
import time

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.delivery.journal import Journal
from producer_core.errors import StoreFull
from producer_core.producer import store_backend
from producer_core.testing import InMemoryTransport
from tests.fixtures.journal import fill, segment_of
from tests.fixtures.log_lines import Lines


def make(store=None, **options):
    transport = InMemoryTransport.factory([], **options.pop("broker", {}))
    return ReliableKafkaProducer("nowhere:9092", store=store, transport=transport, **options)


def lines(caplog, start):
    return [text for text in caplog.messages if text.startswith(start)]


def test_an_unusable_default_store_is_logged_with_its_path_the_reason_and_the_fix(
    tmp_path, monkeypatch, caplog
):
    path = tmp_path / "store.duckdb"
    path.write_bytes(b"not a store" * 10_000)
    monkeypatch.setenv("PRODUCER_CORE_STORE", str(path))
    make("auto").close()

    (line,) = lines(caplog, "default store not available")
    assert f"error=The file {path} is not a DuckDB file" in line and "--store" in line


def test_a_full_disk_at_the_start_is_logged_with_the_reason_and_the_fix(tmp_path, monkeypatch, caplog):
    def fail(path):
        raise StoreFull(f"The disk of the store {path} is full.", fix="Free some space.")

    monkeypatch.setattr(store_backend, "check_writable", fail)
    make(tmp_path / "s.duckdb").close()

    (line,) = lines(caplog, "store not available yet")
    assert line.endswith(f"error=The disk of the store {tmp_path / 's.duckdb'} is full. Free some space.")


def test_a_flush_that_times_out_logs_the_number_of_pending_messages(caplog):
    answered = threading.Event()

    def answer_late(delivery):
        answered.wait(60)

    with make(broker={"script": answer_late}) as producer:
        producer.send_message("orders", b"1")
        producer.flush(0.01)
        answered.set()

    assert lines(caplog, "flush timed out") == ["flush timed out: pending=1, timeout=0.01"]


@pytest.mark.parametrize("stored", [False, True], ids=["without a store", "with a store"])
def test_journal_content_that_was_overwritten_is_logged_at_the_next_start(tmp_path, caplog, stored):
    path = tmp_path / "journal"
    with Journal.open(path) as journal:
        fill(journal, range(100))
    size = segment_of(path).stat().st_size
    segment_of(path).write_bytes(os.urandom(size))

    for _ in range(2):
        make(tmp_path / "s.duckdb" if stored else None, journal_dir=path).close()

    (line,) = lines(caplog, "journal damaged")
    assert f"{size:,} bytes of {segment_of(path)} from byte 0 cannot be decoded" in line
    assert "the content is lost" in line


def test_an_input_of_a_batch_that_is_not_accepted_is_logged_with_its_error(caplog):
    with make() as producer:
        producer.send_batch("orders", [{"n": object()}])

    (line,) = lines(caplog, "message of a batch not accepted: error=")
    assert "At value['n']" in line


def test_start_and_close_are_logged_with_the_report(caplog):
    caplog.set_level(logging.INFO, "producer_core")
    with make() as producer:
        producer.send_message("orders", b"1")
        producer.flush()

    (started,), (closed,) = lines(caplog, "producer started"), lines(caplog, "producer closed")
    assert started.startswith("producer started: brokers=nowhere:9092, delivery=at_least_once, ordering=key")
    assert closed.startswith("producer closed: acknowledged=1, dead=0, journaled=0, lost=0")
    assert caplog.records[-1].acknowledged == 1


# handlers


@pytest.fixture
def handlers():
    """Add handlers to the logger of the package until the end of the test."""
    log, added = logging.getLogger("producer_core"), []

    def add(handler):
        log.addHandler(handler)
        added.append(handler)
        return handler

    yield add
    for handler in added:
        log.removeHandler(handler)


def fail(report):
    raise ValueError("from a delivery callback")


def send(producer, count=3):
    for number in range(count):
        producer.send_message("orders", {"n": number}, on_delivery=fail)


def test_a_handler_that_blocks_delays_no_message_and_close_by_a_second_at_most(handlers):
    blocked = handlers(Lines())
    blocked.free.clear()
    producer = make()
    try:
        send(producer)
        producer.flush(10)
        acknowledged = producer.get_basic_stats()["messages_sent"]
        before = time.monotonic()
        producer.close()
        closed_within = time.monotonic() - before
    finally:
        blocked.free.set()

    assert acknowledged == 3
    assert closed_within < 5  # one second, and a loaded machine


def test_a_handler_that_sends_through_the_producer_causes_no_further_lines(handlers):
    producer = make()

    class Sends(Lines):
        def emit(self, record):
            super().emit(record)
            if len(self.records) < 100:
                send(producer, 1)
                producer.send_batch("orders", [object()])
                producer.flush(5)

    sends = handlers(Sends())
    send(producer)
    producer.send_batch("orders", [object()])
    producer.close()

    assert sorted(text.partition(":")[0] for text in sends.texts) == [
        "delivery callback failed", "message of a batch not accepted",
    ]  # fmt: skip


def test_a_handler_that_raises_stops_nothing(handlers, capsys):
    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("the log collector is down")

    handlers(Broken())
    with make() as producer:
        send(producer)
        producer.send_batch("orders", [object()])
        producer.flush(10)

    assert producer.close().acknowledged == 3
    assert "the log collector is down" in capsys.readouterr().err


def test_a_handler_may_close_the_producer(handlers):
    producer = make()

    class Closes(Lines):
        def emit(self, record):
            producer.close(5)
            super().emit(record)

    closes = handlers(Closes())
    send(producer)
    producer.flush(10)

    assert producer.close().acknowledged == 3
    assert closes.texts[0].startswith("delivery callback failed")
