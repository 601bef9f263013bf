"""A child process ends when its parent has ended."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from producer_core.simulate.parent_watchdog import with_watchdog
from tests.support import eventually


def test_a_child_ends_when_its_parent_is_killed():
    code = (
        "import subprocess, signal; from producer_core.simulate.parent_watchdog import with_watchdog;"
        f"print(subprocess.Popen(with_watchdog([{sys.executable!r}, '-c', 'import signal; signal.pause()'])).pid, flush=True);"
        "signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    eventually(lambda: "producer_core.simulate.parent_watchdog" not in child.cmdline())

    parent.kill()
    parent.wait()

    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    parent.stdout.close()


def test_a_command_with_a_watchdog_runs_unchanged():
    command = with_watchdog([sys.executable, "-c", "print('hello')"])

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "hello\n"


def test_the_watchdog_ends_at_once_when_the_parent_has_ended():
    command = with_watchdog([sys.executable, "-c", "print('must not run')"])
    command[3] = str(os.getppid())  # not the parent's id

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
