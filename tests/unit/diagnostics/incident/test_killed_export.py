"""An export that is killed or stopped leaves no copy of the store behind."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from producer_core._internal.work_folder import PREFIX
from producer_core.store import Store
from tests.fixtures import incidents

EXPORT = """if True:
    import sys
    from producer_core._internal.stop_signal import exit_on_signal
    from producer_core.diagnostics.incident import IncidentWindow, export_incident
    from producer_core.store import Store

    def clock():
        print("copied", flush=True)
        sys.stdin.read()

    path, target, since, until = sys.argv[1:]
    with exit_on_signal():
        export_incident(
            Store.open(path), target, IncidentWindow(float(since), float(until)), who="ann", origin="cli", clock=clock
        )
"""


@pytest.fixture
def running(store, window, tmp_path):
    """A process that has copied the store and waits in the middle of its export."""
    arguments = (store.path, tmp_path / "a.zip", window.since, window.until)
    child = subprocess.Popen(
        [sys.executable, "-c", EXPORT, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "copied\n", child.stderr.read()
    yield child
    child.kill()
    child.communicate()


def unmasked(folder):
    """Return the files below a folder, except the store's own, with a secret."""
    copies = [path for path in folder.rglob("*") if path.is_file() and path.parent.name.startswith(PREFIX)]
    return [path for path in copies if incidents.KEY in path.read_bytes()]


def test_a_killed_export_leaves_nothing_after_the_next_start(running, store, tmp_path):
    running.kill()
    running.wait()
    assert unmasked(tmp_path)

    Store.open(store.path)
    assert not [*tmp_path.glob(f"{PREFIX}*")]
    assert not (tmp_path / "a.zip").exists()


def test_compaction_removes_the_copy_of_a_killed_export(running, store, tmp_path):
    running.kill()
    running.wait()
    store.compact()
    assert not [*tmp_path.glob(f"{PREFIX}*")]


def test_a_start_does_not_disturb_a_running_export(running, store, tmp_path):
    Store.open(store.path)
    assert unmasked(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_export_leaves_nothing_at_once(running, tmp_path, number):
    running.send_signal(number)
    assert running.wait(timeout=60) == 128 + number
    assert not [*tmp_path.glob(f"{PREFIX}*")]
    assert not [*tmp_path.glob("*a.zip*")]
