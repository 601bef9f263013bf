"""A folder of jars is complete only with all of its files."""

from __future__ import annotations

import hashlib

import pytest

from producer_core.brokers import maven


def test_a_folder_of_jars_is_complete_until_one_is_removed(tmp_path):
    assert not maven.is_complete(tmp_path / "absent")
    (tmp_path / "jars.txt").write_text("a-1.jar\nb-2.jar")
    (tmp_path / "a-1.jar").touch()
    (tmp_path / "b-2.jar").touch()

    assert maven.is_complete(tmp_path)
    (tmp_path / "b-2.jar").unlink()
    assert not maven.is_complete(tmp_path)


def test_an_archive_with_another_digest_is_refused(tmp_path):
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(b"as published")
    expected = hashlib.sha256(b"as published").hexdigest()

    maven.check_digest(archive, expected)
    archive.write_bytes(b"changed on the way")
    with pytest.raises(ValueError, match=f"not {expected}"):
        maven.check_digest(archive, expected)
