"""The state file of a send: damage is detected, and one process at a time holds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from producer_core.cli.send.state_file import StateFile, decode, encode
from producer_core.errors import JournalError, JournalLocked
from tests.fixtures.sends import JOB, state


def test_a_state_round_trips_through_the_file(file):
    file.write(state(dead=2, malformed=1, doubtful=5, reached=20, rows=12))

    found = file.read()

    assert found.job == JOB
    assert list(found.settled) == [(0, 7), (9, 12)]
    assert found.offsets == {("orders", 0): 41, ("orders", 1): -1}
    assert (found.run, found.dead, found.malformed, found.doubtful, found.reached, found.rows) == (
        3,
        2,
        1,
        5,
        20,
        12,
    )
    assert found.possible() == 10


def test_every_changed_bit_is_detected():
    data = encode(state())

    for position in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[position] ^= 1 << bit
            with pytest.raises(ValueError):
                decode(bytes(wrong))


def test_every_truncation_and_extension_is_detected():
    data = encode(state())

    for length in range(len(data)):
        with pytest.raises(ValueError):
            decode(data[:length])
    with pytest.raises(ValueError):
        decode(data + b"x")
    with pytest.raises(ValueError):
        decode(data + data)


def test_a_crash_before_the_rename_leaves_the_old_state(file, path):
    file.write(state(dead=1))
    path.with_suffix(".new").write_bytes(encode(state(dead=2))[:50])

    assert file.read().dead == 1


def test_a_failed_write_leaves_the_old_state(file, path, monkeypatch):
    file.write(state(dead=1))

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.write(state(dead=2))
    monkeypatch.undo()
    assert file.read().dead == 1
    assert [one.name for one in path.parent.iterdir() if one.suffix == ".new"] == []


def test_only_the_owner_can_read_the_state_file(file, path):
    file.write(state())

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_second_process_is_refused_with_the_process_id_of_the_owner(file, path):
    code = "import sys; from pathlib import Path; from producer_core.cli.send.state_file import StateFile; StateFile(Path(sys.argv[1]))"

    other = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)

    assert other.returncode != 0
    assert f"JournalLocked: Process {os.getpid()} is already sending this file to this topic" in other.stderr


@pytest.mark.parametrize(
    ("store", "setting"),
    [("/proc/no/such.duckdb", "PRODUCER_CORE_STORE to a path in"), ("", "XDG_STATE_HOME to")],
)
def test_a_folder_that_cannot_be_written_is_refused_with_the_setting_that_selects_it(
    monkeypatch, store, setting
):
    monkeypatch.setenv("PRODUCER_CORE_STORE", store)

    with pytest.raises(JournalError) as refusal:
        StateFile(Path("/proc/no/sends/a.state"))

    assert refusal.value.fix == f"Make the folder writable, or set {setting} another one."


def test_a_killed_owner_leaves_no_lock(path):
    StateFile(path).close()
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".lock").write_text("4194304\n")

    StateFile(path).close()


def test_a_finished_job_leaves_no_file(file, path):
    file.write(state())
    file.remove()
    file.close()

    assert list(path.parent.iterdir()) == []


def test_one_process_cannot_lock_the_state_twice(file, path):
    with pytest.raises(JournalLocked):
        StateFile(path)
