"""Private folders that do not outlive their process."""

from __future__ import annotations

import gc
import os
import shutil
import stat
import subprocess
import sys

import pytest

from producer_core._internal import work_folder
from producer_core._internal.work_folder import RESERVE, WorkFolder, remove_leftovers
from producer_core.errors import TransferError

HOLD = """if True:
    import sys
    from pathlib import Path
    from producer_core._internal.work_folder import WorkFolder
    folder = WorkFolder(Path(sys.argv[1]))
    (folder.path / "secret").write_text("secret")
    print(folder.path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process with a work folder in `tmp_path`."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "store.duckdb")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child.path = child.stdout.readline().strip()
    assert child.path
    yield child
    child.kill()
    child.communicate()


def folders(parent):
    return [*parent.glob(f"{work_folder.PREFIX}*")]


def test_a_folder_is_private_and_beside_its_file_until_it_is_closed(tmp_path):
    with WorkFolder(tmp_path / "store.duckdb") as folder:
        assert folder.path.parent == tmp_path
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        (folder.path / "a").write_text("a")
    assert not folders(tmp_path)
    folder.close()


def test_a_folder_ends_with_its_object(tmp_path):
    folder = WorkFolder(tmp_path / "store.duckdb")
    del folder
    gc.collect()
    assert not folders(tmp_path)


def test_without_a_folder_beside_it_is_in_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for beside in (None, tmp_path / "missing" / "store.duckdb"):
        with WorkFolder(beside) as folder:
            assert folder.path.parent == tmp_path


def test_the_folder_of_a_killed_process_is_deleted_by_the_next_one(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert os.listdir(holder.path) == ["secret"]
    with WorkFolder(tmp_path / "store.duckdb") as folder:
        assert folders(tmp_path) == [folder.path]


def test_the_folder_of_a_running_process_stays(tmp_path, holder):
    remove_leftovers(tmp_path)
    assert os.listdir(holder.path) == ["secret"]
    holder.communicate("")
    assert not os.path.exists(holder.path)


def test_other_folders_and_links_stay(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "file").write_text("kept")
    (tmp_path / f"{work_folder.PREFIX}link").symlink_to(tmp_path / "target")
    remove_leftovers(tmp_path)
    assert (tmp_path / "data").is_dir() and (tmp_path / "target" / "file").exists()
    remove_leftovers(tmp_path / "missing")


def test_a_forked_child_leaves_the_folder_to_its_parent(tmp_path):
    folder = WorkFolder(tmp_path / "store.duckdb")
    if (pid := os.fork()) == 0:
        folder.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert folders(tmp_path) == [folder.path]
    remove_leftovers(tmp_path)
    assert folders(tmp_path) == [folder.path]
    folder.close()
    assert not folders(tmp_path)


def test_a_reserve_stays_free(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=RESERVE + 1000))
    with WorkFolder(tmp_path / "store.duckdb") as folder:
        folder.ensure_free(1000)
        with pytest.raises(TransferError, match="bytes free"):
            folder.ensure_free(1001)
