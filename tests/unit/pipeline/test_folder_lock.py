"""One job at a time uses a folder."""

from __future__ import annotations

import os

import pytest

from producer_core.errors import PipelineError
from producer_core.pipeline.folder_lock import lock_folder


def test_a_second_job_is_refused_until_the_first_releases_the_folder(tmp_path):
    lock = lock_folder(tmp_path / "lock", "the checkpoint")

    with pytest.raises(
        PipelineError, match=rf"Another job is using the checkpoint \(process {os.getpid()}\)"
    ):
        lock_folder(tmp_path / "lock", "the checkpoint")

    lock.release()
    lock_folder(tmp_path / "lock", "the checkpoint").release()


def test_the_file_has_the_id_of_the_newest_owner(tmp_path):
    (tmp_path / "lock").write_text("123456")

    lock = lock_folder(tmp_path / "lock", "the checkpoint")

    assert lock.read_pid() == str(os.getpid())
    lock.release()
    lock.release()
