"""Thousands of Ctrl-C at random points of the sending thread: only the interrupted calls fail."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("ordering", "level"), [("strict", None), ("key", None), ("key", "process"), ("key", "power")]
)
def test_interrupts_block_no_message_and_lose_no_accepted_message(tmp_path, ordering, level):
    command = [sys.executable, "-m", "tests.processes.interrupt", ordering, "1500"]
    if level is not None:
        command += [str(tmp_path / "j"), level]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert result.returncode == 0, result.stderr
    counts = json.loads(result.stdout.splitlines()[-1])
    assert counts == dict.fromkeys(counts, 0)
