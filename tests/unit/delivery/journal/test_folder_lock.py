"""A journal folder has one owner at a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from producer_core.delivery.journal.folder_lock import FolderLock
from producer_core.errors import JournalLocked


def test_a_second_owner_in_the_same_process_is_refused(tmp_path):
    lock = FolderLock(tmp_path)

    with pytest.raises(JournalLocked, match="is open in this process already"):
        FolderLock(tmp_path)

    lock.release()
    FolderLock(tmp_path).release()


def test_a_released_lock_can_be_released_again(tmp_path):
    lock = FolderLock(tmp_path)
    lock.release()
    lock.release()

    assert not lock.in_place


def test_another_process_is_named_and_its_end_releases_the_lock(tmp_path):
    code = (
        "import sys; from pathlib import Path; from producer_core.delivery.journal.folder_lock import FolderLock\n"
        "lock = FolderLock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert owner.stdout.readline() == b"locked\n"
        with pytest.raises(JournalLocked, match=f"is in use by process {owner.pid}"):
            FolderLock(tmp_path)
    finally:
        owner.kill()
        owner.communicate()

    FolderLock(tmp_path).release()


def test_a_deleted_or_replaced_lock_file_is_noticed(tmp_path):
    lock = FolderLock(tmp_path)
    assert lock.in_place

    (tmp_path / "lock").unlink()
    assert not lock.in_place
    (tmp_path / "lock").touch()
    assert not lock.in_place
    lock.release()


def test_the_lock_file_has_the_process_id_of_the_owner(tmp_path):
    lock = FolderLock(tmp_path)

    assert (tmp_path / "lock").read_text().strip() == str(os.getpid())
    lock.release()
