"""A store written anew holds what it held, and no byte of what was purged."""

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
from tests.unit.replaying import alive, dead_letter

ANY = DeadLetterFilter(state=None)
CHANCE = random.Random(7)
CONTENT = {number: b"SEKRET%05d" % number + CHANCE.randbytes(2000) for number in range(300)}
GONE = [number for number in CONTENT if number % 5 == 0]


@pytest.fixture
def store(tmp_path):
    """Three hundred dead letters, every fifth purged; a heartbeat and some settings."""
    now = [5000.0]
    opened = Store.open(tmp_path / "store.duckdb")
    dead_letters = DeadLetters(opened, clock=lambda: now[0])
    dead_letters.add(
        [
            dead_letter(number, value=value, topic="gone" if number in GONE else "stays")
            for number, value in CONTENT.items()
        ]
    )
    dead_letters.archive(DeadLetterFilter(topic="gone"), who="ann", origin="cli")
    now[0] += 86401
    dead_letters.purge(
        DeadLetterFilter(topic="gone"), who="ann", origin="cli", confirmation=f"purge {len(GONE)}"
    )
    opened.set_setting("keep_settled", 5.0)
    alive(opened, 6000.0)
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
            if table != "schema_migrations"
        }
        things = (
            connection.execute("SELECT index_name FROM duckdb_indexes() ORDER BY 1").fetchall(),
            connection.execute(
                "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
            ).fetchall(),
        )
    return rows, things


def test_what_was_purged_is_in_no_byte_of_the_file_and_everything_else_is(store):
    before, kept = contents(store), [number for number in CONTENT if number not in GONE]

    store.compact()

    assert in_files(store, GONE) == 0
    assert in_files(store, kept) == len(kept)
    assert contents(store) == before
    assert store.path.stat().st_mode & 0o777 == 0o600


def test_the_store_goes_on_for_whoever_had_it_open(store):
    other = Store.open(store.path)
    dead_letters = DeadLetters(other)
    assert dead_letters.count(ANY) == 300

    store.compact()
    dead_letters.add([dead_letter(1000)])

    assert DeadLetters(store).count(ANY) == dead_letters.count(ANY) == 301
    assert DeadLetters(store).count_by(ANY, "state") == {"dead": 241, "purged": 60}


def test_what_is_written_meanwhile_waits_and_is_there(store):
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


def test_a_full_disk_leaves_the_store_as_it_was(store, monkeypatch):
    before = contents(store)

    def full(draft, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(paths, "publish_whole", full)
    with pytest.raises(StoreFull):
        store.compact()

    assert contents(store) == before
    assert not store.path.with_name(store.path.name + ".new").exists()


def test_the_shell_asks_and_writes_it_down(store):
    def run(*words):
        return CliRunner().invoke(main, ["store", "compact", "--store", str(store.path), *words])

    assert run().exit_code == 2
    assert "smaller." in run("--yes").output
    assert [row["action"] for row in store.rows("audit_latest", action="compact")] == ["compact"]
