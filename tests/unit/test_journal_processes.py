"""The journal among processes: one owner, kill -9, a full disk, a fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from producer_core.errors import ForkedProducer, JournalLocked
from producer_core.journal import Journal
from tests.unit.journaling import a_record, fill, kept


def test_a_second_process_is_refused_with_the_owners_pid(tmp_path):
    with Journal.open(tmp_path / "journal"), pytest.raises(JournalLocked, match=str(os.getpid())):
        Journal.open(tmp_path / "journal")
    with Journal.open(tmp_path / "journal") as journal:
        code = "import sys; from producer_core.journal import Journal; Journal.open(sys.argv[1])"
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
from producer_core.journal import Journal, Record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
taken = 0
try:
    while True:
        journal.append(Record(taken, "orders", None, b"x" * 90))
        taken += 1
except JournalFull as error:
    assert "cannot be written" in str(error), error
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append(Record(taken, "orders", None, b"after"))
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
from producer_core.journal import Journal, Record
journal = Journal.open(sys.argv[1], level=sys.argv[2], segment_bytes=200_000)
lock, numbers = threading.Lock(), iter(range(journal.next_sequence, 1 << 60))
def write():
    while True:
        with lock:
            seq = next(numbers)
        journal.append(Record(seq, "orders", b"k", b"%d" % seq))
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
