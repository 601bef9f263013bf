"""The lock of a store's file: between threads, stores, processes and forked children."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
import time

import pytest

from producer_core.errors import StoreLocked
from producer_core.store import Store
from tests.fixtures.store_batches import batch

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.mark.slow
def test_threads_and_stores_mixed_on_one_file_lose_no_write(tmp_path):
    path = tmp_path / "store.duckdb"
    shared, failures = Store.open(path), []

    def write(name, store):
        for number in range(8):
            retry_locked(lambda: store.append(batch(name, number)))

    def read(store):
        for _ in range(8):
            assert retry_locked(lambda: store.rows("totals"))[0]["accepted"] >= 0

    def guarded(work, *args):
        try:
            work(*args)
        except Exception as error:
            failures.append(error)

    threads = [
        threading.Thread(target=guarded, args=args)
        for args in (
            (write, "a", shared),
            (write, "b", shared),
            (write, "c", Store.open(path)),
            (read, shared),
            (read, Store.open(path)),
            (read, Store.open(path)),
        )
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    assert failures == []
    assert shared.rows("totals")[0]["accepted"] == 24


@pytest.mark.slow
def test_a_timeout_names_the_process_that_holds_the_store(store):
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from producer_core.store import Store\n"
            "with Store.open(sys.argv[1]).borrow(write=True): print('held', flush=True); sys.stdin.read()",
            str(store.path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked, match=f"in use by process {holder.pid} and was not released"):
            with store.borrow(timeout=0.2):
                pass

        holder.kill()
        assert store.rows("totals")  # the kernel has released the killed process's lock
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.slow
def test_the_store_waits_for_a_duckdb_shell_and_names_it(store):
    shell = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()",
            str(store.path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert shell.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked, match=f"open in process {shell.pid}.*Close it there"):
            with store.borrow(timeout=0.2):
                pass

        threading.Timer(0.2, shell.stdin.close).start()
        assert store.rows("totals")
    finally:
        shell.kill()
        shell.wait()
        shell.stdout.close()


@pytest.mark.slow
def test_continuous_readers_do_not_starve_a_writer(store):
    stop = threading.Event()

    def read():
        reader = Store.open(store.path)
        while not stop.is_set():
            with reader.borrow():
                time.sleep(0.005)

    readers = [threading.Thread(target=read) for _ in range(3)]
    [reader.start() for reader in readers]
    try:
        for number in range(10):
            store.append(batch("p", number))
    finally:
        stop.set()
        [reader.join() for reader in readers]
    assert store.rows("totals")[0]["accepted"] == 10


def test_a_forked_child_uses_its_parents_store(store):
    store.append(batch("p", 0))

    child = os.fork()
    if child == 0:
        fine = store.append(batch("p", 1)) and store.rows("totals")[0]["accepted"] == 2
        os._exit(0 if fine else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.rows("totals")[0]["accepted"] == 2


def test_a_child_forked_inside_a_block_does_not_keep_the_lock(store):
    ready, done = os.pipe()
    with store.borrow(write=True):
        child = os.fork()
        if child == 0:
            os.close(done)
            os.read(ready, 1)  # stays alive while the parent continues
            os._exit(0)

    os.close(ready)
    try:
        assert Store.open(store.path).append(batch("p", 0))
    finally:
        os.close(done)
        os.waitpid(child, 0)


FORKS_INSIDE = """
import os, sys
from producer_core.errors import StoreError
from producer_core.store import Store
store = Store.open(sys.argv[1])
with store.borrow(write=True) as connection:
    connection.execute("INSERT INTO settings VALUES ('parent', '1', 0)")
    child = os.fork()
    if child == 0:
        {leave}
if child == 0:
    try:
        store.set_setting('child', 2)
    except StoreError as error:
        sys.exit(7 if 'forked while it used the store' in str(error) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == {status}
store.set_setting('after', 3)
print(sorted(Store.open(sys.argv[1]).settings()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("leave", "status"), [("pass", 7), ("sys.exit(3)", 3)])
def test_a_child_forked_inside_a_block_leaves_it_to_the_parent(store, leave, status):
    code = FORKS_INSIDE.format(leave=leave, status=status)

    done = subprocess.run(
        [sys.executable, "-c", code, str(store.path)], capture_output=True, text=True, timeout=60
    )

    assert "Traceback" not in done.stderr
    assert done.stdout.strip() == "['after', 'parent']"


def retry_locked(action, seconds=60):
    """Return the result of `action`, retried while other processes hold the store on a loaded machine."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return action()
        except StoreLocked:
            if time.monotonic() > deadline:
                raise


@pytest.mark.slow
def test_children_forked_during_writes_of_other_threads_use_the_store(store):
    stop = threading.Event()

    def work():
        number = 0
        while not stop.is_set():
            with contextlib.suppress(StoreLocked):
                store.append(batch("parent", number))
                number += 1

    writer = threading.Thread(target=work)
    writer.start()
    try:
        for number in range(10):
            child = os.fork()
            if child == 0:
                status = 2
                try:  # an exception that left this block would continue the tests in the child
                    status = 0 if retry_locked(lambda: store.append(batch(f"child-{number}", 0))) else 1
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        writer.join()
    assert store.rows("producers") == []
    with store.borrow() as connection:
        assert connection.execute(
            "SELECT count(*) FROM statistics WHERE producer_id LIKE 'child-%'"
        ).fetchone() == (10,)


def test_a_reader_sees_the_commit_of_a_killed_writer(store):
    code = (
        "import os, signal, sys; from producer_core.store import Store\n"
        "s = Store.open(sys.argv[1]); pool = s._pool\n"
        "pool._detach = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "s.set_setting('x', 1)"
    )
    subprocess.run([sys.executable, "-c", code, str(store.path)], check=False)
    assert store.path.with_name("store.duckdb.wal").exists()

    assert store.settings() == {"x": 1}
    store.set_setting("y", 2)
    assert store.settings() == {"x": 1, "y": 2}
    assert not store.path.with_name("store.duckdb.wal").exists()


def test_a_writer_excludes_all_other_users(store):
    with store.borrow(write=True):
        with open(store.path.with_name("store.duckdb.lock")) as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
