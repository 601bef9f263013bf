"""Exports and imports in processes that are killed at critical steps."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.files import import_
from producer_core.errors import TransferError
from producer_core.store import Store
from tests.support import ROOT

ANY = DeadLetterFilter(state=None)
ME = {"who": "ann", "origin": "test"}
KILLED = -9

_DEAD_LETTERS = """
INSERT INTO dead_letters (message_id, cluster_id, producer_id, topic, key, value_size, state, quarantined, replayable,
    verdict, verdict_reason, kind, code, error_text, fingerprint, attempts, accepted_at, failed_at, host, version,
    replay_count, state_at)
SELECT '01930000-0000-7000-8000-000000000001-' || i, 'c', 'p', 'orders', encode('key' || i), $size, 'dead', false, true,
    'rejected', 'refused', 'permanent', 'X', 'Broker: no', 'f', 1, i, i, 'here', '0', 0, 1
FROM range($count) AS numbers(i)"""

_BODIES = """
INSERT INTO dead_letter_bodies (message_id, value, headers, timestamp_ms, attempts)
SELECT '01930000-0000-7000-8000-000000000001-' || i, encode(repeat(md5(i::VARCHAR), $size // 32)), '[["a", "AAE="]]', i,
    '[[1.0, "X", "Broker: no"]]'
FROM range($count) AS numbers(i)"""


def filled(path, count, *, size=64):
    store = Store.open(path)
    with store.borrow(write=True) as connection:
        connection.execute(_DEAD_LETTERS, {"count": count, "size": size})
        connection.execute(_BODIES, {"count": count, "size": size})
    store.close()
    return store


def run(act, store, file, when=""):
    command = [sys.executable, "-m", "tests.processes.transfer", act, store.path, file, when]
    ended = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ended.returncode in (0, KILLED), ended.stderr
    return ended


def lines(file):
    return [json.loads(line) for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize("when", ["500", "2000", "audited", "manifest"])
def test_a_killed_export_leaves_no_partial_file_and_the_next_one_cleans_up(tmp_path, when):
    store = filled(tmp_path / "store.duckdb", 3000)
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "a.jsonl"

    assert run("export", store, target, when).returncode == KILLED

    assert not target.exists()
    assert run("export", store, target).returncode == 0
    assert len({line["message_id"] for line in lines(target)}) == 3000
    assert sorted(path.name for path in folder.iterdir()) == ["a.jsonl", "a.jsonl.manifest.json"]
    assert import_(Store.open(tmp_path / "other.duckdb"), target, **ME).new == 3000


def test_a_killed_overwriting_export_leaves_a_complete_or_rejected_file(tmp_path):
    store = filled(tmp_path / "store.duckdb", 1200)
    target, other = tmp_path / "a.jsonl", Store.open(tmp_path / "other.duckdb")
    run("export", store, target)
    DeadLetters(store).archive(DeadLetterFilter(since=600.0), **ME)

    assert run("export", store, target, "500").returncode == KILLED
    assert import_(other, target, **ME).new == 1200
    assert run("export", store, target, "manifest").returncode == KILLED
    with pytest.raises(TransferError, match="does not match its manifest"):
        import_(other, target, **ME)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
@pytest.mark.parametrize("when", ["1000", "2000", "written"])
def test_a_repeated_import_after_a_kill_stores_each_dead_letter_once(tmp_path, format, when):
    store = filled(tmp_path / "store.duckdb", 3000)
    target, other = tmp_path / f"a.{format}", Store.open(tmp_path / "other.duckdb")
    run("export", store, target)

    assert run("import", other, target, when).returncode == KILLED
    before = DeadLetters(other).count(ANY)
    again = run("import", other, target)

    assert before == (int(when) if when.isdigit() else 0)
    assert again.stdout.split()[:2] == [str(3000 - before), str(before)]
    with other.borrow() as connection:
        for table in ("dead_letters", "dead_letter_bodies", "letter_events"):
            found = connection.execute(f"SELECT count(*), count(DISTINCT message_id) FROM {table}").fetchone()
            assert found == (3000, 3000)
