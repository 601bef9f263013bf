"""Files are written completely or not at all, and replaced atomically."""

from __future__ import annotations

import os

import pytest

from producer_core.delivery.journal.file_writes import replace, write_whole


@pytest.fixture
def file(tmp_path):
    handle = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    yield handle
    os.close(handle)


def test_a_short_write_is_continued(file, monkeypatch):
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, data, offset: write(handle, data[:3], offset))

    write_whole(file, b"abcdefgh", 2)

    assert os.pread(file, 20, 0) == b"\0\0abcdefgh"


def test_a_write_without_progress_is_a_full_disk(file, monkeypatch):
    counts = iter([3, 0])
    monkeypatch.setattr(os, "pwrite", lambda handle, data, offset: next(counts))

    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"abcdefgh", 0)


def test_a_file_is_replaced_and_readable_by_its_owner_only(tmp_path):
    path = tmp_path / "cursor"
    for content in (b"old", b"new"):
        replace(path, content)
        assert path.read_bytes() == content

    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["cursor"]


def test_a_failed_replacement_keeps_the_old_content_and_no_draft(tmp_path, monkeypatch):
    path = tmp_path / "cursor"
    replace(path, b"old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace(path, b"new")

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["cursor"]
