"""Imports: what a store takes, what it already has, and the audit."""

from __future__ import annotations

import itertools

import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.files import export, import_
from producer_core.dlq.files.exporter import EXPORTED
from producer_core.errors import ConfigError, TransferError
from producer_core.events import Attempt
from tests.fixtures.replays import add_dead_letters, dead_letter, message_id
from tests.fixtures.transfers import ANY, FORMATS, ME, all_rows, audit, dead_letters, small, states

numbers = itertools.count()


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    found=st.lists(dead_letters, min_size=1, max_size=12, unique_by=lambda one: one.message_id),
    columns=st.lists(st.tuples(states, small, st.booleans(), st.none() | small), min_size=12, max_size=12),
    format=st.sampled_from(FORMATS),
)
def test_imported_dead_letters_equal_the_exported_ones(found, columns, format, store, other, tmp_path):
    for one in (store, other):
        with one.borrow(write=True) as connection:
            connection.execute("DELETE FROM dead_letters; DELETE FROM dead_letter_bodies")
    DeadLetters(store).add(found)
    with store.borrow(write=True) as connection:
        connection.executemany(
            "UPDATE dead_letters SET state = ?, replay_count = ?, quarantined = ?, landed_partition = ?, "
            "landed_offset = ? WHERE message_id = ?",
            [
                (state, count, quarantined, offset, offset, one.message_id)
                for one, (state, count, quarantined, offset) in zip(found, columns, strict=False)
            ],
        )
    target = tmp_path / f"{next(numbers)}.{format}"

    manifest = export(store, ANY, target, **ME)
    done = import_(other, target, **ME)

    assert (manifest.rows, done.new, done.known, done.refused) == (len(found), len(found), 0, 0)
    assert all_rows(other, "verdict", "verdict_reason") == all_rows(store, "verdict", "verdict_reason")


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_importing_a_file_again_adds_nothing_and_known_dead_letters_stay_unchanged(
    store, other, tmp_path, format
):
    add_dead_letters(store, 5)
    target = tmp_path / f"a.{format}"
    export(store, DeadLetterFilter(), target, **ME)
    DeadLetters(other).add([dead_letter(2, value=b"ours", topic="elsewhere")])
    DeadLetters(other).archive(DeadLetterFilter(), **ME)

    first = import_(other, target, **ME)
    before = all_rows(other)
    second = import_(other, target, **ME)

    assert (first.new, first.known, first.known_by_state) == (4, 1, {"archived": 1})
    assert (second.new, second.known) == (0, 5)
    assert all_rows(other) == before
    assert DeadLetters(other).get(message_id(2)).value == b"ours"


def test_a_dead_letter_exported_during_a_replay_is_imported_as_dead_and_doubtful(store, other, tmp_path):
    ids = add_dead_letters(store, 2)
    DeadLetters(store).claim("op", ids[:1])
    target = tmp_path / "a.parquet"
    export(store, ANY, target, **ME)

    done = import_(other, target, **ME)

    imported = DeadLetters(other).get(ids[0])
    assert (imported.state, imported.verdict) == ("dead", "possibly_persisted")
    assert "1 exported during a replay; a replay first checks whether it is on the topic." in done.text


@pytest.mark.parametrize("archived", [False, True])
def test_a_safe_verdict_is_not_imported_because_the_source_may_replay_the_dead_letter_too(
    store, other, tmp_path, archived
):
    (message_id,) = add_dead_letters(store, 1)
    assert DeadLetters(store).get(message_id).verdict == "rejected"
    if archived:
        DeadLetters(store).archive(DeadLetterFilter(), **ME)
    export(store, ANY, tmp_path / "a.parquet", **ME)
    exported = DeadLetters(store).get(message_id)
    assert exported.verdict == "possibly_persisted"
    assert exported.verdict_reason.startswith(f"{EXPORTED} Previously: ")

    import_(other, tmp_path / "a.parquet", **ME)

    imported = DeadLetters(other).get(message_id)
    assert imported.verdict == "possibly_persisted"
    assert imported.verdict_reason.startswith("The verdict at the export was rejected: ")


@pytest.mark.parametrize("format", FORMATS)
def test_a_purged_dead_letter_is_imported_as_purged(store, other, tmp_path, format):
    add_dead_letters(store, 1)
    dead = DeadLetters(store)
    dead.archive(ANY, **ME)
    dead.purge(ANY, **ME, confirmation="purge 1", min_age=-60)
    target = tmp_path / f"a.{format}"
    export(store, ANY, target, **ME)

    import_(other, target, **ME)

    assert [row["state"] for row in all_rows(other)] == ["purged"]
    assert all_rows(other, "attempts", "key_mark") == all_rows(store, "attempts", "key_mark")


def test_the_purge_and_retention_periods_start_with_the_import(store, other, tmp_path):
    add_dead_letters(store, 1)
    DeadLetters(store, clock=lambda: 1000.0).archive(ANY, **ME)
    export(store, ANY, tmp_path / "a.parquet", **ME)

    import_(other, tmp_path / "a.parquet", **ME)
    other.prune(other._clock())

    assert DeadLetters(other).purge_phrase(ANY) == "purge 0"
    assert DeadLetters(other).count(ANY) == 1


def test_an_import_adds_an_event_with_its_file(store, other, tmp_path):
    add_dead_letters(store, 1)
    export(store, ANY, tmp_path / "a.jsonl", **ME)

    import_(other, tmp_path / "a.jsonl", who="bob", origin="test")

    with other.borrow() as connection:
        assert connection.execute("SELECT what, who, text FROM letter_events").fetchall() == [
            ("imported", "bob", "from a.jsonl, exported by ann@here")
        ]


@pytest.mark.parametrize("format", [*FORMATS, "csv"])
def test_a_masked_file_has_no_secrets_and_cannot_be_imported(store, other, tmp_path, format):
    secret = dead_letter(
        1,
        key=b"ann.lee@example.com",
        value=b'{"password": "hunter2", "card": "4111111111111111"}',
        headers=(("authorization", b"Bearer abcdefgh"),),
        error_text="token=swordfish",
        attempts=(Attempt(1.0, "X", "password=swordfish"),),
    )
    DeadLetters(store).add([secret])
    target = tmp_path / f"a.{format}"
    export(store, ANY, target, **ME, masked=True)

    content = target.read_bytes()
    if format == "parquet":
        content = str(pyarrow.parquet.read_table(target).to_pylist()).encode()
    for word in (b"ann.lee@", b"hunter2", b"4111111111111111", b"abcdefgh", b"swordfish"):
        assert word not in content
    for no_manifest in (False, True):
        with pytest.raises(TransferError, match="CSV" if format == "csv" else "is masked"):
            import_(other, target, **ME, no_manifest=no_manifest)


def test_a_dry_run_reports_the_counts_of_the_import_and_changes_nothing(store, other, tmp_path):
    add_dead_letters(store, 3)
    export(store, ANY, tmp_path / "a.parquet", **ME)
    DeadLetters(other).add([dead_letter(0)])

    preview = import_(other, tmp_path / "a.parquet", **ME, dry_run=True)

    assert (preview.new, preview.known) == (2, 1)
    assert len(all_rows(other)) == 1
    assert audit(other) == []
    done = import_(other, tmp_path / "a.parquet", **ME)
    assert (done.new, done.known) == (2, 1)


def test_the_start_and_the_result_of_an_import_are_audited(store, other, tmp_path, monkeypatch):
    add_dead_letters(store, 3)
    export(store, ANY, tmp_path / "a.parquet", **ME)

    def fail(*_):
        raise ConfigError("interrupted")

    with pytest.raises(ConfigError):
        import_(other, tmp_path / "a.parquet", **ME, progress=lambda done, total: done == 3 and fail())
    import_(other, tmp_path / "a.parquet", **ME)

    found = audit(other)
    assert [(action, count) for action, count, _ in found] == [("import", 0), ("import", 3)] + [
        ("import", 0)
    ] * 2
    assert "The import failed: interrupted" in found[1][2]
    assert "3 already known and unchanged" in found[3][2]
