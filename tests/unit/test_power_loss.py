"""The journal at the level `power`, after a power failure at any moment: its writes in every legal order."""

from __future__ import annotations

import os
import random
import shutil
import threading

import pytest

from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.dlq import Spill
from producer_core.errors import JournalFull
from tests.unit.power_loss import Disk, restore
from tests.unit.test_dlq_letters import dead_letter

TOPIC = "orders-placed"
"""A mark of one message takes 64 bytes with this name, and the first mark of all 128: some begin with a sector."""
PLACES = [(TOPIC, 0), (TOPIC, 1)]
NOTE = (f"//shards/{'shop':-<30}", 0)


class Life:
    """What a producer did with its journal, and what it was promised; kept through all its starts."""

    def __init__(self):
        self.begun = set()  # values of messages whose append began
        self.accepted = {}  # value: id, once the append returned
        self.settled = set()  # values whose settling began
        self.lies_at = {}  # value: its place and offset on the topic
        self.found = set()  # values of open messages that an earlier start put on the topic
        self.told = set()  # what offsets must be known of
        self.next = [0, 0]  # the offsets of the partitions
        self.highest = -1

    def begin(self, journal):
        offsets = {**dict.fromkeys(PLACES, -1), NOTE: 2}
        missing = {where: offset for where, offset in offsets.items() if where not in journal.offsets}
        if missing:
            journal.settle((), missing)
        self.told |= offsets.keys()
        self.found = {record.value for record in journal.read()} & self.lies_at.keys()

    def append(self, journal, seqs, size=40):
        records = [
            JournalRecord(seq, TOPIC, b"key", b"%d %s " % (seq, os.urandom(4).hex().encode()) * size)
            for seq in seqs
        ]
        self.begun |= {record.value for record in records}
        if len(records) == 1:
            journal.append(records[0])
        else:
            journal.append_many(records)
        self.accepted |= {record.value: journal.ids.of(record.seq) for record in records}
        self.highest = max(self.highest, *seqs)
        return records

    def settle(self, journal, records, partition=None):
        """As dead letters, or with the places that they have on a partition."""
        values = [record.value for record in records]
        self.settled |= set(values)
        if partition is None:
            journal.settle([record.seq for record in records])
            return
        place = PLACES[partition]
        for value in values:
            if value not in self.lies_at:  # else it is found there and not sent again
                self.lies_at[value] = place, self.next[partition]
                self.next[partition] += 1
        self.found -= set(values)
        open_ones = [offset for where, offset in map(self.lies_at.get, self.found) if where == place]
        reached = min([self.next[partition], *open_ones]) - 1
        journal.settle(
            [record.seq for record in records], {place: max(reached, journal.offsets.get(place, -1))}
        )

    def check(self, journal):
        """What a journal holds, opened after the power failure."""
        records = {record.value: record for record in journal.read()}
        accepted = dict(self.accepted)  # other threads go on
        lost = accepted.keys() - self.settled - records.keys()
        assert not lost, f"{len(lost)} messages are lost"
        assert records.keys() <= self.begun, "a message that was never written"
        wrong = [
            value
            for value, id in accepted.items()
            if value in records and journal.ids.of(records[value].seq) != id
        ]
        assert not wrong, "a message has another id than before"
        assert journal.next_sequence > self.highest, "a sequence is given out again"
        assert self.told <= journal.offsets.keys(), "an offset is forgotten"
        for value in records.keys() & self.lies_at.keys():
            where, offset = self.lies_at[value]
            assert journal.offsets[where] < offset, (
                "an open message lies below the offset from which it is looked for"
            )
        assert NOTE not in journal.offsets or journal.offsets[NOTE] == 2


def live(life, journal, rng, rounds):
    """Messages one by one and many at once, settled in and out of order, some of them withdrawn."""
    seq, waiting = journal.next_sequence, list(journal.read())
    for _ in range(rounds):
        many = rng.choice((1, 1, 2, 5))
        try:
            waiting += life.append(journal, range(seq, seq + many), size=rng.choice((1, 3, 40)))
        except JournalFull:
            life.settle(journal, waiting[1:], 1)
            del waiting[1:]
        seq += many
        if rng.random() < 0.1:
            life.settled |= {waiting[-1].value}
            journal.withdraw([waiting.pop().seq])
        while len(waiting) > rng.choice((2, 6, 12)):
            done = rng.choice((waiting[:1], waiting[1:2], waiting[1:4]))
            life.settle(journal, done, rng.choice((0, 1, 1, None)))
            waiting = [record for record in waiting if record not in done]


def opened(root):
    return Journal.open(
        root / "state" / "journal", level="power", segment_bytes=1500, max_bytes=6000, notice=lambda *_: None
    )


class Trial:
    """Opens the journal in what the disk may hold after each operation, and checks it."""

    def __init__(self, disk, life, folder, rng, count, *, exhaustive=32):
        self._disk, self._life, self._folder, self._rng, self._count = disk, life, folder, rng, count
        self._seen, self._busy, self._exhaustive = set(), False, exhaustive
        self.tried = 0

    def __call__(self):
        if self._busy:
            return  # an operation of this check
        self._busy = True
        for state in self._disk.states(self._rng, self._count, self._exhaustive):
            known = hash((tuple(state.items()), len(self._life.accepted), len(self._life.settled)))
            if known not in self._seen:
                self._seen.add(known)
                self.tried += 1
                target = self._folder / f"{len(self._seen)}"
                target.mkdir(parents=True)
                restore(state, target)
                with opened(target) as journal:
                    self._life.check(journal)
                shutil.rmtree(target)
        self._busy = False


@pytest.fixture
def quick(monkeypatch):
    """Thousands of journals are opened; the disk's own pace says nothing here."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)
    monkeypatch.setattr("producer_core.delivery.journal.settle_log._SHORTEN", 1000)
    monkeypatch.setattr("producer_core.delivery.journal.settle_log._AHEAD", (4096,))


def test_marks_that_a_power_failure_took_from_among_later_ones_move_no_offset(tmp_path, monkeypatch, quick):
    (root := tmp_path / "disk").mkdir()
    disk, life = Disk(root, monkeypatch), Life()
    with opened(root) as journal:
        life.begin(journal)
        records = life.append(journal, range(15), size=1)
        disk.on_change = Trial(disk, life, tmp_path / "after", random.Random(1), 0, exhaustive=200)
        for record in records:
            life.settle(journal, [record], 0)
        assert disk.on_change.tried > 100


def test_a_deleted_file_does_not_come_back_beside_a_settle_log_that_forgot_it(tmp_path, monkeypatch, quick):
    monkeypatch.setattr("producer_core.delivery.journal.settle_log._SHORTEN", 250)
    (root := tmp_path / "disk").mkdir()
    disk, life = Disk(root, monkeypatch), Life()
    with opened(root) as journal:
        life.begin(journal)
        records = life.append(journal, [0], size=150) + life.append(journal, range(1, 5), size=1)
        disk.on_change = Trial(disk, life, tmp_path / "after", random.Random(1), 5, exhaustive=400)
        for record in records:
            life.settle(journal, [record], 0)
        assert len(list((root / "state/journal").glob("*.journal"))) == 1


def test_a_dead_letter_that_was_spilled_outlives_a_power_failure(tmp_path, monkeypatch, quick):
    (root := tmp_path / "disk").mkdir()
    disk = Disk(root, monkeypatch)

    for number in range(3):
        Spill(root / "state" / "producer" / "spill.jsonl").append([dead_letter(number)])

        for place, state in enumerate(disk.states(random.Random(1), 5)):
            (target := tmp_path / f"after-{number}-{place}").mkdir()
            restore(state, target)
            spill = Spill(target / "state" / "producer" / "spill.jsonl")
            assert spill.take() == [dead_letter(earlier) for earlier in range(number + 1)]


def contents(root):
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in [root, *root.rglob("*")]
    }


def test_the_disk_of_these_tests_sees_every_operation(tmp_path, monkeypatch, quick):
    root = tmp_path / "disk"
    root.mkdir()
    disk, life = Disk(root, monkeypatch), Life()

    with opened(root) as journal:
        life.begin(journal)
        live(life, journal, random.Random(1), 60)

    (copy := tmp_path / "copy").mkdir()
    restore(disk.now(), copy)
    assert contents(copy) == contents(root)


@pytest.mark.parametrize("seed", range(3))
def test_no_accepted_message_is_lost_whenever_the_power_fails(tmp_path, monkeypatch, quick, seed):
    rng, life, tried = random.Random(seed), Life(), 0
    root = tmp_path / "first"
    root.mkdir()
    for start in range(3):
        with monkeypatch.context() as patch:
            disk = Disk(root, patch)
            disk.on_change = trial = Trial(disk, life, tmp_path / f"after-{start}", rng, 3)
            journal = opened(root)
            life.begin(journal)
            live(life, journal, rng, 20)
            if start == 1:
                journal.close()
            state = rng.choice([*disk.states(rng, 20)])
        journal.close()
        root = tmp_path / f"start-{start}"
        root.mkdir()
        restore(state, root)
        tried += trial.tried
    assert tried > 1000


def test_messages_of_many_threads_outlive_a_power_failure_at_any_moment(tmp_path, monkeypatch, quick):
    root = tmp_path / "disk"
    root.mkdir()
    disk, life = Disk(root, monkeypatch), Life()
    with opened(root) as journal:
        life.begin(journal)
        disk.on_change = trial = Trial(disk, life, tmp_path / "after", random.Random(7), 3)
        threads = [
            threading.Thread(
                target=lambda first=first: [
                    life.append(journal, [seq], size=1) for seq in range(first, 60, 6)
                ]
            )
            for first in range(6)
        ]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert len(life.accepted) == 60
    assert trial.tried > 100
