"""The contract of file locks: the journal, the store, the spill, sends, jobs and test brokers rely on it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from producer_core._internal import file_lock
from producer_core._internal.file_lock import FileLock, FileLocked, lock_file, try_lock

HOLD = """
import sys, threading
from pathlib import Path
from producer_core._internal.file_lock import lock_file
lock = lock_file(Path(sys.argv[1]))
lock.write_pid()
print("locked", flush=True)
threading.Event().wait()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lock"


@contextlib.contextmanager
def other_process(path):
    """A process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        try:
            yield process
        finally:
            process.kill()


def is_free(path):
    with FileLock(path) as lock:
        return lock.try_acquire()


def in_child(action):
    """Run `action` in a forked child and return its exit status; an exception is status 1."""
    child = os.fork()
    if child == 0:
        try:
            status = 0 if action() else 2
        except BaseException:
            status = 1
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# holding


def test_a_second_lock_in_the_same_process_is_rejected(path):
    with lock_file(path), pytest.raises(FileLocked):
        lock_file(path, blocking=False)


def test_a_lock_of_another_process_is_rejected_with_its_process_id(path):
    with other_process(path) as process:
        with pytest.raises(FileLocked) as rejected:
            lock_file(path, blocking=False)

    assert rejected.value.holder == str(process.pid)


def test_a_holder_without_a_process_id_is_unnamed_in_the_error(path):
    with lock_file(path), pytest.raises(FileLocked) as rejected:
        lock_file(path, blocking=False)

    assert rejected.value.holder == ""


def test_a_killed_process_leaves_no_lock(path):
    with other_process(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()

        with lock_file(path, blocking=False) as lock:
            assert lock.read_pid() == str(process.pid)


def test_shared_locks_exclude_only_an_exclusive_one(path):
    with FileLock(path) as one, FileLock(path) as two, FileLock(path) as writer:
        assert one.try_acquire(exclusive=False)
        assert two.try_acquire(exclusive=False)
        assert not writer.try_acquire()

        one.release()
        two.release()

        assert writer.try_acquire()


def test_an_exclusive_lock_can_become_a_shared_one(path):
    with FileLock(path) as lock, FileLock(path) as reader:
        lock.acquire()
        assert not reader.try_acquire(exclusive=False)

        lock.acquire(exclusive=False)

        assert reader.try_acquire(exclusive=False)


def test_a_blocking_lock_waits_for_the_release(path):
    got = threading.Event()

    def wait():
        with lock_file(path):
            got.set()

    held = lock_file(path)
    thread = threading.Thread(target=wait)
    thread.start()
    assert not got.wait(0.05)

    held.release()

    assert got.wait(10)
    thread.join()


def test_reading_the_file_elsewhere_does_not_release_the_lock(path):
    with lock_file(path):
        path.read_bytes()

        assert not is_free(path)


# releasing


def test_release_frees_the_lock_and_is_idempotent(path):
    lock = lock_file(path)

    lock.release()
    with lock_file(path, blocking=False):
        lock.release()

        assert not is_free(path)


def test_a_rejected_lock_leaves_no_open_file(path):
    with lock_file(path):
        before = len(file_lock._open_locks)
        with pytest.raises(FileLocked):
            lock_file(path, blocking=False)

        assert len(file_lock._open_locks) == before


def test_a_lock_file_deleted_by_its_holder_is_opened_again(path, monkeypatch):
    """A send deletes its lock file when it ends, and the store's recovery deletes the spill file."""
    acquire = FileLock.acquire

    def delete_first(lock, **mode):
        monkeypatch.undo()
        path.unlink()
        acquire(lock, **mode)

    monkeypatch.setattr(FileLock, "acquire", delete_first)

    with lock_file(path) as lock:
        assert lock.in_place
        assert not is_free(path)


def test_a_lock_on_a_deleted_file_is_no_longer_in_place(path):
    with lock_file(path) as lock:
        path.unlink()
        assert not lock.in_place
        path.touch()
        assert not lock.in_place

    assert not lock.in_place


# forks


def test_a_forked_child_holds_no_copy_of_the_lock(path):
    lock = lock_file(path)
    (started, start), (may_end, end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(start, b"x")
        os.read(may_end, 1)
        os._exit(0)
    try:
        os.read(started, 1)
        os.close(lock.descriptor)  # as the end of the parent does, without unlocking
        lock.descriptor = -1

        assert is_free(path)
    finally:
        os.write(end, b"x")
        os.waitpid(child, 0)
        for descriptor in (started, start, may_end, end):
            os.close(descriptor)
        file_lock._open_locks.discard(lock)


def test_a_forked_childs_release_keeps_the_parents_lock(path):
    with lock_file(path) as lock:
        assert in_child(lambda: lock.release() or lock.descriptor < 0) == 0

        assert not is_free(path)


def test_a_descriptor_inherited_by_a_native_fork_does_not_keep_a_released_lock(path):
    lock = lock_file(path)
    copy = os.dup(lock.descriptor)  # such a fork runs no Python code, so its copy stays open
    try:
        lock.release()

        assert is_free(path)
    finally:
        os.close(copy)


def test_a_release_in_a_natively_forked_child_keeps_the_parents_lock(path, monkeypatch):
    lock = lock_file(path)
    copy = os.dup(lock.descriptor)
    try:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        lock.release()
        monkeypatch.undo()

        assert not is_free(path)
    finally:
        os.close(copy)


# the file


def test_the_lock_file_is_private_regardless_of_the_umask(path):
    before = os.umask(0)
    try:
        lock_file(path).release()
    finally:
        os.umask(before)

    assert path.stat().st_mode & 0o777 == 0o600


def test_the_process_id_replaces_that_of_an_earlier_holder(path):
    path.write_text("4194304             ")

    with lock_file(path) as lock:
        lock.write_pid()

        assert lock.read_pid() == str(os.getpid())


def test_a_missing_lock_file_is_created_only_on_request(path):
    with pytest.raises(FileNotFoundError):
        lock_file(path, flags=os.O_RDWR)

    assert not path.exists()


def test_a_locked_file_keeps_its_content(path):
    path.write_text("data")

    with lock_file(path, flags=os.O_RDWR | os.O_APPEND) as lock:
        os.write(lock.descriptor, b" and more")

    assert path.read_text() == "data and more"


def test_an_open_file_can_be_locked(path):
    with path.open("w") as file:
        assert try_lock(file.fileno())
        assert not is_free(path)

    assert is_free(path)


def test_locking_on_windows_raises_an_error_and_leaves_no_open_file(path, monkeypatch):
    monkeypatch.setattr(file_lock.sys, "platform", "win32")
    before = len(file_lock._open_locks)

    with pytest.raises(OSError, match="Windows"):
        lock_file(path)

    assert len(file_lock._open_locks) == before
