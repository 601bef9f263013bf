"""Borrowed connections: read-only reads, time limits, threads, and forked children."""

from __future__ import annotations

import subprocess
import sys
import threading

import duckdb
import pytest

from benchmarks.native import native
from producer_core.errors import StoreError
from tests.fixtures.store_batches import batch
from tests.support import eventually

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
SLOW = "SELECT count(*) FROM range(1000000) a, range(1000000) b"


def test_a_reader_cannot_change_anything(store):
    with pytest.raises(StoreError, match="read-only"):
        with store.borrow() as connection:
            connection.execute("DELETE FROM statistics")


def test_a_failed_write_block_changes_nothing(store):
    with pytest.raises(ZeroDivisionError):
        with store.borrow(write=True) as connection:
            connection.execute("INSERT INTO settings VALUES ('x', '1', 0)")
            raise ZeroDivisionError

    assert store.settings() == {}


def test_a_write_leaves_no_log_for_readers_to_replay(store):
    store.append(batch("p", 0))

    assert not store.path.with_name("store.duckdb.wal").exists()


def test_a_slow_read_is_cancelled_with_an_error(store, monkeypatch):
    monkeypatch.setattr("producer_core.store.connection_pool.READ_LIMIT", 0.1)

    with pytest.raises(StoreError, match="exceeded its time limit and was cancelled"):
        with store.borrow() as connection:
            connection.execute(SLOW)

    assert store.rows("totals")  # the next read works


def test_a_reader_can_set_a_longer_limit(store, monkeypatch):
    monkeypatch.setattr("producer_core.store.connection_pool.READ_LIMIT", 0.001)

    with store.borrow(limit=30) as connection:
        assert connection.execute("SELECT count(*) FROM range(3000000)").fetchone() == (3000000,)


def test_a_thread_may_borrow_again_inside_its_own_block(store):
    with store.borrow(write=True) as connection:
        connection.execute("INSERT INTO settings VALUES ('x', '1', 0)")
        assert store.settings() == {"x": 1}
        assert store.take_lease("a", "me", 1, 0)

    with store.borrow():
        assert store.settings() == {"x": 1}
        with pytest.raises(StoreError, match="cannot start to write"):
            store.set_setting("x", 2)


@pytest.mark.slow
def test_a_child_that_ends_normally_does_not_crash_in_the_store(store):
    code = (
        "import os, sys; from producer_core.store import Store\n"
        "store = Store.open(sys.argv[1])\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(store.path)], capture_output=True, text=True, timeout=60
    )

    assert done.stdout.strip() == "3"


def test_a_closed_store_can_be_used_again(store):
    store.append(batch("p", 0))
    store.close()
    store.close()

    assert store.rows("totals")[0]["accepted"] == 1


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_writes(store, monkeypatch):
    monkeypatch.setattr("producer_core.store.connection_pool._RENEW_AFTER_BORROWS", 50)

    def write(times):
        for number in range(times):
            store.set_setting("x", number)
        return in_use()

    def grown():
        before = in_use()
        return write(600) - before

    write(60)  # the first writes allocate memory that is kept
    # DuckDB keeps 4,700 bytes of each write in every round; allocations by other threads of the tests vary by round.
    assert any(grown() < 1_400_000 for _ in range(3))


def in_use():
    found = native()
    if found is None:
        pytest.skip("only glibc 2.33 and later tells what of its memory is in use")
    return found.in_use


def test_an_interrupted_block_leaves_the_store_usable(store):
    with pytest.raises(KeyboardInterrupt):
        with store.borrow(write=True) as connection:
            connection.execute("INSERT INTO settings VALUES ('x', '1', 0)")
            raise KeyboardInterrupt

    assert store.settings() == {}


def test_the_read_limit_leaves_no_thread_behind(store):
    before = threading.active_count()
    store.rows("totals")

    eventually(lambda: threading.active_count() <= before)


def test_a_mistake_in_a_query_is_a_store_error_with_its_cause(store):
    with pytest.raises(StoreError, match="nowhere") as caught:
        with store.borrow() as connection:
            connection.execute("SELECT * FROM nowhere")
    assert isinstance(caught.value.__cause__, duckdb.Error)


ENDING = """
import sys, threading, time
from producer_core.store import Store

store = Store.open(sys.argv[1])

def work():
    while True:
        with store.borrow(write=True) as connection:
            connection.execute("CREATE OR REPLACE TEMP TABLE t AS SELECT range AS r FROM range(20000)")
            connection.execute("SELECT sum(r) FROM t").fetchall()

threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""


@pytest.mark.slow
def test_a_thread_inside_the_store_does_not_abort_the_interpreter_at_exit(tmp_path):
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", ENDING, str(tmp_path / "store.duckdb")], capture_output=True, timeout=60
        )
        assert ended.returncode == 0, ended.stderr.decode()


def test_an_error_about_a_draft_names_the_store(store):
    with pytest.raises(StoreError, match=r"store\.duckdb\b(?!\.new)"):
        with store._pool.attached(store.path.parent / "missing" / "store.duckdb.new", write=True):
            pass
