"""The selection of an export: frozen, read in windows, each dead letter once."""

from __future__ import annotations

import json

import duckdb
import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.files import export, selection
from tests.fixtures.replays import add_dead_letters, dead_letter
from tests.fixtures.transfers import ANY, ME, execute


def test_dead_letters_that_change_during_the_export_are_exported_and_counted(store, tmp_path, monkeypatch):
    ids = add_dead_letters(store, 10)
    monkeypatch.setattr(selection, "SLICE", 4)

    def act(done, _total):
        if done == 4:
            DeadLetters(store).archive(DeadLetterFilter(ids=tuple(ids[5:8])), **ME)
            DeadLetters(store).add([dead_letter(99)])
            execute(store, "DELETE FROM dead_letters WHERE message_id = ?", ids[9])

    manifest = export(store, DeadLetterFilter(), tmp_path / "a.jsonl", **ME, progress=act)

    assert (manifest.matched, manifest.rows, manifest.changed, manifest.missing) == (10, 9, 3, 1)
    assert manifest.by_state == {"dead": 6, "archived": 3}
    assert "3 changed during the export" in manifest.text
    assert "1 not in the file" in manifest.text


@pytest.mark.parametrize("same_moment", [False, True])
def test_an_export_of_several_windows_has_each_dead_letter_once_in_order(
    store, tmp_path, monkeypatch, same_moment
):
    monkeypatch.setattr(selection, "WINDOW", 7)
    changes = {"accepted_at": 5.0} if same_moment else {}
    ids = add_dead_letters(store, 100, **changes)

    manifest = export(store, ANY, tmp_path / "a.jsonl", **ME)

    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines()]
    assert manifest.rows == 100
    assert sorted(line["message_id"] for line in lines) == sorted(ids)
    if not same_moment:
        assert [line["message_id"] for line in lines] == ids


def test_an_interrupted_read_is_split(store, tmp_path, monkeypatch):
    ids, sizes = add_dead_letters(store, 10), []

    def rows(connection, ids):
        sizes.append(len(ids))
        if len(ids) > 2:
            connection.interrupt()
            raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")
        return real(connection, ids)

    real = selection._rows
    monkeypatch.setattr(selection, "_rows", rows)

    export(store, ANY, tmp_path / "a.jsonl", **ME)

    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines()]
    assert [line["message_id"] for line in lines] == ids
    assert max(sizes) == 10
