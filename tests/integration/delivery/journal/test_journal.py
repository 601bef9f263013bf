"""The journal with several processes: one owner, `kill -9`, a full disk, a fork."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest

from producer_core.delivery.journal import Journal
from producer_core.errors import ForkedProducer, JournalLocked
from tests.fixtures.journal import a_record, fill, kept


def test_a_second_process_is_rejected_with_the_owners_pid(tmp_path):
    with (
        Journal.open(tmp_path / "journal"),
        pytest.raises(JournalLocked, match="already open in this process"),
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
        fill(journal, [0])  # the rejected process did not release the lock


def test_a_forked_child_cannot_write(tmp_path):
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
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
accepted = 0
try:
    while True:
        journal.append(JournalRecord(accepted, "orders", None, b"x" * 90))
        accepted += 1
except JournalFull as error:
    assert "cannot be written" in str(error), error
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append(JournalRecord(accepted, "orders", None, b"after"))
print(accepted, len(list(journal.read())), flush=True)
"""


@pytest.mark.parametrize("limit", [10_000, 1_500_000])
def test_a_full_disk_leaves_no_partial_record_and_the_journal_recovers(tmp_path, limit):
    """With the higher limit, the disk is full when the second part of the file is preallocated."""
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "journal"), str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    accepted, read = map(int, ran.stdout.split())

    assert read == accepted + 1
    assert limit - 200 < accepted * 151 <= limit
    notices = []
    with Journal.open(tmp_path / "journal", notice=lambda *notice: notices.append(notice)) as again:
        assert kept(again) == list(range(accepted + 1))
    assert notices == []


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
def test_messages_confirmed_by_an_append_survive_kill_9(tmp_path, level):
    path, confirmed = tmp_path / "journal", set()
    for lines in (5, 40, 200):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), level], stdout=subprocess.PIPE, text=True
        )
        for _ in range(lines):
            confirmed.add(int(writer.stdout.readline()))
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split("\n")[:-1]
        confirmed |= {int(line) for line in rest if line}
        writer.wait()
        writer.stdout.close()

    with Journal.open(path) as journal:
        records = list(journal.read())
    assert confirmed <= {record.seq for record in records}
    assert all(int(record.value) == record.seq for record in records)
    assert len({record.seq for record in records}) == len(records)


LONE_WRITER = """
import os, sys
from producer_core.delivery.journal import Journal, JournalRecord
journal = Journal.open(sys.argv[1], segment_bytes=3_000_000)
seq = journal.next_sequence
while True:
    journal.append(JournalRecord(seq, "orders", b"k", b"%d," % seq * (1 + seq % 300)))
    os.write(1, b"%d\\n" % seq)
    seq += 1
"""


@pytest.mark.slow
def test_a_writer_killed_again_and_again_leaves_every_accepted_message_and_no_damage(tmp_path):
    """Each kill falls into another step: a write through memory, a new part of the file, or a new file."""
    path, rng, accepted, notices = tmp_path / "journal", random.Random(5), set(), []
    for _ in range(15):
        writer = subprocess.Popen([sys.executable, "-c", LONE_WRITER, str(path)], stdout=subprocess.PIPE)
        received = writer.stdout.read1()
        while len(received) < rng.choice((10, 5_000, 60_000)):
            received += writer.stdout.read1()
        writer.send_signal(signal.SIGKILL)
        received += writer.stdout.read()
        assert writer.wait() == -signal.SIGKILL
        writer.stdout.close()
        accepted |= {int(line) for line in received.split(b"\n")[:-1]}

        with Journal.open(path, notice=lambda kind, *_: notices.append(kind)) as journal:
            records = {record.seq: record.value for record in journal.read()}
            assert accepted <= records.keys()
            assert all(value == b"%d," % seq * (1 + seq % 300) for seq, value in records.items())
            if rng.random() < 0.3:
                journal.settle(records)
                accepted = set()
    assert set(notices) <= {"journal_torn"}


FEEDER = """
import os, random, sys, threading
from types import SimpleNamespace
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.journal import Journal
from producer_core.delivery.journal.journal_feeder import JournalFeeder
journal = Journal.open(sys.argv[1], level=sys.argv[2], segment_bytes=100_000)
class Target:
    transport = SimpleNamespace(settles_journal=True)
    resume_span = None
    pending, offered = {}, []
    def offer(self, delivery):
        if random.random() < 0.05:
            return False
        self.pending[delivery.id] = delivery
        return True
    def renew(self, deliveries, waits):
        pass
feeder = JournalFeeder(journal, Target())
feeder.start()
lock, numbers = threading.Lock(), iter(range(journal.next_sequence, 1 << 60))
def delivery():
    with lock:
        seq = next(numbers)
    return Delivery(journal.ids.of(seq), seq, "orders", b"k", b"%d" % seq)
def send():
    while True:
        batch = [delivery() for _ in range(random.choice((1, 1, 1, 3, 40)))]
        feeder.take(batch[0]) if len(batch) == 1 else feeder.take_many(batch, [])
        os.write(1, b"".join(b"%d\\n" % one.seq for one in batch))
for _ in range(8):
    threading.Thread(target=send).start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["process", "power"])
def test_messages_accepted_from_many_threads_survive_kill_9_at_random_moments(tmp_path, level):
    path, accepted, rng = tmp_path / "journal", set(), random.Random(3)
    for _ in range(12):
        sender = subprocess.Popen([sys.executable, "-c", FEEDER, str(path), level], stdout=subprocess.PIPE)
        received = b""
        for _ in range(rng.choice((1, 2, 30, 200))):
            received += sender.stdout.read1()
        sender.send_signal(signal.SIGKILL)
        received += sender.stdout.read()
        sender.wait()
        sender.stdout.close()
        accepted |= {int(line) for line in received.split(b"\n")[:-1]}

    notices = []
    with Journal.open(path, notice=lambda kind, *_: notices.append(kind)) as journal:
        records = list(journal.read())
    assert len(accepted) > 100
    assert accepted <= {record.seq for record in records}
    assert all(int(record.value) == record.seq for record in records)
    assert "journal_damaged" not in notices


def test_a_forked_child_does_not_keep_the_lock_of_a_killed_owner(tmp_path):
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


def test_a_symbolic_link_to_the_folder_shares_its_lock(tmp_path):
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
        ballast.write(b"x" * 512)  # another file takes all remaining space
except OSError:
    pass
assert len(list(journal.read())) - journal.unsettled() == 0
for seq in range(taken):  # settle steps find room on the full disk and free space
    journal.settle((seq,), {("orders", 0): seq})
assert journal.unsettled() <= 1, journal.unsettled()
again = fill_up(taken + 1)
print(taken, again - taken, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("level", ["buffered", "process", "power"])
def test_a_full_disk_empties_as_messages_are_acknowledged(tmp_path, level):
    """A small tmpfs in a mount namespace of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["sh", "-c", 'mount -t tmpfs -o size=3m none "$1" && shift && exec "$@"', "sh", str(disk)]
    for command in (["unshare", "-m", *mount], ["unshare", "-rm", *mount]):
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            break
    else:
        return  # tmpfs cannot be mounted here; the test with a file size limit covers the behaviour
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
