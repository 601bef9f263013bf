"""Migrations are applied once, together with their record, and never backwards."""

from __future__ import annotations

import threading

import duckdb
import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreError, StoreTooNew, StoreUnavailable
from producer_core.store import Batch, Store, migrate
from producer_core.store import store as module
from producer_core.store.compression_samples import CompressionRow, save_compression
from producer_core.store.migrate import LAST_REQUIRED, Migration, migrations
from tests.fixtures.recording import row


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


def versions(path):
    with Store.open(path).borrow() as connection:
        return connection.execute(
            "SELECT version, name FROM schema_migrations UNION ALL SELECT version, name FROM additive_migrations ORDER BY version"
        ).fetchall()


def test_a_new_store_has_every_migration_and_its_record(path):
    Store.open(path)

    assert versions(path) == [(one.version, one.name) for one in migrations()]


def test_migrations_are_numbered_without_a_gap():
    assert [one.version for one in migrations()] == list(range(1, len(migrations()) + 1))


def test_an_older_store_is_migrated_when_it_is_opened(path, monkeypatch):
    Store.open(path)
    newer = (*migrations(), Migration(99, "colours", "CREATE TABLE colours (name VARCHAR)"))
    monkeypatch.setattr(migrate, "migrations", lambda: newer)

    store = Store.open(path)

    assert store.info().schema_version == 99
    assert store.info().rows["colours"] == 0


def test_a_failed_migration_leaves_the_store_unchanged(path, monkeypatch):
    Store.open(path)
    broken = Migration(99, "broken", "CREATE TABLE colours (name VARCHAR); SELECT * FROM nowhere")
    monkeypatch.setattr(migrate, "migrations", lambda: (*migrations(), broken))

    with pytest.raises(Exception, match="nowhere"):
        Store.open(path)

    monkeypatch.undo()
    assert "colours" not in Store.open(path).info().rows


COLOURS = (*migrations(), Migration(99, "colours", "CREATE TABLE colours (name VARCHAR)"))


@pytest.fixture
def migrated(path, monkeypatch):
    """Return a store that a later version has migrated."""
    with monkeypatch.context() as later:
        later.setattr(migrate, "migrations", lambda: COLOURS)
        Store.open(path)
    return Store.open(path)


def test_a_store_with_an_additive_migration_of_a_later_version_is_opened(migrated):
    assert migrated.info().schema_version == 99
    assert migrated.rows("totals")[0]["accepted"] == 0
    with migrated.borrow() as connection:
        latest = connection.execute("SELECT max(version) FROM schema_migrations").fetchone()
    assert latest == (migrate.LAST_REQUIRED,)  # what earlier versions compare


def test_a_store_with_a_later_schema_is_not_compacted(migrated, path):
    before = path.read_bytes()

    with pytest.raises(StoreTooNew, match=r"schema version 99.*nothing was changed.*latest version"):
        migrated.compact()
    assert path.read_bytes() == before


def test_a_version_that_lacks_a_required_feature_aggregates_and_deletes_nothing(path):
    store = Store.open(path)
    with store.borrow(write=True) as connection:
        connection.execute(
            "INSERT INTO notices (noticed_at, cluster_id, producer_id, kind, severity, text, details) "
            "VALUES (1, 'c', 'p', 'k', 'warning', 't', '{}')"
        )
        connection.execute("INSERT INTO required_features VALUES ('time_travel', 0)")
    assert (store.rollup(1e9), store.prune(1e9)) == (0, 0)

    with store.borrow(write=True) as connection:
        connection.execute("DELETE FROM required_features WHERE feature = 'time_travel'")
    assert store.prune(1e9) == 1


def test_a_store_of_a_newer_version_is_rejected_and_unchanged(path):
    store = Store.open(path)
    with store.borrow(write=True) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (99, 'future', 0)")
    before = path.read_bytes()

    with pytest.raises(StoreTooNew, match=r"schema version 99.*Upgrade"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_duckdb_file_of_another_program_is_rejected_and_unchanged(path):
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE holidays (day DATE)")
    before = path.read_bytes()

    with pytest.raises(StoreUnavailable, match=r"contains other tables \(holidays\)"):
        Store.open(path)
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_store(path):
    path.touch()

    assert Store.open(path).rows("totals")[0]["accepted"] == 0


def test_a_store_truncated_to_nothing_is_reported(path, caplog):
    Store.open(path).close()
    path.write_bytes(b"")

    with pytest.raises(StoreUnavailable, match="is empty"):
        Store.open(path, create=False)
    made = Store.open(path)

    (row,) = made.rows("audit_latest")
    assert row["action"] == "create" and "all content is lost" in row["outcome"]
    assert "the store was empty" in caplog.text
    assert Store.open(path).rows("audit_latest") == [row]  # recorded once


def test_a_store_truncated_under_a_producer_is_created_again_and_reported(path):
    producers, pages = Store.open(path), Store.open(path, create=False)
    path.write_bytes(b"")

    with pytest.raises(StoreUnavailable, match="is empty"):
        pages.rows("totals")
    assert producers.rows("totals")[0]["accepted"] == 0
    assert [row["action"] for row in pages.rows("audit_latest")] == ["create"]


def test_leftovers_of_a_killed_creation_do_not_matter(path):
    path.with_name("store.duckdb.new").write_bytes(b"half")
    path.with_name("store.duckdb.new.wal").write_bytes(b"half")
    path.with_name("store.duckdb.wal").write_bytes(b"of a store that was deleted")

    store = Store.open(path)

    assert store.rows("totals")[0]["accepted"] == 0
    assert path.with_name("store.duckdb.wal.orphan").exists()


@pytest.mark.slow
def test_many_threads_can_open_a_new_store_at_once(path):
    opened, start = [], threading.Barrier(6)

    def work():
        start.wait()
        opened.append(Store.open(path).info().schema_version)

    threads = [threading.Thread(target=work) for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert opened == [migrations()[-1].version] * 6


def test_dead_letters_and_producers_of_a_store_without_applications_have_none_and_stay_counted(
    path, monkeypatch
):
    number = 3
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "migrations", lambda: migrations()[:11])
        with Store.open(path).borrow(write=True) as connection:
            _add_rows(connection, "producers", "producer_id", number)
            _add_rows(connection, "dead_letters", "message_id", number)
            connection.execute("UPDATE dead_letters SET state = 'dead', topic = 'orders'")

    store = Store.open(path)

    assert [row["application"] for row in store.rows("producers")] == [""] * number
    dead_letters, without = DeadLetters(store), DeadLetterFilter(application="")
    assert dead_letters.count(DeadLetterFilter()) == dead_letters.count(without) == number
    assert dead_letters.archive(without, who="a", origin="python").count == number
    assert dead_letters.count_by(DeadLetterFilter(state=None), "state") == {"archived": number}


def _add_rows(connection, table, key, number):
    """Insert rows with a distinct key and zeros in the other columns that need a value."""
    columns = dict(
        connection.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? AND NOT is_nullable",
            [table],
        ).fetchall()
    )
    values = ", ".join(
        f"'{key}-' || place" if name == key else f"CAST('0' AS {kind})" for name, kind in columns.items()
    )
    connection.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM range({number}) AS rows(place)"
    )


def heartbeat(number):
    return Batch("p", number, producer=row(float(number)))


def put_back(path, present):
    """Replace the store by one with the first migrations only."""
    path.unlink()
    with duckdb.connect(str(path)) as earlier:
        for table in migrate.MIGRATION_RECORDS:
            earlier.execute(migrate._RECORDS.format(table))
        for one in migrations()[:present]:
            earlier.execute(one.sql)
            table = migrate.MIGRATION_RECORDS[one.version > LAST_REQUIRED]
            earlier.execute(f"INSERT INTO {table} VALUES (?, ?, 0)", [one.version, one.name])


def test_an_earlier_copy_that_is_put_back_is_migrated_by_the_next_append_of_a_running_process(path):
    """Regression: every write failed until another process opened the store."""
    running = Store.open(path)
    running.append(heartbeat(0))
    put_back(path, LAST_REQUIRED)

    assert running.append(heartbeat(1)) == 1
    assert running.info().schema_version == len(migrations())


def test_a_later_table_that_a_copy_lacks_is_created_when_it_is_written(path):
    running = Store.open(path)
    running.append(heartbeat(0))
    put_back(path, 12)

    assert running.append(heartbeat(1)) == 1
    assert running.prune(1e10) >= 0, "the table of samples is pruned too"
    save_compression(running, [CompressionRow("p", "c", "t", 1.0, "lz4", 1.0, 9, 9, 9, 9, 9, 1.0, 1.0)])
    assert running.info().schema_version == len(migrations())
    assert running.info().rows["compression_samples"] == 1


def test_a_query_that_fails_in_a_current_store_is_not_repeated(path, monkeypatch):
    running, attempts = Store.open(path), []

    def fail(connection, *batches, now):
        attempts.append(batches)
        connection.execute("SELECT * FROM nowhere")

    monkeypatch.setattr(module.merge, "merge", fail)
    with pytest.raises(StoreError, match="nowhere"):
        running.append(heartbeat(0))
    assert len(attempts) == 1
