"""The manifest: its content, and the files that it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.files import export, import_
from producer_core.errors import TransferError
from tests.fixtures.replays import add_dead_letters, dead_letter
from tests.fixtures.transfers import ANY, ME, all_rows, audit


def manifest_of(path):
    return json.loads(Path(f"{path}.manifest.json").read_text())


def test_the_manifest_contains_filter_counts_and_operator(store, tmp_path):
    add_dead_letters(store, 3)
    DeadLetters(store).add([dead_letter(9, topic="payments", verdict="possibly_persisted")])
    where = DeadLetterFilter(code="POLICY_VIOLATION", since=1.0)

    export(store, where, tmp_path / "a.jsonl", **ME)

    manifest = manifest_of(tmp_path / "a.jsonl")
    assert DeadLetterFilter.from_query(manifest["filter"]) == where
    assert (manifest["matched"], manifest["rows"], manifest["changed"], manifest["missing"]) == (4, 4, 0, 0)
    assert manifest["by_topic"] == {"orders": 3, "payments": 1}
    assert manifest["by_verdict"] == {"rejected": 3, "possibly_persisted": 1}
    assert (manifest["format_version"], manifest["masked"], manifest["exported_by"]) == (2, False, "ann@here")
    assert manifest["size"] == (tmp_path / "a.jsonl").stat().st_size


def test_a_file_that_differs_from_its_manifest_is_rejected(store, other, tmp_path):
    add_dead_letters(store, 3)
    for number, change in enumerate((lambda raw: raw[:-1], lambda raw: raw.replace(b"orders", b"0rders", 1))):
        target = tmp_path / f"{number}.jsonl"
        export(store, ANY, target, **ME)
        target.write_bytes(change(target.read_bytes()))

        with pytest.raises(TransferError, match="does not match its manifest"):
            import_(other, target, **ME)

    assert all_rows(other) == []
    assert audit(other) == []


def test_a_file_without_a_manifest_needs_the_no_manifest_option(store, other, tmp_path):
    add_dead_letters(store, 2)
    export(store, ANY, tmp_path / "a.jsonl", **ME)
    Path(f"{tmp_path}/a.jsonl.manifest.json").unlink()

    with pytest.raises(TransferError, match="--no-manifest"):
        import_(other, tmp_path / "a.jsonl", **ME)

    assert import_(other, tmp_path / "a.jsonl", **ME, no_manifest=True).new == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "producer-core dead letters"}', "\x00"])
def test_an_invalid_manifest_is_rejected(store, other, tmp_path, text):
    add_dead_letters(store, 1)
    export(store, ANY, tmp_path / "a.jsonl", **ME)
    Path(f"{tmp_path}/a.jsonl.manifest.json").write_text(text)

    with pytest.raises(TransferError, match="is not a manifest"):
        import_(other, tmp_path / "a.jsonl", **ME)


def test_a_manifest_of_a_later_version_asks_for_an_upgrade(store, other, tmp_path):
    add_dead_letters(store, 1)
    export(store, ANY, tmp_path / "a.jsonl", **ME)
    manifest = manifest_of(tmp_path / "a.jsonl")
    Path(f"{tmp_path}/a.jsonl.manifest.json").write_text(json.dumps({**manifest, "format_version": 3}))

    with pytest.raises(TransferError, match="Upgrade"):
        import_(other, tmp_path / "a.jsonl", **ME)
