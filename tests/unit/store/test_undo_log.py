"""A kill in the middle of a checkpoint: the store is as complete as before the checkpoint."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from producer_core._internal import private_files
from producer_core.errors import StoreCorrupt, StoreFull, StoreUnavailable
from producer_core.store import Store
from producer_core.store.undo_log import UndoLog
from tests.fixtures.store_batches import batch

BLOCK, SIZE = 12_288, 262_144
"""Offset of the first metadata block, and its size, in a file with DuckDB's default block size."""


@pytest.fixture
def during(store, monkeypatch):
    """Append ten batches. Copy the files when the last checkpoint begins; return the directory of the copies."""
    copies, saved = store.path.parent / "copies", UndoLog.saved

    @contextlib.contextmanager
    def copy_after(self, *args):
        with saved(self, *args):
            shutil.rmtree(copies, ignore_errors=True)
            copies.mkdir()
            for file in store.path.parent.glob("store.duckdb*"):
                shutil.copy(file, copies)
            yield

    monkeypatch.setattr(UndoLog, "saved", copy_after)
    for number in range(10):
        assert store.append(batch("p", number))
    monkeypatch.undo()
    return copies


def acknowledged(path):
    return Store.open(path, create=False).rows("totals")[0]["acknowledged"]


def cut(copies, complete, at):
    """Write the first bytes of the checkpoint's metadata block to the copy, as a killed write does."""
    with (copies / "store.duckdb").open("r+b") as file:
        before = file.read()[BLOCK : BLOCK + SIZE]
        after = complete.read_bytes()[BLOCK : BLOCK + SIZE]
        assert before[:at] != after[:at]
        file.seek(BLOCK)
        file.write(after[:at])


@pytest.mark.parametrize("at", [8, 4096, 100_000, SIZE - 1, SIZE])
def test_a_checkpoint_that_a_kill_interrupts_loses_nothing(store, during, at):
    cut(during, store.path, at)

    assert acknowledged(during / "store.duckdb") == acknowledged(store.path)
    assert not (during / "store.duckdb.undo").exists()
    assert Store.open(during / "store.duckdb").append(batch("q", 0))


def test_without_the_undo_log_such_a_checkpoint_damages_the_store(store, during):
    cut(during, store.path, 4096)
    (during / "store.duckdb.undo").unlink()

    with pytest.raises(StoreCorrupt):
        acknowledged(during / "store.duckdb")


def test_a_completed_checkpoint_is_not_undone(store, during):
    shutil.copy(during / "store.duckdb.undo", store.path.parent)  # a kill before the undo log is deleted
    expected = acknowledged(during / "store.duckdb")

    assert acknowledged(store.path) == expected
    assert not UndoLog(store.path).path.exists()


@pytest.mark.parametrize("size", [0, 5, 100_000])
def test_an_incomplete_undo_log_is_of_a_checkpoint_that_had_not_begun(store, during, size):
    os.truncate(during / "store.duckdb.undo", size)

    assert acknowledged(during / "store.duckdb") == acknowledged(store.path)
    assert not (during / "store.duckdb.undo").exists()


def test_the_undo_log_of_a_deleted_store_is_not_applied_to_a_new_one(store, during):
    path = during / "store.duckdb"
    path.unlink()

    new = Store.open(path)

    assert new.rows("producers") == []
    assert not UndoLog(path).path.exists()


def test_a_copy_put_back_after_a_kill_keeps_its_own_content(store, during):
    shutil.copy(store.path, during / "store.duckdb")
    (during / "store.duckdb.wal").unlink()

    assert acknowledged(during / "store.duckdb") == acknowledged(store.path)


def test_a_reader_without_write_permission_reads_as_much_as_the_file_gives(store, during, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert acknowledged(during / "store.duckdb") == acknowledged(store.path)
    assert (during / "store.duckdb.undo").exists()


def test_an_undo_log_that_cannot_be_read_is_reported(store, during, monkeypatch):
    def unreadable(self):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    opened = Store.open(during / "store.duckdb")
    shutil.copy(during / "store.duckdb", during / "store.duckdb.undo")
    monkeypatch.setattr(Path, "read_bytes", unreadable)

    with pytest.raises(StoreUnavailable, match="Input/output error"):
        opened.rows("totals")


def test_without_room_for_an_undo_log_the_data_stays_in_the_write_ahead_log(store, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("producer_core._internal.private_files.write", full)
        assert store.append(batch("p", 0))
        assert store.path.with_name("store.duckdb.wal").stat().st_size
        with pytest.raises(StoreFull):
            store.compact()

    assert store.rows("totals")[0]["acknowledged"]
    assert not store.append(batch("p", 0))


@pytest.mark.parametrize("files", ["store.duckdb.new.undo", "store.duckdb.undo"])
def test_a_compaction_without_room_for_an_undo_log_leaves_the_store_unchanged(store, monkeypatch, files):
    written = private_files.write

    def full(path, data):
        if path.name == files:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written(path, data)

    with monkeypatch.context() as patched:
        patched.setattr("producer_core._internal.private_files.write", full)
        store.append(batch("p", 0))
        with pytest.raises(StoreFull, match=r"store\.duckdb is full"):
            store.compact()

    assert store.rows("totals")[0]["acknowledged"]
    assert not list(store.path.parent.glob("store.duckdb.new*"))
    store.compact()


def test_a_store_is_not_created_without_room_for_its_undo_log(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("producer_core._internal.private_files.write", full)
        with pytest.raises(StoreFull, match=r"store\.duckdb is full"):
            Store.open(tmp_path / "store.duckdb")

    assert Store.open(tmp_path / "store.duckdb").rows("producers") == []


def test_no_checkpoint_runs_without_an_undo_log(store, monkeypatch):
    """DuckDB would run one at the commit of a large transaction, at the detach, and when the instance is closed."""
    before = store.path.read_bytes()[:BLOCK]
    with monkeypatch.context() as patched:
        patched.setattr(UndoLog, "saved", lambda *_: pytest.fail("no checkpoint"))
        with contextlib.suppress(pytest.fail.Exception), store.borrow(write=True) as connection:
            connection.execute("CREATE TABLE large AS SELECT range, repeat('x', 100) FROM range(300_000)")
            connection.execute("UPDATE large SET range = range + 1")
        store.close()

    assert store.path.read_bytes()[:BLOCK] == before


def test_other_programs_cannot_open_the_store_during_a_checkpoint(store, monkeypatch):
    code = "import duckdb, sys; duckdb.connect(sys.argv[1], read_only=True)"
    saved, results = UndoLog.saved, []

    @contextlib.contextmanager
    def open_during(self, *args):
        with saved(self, *args):
            results.append(
                subprocess.run([sys.executable, "-c", code, str(store.path)], stderr=subprocess.PIPE)
            )
            yield

    monkeypatch.setattr(UndoLog, "saved", open_during)
    store.append(batch("p", 0))

    assert b"Could not set lock" in results[0].stderr
