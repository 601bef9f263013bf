"""The journal at the level `power` survives a power failure at any moment, with its writes in every legal order."""

from __future__ import annotations

import os
import random
import shutil
import threading

import pytest

from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.dlq import Spill
from producer_core.errors import JournalFull
from tests.fixtures.dead_letters import dead_letter
from tests.fixtures.power_loss import Disk, restore

TOPIC = "orders-placed"
"""With this name, a settle step for one message takes 64 bytes and the first of all steps 128: some start at a sector."""
PARTITIONS = [(TOPIC, 0), (TOPIC, 1)]
TRANSPORT_NOTE = (f"//shards/{'shop':-<30}", 0)


class History:
    """The actions of a producer and its guarantees, over all starts."""

    def __init__(self):
        self.attempted = set()  # values of messages whose append began
        self.accepted = {}  # id by value, set once the append returned
        self.settled = set()  # values whose settling began
        self.log_position = {}  # by value: its partition and offset on the topic
        self.found = set()  # values of unsettled messages that an earlier start put on the topic
        self.known_partitions = set()  # the partitions whose offsets must be known
        self.next = [0, 0]  # the next offset of each partition
        self.highest = -1

    def start(self, journal):
        offsets = {**dict.fromkeys(PARTITIONS, -1), TRANSPORT_NOTE: 2}
        missing = {
            partition: offset for partition, offset in offsets.items() if partition not in journal.offsets
        }
        if missing:
            journal.settle((), missing)
        self.known_partitions |= offsets.keys()
        self.found = {record.value for record in journal.read()} & self.log_position.keys()

    def append(self, journal, seqs, size=40):
        records = [
            JournalRecord(seq, TOPIC, b"key", b"%d %s " % (seq, os.urandom(4).hex().encode()) * size)
            for seq in seqs
        ]
        self.attempted |= {record.value for record in records}
        if len(records) == 1:
            journal.append(records[0])
        else:
            journal.append_many(records)
        self.accepted |= {record.value: journal.ids.of(record.seq) for record in records}
        self.highest = max(self.highest, *seqs)
        return records

    def settle(self, journal, records, partition=None):
        """Settle the records as dead letters, or with their positions on a partition."""
        values = [record.value for record in records]
        self.settled |= set(values)
        if partition is None:
            journal.settle([record.seq for record in records])
            return
        topic_partition = PARTITIONS[partition]
        for value in values:
            if value not in self.log_position:  # otherwise it is found there and not sent again
                self.log_position[value] = topic_partition, self.next[partition]
                self.next[partition] += 1
        self.found -= set(values)
        open_offsets = [
            offset for where, offset in map(self.log_position.get, self.found) if where == topic_partition
        ]
        reached = min([self.next[partition], *open_offsets]) - 1
        journal.settle(
            [record.seq for record in records],
            {topic_partition: max(reached, journal.offsets.get(topic_partition, -1))},
        )

    def check(self, journal):
        """Check the content of a journal that was opened after the power failure."""
        records = {record.value: record for record in journal.read()}
        accepted = dict(self.accepted)  # other threads keep appending
        lost = accepted.keys() - self.settled - records.keys()
        assert not lost, f"{len(lost)} messages are lost"
        assert records.keys() <= self.attempted, "a message that was never written"
        wrong = [
            value
            for value, id in accepted.items()
            if value in records and journal.ids.of(records[value].seq) != id
        ]
        assert not wrong, "a message has another id than before"
        assert journal.next_sequence > self.highest, "a sequence is reused"
        assert self.known_partitions <= journal.offsets.keys(), "the offset of a partition is lost"
        for value in records.keys() & self.log_position.keys():
            partition, offset = self.log_position[value]
            assert journal.offsets[partition] < offset, (
                "an unsettled message is below the offset from which it is looked up"
            )
        assert TRANSPORT_NOTE not in journal.offsets or journal.offsets[TRANSPORT_NOTE] == 2


def run_workload(history, journal, rng, rounds):
    """Append single messages and batches; settle them in and out of order; withdraw some."""
    seq, unsettled = journal.next_sequence, list(journal.read())
    for _ in range(rounds):
        count = rng.choice((1, 1, 2, 5))
        try:
            unsettled += history.append(journal, range(seq, seq + count), size=rng.choice((1, 3, 40)))
        except JournalFull:
            history.settle(journal, unsettled[1:], 1)
            del unsettled[1:]
        seq += count
        if rng.random() < 0.1:
            history.settled |= {unsettled[-1].value}
            journal.withdraw([unsettled.pop().seq])
        while len(unsettled) > rng.choice((2, 6, 12)):
            batch = rng.choice((unsettled[:1], unsettled[1:2], unsettled[1:4]))
            history.settle(journal, batch, rng.choice((0, 1, 1, None)))
            unsettled = [record for record in unsettled if record not in batch]


def open_journal(root):
    return Journal.open(
        root / "state" / "journal", level="power", segment_bytes=1500, max_bytes=6000, notice=lambda *_: None
    )


class CrashCheck:
    """Open the journal in every state that the disk may have after each operation, and check it."""

    def __init__(self, disk, history, folder, rng, count, *, exhaustive=32):
        self._disk, self._history, self._folder, self._rng, self._count = disk, history, folder, rng, count
        self._seen, self._checking, self._exhaustive = set(), False, exhaustive
        self.checked = 0

    def __call__(self):
        if self._checking:
            return  # an operation of the check itself
        self._checking = True
        for state in self._disk.states(self._rng, self._count, self._exhaustive):
            known = hash((tuple(state.items()), len(self._history.accepted), len(self._history.settled)))
            if known not in self._seen:
                self._seen.add(known)
                self.checked += 1
                target = self._folder / f"{len(self._seen)}"
                target.mkdir(parents=True)
                restore(state, target)
                with open_journal(target) as journal:
                    self._history.check(journal)
                shutil.rmtree(target)
        self._checking = False


@pytest.fixture
def fast_sync(monkeypatch):
    """Skip real syncs: the test opens thousands of journals."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)
    monkeypatch.setattr("producer_core.delivery.journal.settle_log._REWRITE_BYTES", 1000)
    for module in ("settle_log", "segment"):
        monkeypatch.setattr(f"producer_core.delivery.journal.{module}._PREALLOCATE_BYTES", (4096,))


@pytest.mark.slow
def test_settle_steps_lost_between_later_ones_advance_no_offset(tmp_path, monkeypatch, fast_sync):
    (root := tmp_path / "disk").mkdir()
    disk, history = Disk(root, monkeypatch), History()
    with open_journal(root) as journal:
        history.start(journal)
        records = history.append(journal, range(15), size=1)
        disk.on_change = CrashCheck(disk, history, tmp_path / "after", random.Random(1), 0, exhaustive=200)
        for record in records:
            history.settle(journal, [record], 0)
        assert disk.on_change.checked > 100


@pytest.mark.slow
def test_a_deleted_segment_does_not_reappear_after_the_settle_log_dropped_it(
    tmp_path, monkeypatch, fast_sync
):
    monkeypatch.setattr("producer_core.delivery.journal.settle_log._REWRITE_BYTES", 250)
    (root := tmp_path / "disk").mkdir()
    disk, history = Disk(root, monkeypatch), History()
    with open_journal(root) as journal:
        history.start(journal)
        records = history.append(journal, [0], size=150) + history.append(journal, range(1, 5), size=1)
        disk.on_change = CrashCheck(disk, history, tmp_path / "after", random.Random(1), 5, exhaustive=400)
        for record in records:
            history.settle(journal, [record], 0)
        assert len(list((root / "state/journal").glob("*.journal"))) == 1


def test_a_spilled_dead_letter_survives_a_power_failure(tmp_path, monkeypatch, fast_sync):
    (root := tmp_path / "disk").mkdir()
    disk = Disk(root, monkeypatch)

    for number in range(3):
        Spill(root / "state" / "producer" / "spill.jsonl").append([dead_letter(number)])

        for index, state in enumerate(disk.states(random.Random(1), 5)):
            (target := tmp_path / f"after-{number}-{index}").mkdir()
            restore(state, target)
            spill = Spill(target / "state" / "producer" / "spill.jsonl")
            assert spill.take() == [dead_letter(earlier) for earlier in range(number + 1)]


def contents(root):
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in [root, *root.rglob("*")]
    }


def test_the_simulated_disk_records_every_operation(tmp_path, monkeypatch, fast_sync):
    root = tmp_path / "disk"
    root.mkdir()
    disk, history = Disk(root, monkeypatch), History()

    with open_journal(root) as journal:
        history.start(journal)
        run_workload(history, journal, random.Random(1), 60)

    (copy := tmp_path / "copy").mkdir()
    restore(disk.now(), copy)
    assert contents(copy) == contents(root)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_accepted_message_is_lost_in_a_power_failure_at_any_moment(tmp_path, monkeypatch, fast_sync, seed):
    rng, history, checked = random.Random(seed), History(), 0
    root = tmp_path / "first"
    root.mkdir()
    for start in range(3):
        with monkeypatch.context() as patch:
            disk = Disk(root, patch)
            disk.on_change = crash_check = CrashCheck(disk, history, tmp_path / f"after-{start}", rng, 3)
            journal = open_journal(root)
            history.start(journal)
            run_workload(history, journal, rng, 20)
            if start == 1:
                journal.close()
            state = rng.choice([*disk.states(rng, 20)])
        journal.close()
        root = tmp_path / f"start-{start}"
        root.mkdir()
        restore(state, root)
        checked += crash_check.checked
    assert checked > 1000


@pytest.mark.slow
def test_messages_of_many_threads_survive_a_power_failure_at_any_moment(tmp_path, monkeypatch, fast_sync):

    root = tmp_path / "disk"
    root.mkdir()
    disk, history = Disk(root, monkeypatch), History()
    with open_journal(root) as journal:
        history.start(journal)
        disk.on_change = crash_check = CrashCheck(disk, history, tmp_path / "after", random.Random(7), 3)
        threads = [
            threading.Thread(
                target=lambda first=first: [
                    history.append(journal, [seq], size=1) for seq in range(first, 60, 6)
                ]
            )
            for first in range(6)
        ]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert len(history.accepted) == 60
    assert crash_check.checked > 100
