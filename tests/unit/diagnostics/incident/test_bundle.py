"""A bundle from anywhere is opened only if it is exactly what an export wrote."""

from __future__ import annotations

import hashlib
import json
import stat
import struct
import zipfile
from pathlib import Path

import duckdb
import pytest

from producer_core.diagnostics.incident import IncidentBundle, bundle
from producer_core.errors import StoreTooNew, TransferError
from producer_core.store.migrate import LAST_REQUIRED

STORE = "store.duckdb"


@pytest.fixture
def parts(masked):
    """The files of a bundle by name."""
    with zipfile.ZipFile(masked) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    """The folder in which bundles are extracted. No refused bundle may leave anything there."""
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


def with_store(parts, data):
    """Return the files with another store, which the manifest describes."""
    files = json.loads(parts["manifest.json"])["files"]
    files[STORE] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {**changed(parts, files=files), STORE: data}


def refused(path, folder, error=TransferError):
    with pytest.raises(error) as caught:
        IncidentBundle(path)
    assert not list(folder.iterdir())
    assert caught.value.fix
    return str(caught.value)


def test_a_bundle_is_extracted_to_a_private_folder_and_deleted_after_use(masked, temporary_folder):
    with IncidentBundle(masked) as opened:
        assert opened.folder.parent == temporary_folder
        assert stat.S_IMODE(opened.folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in opened.folder.iterdir()} == {0o600}
        assert opened.store.info().rows["dead_letters"] == 22
    assert not list(temporary_folder.iterdir())


def test_the_same_files_written_by_another_zip_program_are_opened(parts, tmp_path):
    with IncidentBundle(write(tmp_path / "a.zip", parts)) as opened:
        assert opened.manifest.masked


@pytest.mark.parametrize(
    "name", ["../evil.py", "/etc/evil", "..\\evil", "a/../../evil", "folder/", "store.duckdb/..", "evil.txt"]
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
            if name == STORE:
                entry.external_attr, data = (stat.S_IFLNK | 0o777) << 16, b"/etc/passwd"
            archive.writestr(entry, data)
    assert "not a regular file" in refused(path, temporary_folder)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_duplicated_name_is_refused(parts, tmp_path, temporary_folder):
    path = write(tmp_path / "a.zip", parts)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(STORE, b"another")
    assert "two entries" in refused(path, temporary_folder)


def test_a_bomb_is_refused_before_anything_is_extracted(parts, tmp_path, temporary_folder):
    path = write(tmp_path / "a.zip", with_store(parts, bytes(80 << 20)))
    assert path.stat().st_size < 1 << 20
    assert "bytes from" in refused(path, temporary_folder)


def test_files_above_the_limit_together_are_refused(masked, temporary_folder, monkeypatch):
    monkeypatch.setattr(bundle, "MAX_BYTES", 1000)
    assert "GiB" in refused(masked, temporary_folder)


def test_an_entry_with_a_false_size_is_refused(parts, tmp_path, temporary_folder):
    """The directory of the zip file says 10 bytes, and the data has more."""
    files = json.loads(parts["manifest.json"])["files"]
    files["doctor.json"] = {"size": 10, "sha256": "0" * 64}
    path = write(tmp_path / "a.zip", {**changed(parts, files=files), "doctor.json": b"x" * 5000})
    data = bytearray(path.read_bytes())
    for start in (0, data.index(b"PK\1\2")):
        place = data.index(b"doctor.json", start)
        offset = place - (8 if data[place - 30 : place - 26] == b"PK\3\4" else 22)
        data[offset : offset + 4] = struct.pack("<L", 10)
    path.write_bytes(data)
    refused(path, temporary_folder)


def test_a_changed_file_is_refused(parts, tmp_path, temporary_folder):
    data = bytearray(parts[STORE])
    data[len(data) // 2] ^= 1
    assert "sha256" in refused(write(tmp_path / "a.zip", {**parts, STORE: bytes(data)}), temporary_folder)


def test_another_size_than_in_the_manifest_is_refused(parts, tmp_path, temporary_folder):
    path = write(tmp_path / "a.zip", {**parts, "doctor.json": b"[]"})
    assert "instead of" in refused(path, temporary_folder)


@pytest.mark.parametrize("name", [STORE, "index.html", "doctor.json"])
def test_a_missing_file_is_refused(parts, tmp_path, temporary_folder, name):
    del parts[name]
    assert "not those of its manifest" in refused(write(tmp_path / "a.zip", parts), temporary_folder)


def test_a_masked_bundle_with_the_files_of_a_raw_one_is_refused(parts, tmp_path, temporary_folder):
    path = write(tmp_path / "a.zip", {**parts, "dead_letters.parquet": b"PAR1"})
    assert "not those of its manifest" in refused(path, temporary_folder)


def test_a_later_format_is_refused(parts, tmp_path, temporary_folder):
    path = write(tmp_path / "a.zip", changed(parts, format_version=2))
    assert "format version 2" in refused(path, temporary_folder)


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "another"},
        {"format_version": True},
        {"masked": "no"},
        {"files": {STORE: {"size": -1, "sha256": ""}}},
        {"files": []},
        {"since": None},
        {"counts": {"dead_letters": "many"}},
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


@pytest.mark.parametrize("data", [b"", b"no zip file", b"PK\3\4" + bytes(100)])
def test_another_file_is_refused(tmp_path, temporary_folder, data):
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    assert "not an incident bundle" in refused(path, temporary_folder)


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


def changed_store(parts, tmp_path, *statements):
    """Return the files of a bundle after statements on its store."""
    path = tmp_path / "changed.duckdb"
    path.write_bytes(parts[STORE])
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return with_store(parts, path.read_bytes())


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE VIEW evil AS SELECT * FROM read_text('/etc/passwd')",),
        ("CREATE MACRO coalesce(a, b) AS 1",),
        ("CREATE SCHEMA evil", "CREATE TABLE evil.statistics (a INTEGER)"),
        ("DROP TABLE notices",),
        ("DROP TABLE notices", "CREATE VIEW notices AS SELECT * FROM read_text('/etc/passwd')"),
        ("DELETE FROM required_features WHERE feature = 'incident_bundle'",),
        ("DELETE FROM settings WHERE name = 'incident'",),
    ],
)
def test_a_store_with_other_content_is_refused(parts, tmp_path, temporary_folder, statements):
    path = write(tmp_path / "a.zip", changed_store(parts, tmp_path, *statements))
    assert "unexpected content" in refused(path, temporary_folder)


def test_a_later_schema_is_refused(parts, tmp_path, temporary_folder):
    statement = f"INSERT INTO schema_migrations VALUES ({LAST_REQUIRED + 90}, 'later', 0.0)"
    path = write(tmp_path / "a.zip", changed_store(parts, tmp_path, statement))
    refused(path, temporary_folder, StoreTooNew)


def test_another_program_s_file_is_refused(parts, tmp_path, temporary_folder):
    path = write(tmp_path / "a.zip", with_store(parts, b"SQLite format 3\0" + bytes(5000)))
    with pytest.raises(Exception, match="DuckDB"):
        IncidentBundle(path)
    assert not list(temporary_folder.iterdir())
    assert Path(path).exists()
