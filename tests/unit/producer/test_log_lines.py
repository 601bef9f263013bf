"""The log lines of a producer name the file, the reason and the fix in their text."""

from __future__ import annotations

import os
import threading

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.delivery.journal import Journal
from producer_core.errors import StoreFull
from producer_core.producer import store_backend
from producer_core.testing import InMemoryTransport
from tests.fixtures.journal import fill, segment_of


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
