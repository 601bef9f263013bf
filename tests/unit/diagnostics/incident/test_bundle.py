"""A bundle from anywhere is opened only if it is exactly what an export wrote."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import shutil
import stat
import struct
import zipfile

import duckdb
import orjson
import pytest

from producer_core._internal import work_folder
from producer_core.diagnostics.incident import IncidentBundle, table_lines
from producer_core.diagnostics.incident.manifest import MAX_BYTES
from producer_core.errors import TransferError
from producer_core.store.setting_values import SCHEMA_REGISTRY, TRACE_LINK

TABLE = "tables/dead_letters.jsonl"


@pytest.fixture
def parts(masked):
    """The files of a bundle by name."""
    with zipfile.ZipFile(masked) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    """The folder in which stores of bundles are built. No refused bundle may leave anything there."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def write(path, parts):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def changed(parts, **values):
    """Return the files with other values in the manifest."""
    return {**parts, "manifest.json": json.dumps({**json.loads(parts["manifest.json"]), **values}).encode()}


def with_file(parts, name, data, **values):
    """Return the files with another one, which the manifest describes."""
    files = json.loads(parts["manifest.json"])["files"]
    files[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {**changed(parts, files=files, **values), name: data}


def with_rows(parts, table, edit):
    """Return the files with a table that `edit` made from the list of columns and the lists of values."""
    counts = json.loads(parts["manifest.json"])["counts"]
    lines = edit([orjson.loads(line) for line in parts.get(f"tables/{table}.jsonl", b"").splitlines()])
    data = b"".join(line if isinstance(line, bytes) else orjson.dumps(line) + b"\n" for line in lines)
    return with_file(parts, f"tables/{table}.jsonl", data, counts={**counts, table: len(lines) - 1})


def refused(path, folder):
    """Return the error with which a bundle is refused, both by a check and by opening its store."""
    with pytest.raises(TransferError) as checked, IncidentBundle(path) as bundle:
        bundle.verify()
    with pytest.raises(TransferError) as opened, IncidentBundle(path) as bundle:
        _ = bundle.store
    assert not list(folder.iterdir())
    assert opened.value.fix and checked.value.fix
    return str(opened.value)


def test_the_store_of_a_bundle_is_in_a_private_folder_and_deleted_after_use(masked, temporary_folder):
    with IncidentBundle(masked) as opened:
        folder = opened.store.path.parent
        assert folder.parent == temporary_folder
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(opened.store.path.stat().st_mode) == 0o600
        assert opened.store.info().rows["dead_letters"] == 22
    assert not list(temporary_folder.iterdir())


def test_a_store_outlives_the_name_of_its_bundle(masked, temporary_folder):
    store = IncidentBundle(masked).store
    assert store.info().rows["dead_letters"] == 22
    del store
    gc.collect()
    assert not list(temporary_folder.iterdir())


def test_a_check_builds_no_store(masked, temporary_folder):
    with IncidentBundle(masked) as opened:
        opened.verify()
        assert not list(temporary_folder.iterdir())


def test_the_same_files_written_by_another_zip_program_are_opened(parts, tmp_path):
    with IncidentBundle(write(tmp_path / "a.zip", parts)) as opened:
        assert opened.manifest.masked and opened.store.is_incident


# names and paths


@pytest.mark.parametrize(
    "name",
    [
        *("../evil.py", "/etc/evil", "..\\evil", "a/../../evil", "folder/", "evil.txt", "store.duckdb"),
        *(
            "tables/../evil.jsonl",
            "tables/evil.jsonl",
            "tables/schema_migrations.jsonl",
            "tables/ledger.jsonl",
        ),
    ],
)
def test_entries_with_other_names_or_paths_are_refused(parts, tmp_path, temporary_folder, name):
    path = write(tmp_path / "a.zip", {**parts, name: b"evil"})
    assert "has an entry" in refused(path, temporary_folder)
    assert not list(tmp_path.rglob("evil*"))


def test_a_symbolic_link_is_refused(parts, tmp_path, temporary_folder):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            entry = zipfile.ZipInfo(name)
            if name == TABLE:
                entry.external_attr, data = (stat.S_IFLNK | 0o777) << 16, b"/etc/passwd"
            archive.writestr(entry, data)
    assert "not a regular file" in refused(path, temporary_folder)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_duplicated_name_is_refused(parts, tmp_path, temporary_folder):
    path = write(tmp_path / "a.zip", parts)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(TABLE, b"another")
    assert "two entries" in refused(path, temporary_folder)


# bombs


def test_a_bomb_is_refused_before_anything_is_read(parts, tmp_path, temporary_folder, monkeypatch):
    """Zeros compress to a thousandth, and no line may be that long."""
    monkeypatch.setattr(table_lines, "MAX_LINE", 8 << 20)
    path = write(tmp_path / "a.zip", with_file(parts, TABLE, bytes(80 << 20)))
    assert path.stat().st_size < 1 << 20
    assert "MiB" in refused(path, temporary_folder)


@pytest.mark.parametrize("size", [MAX_BYTES, 2**31])
def test_files_above_the_limits_are_refused(parts, tmp_path, temporary_folder, size):
    files = json.loads(parts["manifest.json"])["files"]
    files[TABLE]["size"] = size
    assert "GiB" in refused(write(tmp_path / "a.zip", changed(parts, files=files)), temporary_folder)


def test_more_rows_than_the_limit_are_refused(parts, tmp_path, temporary_folder):
    counts = json.loads(parts["manifest.json"])["counts"]
    path = write(tmp_path / "a.zip", changed(parts, counts={**counts, "dead_letters": 20_000_001}))
    assert "rows, more than" in refused(path, temporary_folder)


def test_a_bundle_without_room_on_the_disk_is_refused(masked, temporary_folder, monkeypatch):
    usage = shutil.disk_usage(temporary_folder)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=work_folder.RESERVE + 1000))
    with IncidentBundle(masked) as opened, pytest.raises(TransferError, match="bytes free"):
        _ = opened.store
    assert not list(temporary_folder.iterdir())


def test_a_directory_of_many_entries_is_refused_before_it_is_parsed(masked, tmp_path, temporary_folder):
    """The standard library needs a kilobyte of memory for each entry."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(2000):
            archive.writestr(f"{number:04}", b"")
    assert "not an incident bundle" in refused(path, temporary_folder)


def test_an_entry_with_a_false_size_is_refused(parts, tmp_path, temporary_folder):
    """The directory of the zip file says 10 bytes, and the data has more."""
    files = json.loads(parts["manifest.json"])["files"]
    files[TABLE] = {"size": 10, "sha256": "0" * 64}
    path = write(tmp_path / "a.zip", {**changed(parts, files=files), TABLE: b"x" * 5000})
    data, name = bytearray(path.read_bytes()), TABLE.encode()
    for start in (0, data.index(b"PK\1\2")):
        place = data.index(name, start)
        offset = place - (8 if data[place - 30 : place - 26] == b"PK\3\4" else 22)
        data[offset : offset + 4] = struct.pack("<L", 10)
    path.write_bytes(data)
    refused(path, temporary_folder)


# manifest and versions


def test_a_changed_file_is_refused(parts, tmp_path, temporary_folder):
    data = parts[TABLE].replace(b"payments", b"refunded")
    assert data != parts[TABLE]
    assert "sha256" in refused(write(tmp_path / "a.zip", {**parts, TABLE: data}), temporary_folder)


def test_another_size_than_in_the_manifest_is_refused(parts, tmp_path, temporary_folder):
    path = write(tmp_path / "a.zip", {**parts, "doctor.json": b"[]"})
    assert "instead of" in refused(path, temporary_folder)


@pytest.mark.parametrize("name", [TABLE, "index.html", "doctor.json"])
def test_a_missing_file_is_refused(parts, tmp_path, temporary_folder, name):
    del parts[name]
    assert "not those of its manifest" in refused(write(tmp_path / "a.zip", parts), temporary_folder)


def test_a_masked_bundle_with_the_files_of_a_raw_one_is_refused(parts, tmp_path, temporary_folder):
    path = write(tmp_path / "a.zip", {**parts, "dead_letters.parquet": b"PAR1"})
    assert "not those of its manifest" in refused(path, temporary_folder)


@pytest.mark.parametrize("version", [2, 99])
def test_a_later_format_is_refused(parts, tmp_path, temporary_folder, version):
    path = write(tmp_path / "a.zip", changed(parts, format_version=version))
    assert f"format version {version}" in refused(path, temporary_folder)


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "another"},
        {"format_version": True},
        {"format_version": 0},
        {"format_version": 1.0},
        {"masked": "no"},
        {"masked": 1},
        {"files": {TABLE: {"size": -1, "sha256": ""}}},
        {"files": {TABLE: {"size": True, "sha256": ""}}},
        {"files": []},
        {"since": None},
        {"since": "today"},
        {"since": True},
        {"since": 1e300},
        {"since": 2e9, "until": 1e9},
        {"created_at": float("nan")},
        {"created_at": float("inf")},
        {"created_at": -1},
        {"counts": {"dead_letters": "many"}},
        {"counts": {"dead_letters": 1.5}},
        {"created_by": "a" * 1001},
    ],
)
def test_an_invalid_manifest_is_refused(parts, tmp_path, temporary_folder, values):
    path = write(tmp_path / "a.zip", changed(parts, **values))
    assert "not an incident bundle" in refused(path, temporary_folder)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_refused(masked, tmp_path, temporary_folder, share):
    path, data = tmp_path / "a.zip", masked.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert "not an incident bundle" in refused(path, temporary_folder)


@pytest.mark.parametrize("data", [b"", b"no zip file", b"PK\3\4" + bytes(100), b"PK\5\6" + bytes(18)])
def test_another_file_is_refused(tmp_path, temporary_folder, data):
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    assert "not an incident bundle" in refused(path, temporary_folder)


def test_every_changed_byte_of_the_directory_is_refused_or_harmless(masked, tmp_path):
    """A damaged zip file raises no error of the standard library."""
    whole = masked.read_bytes()
    path, begin = tmp_path / "a.zip", whole.index(b"PK\1\2")
    for place in range(begin, len(whole), 7):
        data = bytearray(whole)
        data[place] ^= 0xFF
        path.write_bytes(data)
        with contextlib.suppress(TransferError), IncidentBundle(path) as bundle:
            bundle.verify()


def test_an_encrypted_entry_is_refused(masked, tmp_path, temporary_folder):
    data = bytearray(masked.read_bytes())
    entry = data.index(b"PK\1\2")
    data[entry + 8] |= 1
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    assert "encrypted" in refused(path, temporary_folder)


def test_a_missing_path_says_so(tmp_path):
    with pytest.raises(TransferError, match="does not exist"):
        IncidentBundle(tmp_path / "missing.zip")


# rows


def column(lines, name):
    return lines[0].index(name)


def with_value(name, value):
    """Return an edit that replaces the value of a column in the first row."""

    def edit(lines):
        lines[1][column(lines, name)] = value
        return lines

    return edit


def with_column(lines):
    return [[*lines[0], "evil"], *([*row, 1] for row in lines[1:])]


def without_topic(lines):
    at = column(lines, "topic")
    return [[*row[:at], *row[at + 1 :]] for row in lines]


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (with_column, "no column 'evil'"),
        (lambda lines: [[*lines[0][:-1], "rowid"], *lines[1:]], "no column 'rowid'"),
        (lambda lines: [[*lines[0][:-1], '"; DROP TABLE audit; --'], *lines[1:]], "no column"),
        (lambda lines: [[*lines[0][:-1], lines[0][0]], *lines[1:]], "names a column twice"),
        (without_topic, "the column topic is missing"),
        (lambda lines: [{"topic": 1}, *lines[1:]], "does not name the columns"),
        (lambda lines: [lines[0], [*lines[1], None], *lines[2:]], "not a list of"),
        (lambda lines: [lines[0], lines[1][:-1], *lines[2:]], "not a list of"),
        (lambda lines: [lines[0], {"topic": "payments"}, *lines[2:]], "not a list of"),
        (lambda lines: [lines[0], b"no JSON\n", *lines[1:]], "not a list of"),
        (lambda lines: [lines[0], b"[" * 100_000 + b"\n", *lines[1:]], "not a list of"),
        (lambda lines: [*lines, b"[]"], "it has no end"),
        (with_value("topic", 7), "column topic: the value is not a text"),
        (with_value("topic", None), "column topic: the value is not a text"),
        (with_value("topic", ["payments"]), "column topic: the value is not a text"),
        (with_value("failed_at", "1970-01-01"), "column failed_at: the value is not a finite number"),
        (with_value("failed_at", True), "column failed_at: the value is not a finite number"),
        (with_value("failed_at", 1e300), "column failed_at: the value is not a number from"),
        (with_value("replay_count", 1.5), "column replay_count: the value is not a whole number"),
        (with_value("replay_count", 2**31), "column replay_count: the value is not a whole number"),
        (with_value("key_mark", -1), "column key_mark: the value is not a whole number"),
        (with_value("quarantined", 1), "column quarantined: the value is neither true nor false"),
        (with_value("key", "no Base64"), "column key: the value is not Base64"),
        (with_value("key", [1, 2]), "column key: the value is not a text"),
    ],
)
def test_rows_with_other_columns_or_types_are_refused(parts, tmp_path, temporary_folder, edit, problem):
    path = write(tmp_path / "a.zip", with_rows(parts, "dead_letters", edit))
    assert problem in refused(path, temporary_folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("headers", "no JSON"),
        ("headers", '[["a"]]'),
        ("headers", '[[1,"YQ=="]]'),
        ("headers", '[["a","no Base64"]]'),
        ("attempts", "7"),
        ("attempts", '[["yesterday","A","text"]]'),
        ("attempts", '[[1e300,"A","text"]]'),
        ("attempts", '[[1,"A"]]'),
    ],
)
def test_bodies_that_no_page_could_show_are_refused(parts, tmp_path, temporary_folder, name, value):
    path = write(tmp_path / "a.zip", with_rows(parts, "dead_letter_bodies", with_value(name, value)))
    assert f"column {name}: the value does not have the form" in refused(path, temporary_folder)


@pytest.mark.parametrize("by", [-1, 1, 1000])
def test_another_number_of_rows_than_in_the_manifest_is_refused(parts, tmp_path, temporary_folder, by):
    counts = json.loads(parts["manifest.json"])["counts"]
    path = write(
        tmp_path / "a.zip", changed(parts, counts={**counts, "dead_letters": counts["dead_letters"] + by})
    )
    assert "number of rows" in refused(path, temporary_folder)


def test_a_row_that_the_schema_forbids_is_refused(parts, tmp_path, temporary_folder):
    path = write(tmp_path / "a.zip", with_rows(parts, "producers", lambda lines: [*lines, lines[1]]))
    with pytest.raises(TransferError, match="contradict each other"), IncidentBundle(path) as bundle:
        _ = bundle.store
    assert not list(temporary_folder.iterdir())


def test_a_column_that_an_earlier_version_lacks_gets_its_default(parts, tmp_path):
    def without_application(lines):
        at = column(lines, "application")
        return [[*row[:at], *row[at + 1 :]] for row in lines]

    path = write(tmp_path / "a.zip", with_rows(parts, "dead_letters", without_application))
    with IncidentBundle(path) as opened, opened.store.borrow() as connection:
        assert connection.execute("SELECT DISTINCT application FROM dead_letters").fetchall() == [("",)]


def test_settings_of_a_bundle_open_no_connection_and_no_link(parts, tmp_path):
    """The addresses of the sender are not used, nor are settings that this version does not know."""
    settings = {
        SCHEMA_REGISTRY: '"http://169.254.169.254/latest"',
        TRACE_LINK: '"javascript:alert(1)//{trace_id}"',
        "incident": '{"since":0}',
        "keep_seconds": "7200",
        "dlq_max_size": '"many"',
    }
    lines = [["name", "value", "changed_at"], *([name, value, 1.0] for name, value in settings.items())]
    path = write(tmp_path / "a.zip", with_rows(parts, "settings", lambda _: lines))
    with IncidentBundle(path) as opened:
        found = opened.store.settings()
        assert found["keep_seconds"] == 7200
        assert not {SCHEMA_REGISTRY, TRACE_LINK, "dlq_max_size"} & {*found}
        assert found["incident"]["since"] == opened.manifest.since


def test_no_database_of_a_bundle_is_opened(parts, tmp_path, temporary_folder):
    """A DuckDB file is code: its views and macros run in the queries of the product."""
    evil = tmp_path / "evil.duckdb"
    with duckdb.connect(str(evil)) as connection:
        connection.execute("CREATE MACRO coalesce(a, b) AS 1")
    path = write(tmp_path / "a.zip", {**parts, "store.duckdb": evil.read_bytes()})
    assert "has an entry 'store.duckdb'" in refused(path, temporary_folder)
    with zipfile.ZipFile(write(tmp_path / "b.zip", parts)) as bundle:
        assert not [name for name in bundle.namelist() if b"DUCK" in bundle.read(name)[:64]]


def test_rows_are_read_as_values_not_as_sql(parts, tmp_path):
    text = "'); DROP TABLE audit; --"
    path = write(tmp_path / "a.zip", with_rows(parts, "dead_letters", with_value("topic", text)))
    with IncidentBundle(path) as opened:
        assert text in _topics(opened.store)
        assert opened.store.rows("audit_latest")


def _topics(store):
    with store.borrow() as connection:
        return {topic for (topic,) in connection.execute("SELECT topic FROM dead_letters").fetchall()}


def test_the_counts_of_dead_letters_are_computed_again(opened_store):
    with opened_store.borrow() as connection:
        counted = connection.execute("SELECT sum(n), bool_and(added) FROM dead_letter_counts").fetchall()
    assert counted == [(22, True)]


@pytest.fixture
def opened_store(masked):
    with IncidentBundle(masked) as bundle:
        yield bundle.store
