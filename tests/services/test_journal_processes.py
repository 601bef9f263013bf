"""The journal among processes: one owner, kill -9, a full disk, a fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from producer_core.delivery.journal import Journal
from producer_core.errors import ForkedProducer, JournalLocked
from tests.unit.journaling import a_record, fill, kept


def test_a_second_process_is_refused_with_the_owners_pid(tmp_path):
    with (
        Journal.open(tmp_path / "journal"),
        pytest.raises(JournalLocked, match="open in this process already"),
    ):
        Journal.open(tmp_path / "journal")
    with Journal.open(tmp_path / "journal") as journal:
        code = "import sys; from producer_core.delivery.journal import Journal; Journal.open(sys.argv[1])"
        other = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "journal")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "JournalLocked" in other.stderr
        assert f"process {os.getpid()}" in other.stderr
        fill(journal, [0])  # the refused one took nothing away


def test_a_forked_child_may_not_write(tmp_path):
    with Journal.open(tmp_path / "journal") as journal:
        child = os.fork()
        if child == 0:
            try:
                journal.append(a_record(0))
            except ForkedProducer:
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7


FULL_DISK = """
import resource, signal, sys
from producer_core.errors import JournalFull
from producer_core.delivery.journal import Journal, JournalRecord
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
taken = 0
try:
    while True:
        journal.append(JournalRecord(taken, "orders", None, b"x" * 90))
        taken += 1
except JournalFull as error:
    assert "cannot be written" in str(error), error
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append(JournalRecord(taken, "orders", None, b"after"))
print(taken, len(list(journal.read())), flush=True)
"""


def test_a_full_disk_leaves_nothing_half_written_and_heals(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "journal")],
        capture_output=True,
        text=True,
        check=True,
    )
    taken, read = map(int, ran.stdout.split())

    assert read == taken + 1
    said = []
    with Journal.open(tmp_path / "journal", notice=lambda *words: said.append(words)) as again:
        assert kept(again) == list(range(taken + 1))
    assert said == []


WRITER = """
import sys, threading
from producer_core.delivery.journal import Journal, JournalRecord
journal = Journal.open(sys.argv[1], level=sys.argv[2], segment_bytes=200_000)
lock, numbers = threading.Lock(), iter(range(journal.next_sequence, 1 << 60))
def write():
    while True:
        with lock:
            seq = next(numbers)
        journal.append(JournalRecord(seq, "orders", b"k", b"%d" % seq))
        sys.stdout.write(f"{seq}\\n")
        sys.stdout.flush()
for _ in range(3):
    threading.Thread(target=write).start()
"""


@pytest.mark.parametrize("level", ["process", "power"])
def test_what_an_append_returned_for_survives_kill_9(tmp_path, level):
    path, promised = tmp_path / "journal", set()
    for lines in (5, 40, 200):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), level], stdout=subprocess.PIPE, text=True
        )
        for _ in range(lines):
            promised.add(int(writer.stdout.readline()))
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split("\n")[:-1]
        promised |= {int(line) for line in rest if line}
        writer.wait()
        writer.stdout.close()

    with Journal.open(path) as journal:
        records = list(journal.read())
    assert promised <= {record.seq for record in records}
    assert all(int(record.value) == record.seq for record in records)
    assert len({record.seq for record in records}) == len(records)


def test_a_forked_child_does_not_keep_a_killed_owners_lock(tmp_path):
    code = """
import os, sys, time
from producer_core.delivery.journal import Journal
journal = Journal.open(sys.argv[1])
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
    time.sleep(600)
os.kill(os.getpid(), 9)
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "journal")], stdout=subprocess.PIPE, text=True
    )
    child = int(owner.stdout.readline())
    owner.wait()
    try:
        with Journal.open(tmp_path / "journal") as journal:
            fill(journal, [0])
    finally:
        os.kill(child, signal.SIGKILL)
        owner.stdout.close()


def test_a_second_name_of_the_folder_is_the_same_folder(tmp_path):
    (tmp_path / "other").symlink_to(tmp_path / "journal")
    with Journal.open(tmp_path / "journal"), pytest.raises(JournalLocked):
        Journal.open(tmp_path / "other")


FULL = """
import os, sys
from producer_core.errors import JournalFull
from producer_core.delivery.journal import Journal, JournalRecord
folder = sys.argv[1]
journal = Journal.open(folder + "/journal", level=sys.argv[2], segment_bytes=200_000)
def fill_up(taken):
    try:
        while True:
            journal.append(JournalRecord(taken, "orders", None, os.urandom(700)))
            taken += 1
            if sys.argv[2] == "buffered":
                journal.sync()
    except JournalFull as error:
        assert "bytes free" in str(error), error
        return taken
taken = fill_up(0)
ballast = open(folder + "/ballast", "wb", buffering=0)
try:
    while True:
        ballast.write(b"x" * 512)  # somebody else takes every byte that is left
except OSError:
    pass
assert len(list(journal.read())) - journal.unsettled() == 0
for seq in range(taken):  # marks find room on the full disk, and so make room
    journal.settle((seq,), {("orders", 0): seq})
assert journal.unsettled() <= 1, journal.unsettled()
again = fill_up(taken + 1)
print(taken, again - taken, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("level", ["buffered", "process", "power"])
def test_a_full_disk_is_emptied_by_what_is_acknowledged(tmp_path, level):
    """A small tmpfs in a mount namespace of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["sh", "-c", 'mount -t tmpfs -o size=3m none "$1" && shift && exec "$@"', "sh", str(disk)]
    for command in (["unshare", "-m", *mount], ["unshare", "-rm", *mount]):
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            break
    else:
        return  # no tmpfs may be mounted here; the test with a bound on the file's size has to do
    ran = subprocess.run(
        [*command, sys.executable, "-c", FULL, str(disk), level],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    first, second = map(int, ran.stdout.split())
    assert first > 500
    assert second > 500
