"""A compacted store has the same content, and no byte of purged dead letters."""

from __future__ import annotations

import errno
import random
import threading

import pytest
from click.testing import CliRunner

from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreFull
from producer_core.store import Store, paths
from tests.fixtures.replays import dead_letter, write_heartbeat

ANY = DeadLetterFilter(state=None)
RANDOM = random.Random(7)
CONTENT = {number: b"SEKRET%05d" % number + RANDOM.randbytes(2000) for number in range(300)}
PURGED = [number for number in CONTENT if number % 5 == 0]


@pytest.fixture
def store(tmp_path):
    """A store with 300 dead letters, every fifth purged, a heartbeat and some settings."""
    now = [5000.0]
    opened = Store.open(tmp_path / "store.duckdb")
    dead_letters = DeadLetters(opened, clock=lambda: now[0])
    dead_letters.add(
        [
            dead_letter(number, value=value, topic="gone" if number in PURGED else "stays")
            for number, value in CONTENT.items()
        ]
    )
    dead_letters.archive(DeadLetterFilter(topic="gone"), who="ann", origin="cli")
    now[0] += 86401
    dead_letters.purge(
        DeadLetterFilter(topic="gone"), who="ann", origin="cli", confirmation=f"purge {len(PURGED)}"
    )
    opened.set_setting("keep_settled", 5.0)
    write_heartbeat(opened, 6000.0)
    return opened


def in_files(store, numbers):
    data = b"".join(path.read_bytes() for path in store.path.parent.iterdir() if path.is_file())
    return sum(CONTENT[number][:40] in data for number in numbers)


def contents(store):
    with store.borrow() as connection:
        tables = sorted(
            name
            for (name,) in connection.execute(
                "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
            ).fetchall()
        )
        rows = {
            table: sorted(map(repr, connection.execute(f'SELECT * FROM "{table}"').fetchall()))
            for table in tables
            if table not in ("schema_migrations", "additive_migrations")
        }
        things = (
            connection.execute("SELECT index_name FROM duckdb_indexes() ORDER BY 1").fetchall(),
            connection.execute(
                "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
            ).fetchall(),
        )
    return rows, things


@pytest.mark.slow
def test_the_compacted_file_has_all_content_and_no_byte_of_purged_data(store):
    before, kept = contents(store), [number for number in CONTENT if number not in PURGED]

    store.compact()

    assert in_files(store, PURGED) == 0
    assert in_files(store, kept) == len(kept)
    assert contents(store) == before
    assert store.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_open_stores_continue_after_compaction(store):
    other = Store.open(store.path)
    dead_letters = DeadLetters(other)
    assert dead_letters.count(ANY) == 300

    store.compact()
    dead_letters.add([dead_letter(1000)])

    assert DeadLetters(store).count(ANY) == dead_letters.count(ANY) == 301
    assert DeadLetters(store).count_by(ANY, "state") == {"dead": 241, "purged": 60}


@pytest.mark.slow
def test_writes_during_compaction_wait_and_are_kept(store):
    others = [DeadLetters(Store.open(store.path)) for _ in range(3)]

    def write(place_of, dead_letters):
        for number in range(10):
            dead_letters.add([dead_letter(10_000 + 100 * place_of + number)])

    threads = [threading.Thread(target=write, args=pair) for pair in enumerate(others)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        store.compact()
    for thread in threads:
        thread.join()

    assert DeadLetters(store).count(ANY) == 330


@pytest.mark.slow
def test_a_full_disk_leaves_the_store_unchanged(store, monkeypatch):
    before = contents(store)

    def full(draft, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(paths, "publish_whole", full)
    with pytest.raises(StoreFull):
        store.compact()

    assert contents(store) == before
    assert not store.path.with_name(store.path.name + ".new").exists()


@pytest.mark.slow
def test_the_command_asks_for_confirmation_and_records_the_compaction(store):
    def run(*words):
        return CliRunner().invoke(main, ["store", "compact", "--store", str(store.path), *words])

    assert run().exit_code == 2
    assert "smaller." in run("--yes").output
    assert [row["action"] for row in store.rows("audit_latest", action="compact")] == ["compact"]
