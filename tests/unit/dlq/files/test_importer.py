"""Export and import of dead letters: lossless files, and clear errors for invalid ones."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetters, codec
from producer_core.dlq.files import csv_cells, export, import_, reader, selection, writers
from producer_core.dlq.files.atomic_file import AtomicFile
from producer_core.dlq.files.record import raw_line, record_of
from producer_core.dlq.files.validation import ImportedRecord
from producer_core.errors import ConfigError, StoreLocked, TransferError
from producer_core.events import Attempt
from producer_core.messages import id_text
from producer_core.store import Store
from tests.fixtures.replays import buried, dead_letter, message_id

ANY = DeadLetterFilter(state=None)
ME = {"who": "ann@here", "origin": "test"}
FORMATS = ("parquet", "jsonl")


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """An empty store; copying it is faster than creating one."""
    store = Store.open(tmp_path_factory.mktemp("empty") / "store.duckdb")
    store.close()
    return store.path


@pytest.fixture
def store(tmp_path, empty):
    return Store.open(shutil.copy(empty, tmp_path / "store.duckdb"))


@pytest.fixture
def other(tmp_path, empty):
    return Store.open(shutil.copy(empty, tmp_path / "other.duckdb"))


def all_rows(store, *excluded):
    """Return the joined rows of both tables without the columns that differ between stores."""
    excluded = {"operation_id", "state_at", *excluded}
    with store.borrow() as connection:
        found = connection.sql(
            "SELECT l.*, b.message_id IS NOT NULL AS has_body, b.value, b.headers, b.timestamp_ms, b.attempts AS all_attempts "
            "FROM dead_letters AS l LEFT JOIN dead_letter_bodies AS b USING (message_id) ORDER BY l.message_id"
        )
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    return [{name: value for name, value in row.items() if name not in excluded} for row in rows]


def audit(store):
    with store.borrow() as connection:
        return connection.execute(
            "SELECT action, count, outcome FROM audit ORDER BY acted_at, rowid"
        ).fetchall()


def execute(store, sql, *parameters):
    with store.borrow(write=True) as connection:
        connection.execute(sql, parameters)


def manifest_of(path):
    return json.loads(Path(f"{path}.manifest.json").read_text())


def rewrite(path, change):
    """Change the lines of a JSON Lines file and delete its manifest."""
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    Path(f"{path}.manifest.json").unlink()


# round trips

texts = st.text(st.characters(codec="utf-8"), max_size=12)
data = st.none() | st.binary(max_size=40)
times = st.floats(-1e15, 1e15)
small = st.integers(0, 2**31 - 1)

dead_letters = st.builds(
    lambda raw, **fields: replace(dead_letter(0), message_id=id_text(raw), **fields),
    st.binary(min_size=24, max_size=24),
    topic=texts,
    key=data,
    value=data,
    headers=st.lists(st.tuples(texts, data), max_size=4).map(tuple),
    partition=st.none() | small,
    timestamp_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
    verdict=st.sampled_from(
        ["not_sent", "rejected", "possibly_persisted", "found", "absent", "inconclusive"]
    ),
    kind=st.sampled_from(["local", "permanent", "temporary", "timed_out", "fatal"]),
    error_text=texts,
    attempts=st.lists(st.builds(Attempt, times, texts, texts), max_size=3, unique=True).map(tuple),
    accepted_at=times,
    failed_at=times,
    replayable=st.booleans(),
    source=st.none() | texts,
    host=texts,
)
states = st.sampled_from(["dead", "replayed", "landed", "archived"])
numbers = itertools.count()


@settings(max_examples=60, deadline=None)
@given(one=dead_letters, state=states, offset=st.none() | small, operation=st.none() | texts)
def test_a_record_is_equal_in_both_formats(one, state, offset, operation):
    """The records are read with the types they were written with. Without a store, many examples are possible."""
    body = dict(zip(codec.BODY_COLUMNS, codec.body_row(one), strict=True))
    row = dict(zip(codec.LETTER_COLUMNS, codec.dead_letter_row(one, now=5.0), strict=True))
    record = record_of({**row, "state": state, "landed_offset": offset, "operation_id": operation}, body)
    table = writers.batch([record], masked=False)

    line = reader._line(Path("a"), 1, raw_line(record))
    row = reader._row(1, table.to_pylist()[0])

    assert isinstance(line, ImportedRecord), line
    assert line == row
    assert line.dead_letter == replace(one, state=state)
    assert (line.landed_offset, line.value_size) == (offset, None if one.value is None else len(one.value))


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
    assert all_rows(other) == all_rows(store)


@pytest.mark.parametrize("format", FORMATS)
def test_importing_a_file_again_adds_nothing_and_known_dead_letters_stay_unchanged(
    store, other, tmp_path, format
):
    buried(store, 5)
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
    ids = buried(store, 2)
    DeadLetters(store).claim("op", ids[:1])
    target = tmp_path / "a.parquet"
    export(store, ANY, target, **ME)

    done = import_(other, target, **ME)

    imported = DeadLetters(other).get(ids[0])
    assert (imported.state, imported.verdict) == ("dead", "possibly_persisted")
    assert DeadLetters(other).get(ids[1]).verdict == "rejected"
    assert "1 exported during a replay" in done.text


@pytest.mark.parametrize("format", FORMATS)
def test_a_purged_dead_letter_is_imported_as_purged(store, other, tmp_path, format):
    buried(store, 1)
    dead = DeadLetters(store)
    dead.archive(ANY, **ME)
    dead.purge(ANY, **ME, confirmation="purge 1", min_age=-60)
    target = tmp_path / f"a.{format}"
    export(store, ANY, target, **ME)

    import_(other, target, **ME)

    assert [row["state"] for row in all_rows(other)] == ["purged"]
    assert all_rows(other, "attempts", "key_mark") == all_rows(store, "attempts", "key_mark")


def test_the_purge_and_retention_periods_start_with_the_import(store, other, tmp_path):
    buried(store, 1)
    DeadLetters(store, clock=lambda: 1000.0).archive(ANY, **ME)
    export(store, ANY, tmp_path / "a.parquet", **ME)

    import_(other, tmp_path / "a.parquet", **ME)
    other.prune(other._clock())

    assert DeadLetters(other).purge_phrase(ANY) == "purge 0"
    assert DeadLetters(other).count(ANY) == 1


def test_an_import_adds_an_event_with_its_file(store, other, tmp_path):
    buried(store, 1)
    export(store, ANY, tmp_path / "a.jsonl", **ME)

    import_(other, tmp_path / "a.jsonl", who="bob", origin="test")

    with other.borrow() as connection:
        assert connection.execute("SELECT what, who, text FROM letter_events").fetchall() == [
            ("imported", "bob", "from a.jsonl, exported by ann@here")
        ]


# the manifest


def test_the_manifest_contains_filter_counts_and_operator(store, tmp_path):
    buried(store, 3)
    DeadLetters(store).add([dead_letter(9, topic="payments", verdict="possibly_persisted")])
    where = DeadLetterFilter(code="POLICY_VIOLATION", since=1.0)

    export(store, where, tmp_path / "a.jsonl", **ME)

    manifest = manifest_of(tmp_path / "a.jsonl")
    assert DeadLetterFilter.from_query(manifest["filter"]) == where
    assert (manifest["matched"], manifest["rows"], manifest["changed"], manifest["missing"]) == (4, 4, 0, 0)
    assert manifest["by_topic"] == {"orders": 3, "payments": 1}
    assert manifest["by_verdict"] == {"rejected": 3, "possibly_persisted": 1}
    assert (manifest["format_version"], manifest["masked"], manifest["exported_by"]) == (1, False, "ann@here")
    assert manifest["size"] == (tmp_path / "a.jsonl").stat().st_size


def test_a_file_that_differs_from_its_manifest_is_rejected(store, other, tmp_path):
    buried(store, 3)
    for number, change in enumerate((lambda raw: raw[:-1], lambda raw: raw.replace(b"orders", b"0rders", 1))):
        target = tmp_path / f"{number}.jsonl"
        export(store, ANY, target, **ME)
        target.write_bytes(change(target.read_bytes()))

        with pytest.raises(TransferError, match="does not match its manifest"):
            import_(other, target, **ME)

    assert all_rows(other) == []
    assert audit(other) == []


def test_a_file_without_a_manifest_needs_the_no_manifest_option(store, other, tmp_path):
    buried(store, 2)
    export(store, ANY, tmp_path / "a.jsonl", **ME)
    Path(f"{tmp_path}/a.jsonl.manifest.json").unlink()

    with pytest.raises(TransferError, match="--no-manifest"):
        import_(other, tmp_path / "a.jsonl", **ME)

    assert import_(other, tmp_path / "a.jsonl", **ME, no_manifest=True).new == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "producer-core dead letters"}', "\x00"])
def test_an_invalid_manifest_is_rejected(store, other, tmp_path, text):
    buried(store, 1)
    export(store, ANY, tmp_path / "a.jsonl", **ME)
    Path(f"{tmp_path}/a.jsonl.manifest.json").write_text(text)

    with pytest.raises(TransferError, match="is not a manifest"):
        import_(other, tmp_path / "a.jsonl", **ME)


def test_a_manifest_of_a_later_version_asks_for_an_upgrade(store, other, tmp_path):
    buried(store, 1)
    export(store, ANY, tmp_path / "a.jsonl", **ME)
    manifest = manifest_of(tmp_path / "a.jsonl")
    Path(f"{tmp_path}/a.jsonl.manifest.json").write_text(json.dumps({**manifest, "format_version": 2}))

    with pytest.raises(TransferError, match="Upgrade"):
        import_(other, tmp_path / "a.jsonl", **ME)


# masked


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


def test_an_export_is_audited_with_whether_it_is_raw(store, tmp_path):
    buried(store, 2)

    export(store, ANY, tmp_path / "a.jsonl", **ME)
    export(store, ANY, tmp_path / "b.jsonl", **ME, masked=True)
    export(store, ANY, tmp_path / "c.csv", **ME)
    export(store, ANY, tmp_path / "d.csv", **ME, masked=False)

    assert [(action, count) for action, count, _ in audit(store)] == [("export", 2)] * 4
    assert ["Raw: " in outcome for *_, outcome in audit(store)] == [True, False, False, True]
    assert all("sha256" in outcome for *_, outcome in audit(store))


def test_only_the_owner_can_read_exported_files(store, tmp_path):
    buried(store, 1)
    for format in (*FORMATS, "csv"):
        export(store, ANY, tmp_path / f"a.{format}", **ME)

    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("a.*")} == {0o600}


# CSV


@given(st.text(st.sampled_from("'=+-@\t\r\n; ab＝\u00a0\ufeff")) | st.text())
def test_an_escaped_cell_is_no_formula_and_can_be_unescaped(text):
    cell = csv_cells.safe(text)

    assert csv_cells.plain(cell) == text
    for part in cell.replace("\t", ";").replace("\r", ";").replace("\n", ";").split(";"):
        assert not part.lstrip(" \u00a0\ufeff").startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
    assert not cell.startswith(("\t", "\r", "\n"))


def test_no_cell_of_a_csv_file_is_a_formula(store, tmp_path):
    evil = "=HYPERLINK(1)"
    DeadLetters(store).add(
        [
            dead_letter(
                1,
                topic=evil,
                key=b"+1",
                value=b"@SUM(1)",
                error_text='-1+cmd|" /C calc"!A0',
                source="\t=1",
                host="x;=1+1",
                headers=(("=1", b"=2"),),
                timestamp_ms=-5,
            ),
            dead_letter(2, key=b"", value=None, source=None),
        ]
    )
    export(store, ANY, tmp_path / "a.csv", **ME)

    text = (tmp_path / "a.csv").read_text("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))

    for row in rows:
        for cell in row.values():
            assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))
    assert csv_cells.plain(rows[0]["topic"]) == evil
    assert csv_cells.plain(rows[0]["timestamp_ms"]) == "-5"
    assert csv_cells.plain(rows[0]["host"]) == "x;=1+1"
    assert ";=1" not in text
    assert '"orders",,"","0' not in text
    assert ',"",,"dead"' in text  # an empty key, and a tombstone of no size


# changes during the export


def test_dead_letters_that_change_during_the_export_are_exported_and_counted(store, tmp_path, monkeypatch):
    ids = buried(store, 10)
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
    ids = buried(store, 100, **changes)

    manifest = export(store, ANY, tmp_path / "a.jsonl", **ME)

    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines()]
    assert manifest.rows == 100
    assert sorted(line["message_id"] for line in lines) == sorted(ids)
    if not same_moment:
        assert [line["message_id"] for line in lines] == ids


def test_an_interrupted_read_is_split(store, tmp_path, monkeypatch):
    ids, sizes = buried(store, 10), []

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


def test_a_file_with_several_row_groups_is_complete(store, other, tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "SLICE", 3)
    monkeypatch.setattr(writers, "_GROUP_ROWS", 6)
    buried(store, 20)

    export(store, ANY, tmp_path / "a.parquet", **ME)
    import_(other, tmp_path / "a.parquet", **ME)

    assert pyarrow.parquet.ParquetFile(tmp_path / "a.parquet").num_row_groups == 4
    assert all_rows(other) == all_rows(store)


def test_an_empty_selection_is_exported_as_an_empty_file(store, other, tmp_path):
    for format in (*FORMATS, "csv"):
        assert export(store, ANY, tmp_path / f"a.{format}", **ME).rows == 0
    for format in FORMATS:
        assert import_(other, tmp_path / f"a.{format}", **ME).new == 0


# errors


class FullDisk(AtomicFile):
    capacity = 2000

    def write(self, data):
        if self.size + len(data) > self.capacity:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("format", [*FORMATS, "csv"])
def test_a_full_disk_is_reported_and_leaves_no_file(store, tmp_path, monkeypatch, format):
    buried(store, 300, value=os.urandom(100))
    monkeypatch.setattr("producer_core.dlq.files.atomic_file.AtomicFile", FullDisk)
    folder = tmp_path / "out"
    folder.mkdir()

    with pytest.raises(TransferError, match=r"disk of .* is full"):
        export(store, ANY, folder / f"a.{format}", **ME)

    assert list(folder.iterdir()) == []
    assert [(action, count) for action, count, _ in audit(store)] == [("export", 0)]
    assert "is full" in audit(store)[0][2]


def test_an_existing_file_is_kept_unless_overwrite_is_set(store, other, tmp_path):
    buried(store, 1)
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
    buried(store, 1)

    def locked(**_):
        raise StoreLocked("locked")

    monkeypatch.setattr(store, "audit", locked)

    with pytest.raises(StoreLocked):
        export(store, ANY, tmp_path / "a.jsonl", **ME)

    assert not list(tmp_path.glob("*a.jsonl*"))


def test_invalid_lines_are_reported_and_the_others_are_imported(store, other, tmp_path):
    ids = buried(store, 12)
    target = tmp_path / "a.jsonl"
    export(store, ANY, target, **ME)

    def change(lines):
        records = [json.loads(line) for line in lines]
        records[0]["verdict"] = "certainly"
        records[1]["value_base64"] = "not base64"
        records[2]["message_id"] = "not an id"
        records[3]["partition"] = 2**31
        records[4]["value_size"] = 7
        del records[5]["topic"]
        records[6]["headers_base64"] = [["a"]]
        records[7]["failed_at"] = 1e300
        records[8] = ["not an object"]
        out = [json.dumps(record).encode() + b"\n" for record in records]
        return [*out[:10], b"\n", out[10], out[11][:40]]

    rewrite(target, change)
    done = import_(other, target, **ME, no_manifest=True)

    assert (done.new, done.refused) == (2, 10)
    assert [one.place.split(" (")[0] for one in done.bad] == [
        f"line {number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13)
    ]
    assert ids[0] in done.bad[0].place
    assert "certainly" in done.bad[0].reason
    assert {row["message_id"] for row in all_rows(other)} == set(ids[9:11])
    assert "10 rows rejected" in audit(other)[-1][2]


def test_only_the_damaged_rows_of_a_parquet_file_are_rejected(store, other, tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "SLICE", 5)
    monkeypatch.setattr(writers, "_GROUP_ROWS", 5)
    buried(store, 15, value=os.urandom(400))
    target = tmp_path / "a.parquet"
    export(store, ANY, target, **ME)
    file = pyarrow.parquet.ParquetFile(target)
    place = file.metadata.row_group(1).column(file.schema_arrow.get_field_index("message_id"))
    raw = bytearray(target.read_bytes())
    begin = place.dictionary_page_offset or place.data_page_offset
    raw[begin : begin + place.total_compressed_size] = b"\xff" * place.total_compressed_size
    target.write_bytes(raw)

    with pytest.raises(TransferError, match="sha256"):
        import_(other, target, **ME)
    done = import_(other, target, **ME, no_manifest=True)

    assert (done.new, done.refused) == (10, 5)
    assert done.bad[0].place == "rows 6 to 10"


def test_a_parquet_file_of_another_program_is_rejected(other, tmp_path):
    table = pyarrow.table({"message_id": ["a"], "value": [b"x"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")

    with pytest.raises(TransferError, match="not written by dlq export"):
        import_(other, tmp_path / "a.parquet", **ME, no_manifest=True)
    (tmp_path / "b.parquet").write_text("nonsense")
    with pytest.raises(TransferError, match="not a readable Parquet file"):
        import_(other, tmp_path / "b.parquet", **ME, no_manifest=True)


def test_a_dead_letter_without_its_body_is_not_imported_as_a_tombstone(store, other, tmp_path):
    buried(store, 2)
    execute(store, "DELETE FROM dead_letter_bodies WHERE message_id = ?", message_id(0))
    export(store, ANY, tmp_path / "a.parquet", **ME)

    done = import_(other, tmp_path / "a.parquet", **ME)

    assert (done.new, done.refused) == (1, 1)
    assert "value is null instead of 2 bytes" in done.bad[0].reason


def test_a_dry_run_renumbers_the_same_counts_and_changes_nothing(store, other, tmp_path):
    buried(store, 3)
    export(store, ANY, tmp_path / "a.parquet", **ME)
    DeadLetters(other).add([dead_letter(0)])

    preview = import_(other, tmp_path / "a.parquet", **ME, dry_run=True)

    assert (preview.new, preview.known) == (2, 1)
    assert len(all_rows(other)) == 1
    assert audit(other) == []
    done = import_(other, tmp_path / "a.parquet", **ME)
    assert (done.new, done.known) == (2, 1)


def test_the_start_and_the_result_of_an_import_are_audited(store, other, tmp_path, monkeypatch):
    buried(store, 3)
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


def test_extreme_times_do_not_prevent_a_csv_export(store, tmp_path):
    DeadLetters(store).add([dead_letter(1, accepted_at=1e15, failed_at=-1e15)])
    assert math.isfinite(export(store, ANY, tmp_path / "a.csv", **ME).rows)


# the commands


def run(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_the_commands_export_and_import_a_selection(store, tmp_path):
    buried(store, 3)
    DeadLetters(store).add([dead_letter(9, topic="payments")])
    target, other = tmp_path / "a.parquet", tmp_path / "other.duckdb"

    exported = run("dlq", "export", target, "--topic", "orders", "--store", store.path)
    unconfirmed = run("dlq", "import", target, "--store", other)
    done = run("dlq", "import", target, "--store", other, "--yes", "--json")

    assert exported.exit_code == 0
    assert "Exported 3 dead letters" in exported.output
    assert "Raw: " in exported.output
    assert unconfirmed.exit_code == 2
    assert "Import 3 dead letters" in unconfirmed.output
    assert done.exit_code == 0
    assert json.loads(done.stdout)["new"] == 3


def test_the_import_command_explains_the_rejection_of_a_masked_file(store, tmp_path):
    buried(store, 1)
    run("dlq", "export", tmp_path / "a.jsonl", "--masked", "--store", store.path)

    result = run("dlq", "import", tmp_path / "a.jsonl", "--yes", "--store", store.path)

    assert result.exit_code == 2
    assert "cannot be imported" in result.output


def test_the_import_command_reports_rejected_rows_with_exit_code_1(store, tmp_path):
    buried(store, 3)
    target = tmp_path / "a.jsonl"
    run("dlq", "export", target, "--store", store.path)
    rewrite(target, lambda lines: [lines[0], b"{}\n", lines[2]])

    result = run("dlq", "import", target, "--no-manifest", "--yes", "--store", tmp_path / "other.duckdb")

    assert result.exit_code == 1
    assert "line 2: field " in result.output
