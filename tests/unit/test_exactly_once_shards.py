"""Shards over a log in memory on which transactions end in every way: nothing lost, nothing twice, order kept."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError

from producer_core.delivery.exactly_once import shard
from producer_core.delivery.exactly_once.log_positions import LogPosition
from producer_core.delivery.exactly_once.read_back import ReadBackResult
from producer_core.delivery.exactly_once.transactional_client import TransactionFailed
from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.errors import Fenced, JournalFull
from tests.exactly_once import MemoryProgress, Sender
from tests.support import eventually

SESSION = uuid.UUID(int=7)
LOST = KafkaError(KafkaError._TIMED_OUT)


@dataclass(frozen=True)
class Written:
    """What a delivery report says."""

    place: LogPosition

    def topic(self):
        return self.place.topic

    def partition(self):
        return self.place.partition

    def offset(self):
        return self.place.offset

    def timestamp(self):
        return (1, 0)


class Log:
    """Partitions in memory. `endings` are drawn for each transaction; "committed" when there are none."""

    def __init__(self, seed=0, endings=("committed",), bad=()):
        self.records = defaultdict(list)
        self.chance = random.Random(seed)
        self.endings = list(endings)
        self.bad = set(bad)
        self.transactions = Counter()
        self.fences = Counter()
        self.partitions = 10**9
        self.owners = {}  # the client that has a transactional id
        self.lock = threading.RLock()
        self.trouble = False

    def append(self, delivery):
        records = self.records[delivery.topic, delivery.partition]
        records.append(delivery.id)
        return (
            delivery,
            None,
            Written(LogPosition(delivery.topic, delivery.partition, len(records) - 1)),
        )

    def seqs(self):
        return {
            where: [int.from_bytes(id[16:]) for id in ids if id is not None]
            for where, ids in self.records.items()
        }

    def verify(self, expected):
        seqs = self.seqs()
        assert Counter(seq for one in seqs.values() for seq in one) == Counter(expected)
        assert all(one == sorted(one) for one in seqs.values())


class FakeClient:
    """A client whose transactions end as the log's chance says."""

    def __init__(self, log, name):
        self.log, self.name, self.alive = log, name, True
        self.fenced_in_trouble = log.trouble
        self.dead = False

    def fence(self, waiting):
        with self.log.lock:
            self.log.fences[self.name] += 1
            self.log.owners[self.name] = self

    def transact(self, deliveries, deadline):
        assert not self.dead, "used after a failure"
        with self.log.lock:
            ending = self.log.chance.choice(self.log.endings)
            if self.log.owners[self.name] is not self:
                ending = "fenced"
            self.log.transactions[ending] += 1
            gone = [one for one in deliveries if one.partition >= self.log.partitions]
            if gone:
                self.dead = True
                error = KafkaError(KafkaError._UNKNOWN_PARTITION)
                raise TransactionFailed(error, [(one, error, None) for one in gone])
            bad = [one for one in deliveries if one.seq in self.log.bad]
            if bad:
                self.dead = True
                error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
                partitions = {one.partition for one in bad}
                refused = [(one, error, None) for one in deliveries if one.partition in partitions]
                raise TransactionFailed(error, refused)
            if ending == "committed":
                return [self.log.append(one) for one in deliveries], []
            self.dead = True
            if ending == "answer lost":
                for one in deliveries:
                    self.log.append(one)
            elif ending == "torn":  # a late EndTxn committed what had been appended of each partition
                partitions = sorted({one.partition for one in deliveries})
                bound = {partition: self.log.chance.randrange(len(deliveries)) for partition in partitions}
                for position, one in enumerate(deliveries):
                    if position < bound[one.partition]:
                        self.log.append(one)
            for records in self.log.records.values():
                records.append(None)  # a control marker
            raise TransactionFailed(KafkaError(KafkaError._FENCED) if ending == "fenced" else LOST)

    def serve(self, timeout=0.0):
        pass

    def destroy(self):
        self.alive = False


class FakeReadBack:
    def __init__(self, log):
        self.log = log

    def __call__(self, offsets, wanted):
        seen = ReadBackResult()
        with self.log.lock:
            for where, off in offsets.items():
                records = self.log.records[where]
                seen.ends[where] = len(records)
                if off is not None:
                    seen.found[where] = [
                        (id, LogPosition(*where, offset, 0))
                        for offset, id in enumerate(records)
                        if offset > off and id is not None and wanted(id)
                    ]
        return seen

    def beginnings(self, oldest, asked):
        with self.log.lock:
            return {where: -1 for where in self.log.records if where[0] in oldest and asked(where)}


@pytest.fixture
def on(monkeypatch):
    """Makes a sender over a log; without pauses."""

    def make(log, **options):
        monkeypatch.setattr(shard, "TransactionalClient", lambda settings, name, **_: FakeClient(log, name))
        monkeypatch.setattr(shard, "ReadBack", lambda *_: FakeReadBack(log))
        monkeypatch.setattr(shard, "_BREATH", 0.0)
        monkeypatch.setattr(
            shard.Shard, "_pause", lambda self, seconds: shard.Shard._wait(self, min(seconds, 0.001))
        )
        options = {"messages": 10, "age": 0.002, "session": SESSION} | options
        return Sender("127.0.0.1:9", "t", **options)

    return make


@pytest.mark.parametrize("seed", range(15))
def test_however_transactions_end_and_whenever_the_process_dies_each_is_there_once_and_in_order(on, seed):
    chance = random.Random(seed)
    log = Log(seed, ["committed", "committed", "answer lost", "torn", "nothing"])
    progress = MemoryProgress()
    total = 0
    for life in range(6):
        with on(log, progress=progress, shards=chance.randint(1, 3)) as sender:
            left = [seq for seq in range(total) if seq not in progress.done]
            fresh = list(range(total, total + chance.randrange(80)))
            total += len(fresh)
            for seq in left + fresh:
                sender.offer(sender.delivery(seq, partition=seq % 4))
            if life < 5:  # killed: whatever its threads would still have settled is not settled
                count = chance.randrange(len(left + fresh) + 1)
                eventually(lambda count=count, sender=sender: sender.heard.settled() >= count, 30)
            else:
                sender.wait(len(left + fresh))
        assert sender.heard.twice == []
    log.verify(range(total))
    assert progress.done == set(range(total))
    assert all(
        off < len(log.records[where]) for where, off in progress.offsets.items() if where in log.records
    )


def test_the_log_in_memory_can_tell_a_careless_sender(on, monkeypatch):
    """The proof of the proof: without the read-back the same log has duplicates."""
    monkeypatch.setattr(
        FakeReadBack, "__call__", lambda self, offsets, wanted: ReadBackResult(ends=dict.fromkeys(offsets, 0))
    )
    log = Log(1, ["committed", "answer lost"])
    with on(log) as sender:
        for seq in range(200):
            sender.offer(sender.delivery(seq, partition=seq % 4))
        sender.wait(200)
    with pytest.raises(AssertionError):
        log.verify(range(200))


def test_messages_that_are_refused_are_found_among_their_neighbours(on):
    bad = {17, 18, 60}
    log = Log(bad=bad)
    with on(log, shards=1) as sender:
        for seq in range(100):
            sender.offer(sender.delivery(seq, partition=seq % 2))
        sender.wait(100)
        assert sender.heard.failed == dict.fromkeys(bad, ("MSG_SIZE_TOO_LARGE", "rejected"))
    log.verify(set(range(100)) - bad)


def test_an_id_that_keeps_being_taken_is_given_up_and_what_was_not_sent_is_kept(on):
    log = Log(endings=["fenced"])
    progress = MemoryProgress()
    with on(log, progress=progress, shards=1) as sender:
        sender.offer(sender.delivery(0, partition=0))
        eventually(lambda: "fenced" in sender.heard.kinds)
        with pytest.raises(Fenced):
            sender.transport.produce(sender.delivery(1, partition=0))
        assert sender.transport.outstanding() == 1
        sender.transport.purge()
        assert sender.heard.failed == {0: ("_PURGE_QUEUE", None)}
        assert sender.heard.kinds.count("fenced") == 1
    assert progress.done == set()
    assert log.fences == {"t-id-0": 4}


def test_the_late_request_of_a_killed_predecessor_does_not_stop_the_only_live_producer(on):
    log = Log()
    with on(log, shards=2) as sender:
        for late in range(3):
            sender.send(range(10 * late, 10 * late + 10), partition=late % 4)
            sender.wait(10 * late + 10)
            log.owners = dict.fromkeys(log.owners)  # it came; nobody lives behind it
        sender.send(range(30, 50), partition=3)
        sender.wait(50)
        assert "fenced" not in sender.heard.kinds
        assert sender.heard.kinds.count("transactions_failing") >= 2
        assert sender.heard.kinds[-1] == "transactions_recovered"
    log.verify(range(50))


def test_of_two_live_producers_with_one_id_the_newer_remains_and_neither_loses_or_repeats(on):
    log = Log()
    with on(log) as older:
        older.send(range(8), partition=0)
        older.wait(8)
        with on(log, session=uuid.uuid4()) as newer:
            newer.send(range(1000, 1008), partition=0)
            newer.wait(8)
            sent = {older: 8, newer: 1008}
            while "fenced" not in older.heard.kinds:
                assert "fenced" not in newer.heard.kinds
                for sender in (older, newer):
                    with contextlib.suppress(Fenced):
                        sender.transport.produce(sender.delivery(sent[sender], partition=0))
                        sent[sender] += 1
                newer.wait(sent[newer] - 1000)
            newer.send([sent[newer]], partition=0)
            newer.wait(sent[newer] - 999)
            assert "fenced" not in newer.heard.kinds
            older.transport.purge()
    (found,) = log.seqs().values()
    assert Counter(found) == Counter([*older.heard.acknowledged, *newer.heard.acknowledged])
    for own in ([seq for seq in found if seq < 1000], [seq for seq in found if seq >= 1000]):
        assert own == sorted(own)


def test_messages_for_partitions_that_a_new_topic_lacks_go_to_those_it_has(on, monkeypatch):
    log = Log()
    log.partitions = 6
    with on(log, shards=2) as sender:
        monkeypatch.setattr(sender.transport._partitioner, "_ask", lambda topic, timeout: log.partitions)
        sender.send(range(60))
        sender.wait(60)
        assert len(log.records) == 6

        with log.lock:  # deleted and made again
            log.partitions = 2
            log.records.clear()
            sender.send(range(60, 120))
            for number in range(120, 160):
                sender.offer(sender.delivery(number, key=b"one key"))
        sender.offer(sender.delivery(160, partition=5))
        sender.wait(161)

        assert sender.heard.failed == {160: ("_UNKNOWN_PARTITION", "not_sent")}
        assert "Nothing was lost" not in " ".join(notice.text for notice in sender.heard.notices)
    found = {where: seqs for where, seqs in log.seqs().items() if seqs}
    assert set(found) == {("t", 0), ("t", 1)}
    assert Counter(seq for seqs in found.values() for seq in seqs) == Counter(range(60, 160))
    keyed = [[seq for seq in seqs if seq >= 120] for seqs in found.values()]
    assert sorted(keyed) == [[], list(range(120, 160))]


def test_a_journal_without_room_delays_reports_and_repeats_nothing(on):
    class FullOnce(MemoryProgress):
        refusals = 0

        def settle(self, seqs, offsets=None):
            if seqs and self.refusals < 1:
                self.refusals += 1
                raise JournalFull("no room")
            super().settle(seqs, offsets)

    log = Log()
    with on(log, progress=FullOnce(), shards=1) as sender:
        sender.offer(sender.delivery(0, partition=0))
        sender.wait(1)
        assert sender.heard.kinds == ["journal_full"]
    log.verify([0])


def test_given_up_before_anything_was_read_back_it_stays_in_doubt_and_later_it_was_not_sent(on, monkeypatch):
    reading = threading.Event()
    log = Log()
    real = FakeReadBack.__call__

    def slow(self, offsets, wanted):
        assert reading.wait(30)
        return real(self, offsets, wanted)

    monkeypatch.setattr(FakeReadBack, "__call__", slow)
    progress = MemoryProgress()
    progress.settle((), {("t", 0): -1})
    with on(log, progress=progress, shards=1) as sender:
        sender.offer(sender.delivery(0, partition=0))
        sender.transport.purge()
        assert sender.heard.failed == {0: ("_PURGE_QUEUE", None)}
        reading.set()
    with on(log, progress=progress, shards=1, age=60) as sender:
        eventually(lambda: sender.transport._shards[0].recovered.is_set())
        sender.offer(sender.delivery(1, partition=0))
        sender.transport.purge()
        assert sender.heard.failed == {1: ("_PURGE_QUEUE", "not_sent")}


def test_a_full_queue_says_so(on):
    log = Log()
    with on(log, shards=1, age=60, settings={"queue.buffering.max.messages": 3}) as sender:
        log.lock.acquire()  # nothing ends
        try:
            with pytest.raises(shard.ClientQueueFull):
                for seq in range(20):
                    sender.transport.produce(sender.delivery(seq, partition=0))
        finally:
            log.lock.release()


@pytest.mark.parametrize("lived", [20, 0], ids=["", "copied before its first record"])
def test_a_journal_that_was_put_back_from_a_copy_neither_loses_nor_repeats_a_message(on, tmp_path, lived):
    log, path, copy = Log(), tmp_path / "j", tmp_path / "copy"

    def life(count, *, copied=False):
        with Journal.open(path) as journal, on(log, progress=journal, ids=journal.ids) as sender:
            left = [record.seq for record in journal.read()]
            for seq in left:
                sender.offer(sender.delivery(seq, partition=seq % 4))
            given = range(journal.next_sequence, journal.next_sequence + count)
            for seq in given:
                journal.append(JournalRecord(seq, "t", None, b"x"))
            if copied:  # before any of them is written
                shutil.copytree(path, copy)
            for seq in given:
                sender.offer(sender.delivery(seq, partition=seq % 4))
            sender.wait(len(left) + count)
            return [journal.ids.of(seq) for seq in given]

    expected = life(lived) + life(20, copied=True) + life(20)
    shutil.rmtree(path)
    copy.rename(path)
    expected += life(20)

    written = [id for records in log.records.values() for id in records if id is not None]
    assert sorted(written) == sorted(expected)
    assert len(set(written)) == 60 + lived


def _flip(place):
    def flip(file):
        data = bytearray(file.read_bytes())
        data[place] ^= 1
        file.write_bytes(data)

    return flip


DAMAGES = {
    "deleted": lambda file: file.unlink(),
    "emptied": lambda file: file.write_bytes(b""),
    "cut at 60 bytes": lambda file: file.write_bytes(file.read_bytes()[:60]),
    "zeros": lambda file: file.write_bytes(bytes(4096)),
    "a flip at the start": _flip(3),
    "a flip in the first step": _flip(20),
    "a flip in a later step": _flip(150),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_settle_log_has_no_message_sent_twice(on, tmp_path, damage):
    log, path, said = Log(), tmp_path / "j", []

    def notice(kind, severity, text):
        said.append(kind)

    def life(count, *, settles=True):
        with (
            Journal.open(path, notice=notice) as journal,
            on(log, progress=journal, ids=journal.ids) as sender,
        ):
            left = [record.seq for record in journal.read()]
            given = range(journal.next_sequence, journal.next_sequence + count)
            for seq in given:
                journal.append(JournalRecord(seq, "t", None, b"x"))
            for seq in [*left, *given] if settles else ():
                sender.offer(sender.delivery(seq, partition=seq % 4))
            sender.wait(len(left) + count if settles else 0)

    life(20)
    life(20)
    assert said == []
    DAMAGES[damage](path / "settled")
    life(0, settles=False)  # ends before anything is settled again
    assert set(said) <= {"journal_damaged", "journal_torn"} and said
    told = len(said)
    life(5)

    assert len(said) == told  # repaired for good
    written = [id for records in log.records.values() for id in records if id is not None]
    assert (len(written), len(set(written))) == (45, 45)
