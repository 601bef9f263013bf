"""Ctrl-C on the thread that sends, thousands of times and anywhere: what raised is nobody's, everything else goes on."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("ordering", "journal"), [("strict", False), ("key", False), ("key", True)])
def test_nothing_is_stuck_and_nothing_accepted_is_lost(tmp_path, ordering, journal):
    command = [sys.executable, "-m", "tests.interrupt_child", ordering, "1500"]
    ended = subprocess.run(
        [*command, str(tmp_path / "j")] if journal else command, capture_output=True, text=True, timeout=300
    )

    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told == dict.fromkeys(told, 0)
