"""Edits in exported files: they are carried, sent by the other store, and rejected by versions that lack them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters, files, states
from producer_core.dlq.claim_and_settle import read_replay_records
from producer_core.dlq.files.reader import RejectedRecord
from producer_core.dlq.files.reader import read as read_file
from producer_core.dlq.lookup import id_in
from producer_core.dlq.revisions.editor import Editor
from producer_core.store import Store
from tests.fixtures.edits import add, edit, fields, json_dead_letter, malformed, state_of, undo
from tests.fixtures.transfers import ANY, FORMATS, ME, rewrite

ANN = {"who": "ann", "origin": "python"}


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "from.duckdb")


@pytest.fixture
def other(tmp_path):
    return Store.open(tmp_path / "to.duckdb")


def sent_by(store, message_id):
    with store.borrow(write=True) as connection:
        (record,) = read_replay_records(connection, [message_id])
    return json.loads(record.value), dict(record.headers).get("pc-revision")


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_carries_the_revisions_of_its_records(store, other, tmp_path, form):
    ids = add(store, json_dead_letter(1, {"amount": 1}), json_dead_letter(2, {"amount": 2}), malformed(3))
    edit(store, fields({"amount": 7}, headers={"fixed": "yes"}), ids[0])
    edit(store, fields({"amount": 8}), ids[0])
    undo(store, ids[0])
    edit(store, fields(value={"amount": 3}, key=b"k3"), ids[2])
    target = tmp_path / f"orders.{form}"

    files.export(store, ANY, target, **ME)
    files.import_(other, target, **ME)

    assert sent_by(other, ids[0]) == ({"amount": 7}, b"1")
    assert sent_by(other, ids[1]) == ({"amount": 2}, None)
    assert sent_by(other, ids[2]) == ({"amount": 3}, b"1") and DeadLetters(other).get(ids[2]).replayable
    assert [Editor(other).lineage(one) for one in ids] == [Editor(store).lineage(one) for one in ids]
    assert DeadLetters(other).get(ids[0]).value == b'{"amount": 1}'
    with other.borrow() as connection:
        assert ("revisions",) in connection.execute("SELECT feature FROM required_features").fetchall()


@pytest.mark.parametrize("state", ["archived", None])
def test_an_original_is_not_restored_in_the_other_store_beside_its_edit(store, other, tmp_path, state):
    (one,) = add(store, json_dead_letter(1, verdict="possibly_persisted"))
    edit(store, fields({"amount": 7}), one)

    files.export(store, DeadLetterFilter(state=state), tmp_path / "orders.jsonl", **ME)
    files.import_(other, tmp_path / "orders.jsonl", **ME)
    restored = DeadLetters(other).restore(DeadLetterFilter(ids=(one,), state="archived"), **ANN)

    assert restored.count == 0 and "replaced by its edit" in restored.text


def test_an_imported_edit_archives_the_original_that_the_store_has(store, other, tmp_path):
    (one,) = add(store, json_dead_letter(1, verdict="possibly_persisted"))
    files.export(store, ANY, tmp_path / "before.jsonl", **ME)
    files.import_(other, tmp_path / "before.jsonl", **ME)
    new = edit(store, fields({"amount": 7}), one).replacements[one]

    files.export(store, DeadLetterFilter(), tmp_path / "after.jsonl", **ME)
    files.import_(other, tmp_path / "after.jsonl", **ME)

    assert (state_of(other, one), state_of(other, new)) == ("archived", "dead")


def test_importing_a_file_twice_keeps_one_copy_of_each_revision(store, other, tmp_path):
    (one,) = add(store, json_dead_letter(1))
    edit(store, fields({"amount": 7}), one)
    files.export(store, ANY, tmp_path / "orders.jsonl", **ME)

    for _ in range(2):
        files.import_(other, tmp_path / "orders.jsonl", **ME)

    assert len(Editor(other).lineage(one).revisions) == 1


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_masked_export_shows_the_edits_masked(store, tmp_path, form):
    (one,) = add(store, json_dead_letter(1, {"amount": 1}))
    edit(store, fields({"card": "4111111111111111"}), one)
    target = tmp_path / f"orders.{form}"

    files.export(store, ANY, target, **ME, masked=True)

    text = target.read_text()
    assert "wrong amount" in text and "card" in text and "4111111111111111" not in text


def test_a_line_with_revisions_has_no_value_that_an_earlier_version_would_send(store, tmp_path):
    (one,) = add(store, json_dead_letter(1))
    edit(store, fields({"amount": 7}), one)
    target = tmp_path / "orders.jsonl"

    files.export(store, ANY, target, **ME)

    assert "value_base64" not in json.loads(target.read_text())
    assert json.loads(Path(f"{target}.manifest.json").read_text())["format_version"] == 2


@pytest.mark.parametrize(
    "change",
    [
        {"number": 0}, {"number": "1"}, {"number": 2**31}, {"made_at": 1e16}, {"made_at": None}, {"who": None},
        {"reason": 7}, {"patch": {"value": [{"op": "move", "path": "/a"}]}}, {"patch": []}, {"key_base64": "?"},
        {"value_base64": 1}, {"headers_base64": [["a"]]}, {"message_id": "other"}, {"made_replayable": "yes"},
        {"replaced_id": 3}, {"undone_at": "now"}, {"who": "\ud800"},
    ],
)  # fmt: skip
def test_an_invalid_revision_rejects_its_record(store, other, tmp_path, change):
    (one,) = add(store, json_dead_letter(1))
    edit(store, fields({"amount": 7}), one)
    target = tmp_path / "orders.jsonl"
    files.export(store, ANY, target, **ME)

    def changed(lines):
        record = json.loads(lines[0])
        record["revisions"][0] |= change
        return [json.dumps(record).encode() + b"\n"]

    rewrite(target, changed)

    (items,) = read_file(target, "jsonl")
    assert isinstance(items[0], RejectedRecord), items
    assert files.import_(other, target, **ME, no_manifest=True).refused == 1


@pytest.mark.parametrize("state", ["replaying", "replayed"])
def test_an_imported_edit_is_archived_if_this_store_sent_its_original(store, other, tmp_path, state):
    (one,) = add(store, json_dead_letter(1, verdict="possibly_persisted"))
    files.export(store, ANY, tmp_path / "before.jsonl", **ME)
    files.import_(other, tmp_path / "before.jsonl", **ME)
    DeadLetters(other).claim("replay-1", [one])
    if state == "replayed":
        with other.borrow(write=True) as connection:
            states.move(connection, id_in([one]), "replaying", "replayed", now=1.0)
    new = edit(store, fields({"amount": 7}), one).replacements[one]

    files.export(store, DeadLetterFilter(), tmp_path / "after.jsonl", **ME)
    files.import_(other, tmp_path / "after.jsonl", **ME)

    assert (state_of(other, one), state_of(other, new)) == (state, "archived")
    assert DeadLetters(other).restore(DeadLetterFilter(ids=(new,), state="archived"), **ANN).count == 1


def test_an_imported_edit_of_a_known_dead_letter_is_noticed_by_its_replay(store, other, tmp_path):
    (one,) = add(store, json_dead_letter(1, verdict="possibly_persisted"))
    new = edit(store, fields({"amount": 7}), one).replacements[one]
    add(other, DeadLetters(store).get(new))
    operation = replay.plan(other, DeadLetterFilter(), **ANN, can_run=True)

    files.export(store, DeadLetterFilter(state="archived"), tmp_path / "originals.jsonl", **ME)
    files.import_(other, tmp_path / "originals.jsonl", **ME)

    with other.borrow() as connection:
        sql = "SELECT revision FROM operation_records WHERE operation_id = ?"
        assert connection.execute(sql, [operation.operation_id]).fetchall() == [(1,)]
