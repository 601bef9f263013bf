"""The store: creation, reading, writing, description and snapshots."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from producer_core.errors import StoreUnavailable
from producer_core.events import Notice
from producer_core.store import Batch, ErrorRow, LatencyRow, ProducerRow, StatisticsRow, Store, default_path
from producer_core.store.migrate import newest

NOW = 1_800_000_000


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb", clock=lambda: float(NOW))


def statistics(window=NOW, topic="orders", acknowledged=1, **more):
    row = StatisticsRow(window, "c", "p", topic, acknowledged, acknowledged, 0, 0, 0, 0, 0, 0, 10, 0.5)
    return row._replace(**more)


def heartbeat(seen_at=float(NOW), **more):
    row = ProducerRow(
        "p",
        "c",
        "client",
        "host",
        1,
        "0.1",
        1.0,
        seen_at,
        None,
        True,
        None,
        0,
        0,
        0,
        10,
        1,
        None,
        True,
        "a",
        "{}",
    )
    return row._replace(**more)


def test_a_new_store_and_its_directory_are_private(tmp_path):
    store = Store.open(tmp_path / "state" / "producer-core" / "store.duckdb")

    with store.borrow(write=True) as connection:
        connection.execute("INSERT INTO settings VALUES ('x', '1', 0)")

    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in store.path.parent.iterdir()} == {0o600}


def test_the_write_ahead_log_is_private_from_its_first_byte(store):
    before = os.umask(0o022)
    try:
        with store.borrow(write=True) as connection:
            connection.execute("CREATE TABLE secrets (value TEXT)")
            log = store.path.with_name(store.path.name + ".wal")
            assert stat.S_IMODE(log.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_the_default_path_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("PRODUCER_CORE_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "producer-core" / "store.duckdb"

    monkeypatch.setenv("PRODUCER_CORE_STORE", str(tmp_path / "mine.duckdb"))
    assert default_path() == tmp_path / "mine.duckdb"
    assert Store.open().path == tmp_path / "mine.duckdb"


def test_a_batch_is_written_to_all_its_tables(store):
    batch = Batch(
        "p",
        0,
        statistics=(statistics(), statistics(topic="refunds")),
        latencies=(LatencyRow(NOW, "c", "p", "orders", 160, 3),),
        errors=(ErrorRow(NOW, "c", "p", "orders", "_MSG_TIMED_OUT", "timed_out", 2),),
        producer=heartbeat(),
        notices=(Notice("connected", "info", "Connected \udcff.", NOW, {"broker": 1}),),
    )

    assert store.append(batch)

    assert [row["topic"] for row in store.rows("topics")] == ["orders", "refunds"]
    assert store.rows("latency_buckets") == [{"bucket": 160, "count": 3}]
    assert store.rows("producers")[0]["client_id"] == "client"
    with store.borrow() as connection:
        assert connection.execute("SELECT sum(count) FROM errors").fetchall() == [(2,)]
        assert connection.execute("SELECT details FROM notices").fetchall() == [('{"broker":1}',)]
    assert store.rows("data_age") == [{"seen_at": NOW, "window_start": NOW}]


def test_a_batch_merged_twice_adds_nothing(store):
    assert [store.append(Batch("p", number, (statistics(),))) for number in (0, 1, 1, 0, 5, 5)] == [
        *(True, True, False, False, True, False)
    ]

    assert store.rows("totals")[0]["acknowledged"] == 3
    with store.borrow() as connection:
        ranges = connection.execute(
            "SELECT first_batch, last_batch FROM merged_batches ORDER BY 1"
        ).fetchall()
    assert ranges == [(0, 1), (5, 5)]


@pytest.mark.slow
def test_batches_merged_together_equal_batches_merged_one_by_one(store, tmp_path):
    rows = [(0, 1.0), (1, 2.0), (1, 9.0), (4, 5.0), (3, 4.0)]
    batches = [
        Batch("p", number, (statistics(),), producer=heartbeat(NOW + at), resolution=1 + number)
        for number, at in rows
    ]
    batches += [Batch("q", 0, (statistics(), statistics())), Batch("p", 5)]
    other = Store.open(tmp_path / "other.duckdb")

    assert store.append(*batches) == 6
    assert sum(other.append(batch) for batch in batches) == 6
    assert store.append(*batches) == 0

    def content(one):
        with one.borrow() as connection:
            return [
                sorted(connection.execute(f"SELECT * FROM {table}").fetchall())
                for table in ("statistics", "producers", "merged_batches")
            ]

    assert content(store) == content(other)


def test_batches_of_two_producers_are_independent(store):
    assert store.append(Batch("a", 0, (statistics(),)))
    assert store.append(Batch("b", 0, (statistics(),)))

    assert store.rows("totals")[0]["acknowledged"] == 2


def test_a_late_heartbeat_does_not_replace_a_newer_one(store):
    store.append(Batch("p", 1, producer=heartbeat(NOW + 9.0, pending=7)))
    store.append(Batch("p", 0, producer=heartbeat(NOW + 1.0, pending=99)))

    assert [(row["seen_at"], row["pending"]) for row in store.rows("producers")] == [(NOW + 9.0, 7)]


def test_a_failed_batch_leaves_no_rows_and_can_be_merged_again(store):
    broken = Batch("p", 0, (statistics(), statistics(acknowledged="many")))

    with pytest.raises(Exception, match="many"):
        store.append(broken)

    assert store.rows("totals")[0]["acknowledged"] == 0
    assert store.append(Batch("p", 0, (statistics(),)))


def test_a_lease_has_one_owner_until_it_expires(store):
    assert store.take_lease("alerts", "a", 15, now=100)
    assert not store.take_lease("alerts", "b", 15, now=114)
    assert store.take_lease("alerts", "a", 15, now=114)
    assert not store.take_lease("alerts", "b", 15, now=120)
    assert store.take_lease("alerts", "b", 15, now=130)
    assert not store.drop_lease("alerts", "a")
    assert store.drop_lease("alerts", "b")
    assert store.take_lease("alerts", "c", 15, now=130)


@pytest.mark.slow
def test_a_lease_taken_by_many_threads_at_once_has_one_owner(tmp_path):
    Store.open(tmp_path / "s.duckdb")
    won, start = [], threading.Barrier(6)

    def take(name):
        store = Store.open(tmp_path / "s.duckdb")
        start.wait()
        if store.take_lease("replay", name, 15, now=1.0):
            won.append(name)

    threads = [threading.Thread(target=take, args=(str(number),)) for number in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(won) == 1


def test_settings_are_kept_and_shared(store):
    store.set_setting("keep_hours", 7200)
    store.set_setting("thresholds", {"error_rate": 0.1})
    store.set_setting("keep_hours", 3600)

    other = Store.open(store.path)
    assert other.settings() == {"keep_hours": 3600, "thresholds": {"error_rate": 0.1}}
    assert other.get_setting("nothing", "default") == "default"
    assert other.retention().keep_hours == 3600


def test_an_operators_action_is_recorded(store):
    store.audit(
        who="ada", origin="cli", action="archive", selection={"topic": "x"}, count=3, outcome="Archived 3."
    )

    row = store.rows("audit_latest")[0]
    assert (row["acted_at"], row["who"], row["count"], row["selection"]) == (NOW, "ada", 3, '{"topic":"x"}')


def test_info_counts_the_rows(store):
    store.append(Batch("p", 0, (statistics(NOW - 60), statistics(NOW)), producer=heartbeat()))

    info = store.info()

    assert (info.oldest, info.newest, info.schema_version) == (NOW - 60, NOW, newest())
    assert (info.rows["statistics"], info.rows["dead_letters"], info.rows["producers"]) == (2, 0, 1)
    assert info.bytes == store.path.stat().st_size
    assert info.retention.keep_seconds == 7200


def test_a_snapshot_is_an_independent_store(store, tmp_path):
    store.append(Batch("p", 0, (statistics(),)))

    copy = Store.open(store.snapshot(tmp_path / "copies" / "monday.duckdb"), create=False)
    store.append(Batch("p", 1, (statistics(),)))

    assert copy.rows("totals")[0]["acknowledged"] == 1
    assert stat.S_IMODE(copy.path.stat().st_mode) == 0o600


def test_a_snapshot_never_overwrites_a_file(store, tmp_path):
    (tmp_path / "there").write_text("precious")

    with pytest.raises(StoreUnavailable, match="already exists"):
        store.snapshot(tmp_path / "there")
    assert (tmp_path / "there").read_text() == "precious"


def test_a_store_deleted_under_a_producer_is_created_again(store):
    store.append(Batch("p", 0, (statistics(),)))
    for file in store.path.parent.iterdir():
        file.unlink()

    assert store.append(Batch("p", 1, (statistics(),)))
    assert store.rows("totals")[0]["acknowledged"] == 1


def test_a_deleted_store_is_missing_for_a_reader(store):
    reader = Store.open(store.path, create=False)
    store.path.unlink()

    with pytest.raises(StoreUnavailable, match="There is no store"):
        reader.rows("totals")
