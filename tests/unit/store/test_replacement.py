"""A store whose file was replaced under a running process is recognized; legitimate changes of the file are not reported."""

from __future__ import annotations

import shutil

import pytest

from producer_core.store import Store, migrate
from tests.fixtures.store_batches import batch


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


def audited(store):
    return [(row["action"], row["outcome"]) for row in store.rows("audit_latest")]


def test_a_store_deleted_under_a_producer_is_reported_once(store, path, caplog):
    store.append(batch("p", 0), batch("p", 1))
    path.unlink()

    store.append(batch("p", 2))
    store.append(batch("p", 3))

    assert caplog.text.count("the store was replaced") == 1
    (only,) = audited(store)
    assert only[0] == "doubt" and "a file with no data from this producer" in only[1]
    assert store.take_replaced("p") == only[1]
    assert store.take_replaced("p") is None


@pytest.mark.parametrize("put_back", [shutil.copy, shutil.move], ids=["overwritten", "moved"])
def test_a_store_replaced_by_an_older_copy_is_reported_once(store, path, tmp_path, caplog, put_back):
    store.append(batch("p", 0))
    copy = store.snapshot(tmp_path / "copy.duckdb")
    store.append(batch("p", 1))
    put_back(copy, path)

    store.append(batch("p", 2))
    store.append(batch("p", 3))

    assert caplog.text.count("the store was replaced") == 1
    assert [action for action, _ in audited(store)] == ["doubt"]
    assert store.take_replaced("p") is not None


def test_a_copy_that_holds_every_batch_is_not_reported(store, path, tmp_path, caplog):
    store.append(batch("p", 0))
    store.snapshot(tmp_path / "copy.duckdb").replace(path)

    store.append(batch("p", 1))

    assert_nothing_reported(store, caplog)


def test_compaction_retention_and_reopening_are_not_reported(store, path, caplog):
    store.append(batch("p", 0), batch("p", 1))
    Store.open(path).compact()
    store.append(batch("p", 2))
    store.maintain(4e9)
    store.append(batch("p", 3))
    store.compact()
    store.close()
    store.append(batch("p", 3), batch("p", 4))

    assert_nothing_reported(store, caplog)


def test_a_migration_by_another_process_is_not_reported(store, path, caplog, monkeypatch):
    store.append(batch("p", 0))
    newer = migrate.Migration(migrate.newest() + 1, "next", "CREATE TABLE added (x INTEGER)")
    found = (*migrate.migrations(), newer)
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "migrations", lambda: found)
        Store.open(path).close()

    store.append(batch("p", 1))

    assert_nothing_reported(store, caplog)


def test_two_producers_on_one_store_do_not_report_each_other(store, path, caplog):
    other = Store.open(path)
    for number in range(3):
        store.append(batch("p", number), batch("q", 10 * number))
        other.append(batch("r", number))

    assert_nothing_reported(store, caplog)
    assert other.take_replaced("r") is None


def test_both_of_two_processes_notice_that_the_store_was_deleted(store, path):
    other = Store.open(path)
    store.append(batch("p", 0))
    other.append(batch("q", 0))
    path.unlink()

    store.append(batch("p", 1))
    other.append(batch("q", 1))

    assert store.take_replaced("p") and other.take_replaced("q")


def test_a_truncated_store_is_reported_only_as_empty(store, path, caplog):
    store.append(batch("p", 0))
    path.write_bytes(b"")

    store.append(batch("p", 1))

    assert "the store was empty" in caplog.text and "was replaced" not in caplog.text
    assert [action for action, _ in audited(store)] == ["create"]


def test_a_failed_append_reports_the_replacement_later(store, path, caplog, monkeypatch):
    store.append(batch("p", 0))
    path.unlink()
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr("producer_core.store.merge.merge", lambda *_, **__: 1 / 0)
        store.append(batch("p", 1))
    assert store.take_replaced("p") is None

    store.append(batch("p", 1))

    assert store.take_replaced("p")


def assert_nothing_reported(store, caplog):
    assert "replaced" not in caplog.text
    assert audited(store) == []
    assert store.take_replaced("p") is None
