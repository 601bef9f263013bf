"""Exports: their audit entry, their place, and an empty selection."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.files import export, import_
from producer_core.errors import StoreLocked, TransferError
from tests.fixtures.replays import add_dead_letters
from tests.fixtures.transfers import ANY, FORMATS, ME, audit


def test_the_audit_of_an_export_records_whether_it_is_raw(store, tmp_path):
    add_dead_letters(store, 2)

    export(store, ANY, tmp_path / "a.jsonl", **ME)
    export(store, ANY, tmp_path / "b.jsonl", **ME, masked=True)
    export(store, ANY, tmp_path / "c.csv", **ME)
    export(store, ANY, tmp_path / "d.csv", **ME, masked=False)

    assert [(action, count) for action, count, _ in audit(store)] == [("export", 2)] * 4
    assert ["Raw: " in outcome for *_, outcome in audit(store)] == [True, False, False, True]
    assert all("sha256" in outcome for *_, outcome in audit(store))


@pytest.mark.parametrize(
    ("name", "masked"), [("a.csv", None), ("a.csv", False), ("a.jsonl", True), ("a.parquet", True)]
)
def test_an_export_that_cannot_be_imported_leaves_the_verdicts_as_they_are(store, tmp_path, name, masked):
    (message_id,) = add_dead_letters(store, 1)

    export(store, ANY, tmp_path / name, masked=masked, **ME)

    assert DeadLetters(store).get(message_id).verdict == "rejected"


def test_only_exported_dead_letters_lose_a_safe_verdict(store, tmp_path):
    exported, other = add_dead_letters(store, 2)

    export(store, DeadLetterFilter(state=None, ids=(exported,)), tmp_path / "a.jsonl", **ME)

    assert DeadLetters(store).get(exported).verdict == "possibly_persisted"
    assert DeadLetters(store).get(other).verdict == "rejected"


def test_a_dead_letter_that_changes_during_its_export_loses_its_safe_verdict_too(store, tmp_path):
    (message_id,) = add_dead_letters(store, 1)

    def archive(done: int, of: int) -> None:
        DeadLetters(store).archive(DeadLetterFilter(), **ME)

    export(store, DeadLetterFilter(), tmp_path / "a.jsonl", progress=archive, **ME)

    archived = DeadLetters(store).get(message_id)
    assert (archived.state, archived.verdict) == ("archived", "possibly_persisted")


def test_an_empty_selection_is_exported_as_an_empty_file(store, other, tmp_path):
    for format in (*FORMATS, "csv"):
        assert export(store, ANY, tmp_path / f"a.{format}", **ME).rows == 0
    for format in FORMATS:
        assert import_(other, tmp_path / f"a.{format}", **ME).new == 0


def test_an_existing_file_is_kept_unless_overwrite_is_set(store, other, tmp_path):
    add_dead_letters(store, 1)
    target = tmp_path / "a.jsonl"
    target.write_text("existing")

    with pytest.raises(TransferError, match="already exists"):
        export(store, ANY, target, **ME)
    assert target.read_text() == "existing"

    export(store, ANY, target, **ME, overwrite=True)
    assert import_(other, target, **ME).new == 1


@pytest.mark.parametrize("name", ["nowhere/a.jsonl", ".", "a.xlsx", "a"])
def test_an_invalid_target_is_an_error(store, tmp_path, name):
    with pytest.raises(TransferError):
        export(store, ANY, tmp_path / name, **ME)


def test_nothing_is_exported_without_an_audit_row(store, tmp_path, monkeypatch):
    add_dead_letters(store, 1)

    def locked(**_):
        raise StoreLocked("locked")

    monkeypatch.setattr(store, "audit", locked)

    with pytest.raises(StoreLocked):
        export(store, ANY, tmp_path / "a.jsonl", **ME)

    assert not list(tmp_path.glob("*a.jsonl*"))
