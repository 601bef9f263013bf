"""The path of a store: its default, its checks, and the file system that holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer_core.errors import StoreError, StoreUnavailable
from producer_core.store import paths


def test_the_default_path_is_in_the_state_directory_or_named_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert paths.default_path() == tmp_path / "producer-core" / "store.duckdb"

    monkeypatch.setenv("PRODUCER_CORE_STORE", "~/shop.duckdb")
    assert paths.default_path() == Path.home() / "shop.duckdb"


@pytest.mark.parametrize("value", ["none", "NONE", " none "])
def test_the_environment_can_disable_the_default_store(monkeypatch, tmp_path, value):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PRODUCER_CORE_STORE", value)

    with pytest.raises(StoreUnavailable, match="PRODUCER_CORE_STORE=none disables the store"):
        paths.resolve(None)
    assert paths.resolve("none").name == "none", "a path of an argument is a path"
    assert paths.default_path() == tmp_path / "producer-core" / "store.duckdb"


def test_a_symbolic_link_is_resolved(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "store.duckdb")

    assert paths.resolve(tmp_path / "link") == (tmp_path / "store.duckdb").resolve()


def test_a_free_path_an_empty_file_and_a_store_pass(tmp_path, store):
    (tmp_path / "empty").touch()

    for path in (tmp_path / "free", tmp_path / "empty", store.path):
        paths.check_file(path)
    assert [paths.has_content(path) for path in (tmp_path / "free", tmp_path / "empty", store.path)] == [
        False,
        False,
        True,
    ]


def test_a_directory_a_device_and_another_file_are_refused(tmp_path):
    (tmp_path / "text").write_text("not a store")

    for path in (tmp_path, Path("/dev/null"), tmp_path / "text"):
        with pytest.raises(StoreError):
            paths.check_file(path)


def test_the_root_directory_is_no_path_of_a_store():
    with pytest.raises(StoreUnavailable, match="The store path / is a directory"):
        paths.resolve("/")


def test_an_emptied_store_differs_from_a_new_file(tmp_path):
    path = tmp_path / "store.duckdb"
    path.touch()
    assert not paths.was_emptied(path)

    path.with_name("store.duckdb.gate").touch()
    assert paths.was_emptied(path)


def test_leftovers_of_an_earlier_attempt_and_of_a_deleted_store_are_set_aside(tmp_path):
    path = tmp_path / "store.duckdb"
    for name in ("store.duckdb.new", "store.duckdb.new.wal", "store.duckdb.wal"):
        (tmp_path / name).write_text(name)

    draft = paths.clean_draft(path)

    assert draft.name == "store.duckdb.new"
    assert [one.name for one in tmp_path.iterdir()] == ["store.duckdb.wal.orphan"]


def test_a_copy_is_for_its_owner_only_and_never_replaces_a_file(tmp_path, store):
    target = tmp_path / "backup" / "store.duckdb"
    draft = paths.copy_draft(store.path, target)
    assert not target.exists() and draft.parent == target.parent
    assert paths.publish_copy(draft, target) == target

    assert target.read_bytes() == store.path.read_bytes()
    assert target.stat().st_mode & 0o077 == 0
    with pytest.raises(StoreUnavailable, match="already exists"):
        paths.copy_draft(store.path, target)


def test_the_innermost_mount_decides_on_a_network_file_system(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\nserver:/data /data nfs4 rw 0 0\n/dev/sdb /data/local ext4 rw 0 0\n"
    )
    monkeypatch.setattr(paths, "MOUNTS", mounts)

    assert paths.network_file_system(Path("/data/store.duckdb")) == "nfs4"
    assert paths.network_file_system(Path("/data/local/store.duckdb")) is None
    assert paths.network_file_system(Path("/home/store.duckdb")) is None
    monkeypatch.setattr(paths, "MOUNTS", tmp_path / "absent")
    assert paths.network_file_system(Path("/data/store.duckdb")) is None
