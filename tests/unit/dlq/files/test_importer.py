"""Dead letters in files: what goes out comes in again as it was, and what must not come in is refused in words."""

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
    """A store with nothing in it: a copy is made in no time."""
    store = Store.open(tmp_path_factory.mktemp("empty") / "store.duckdb")
    store.close()
    return store.path


@pytest.fixture
def store(tmp_path, empty):
    return Store.open(shutil.copy(empty, tmp_path / "store.duckdb"))


@pytest.fixture
def other(tmp_path, empty):
    return Store.open(shutil.copy(empty, tmp_path / "other.duckdb"))


def everything(store, *but):
    """Every row of both tables, but for the columns that say when and by which operation of this store."""
    left = {"operation_id", "state_at", *but}
    with store.borrow() as connection:
        found = connection.sql(
            "SELECT l.*, b.message_id IS NOT NULL AS has_body, b.value, b.headers, b.timestamp_ms, b.attempts AS story "
            "FROM dead_letters AS l LEFT JOIN dead_letter_bodies AS b USING (message_id) ORDER BY l.message_id"
        )
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    return [{name: value for name, value in row.items() if name not in left} for row in rows]


def audit(store):
    with store.borrow() as connection:
        return connection.execute(
            "SELECT action, count, outcome FROM audit ORDER BY acted_at, rowid"
        ).fetchall()


def put(store, sql, *parameters):
    with store.borrow(write=True) as connection:
        connection.execute(sql, parameters)


def manifest_of(path):
    return json.loads(Path(f"{path}.manifest.json").read_text())


def spoiled(path, change):
    """A file of JSON Lines with changed lines, and no manifest that would be true of it."""
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    Path(f"{path}.manifest.json").unlink()


# what goes out comes in

texts = st.text(st.characters(codec="utf-8"), max_size=12)
data = st.none() | st.binary(max_size=40)
moments = st.floats(-1e15, 1e15)
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
    attempts=st.lists(st.builds(Attempt, moments, texts, texts), max_size=3, unique=True).map(tuple),
    accepted_at=moments,
    failed_at=moments,
    replayable=st.booleans(),
    source=st.none() | texts,
    host=texts,
)
states = st.sampled_from(["dead", "replayed", "landed", "archived"])
turns = itertools.count()


@settings(max_examples=60, deadline=None)
@given(one=dead_letters, state=states, place=st.none() | small, operation=st.none() | texts)
def test_a_record_is_the_same_after_both_formats(one, state, place, operation):
    """Without a store, and so many more of them: what is written is what is read, type for type."""
    body = dict(zip(codec.BODY_COLUMNS, codec.body_row(one), strict=True))
    row = dict(zip(codec.LETTER_COLUMNS, codec.dead_letter_row(one, now=5.0), strict=True))
    record = record_of({**row, "state": state, "landed_offset": place, "operation_id": operation}, body)
    table = writers.batch([record], masked=False)

    line = reader._line(Path("a"), 1, raw_line(record))
    row = reader._row(1, table.to_pylist()[0])

    assert isinstance(line, ImportedRecord), line
    assert line == row
    assert line.dead_letter == replace(one, state=state)
    assert (line.landed_offset, line.value_size) == (place, None if one.value is None else len(one.value))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    found=st.lists(dead_letters, min_size=1, max_size=12, unique_by=lambda one: one.message_id),
    how=st.lists(st.tuples(states, small, st.booleans(), st.none() | small), min_size=12, max_size=12),
    format=st.sampled_from(FORMATS),
)
def test_what_is_exported_is_imported_as_it_was(found, how, format, store, other, tmp_path):
    for one in (store, other):
        with one.borrow(write=True) as connection:
            connection.execute("DELETE FROM dead_letters; DELETE FROM dead_letter_bodies")
    DeadLetters(store).add(found)
    with store.borrow(write=True) as connection:
        connection.executemany(
            "UPDATE dead_letters SET state = ?, replay_count = ?, quarantined = ?, landed_partition = ?, "
            "landed_offset = ? WHERE message_id = ?",
            [
                (state, count, quarantined, place, place, one.message_id)
                for one, (state, count, quarantined, place) in zip(found, how, strict=False)
            ],
        )
    target = tmp_path / f"{next(turns)}.{format}"

    manifest = export(store, ANY, target, **ME)
    done = import_(other, target, **ME)

    assert (manifest.rows, done.new, done.known, done.refused) == (len(found), len(found), 0, 0)
    assert everything(other) == everything(store)


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_file_twice_adds_nothing_and_what_is_known_stays_as_it_is(store, other, tmp_path, format):
    buried(store, 5)
    target = tmp_path / f"a.{format}"
    export(store, DeadLetterFilter(), target, **ME)
    DeadLetters(other).add([dead_letter(2, value=b"ours", topic="elsewhere")])
    DeadLetters(other).archive(DeadLetterFilter(), **ME)

    first = import_(other, target, **ME)
    before = everything(other)
    second = import_(other, target, **ME)

    assert (first.new, first.known, first.known_by_state) == (4, 1, {"archived": 1})
    assert (second.new, second.known) == (0, 5)
    assert everything(other) == before
    assert DeadLetters(other).get(message_id(2)).value == b"ours"


def test_a_letter_that_was_being_replayed_is_dead_and_doubtful_where_it_arrives(store, other, tmp_path):
    ids = buried(store, 2)
    DeadLetters(store).claim("op", ids[:1])
    target = tmp_path / "a.parquet"
    export(store, ANY, target, **ME)

    done = import_(other, target, **ME)

    arrived = DeadLetters(other).get(ids[0])
    assert (arrived.state, arrived.verdict) == ("dead", "possibly_persisted")
    assert DeadLetters(other).get(ids[1]).verdict == "rejected"
    assert "1 were being replayed" in done.text


@pytest.mark.parametrize("format", FORMATS)
def test_a_purged_letter_arrives_as_the_trace_that_it_was(store, other, tmp_path, format):
    buried(store, 1)
    dead = DeadLetters(store)
    dead.archive(ANY, **ME)
    dead.purge(ANY, **ME, confirmation="purge 1", min_age=-60)
    target = tmp_path / f"a.{format}"
    export(store, ANY, target, **ME)

    import_(other, target, **ME)

    assert [row["state"] for row in everything(other)] == ["purged"]
    assert everything(other, "attempts", "key_mark") == everything(store, "attempts", "key_mark")


def test_what_was_archived_long_ago_elsewhere_is_not_old_enough_to_be_purged_or_pruned_here(
    store, other, tmp_path
):
    buried(store, 1)
    DeadLetters(store, clock=lambda: 1000.0).archive(ANY, **ME)
    export(store, ANY, tmp_path / "a.parquet", **ME)

    import_(other, tmp_path / "a.parquet", **ME)
    other.prune(other._clock())

    assert DeadLetters(other).purge_phrase(ANY) == "purge 0"
    assert DeadLetters(other).count(ANY) == 1


def test_the_life_of_a_letter_says_from_where_it_was_imported(store, other, tmp_path):
    buried(store, 1)
    export(store, ANY, tmp_path / "a.jsonl", **ME)

    import_(other, tmp_path / "a.jsonl", who="bob", origin="test")

    with other.borrow() as connection:
        assert connection.execute("SELECT what, who, text FROM letter_events").fetchall() == [
            ("imported", "bob", "from a.jsonl, exported by ann@here")
        ]


# the manifest


def test_the_manifest_says_what_why_how_many_and_by_whom(store, tmp_path):
    buried(store, 3)
    DeadLetters(store).add([dead_letter(9, topic="payments", verdict="possibly_persisted")])
    where = DeadLetterFilter(code="POLICY_VIOLATION", since=1.0)

    export(store, where, tmp_path / "a.jsonl", **ME)

    said = manifest_of(tmp_path / "a.jsonl")
    assert DeadLetterFilter.from_query(said["filter"]) == where
    assert (said["matched"], said["rows"], said["changed"], said["missing"]) == (4, 4, 0, 0)
    assert said["by_topic"] == {"orders": 3, "payments": 1}
    assert said["by_verdict"] == {"rejected": 3, "possibly_persisted": 1}
    assert (said["format_version"], said["masked"], said["exported_by"]) == (1, False, "ann@here")
    assert said["size"] == (tmp_path / "a.jsonl").stat().st_size


def test_a_file_that_is_not_what_its_manifest_says_is_refused(store, other, tmp_path):
    buried(store, 3)
    for number, change in enumerate((lambda raw: raw[:-1], lambda raw: raw.replace(b"orders", b"0rders", 1))):
        target = tmp_path / f"{number}.jsonl"
        export(store, ANY, target, **ME)
        target.write_bytes(change(target.read_bytes()))

        with pytest.raises(TransferError, match="not the file that was exported"):
            import_(other, target, **ME)

    assert everything(other) == []
    assert audit(other) == []


def test_without_a_manifest_it_has_to_be_asked_for(store, other, tmp_path):
    buried(store, 2)
    export(store, ANY, tmp_path / "a.jsonl", **ME)
    Path(f"{tmp_path}/a.jsonl.manifest.json").unlink()

    with pytest.raises(TransferError, match="--no-manifest"):
        import_(other, tmp_path / "a.jsonl", **ME)

    assert import_(other, tmp_path / "a.jsonl", **ME, no_manifest=True).new == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "producer-core dead letters"}', "\x00"])
def test_a_manifest_that_is_none_is_refused(store, other, tmp_path, text):
    buried(store, 1)
    export(store, ANY, tmp_path / "a.jsonl", **ME)
    Path(f"{tmp_path}/a.jsonl.manifest.json").write_text(text)

    with pytest.raises(TransferError, match="is not a manifest"):
        import_(other, tmp_path / "a.jsonl", **ME)


def test_a_manifest_of_a_later_version_says_to_upgrade(store, other, tmp_path):
    buried(store, 1)
    export(store, ANY, tmp_path / "a.jsonl", **ME)
    said = manifest_of(tmp_path / "a.jsonl")
    Path(f"{tmp_path}/a.jsonl.manifest.json").write_text(json.dumps({**said, "format_version": 2}))

    with pytest.raises(TransferError, match="Upgrade"):
        import_(other, tmp_path / "a.jsonl", **ME)


# masked


@pytest.mark.parametrize("format", [*FORMATS, "csv"])
def test_a_masked_file_holds_no_secret_and_is_never_imported(store, other, tmp_path, format):
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

    held = target.read_bytes()
    if format == "parquet":
        held = str(pyarrow.parquet.read_table(target).to_pylist()).encode()
    for word in (b"ann.lee@", b"hunter2", b"4111111111111111", b"abcdefgh", b"swordfish"):
        assert word not in held
    for no_manifest in (False, True):
        with pytest.raises(TransferError, match="CSV" if format == "csv" else "is masked"):
            import_(other, target, **ME, no_manifest=no_manifest)


def test_an_export_is_audited_and_says_that_it_is_raw(store, tmp_path):
    buried(store, 2)

    export(store, ANY, tmp_path / "a.jsonl", **ME)
    export(store, ANY, tmp_path / "b.jsonl", **ME, masked=True)
    export(store, ANY, tmp_path / "c.csv", **ME)
    export(store, ANY, tmp_path / "d.csv", **ME, masked=False)

    assert [(action, count) for action, count, _ in audit(store)] == [("export", 2)] * 4
    assert ["Raw: " in outcome for *_, outcome in audit(store)] == [True, False, False, True]
    assert all("sha256" in outcome for *_, outcome in audit(store))


def test_files_are_for_their_owner_alone(store, tmp_path):
    buried(store, 1)
    for format in (*FORMATS, "csv"):
        export(store, ANY, tmp_path / f"a.{format}", **ME)

    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("a.*")} == {0o600}


# CSV


@given(st.text(st.sampled_from("'=+-@\t\r\n; ab＝\u00a0\ufeff")) | st.text())
def test_a_cell_can_be_made_plain_again_and_begins_with_nothing_dangerous(text):
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


# what changes meanwhile


def test_what_is_moved_while_the_file_is_written_is_in_it_and_counted(store, tmp_path, monkeypatch):
    ids = buried(store, 10)
    monkeypatch.setattr(selection, "SLICE", 4)

    def act(done, _total):
        if done == 4:
            DeadLetters(store).archive(DeadLetterFilter(ids=tuple(ids[5:8])), **ME)
            DeadLetters(store).add([dead_letter(99)])
            put(store, "DELETE FROM dead_letters WHERE message_id = ?", ids[9])

    manifest = export(store, DeadLetterFilter(), tmp_path / "a.jsonl", **ME, progress=act)

    assert (manifest.matched, manifest.rows, manifest.changed, manifest.missing) == (10, 9, 3, 1)
    assert manifest.by_state == {"dead": 6, "archived": 3}
    assert "3 changed since the export began" in manifest.text
    assert "1 that matched when it began are not in it" in manifest.text


@pytest.mark.parametrize("same_moment", [False, True])
def test_many_windows_take_every_letter_once_and_the_oldest_first(store, tmp_path, monkeypatch, same_moment):
    monkeypatch.setattr(selection, "WINDOW", 7)
    changes = {"accepted_at": 5.0} if same_moment else {}
    ids = buried(store, 100, **changes)

    manifest = export(store, ANY, tmp_path / "a.jsonl", **ME)

    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines()]
    assert manifest.rows == 100
    assert sorted(line["message_id"] for line in lines) == sorted(ids)
    if not same_moment:
        assert [line["message_id"] for line in lines] == ids


def test_a_look_that_is_cancelled_on_a_busy_machine_is_made_smaller(store, tmp_path, monkeypatch):
    ids, asked = buried(store, 10), []

    def rows(connection, ids):
        asked.append(len(ids))
        if len(ids) > 2:
            connection.interrupt()
            raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")
        return real(connection, ids)

    real = selection._rows
    monkeypatch.setattr(selection, "_rows", rows)

    export(store, ANY, tmp_path / "a.jsonl", **ME)

    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines()]
    assert [line["message_id"] for line in lines] == ids
    assert max(asked) == 10


def test_a_file_of_many_row_groups_is_whole(store, other, tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "SLICE", 3)
    monkeypatch.setattr(writers, "_GROUP_ROWS", 6)
    buried(store, 20)

    export(store, ANY, tmp_path / "a.parquet", **ME)
    import_(other, tmp_path / "a.parquet", **ME)

    assert pyarrow.parquet.ParquetFile(tmp_path / "a.parquet").num_row_groups == 4
    assert everything(other) == everything(store)


def test_an_empty_selection_makes_an_empty_file(store, other, tmp_path):
    for format in (*FORMATS, "csv"):
        assert export(store, ANY, tmp_path / f"a.{format}", **ME).rows == 0
    for format in FORMATS:
        assert import_(other, tmp_path / f"a.{format}", **ME).new == 0


# trouble


class FullDisk(AtomicFile):
    room = 2000

    def write(self, data):
        if self.size + len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("format", [*FORMATS, "csv"])
def test_a_full_disk_is_said_and_leaves_nothing(store, tmp_path, monkeypatch, format):
    buried(store, 300, value=os.urandom(100))
    monkeypatch.setattr("producer_core.dlq.files.atomic_file.AtomicFile", FullDisk)
    folder = tmp_path / "out"
    folder.mkdir()

    with pytest.raises(TransferError, match=r"disk of .* is full"):
        export(store, ANY, folder / f"a.{format}", **ME)

    assert list(folder.iterdir()) == []
    assert [(action, count) for action, count, _ in audit(store)] == [("export", 0)]
    assert "is full" in audit(store)[0][2]


def test_an_existing_file_is_kept_unless_it_is_to_be_overwritten(store, other, tmp_path):
    buried(store, 1)
    target = tmp_path / "a.jsonl"
    target.write_text("precious")

    with pytest.raises(TransferError, match="exists already"):
        export(store, ANY, target, **ME)
    assert target.read_text() == "precious"

    export(store, ANY, target, **ME, overwrite=True)
    assert import_(other, target, **ME).new == 1


@pytest.mark.parametrize("name", ["nowhere/a.jsonl", ".", "a.xlsx", "a"])
def test_a_place_or_a_name_that_cannot_be_is_said(store, tmp_path, name):
    with pytest.raises(TransferError):
        export(store, ANY, tmp_path / name, **ME)


def test_nothing_is_exported_without_its_audit(store, tmp_path, monkeypatch):
    buried(store, 1)

    def locked(**_):
        raise StoreLocked("held")

    monkeypatch.setattr(store, "audit", locked)

    with pytest.raises(StoreLocked):
        export(store, ANY, tmp_path / "a.jsonl", **ME)

    assert not list(tmp_path.glob("*a.jsonl*"))


def test_bad_lines_are_counted_and_named_and_the_others_are_taken_in(store, other, tmp_path):
    ids = buried(store, 12)
    target = tmp_path / "a.jsonl"
    export(store, ANY, target, **ME)

    def change(lines):
        records = [json.loads(line) for line in lines]
        records[0]["verdict"] = "certainly"
        records[1]["value_base64"] = "not base64"
        records[2]["message_id"] = "somebody"
        records[3]["partition"] = 2**31
        records[4]["value_size"] = 7
        del records[5]["topic"]
        records[6]["headers_base64"] = [["a"]]
        records[7]["failed_at"] = 1e300
        records[8] = ["no object"]
        out = [json.dumps(record).encode() + b"\n" for record in records]
        return [*out[:10], b"\n", out[10], out[11][:40]]

    spoiled(target, change)
    done = import_(other, target, **ME, no_manifest=True)

    assert (done.new, done.refused) == (2, 10)
    assert [one.place.split(" (")[0] for one in done.bad] == [
        f"line {number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13)
    ]
    assert ids[0] in done.bad[0].place
    assert "certainly" in done.bad[0].reason
    assert {row["message_id"] for row in everything(other)} == set(ids[9:11])
    assert "10 rows were refused" in audit(other)[-1][2]


def test_a_damaged_part_of_a_parquet_file_costs_only_itself(store, other, tmp_path, monkeypatch):
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


def test_a_parquet_file_of_somebody_else_is_refused(other, tmp_path):
    table = pyarrow.table({"message_id": ["a"], "value": [b"x"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")

    with pytest.raises(TransferError, match="not written by dlq export"):
        import_(other, tmp_path / "a.parquet", **ME, no_manifest=True)
    (tmp_path / "b.parquet").write_text("nonsense")
    with pytest.raises(TransferError, match="not a Parquet file"):
        import_(other, tmp_path / "b.parquet", **ME, no_manifest=True)


def test_a_letter_whose_body_is_gone_does_not_become_a_tombstone(store, other, tmp_path):
    buried(store, 2)
    put(store, "DELETE FROM dead_letter_bodies WHERE message_id = ?", message_id(0))
    export(store, ANY, tmp_path / "a.parquet", **ME)

    done = import_(other, tmp_path / "a.parquet", **ME)

    assert (done.new, done.refused) == (1, 1)
    assert "2 bytes, and has none" in done.bad[0].reason


def test_a_dry_run_says_the_same_and_changes_nothing(store, other, tmp_path):
    buried(store, 3)
    export(store, ANY, tmp_path / "a.parquet", **ME)
    DeadLetters(other).add([dead_letter(0)])

    tried = import_(other, tmp_path / "a.parquet", **ME, dry_run=True)

    assert (tried.new, tried.known) == (2, 1)
    assert len(everything(other)) == 1
    assert audit(other) == []
    done = import_(other, tmp_path / "a.parquet", **ME)
    assert (done.new, done.known) == (2, 1)


def test_an_import_is_in_the_audit_when_it_begins_and_when_it_ends_or_stops(
    store, other, tmp_path, monkeypatch
):
    buried(store, 3)
    export(store, ANY, tmp_path / "a.parquet", **ME)

    def break_down(*_):
        raise ConfigError("pulled the plug")

    with pytest.raises(ConfigError):
        import_(other, tmp_path / "a.parquet", **ME, progress=lambda done, total: done == 3 and break_down())
    import_(other, tmp_path / "a.parquet", **ME)

    found = audit(other)
    assert [(action, count) for action, count, _ in found] == [("import", 0), ("import", 3)] + [
        ("import", 0)
    ] * 2
    assert "Stopped there: pulled the plug" in found[1][2]
    assert "3 were known here" in found[3][2]


def test_times_out_of_this_world_do_not_stop_a_csv_file(store, tmp_path):
    DeadLetters(store).add([dead_letter(1, accepted_at=1e15, failed_at=-1e15)])
    assert math.isfinite(export(store, ANY, tmp_path / "a.csv", **ME).rows)


# the shell


def run(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_the_shell_exports_what_the_selection_matches_and_imports_it(store, tmp_path):
    buried(store, 3)
    DeadLetters(store).add([dead_letter(9, topic="payments")])
    target, there = tmp_path / "a.parquet", tmp_path / "there.duckdb"

    said = run("dlq", "export", target, "--topic", "orders", "--store", store.path)
    asked = run("dlq", "import", target, "--store", there)
    done = run("dlq", "import", target, "--store", there, "--yes", "--json")

    assert said.exit_code == 0
    assert "Exported 3 dead letters" in said.output
    assert "Raw: " in said.output
    assert asked.exit_code == 2
    assert "Import 3 dead letters" in asked.output
    assert done.exit_code == 0
    assert json.loads(done.stdout)["new"] == 3


def test_the_shell_says_why_a_masked_file_is_not_imported(store, tmp_path):
    buried(store, 1)
    run("dlq", "export", tmp_path / "a.jsonl", "--masked", "--store", store.path)

    said = run("dlq", "import", tmp_path / "a.jsonl", "--yes", "--store", store.path)

    assert said.exit_code == 2
    assert "never imported" in said.output


def test_the_shell_names_refused_rows_and_ends_with_one(store, tmp_path):
    buried(store, 3)
    target = tmp_path / "a.jsonl"
    run("dlq", "export", target, "--store", store.path)
    spoiled(target, lambda lines: [lines[0], b"{}\n", lines[2]])

    said = run("dlq", "import", target, "--no-manifest", "--yes", "--store", tmp_path / "there.duckdb")

    assert said.exit_code == 1
    assert "line 2: it has no field" in said.output
