"""Heartbeats wait in the write-ahead log for a checkpoint: no reader, copy or restored file lacks or misreads them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from producer_core._internal import read_activity
from producer_core.store import Store
from producer_core.store.checkpoint import _MAX_LOG_SIZE
from tests.fixtures.store_batches import batch, heartbeat


@pytest.fixture(autouse=True)
def unread(store):
    """Nothing but this thread uses the store, and its reads do not count."""
    with read_activity.unattended():
        os.utime(store.path.with_name("store.duckdb.gate"), (0, 0))
        store.append(heartbeat("p", 0))
        yield


def log_size(store):
    log = store.path.with_name("store.duckdb.wal")
    return log.stat().st_size if log.exists() else 0


def last_batch(store, producer="p"):
    with store.borrow() as connection:
        (row,) = connection.execute(
            "SELECT max(last_batch) FROM merged_batches WHERE producer_id = ?", [producer]
        ).fetchall()
        return row[0]


def test_a_heartbeat_stays_in_the_log_and_is_visible_to_other_processes(store):
    store.append(heartbeat("p", 1))
    store.append(heartbeat("p", 2))

    assert log_size(store)
    assert last_batch(Store.open(store.path)) == 2
    assert log_size(store), "a reader must leave the log"


def test_every_other_write_moves_the_log_into_the_file(store):
    for number, write in enumerate(
        [
            lambda: store.set_setting("x", 1),
            lambda: store.append(batch("q", 0)),
            lambda: Store.open(store.path).set_setting("y", 1),
            lambda: store.append(heartbeat("p", 100, closed_at=5.0)),
        ]
    ):
        store.append(heartbeat("p", number + 1))
        assert log_size(store)

        write()

        assert not log_size(store)


def test_a_checkpoint_a_minute_and_a_bound_keep_the_log_short(store):
    sizes = []
    for number in range(1, 40):
        store.append(heartbeat("p", number))
        sizes.append(log_size(store))
    assert 0 < max(sizes) <= _MAX_LOG_SIZE and 0 in sizes

    store.append(heartbeat("p", 40))
    os.utime(store.path, (0, time.time() - 61))
    store.append(heartbeat("p", 41))
    assert not log_size(store)


def test_a_store_that_is_read_needs_no_log(store):
    store.append(heartbeat("p", 1))
    os.utime(store.path.with_name("store.duckdb.gate"))

    store.append(heartbeat("p", 2))

    assert not log_size(store)


def test_a_snapshot_contains_the_log(store, tmp_path):
    store.append(heartbeat("p", 1))

    copy = store.snapshot(tmp_path / "copy.duckdb")

    assert last_batch(Store.open(copy)) == 1
    assert not (tmp_path / "copy.duckdb.wal").exists()


def test_a_compacted_store_contains_the_log(store):
    store.append(heartbeat("p", 1))

    store.compact()

    assert last_batch(store) == 1
    assert not log_size(store)


def test_heartbeats_continue_after_a_copy_was_restored_beside_their_log(store, tmp_path, caplog):
    copy = shutil.copy(store.path, tmp_path / "copy.duckdb")
    store.set_setting("x", 1)
    store.append(heartbeat("p", 1))
    shutil.copy(copy, store.path)

    store.append(heartbeat("p", 2))

    assert last_batch(store) == 2
    assert "the write-ahead log of a replaced store was set aside" in caplog.text
    assert store.take_replaced("p") is not None
    assert store.path.with_name("store.duckdb.wal.orphan").exists()


def test_a_copy_of_the_last_checkpoint_continues_with_the_log(store, tmp_path, caplog):
    copy = shutil.copy(store.path, tmp_path / "copy.duckdb")
    store.append(heartbeat("p", 1))
    shutil.copy(copy, store.path)

    assert last_batch(store) == 1
    assert store.append(heartbeat("p", 2)) == 1
    assert "set aside" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.02, 0.05, 0.11, 0.23])
def test_no_committed_heartbeat_is_lost_when_its_process_is_killed(store, delay):
    code = (
        "import sys, itertools\n"
        "from producer_core._internal.read_activity import mark_background_thread\n"
        "from producer_core.store import Store\n"
        "from tests.fixtures.store_batches import heartbeat\n"
        "mark_background_thread()\n"
        "store = Store.open(sys.argv[1])\n"
        "for number in itertools.count():\n"
        "    store.append(heartbeat(sys.argv[2], number)); print(number, flush=True)\n"
    )
    for name in ("child-1", "child-2", "child-3"):
        command = [sys.executable, "-c", code, str(store.path), name]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        committed = [int(line) for line in child.communicate()[0].splitlines()]

        assert last_batch(store, name) >= max(committed, default=0)
        store.append(heartbeat("p", int(1e6 * time.time())))


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_a_torn_end_of_the_log_costs_only_the_heartbeat_that_was_not_committed(store, cut):
    store.append(heartbeat("p", 1))
    store.append(heartbeat("p", 2))
    os.truncate(store.path.with_name("store.duckdb.wal"), log_size(store) - cut)

    assert last_batch(store) == 1
    assert store.append(heartbeat("p", 2), heartbeat("p", 3)) == 2
    assert last_batch(Store.open(store.path)) == 3
