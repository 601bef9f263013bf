"""A file appears whole or not at all, and only its owner can read it."""

from __future__ import annotations

import errno
import os

import pytest

from producer_core.dlq.files import export
from producer_core.dlq.files.atomic_file import AtomicFile
from producer_core.errors import TransferError
from tests.fixtures.replays import add_dead_letters
from tests.fixtures.transfers import ANY, FORMATS, ME, audit


def test_only_the_owner_can_read_exported_files(store, tmp_path):
    add_dead_letters(store, 1)
    for format in (*FORMATS, "csv"):
        export(store, ANY, tmp_path / f"a.{format}", **ME)

    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("a.*")} == {0o600}


class FullDisk(AtomicFile):
    capacity = 2000

    def write(self, data):
        if self.size + len(data) > self.capacity:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("format", [*FORMATS, "csv"])
def test_a_full_disk_is_reported_and_leaves_no_file(store, tmp_path, monkeypatch, format):
    add_dead_letters(store, 300, value=os.urandom(100))
    monkeypatch.setattr("producer_core.dlq.files.atomic_file.AtomicFile", FullDisk)
    folder = tmp_path / "out"
    folder.mkdir()

    with pytest.raises(TransferError, match=r"disk of .* is full"):
        export(store, ANY, folder / f"a.{format}", **ME)

    assert list(folder.iterdir()) == []
    assert [(action, count) for action, count, _ in audit(store)] == [("export", 0)]
    assert "is full" in audit(store)[0][2]
