"""Each fault of the store's file is a typed error with its fix."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys

import duckdb
import pytest

from producer_core.errors import StoreCorrupt, StoreError, StoreUnavailable
from producer_core.store import Store, file_errors, paths, store_lock
from producer_core.store.undo_log import UndoLog

ORDINARY = 65534
CHILD = """
import getpass, os, sys
from producer_core.diagnostics.doctor import machine_checks
from producer_core.errors import StoreError
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.store import Store
from producer_core.store.migrate import migrations
from producer_core.store.queries import queries
migrations(), queries()
if os.getuid() == 0:  # after the imports: this user may not read the interpreter's own files
    os.setgroups([]); os.setgid({uid}); os.setuid({uid})
try:
    {body}
except StoreError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def as_ordinary_user(tmp_path_factory):
    """Run code as a user to whom file modes apply; root would ignore them."""
    for folder in tmp_path_factory.getbasetemp().parents:
        if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    tmp_path_factory.getbasetemp().chmod(0o711)

    def run(body: str) -> str:
        code = CHILD.format(uid=ORDINARY, body=body)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stderr == ""
        return done.stdout.strip()

    return run


@pytest.fixture
def folder(tmp_path):
    """A directory of the ordinary user."""
    for one in (tmp_path, place_for := tmp_path / "state"):
        one.mkdir(exist_ok=True)
        one.chmod(0o755)
    if os.getuid() == 0:
        os.chown(place_for, ORDINARY, ORDINARY)
    return place_for


def own(folder):
    if os.getuid() == 0:
        for file in folder.iterdir():
            os.chown(file, ORDINARY, ORDINARY)


def test_a_directory_is_not_a_store(tmp_path):
    with pytest.raises(
        StoreUnavailable, match=r"is a directory.*Specify the path of a file, for example .*store.duckdb"
    ):
        Store.open(tmp_path)


def test_a_missing_store_is_reported_if_it_must_not_be_created(tmp_path):
    with pytest.raises(StoreUnavailable, match=r"There is no store at .*none.duckdb.*--store"):
        Store.open(tmp_path / "none.duckdb", create=False)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_reported_as_empty_if_no_store_must_be_created(tmp_path):
    path = tmp_path / "empty.duckdb"
    path.touch()

    with pytest.raises(StoreUnavailable, match=r"empty.duckdb is empty \(0 bytes\) and is not a store"):
        Store.open(path, create=False)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "error",
    [
        file_errors.missing,
        file_errors.empty,
        file_errors.not_a_store,
        file_errors.read_only,
        file_errors.disk_full,
    ],
)
def test_a_wrong_path_is_fixed_on_the_command_line_in_python_and_by_the_environment(tmp_path, error):
    for way in ("--store on the command line", "store= in Python", "PRODUCER_CORE_STORE"):
        assert way in error(tmp_path / "store.duckdb").fix


def test_a_file_cannot_be_the_stores_directory(tmp_path):
    (tmp_path / "file").write_text("x")

    with pytest.raises(StoreUnavailable, match=r"cannot be created|cannot be used"):
        Store.open(tmp_path / "file" / "store.duckdb")


def test_a_path_that_is_too_long_is_reported(tmp_path):
    with pytest.raises(StoreUnavailable, match="File name too long"):
        Store.open(tmp_path / ("x" * 300))
    with pytest.raises(StoreUnavailable, match="File name too long"):
        Store.open(tmp_path / ("x" * 300), create=False)


@pytest.mark.parametrize("content", [b"hello", b"hello world\n" * 1000])
def test_a_file_that_is_not_a_database_is_left_unchanged(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)

    with pytest.raises(StoreCorrupt, match="not a DuckDB file; it was not changed"):
        Store.open(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_an_sqlite_file_is_not_a_store(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE a (b)")
    connection.close()

    with pytest.raises(StoreCorrupt):
        Store.open(path)


def test_a_damaged_header_is_reported_as_damage(tmp_path):
    path = tmp_path / "store.duckdb"
    Store.open(path).set_setting("x", 1)
    raw = bytearray(path.read_bytes())
    raw[100:200] = b"\xee" * 100
    path.write_bytes(raw)

    with pytest.raises(StoreCorrupt, match=r"damaged.*Move it aside, or restore a snapshot"):
        Store.open(path)


@pytest.mark.slow
def test_any_damage_is_a_store_error_or_harmless(tmp_path):
    path = tmp_path / "store.duckdb"
    Store.open(path).set_setting("x", 1)
    whole = path.read_bytes()

    for start in range(0, len(whole), len(whole) // 24):
        raw = bytearray(whole)
        raw[start : start + 700] = b"\xff" * len(raw[start : start + 700])
        path.write_bytes(raw)
        try:
            Store.open(path).settings()
        except StoreError as error:
            assert error.fix or str(error)


def test_a_truncated_file_is_a_store_error(tmp_path):
    path = tmp_path / "store.duckdb"
    Store.open(path).set_setting("x", 1)
    path.write_bytes(path.read_bytes()[:9000])

    with pytest.raises(StoreError):
        Store.open(path).settings()


def test_a_copy_restored_beside_a_log_of_another_version_is_a_store_error(tmp_path, monkeypatch):
    store, copy = Store.open(tmp_path / "store.duckdb"), tmp_path / "copy.duckdb"
    store.set_setting("x", 1)
    shutil.copy(store.path, copy)
    store.set_setting("x", 2)
    monkeypatch.setattr(UndoLog, "saved", lambda *_: (tmp_path / "no directory" / "undo").open())
    store.set_setting("x", 3)  # stays in the log, as after a kill
    shutil.copy(copy, store.path)

    with pytest.raises(StoreCorrupt, match=r"log .*\.wal belongs to another version.*move this log aside"):
        store.settings()


def test_a_file_cut_in_the_middle_is_reported_as_damage_with_a_fix(tmp_path):
    path = tmp_path / "store.duckdb"
    Store.open(path).set_setting("x", 1)
    os.truncate(path, 12_288)

    with pytest.raises(StoreCorrupt, match=r"is damaged.*restore a snapshot"):
        Store.open(path).settings()


@pytest.mark.slow
def test_a_read_only_file_can_be_read_but_not_written(folder, as_ordinary_user):
    path = folder / "store.duckdb"
    Store.open(path).set_setting("x", 1)
    own(folder)
    path.chmod(0o444)

    assert as_ordinary_user(f"print(Store.open({str(path)!r}).settings())") == "{'x': 1}"
    output = as_ordinary_user(f"Store.open({str(path)!r}).set_setting('x', 2)")
    assert output.startswith("StoreUnavailable") and "Grant this user read and write permission" in output


@pytest.mark.slow
def test_a_read_only_directory_can_be_read_but_not_written(folder, as_ordinary_user):
    path = folder / "store.duckdb"
    Store.open(path).set_setting("x", 1)
    for side in (".lock", ".gate"):
        path.with_name(path.name + side).unlink()
    own(folder)
    folder.chmod(0o555)

    assert as_ordinary_user(f"print(Store.open({str(path)!r}).settings())") == "{'x': 1}"
    output = as_ordinary_user(f"Store.open({str(path)!r}).set_setting('x', 2)")
    assert output.startswith("StoreUnavailable") and "write permission" in output


@pytest.mark.slow
@pytest.mark.parametrize("file_mode", [0o444, 0o644])
def test_a_producer_rejects_a_read_only_store(folder, as_ordinary_user, file_mode):
    path = folder / "store.duckdb"
    Store.open(path).set_setting("x", 1)
    own(folder)
    path.chmod(file_mode)
    folder.chmod(0o555)

    output = as_ordinary_user(f"ReliableKafkaProducer('localhost:1', store={str(path)!r})")
    assert output.startswith("StoreUnavailable") and "write permission" in output
    assert (
        as_ordinary_user(f"print([one.level for one in machine_checks.check_store({str(path)!r}, 0)])")
        == "['problem']"
    )


@pytest.mark.slow
def test_a_store_cannot_be_created_in_a_read_only_directory(folder, as_ordinary_user):
    folder.chmod(0o555)

    for path in (folder / "store.duckdb", folder / "deeper" / "store.duckdb"):
        output = as_ordinary_user(f"Store.open({str(path)!r})")
        assert output.startswith("StoreUnavailable") and "--store" in output


@pytest.mark.slow
def test_another_users_store_is_rejected_with_a_fix(folder, as_ordinary_user):
    path = folder / "store.duckdb"
    Store.open(path)
    if os.getuid() != 0:
        path.chmod(0o000)

    output = as_ordinary_user(f"Store.open({str(path)!r})")
    assert output.startswith("StoreUnavailable") and "permission" in output


def test_on_windows_the_store_reports_the_missing_file_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(store_lock.sys, "platform", "win32")

    with pytest.raises(StoreUnavailable, match=r"Windows.*WSL"):
        Store.open(tmp_path / "store.duckdb")


def test_a_network_file_system_is_logged(tmp_path, monkeypatch, caplog):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(paths, "MOUNTS", mounts)

    store = Store.open(tmp_path / "store.duckdb")

    assert store.info().network_file_system == "nfs4"
    assert f"store on a network file system: path={store.path}, type=nfs4" in caplog.messages


def test_an_internal_error_from_duckdb_has_a_way_out(tmp_path):
    text = "INTERNAL Error: DataChunk::CheckCardinality - vector has size 4\n\nStack Trace:\n..."
    error = file_errors.from_duckdb(duckdb.InternalException(text), tmp_path / "store.duckdb")

    assert type(error) is StoreError
    assert "CheckCardinality" in str(error) and "Stack Trace" not in str(error)
    assert "store snapshot" in error.fix and "report" in error.fix
