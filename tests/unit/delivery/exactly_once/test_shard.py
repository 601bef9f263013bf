"""Shards over a log in memory whose transactions end in every way: no loss, no duplicates, order kept.

Every test runs with the shard that sends in Python and with the one that passes messages to the native core.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
import uuid
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from itertools import takewhile

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as some

from producer_core.delivery.exactly_once import native_shard, shard, transactional_transport
from producer_core.delivery.exactly_once.log_positions import LogPosition
from producer_core.delivery.exactly_once.native_client import CommittedColumns, ReportFailed
from producer_core.delivery.exactly_once.read_back import ReadBackResult
from producer_core.delivery.exactly_once.shard import QueuedMessage, take_batch
from producer_core.delivery.exactly_once.transactional_client import TransactionFailed
from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.errors import Fenced, JournalFull
from tests.fixtures.exactly_once import SESSION, T0, T1, MemoryProgress, Sender, delivery
from tests.support import eventually

LOST = KafkaError(KafkaError._TIMED_OUT)


@dataclass(frozen=True)
class FakeMessage:
    """A delivery report with a position."""

    position: LogPosition

    def topic(self):
        return self.position.topic

    def partition(self):
        return self.position.partition

    def offset(self):
        return self.position.offset

    def timestamp(self):
        return (1, 0)


class Log:
    """Partitions in memory. Each transaction draws its outcome from `endings`."""

    def __init__(self, seed=0, endings=("committed",), rejected_seqs=()):
        self.records = defaultdict(list)
        self.rng = random.Random(seed)
        self.endings = list(endings)
        self.rejected_seqs = set(rejected_seqs)
        self.transactions = Counter()
        self.fences = Counter()
        self.partitions = 10**9
        self.owners = {}  # the client that owns each transactional id
        self.lock = threading.RLock()
        self.disconnected = False

    def append(self, delivery):
        records = self.records[delivery.topic, delivery.partition]
        records.append(delivery.id)
        return (
            delivery,
            None,
            FakeMessage(LogPosition(delivery.topic, delivery.partition, len(records) - 1)),
        )

    def seqs(self):
        return {
            partition: [int.from_bytes(id[16:]) for id in ids if id is not None]
            for partition, ids in self.records.items()
        }

    def verify(self, expected):
        seqs = self.seqs()
        assert Counter(seq for one in seqs.values() for seq in one) == Counter(expected)
        assert all(one == sorted(one) for one in seqs.values())


class FakeClient:
    """A client whose transactions end as drawn from the log's endings."""

    def __init__(self, log, name):
        self.log, self.name, self.alive = log, name, True
        self.fenced_after_disconnect = log.disconnected
        self.dead = False

    def fence(self, waiting):
        with self.log.lock:
            self.log.fences[self.name] += 1
            self.log.owners[self.name] = self

    def transact(self, deliveries, deadline):
        assert not self.dead, "the client is used after a failure"
        with self.log.lock:
            ending = self.log.rng.choice(self.log.endings)
            if self.log.owners[self.name] is not self:
                ending = "fenced"
            self.log.transactions[ending] += 1
            gone = [one for one in deliveries if one.partition >= self.log.partitions]
            if gone:
                self.dead = True
                error = KafkaError(KafkaError._UNKNOWN_PARTITION)
                raise TransactionFailed(error, [(one, error, None) for one in gone])
            rejected = [one for one in deliveries if one.seq in self.log.rejected_seqs]
            if rejected:
                self.dead = True
                error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
                partitions = {one.partition for one in rejected}
                refused = [(one, error, None) for one in deliveries if one.partition in partitions]
                raise TransactionFailed(error, refused)
            if ending == "committed":
                return [self.log.append(one) for one in deliveries], []
            self.dead = True
            if ending == "answer lost":
                for one in deliveries:
                    self.log.append(one)
            elif ending == "torn":  # a late EndTxn committed the records appended so far
                partitions = sorted({one.partition for one in deliveries})
                bound = {partition: self.log.rng.randrange(len(deliveries)) for partition in partitions}
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


class FakeNativeClient(FakeClient):
    """A client with a core. It takes the messages one by one and ends transactions as `FakeClient` does."""

    has_core = True
    core_error = None
    unreported = (0, False)

    def begin(self):
        self.taken = []

    def pass_on(self, deliveries, deadline):
        assert not self.dead, "the client is used after a failure"
        known = list(takewhile(lambda one: one.partition < self.log.partitions, deliveries))
        self.taken += known
        return len(known)

    def finish(self, count, deadline):
        assert len(self.taken) == count
        try:
            reports, _ = self.transact(self.taken, deadline)
        except TransactionFailed as failure:
            kind = ReportFailed if failure.reports else TransactionFailed
            raise kind(failure.error) from failure  # the core has no reports
        return CommittedColumns([message.offset() for _, _, message in reports], [0] * count)


class FakeReadBack:
    def __init__(self, log):
        self.log = log

    def __call__(self, offsets, wanted):
        result = ReadBackResult()
        with self.log.lock:
            for partition, settled_offset in offsets.items():
                records = self.log.records[partition]
                result.ends[partition] = len(records)
                if settled_offset is not None:
                    result.found[partition] = [
                        (id, LogPosition(*partition, offset, 0))
                        for offset, id in enumerate(records)
                        if offset > settled_offset and id is not None and wanted(id)
                    ]
        return result

    def start_offsets(self, oldest, selected):
        with self.log.lock:
            return {
                partition: -1
                for partition in self.log.records
                if partition[0] in oldest and selected(partition)
            }


@pytest.fixture(params=["python", "native"])
def core(request):
    return request.param


@pytest.fixture
def make_sender(monkeypatch, core):
    """Create senders over a log, without pauses."""

    def make(log, **options):
        class NativeClient(FakeNativeClient):
            def __init__(self, settings, name, **_):
                super().__init__(log, name)

        monkeypatch.setattr(shard, "TransactionalClient", lambda settings, name, **_: FakeClient(log, name))
        monkeypatch.setattr(native_shard, "NativeClient", NativeClient)
        monkeypatch.setattr(transactional_transport, "core_refusal", lambda settings: None)
        monkeypatch.setattr(native_shard, "_FIRST_COMMIT_S", 0.0)
        monkeypatch.setattr(shard, "ReadBack", lambda *_: FakeReadBack(log))
        monkeypatch.setattr(shard, "_COMMIT_PAUSE_S", 0.0)
        monkeypatch.setattr(
            shard.Shard, "_pause", lambda self, seconds: shard.Shard._wait(self, min(seconds, 0.001))
        )
        limits = {"messages": 10, "age": 0.002, "stream_messages": 10, "latency": 0.002}
        options = {**limits, "session": SESSION, "core": core} | options
        return Sender("127.0.0.1:9", "t", **options)

    return make


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15))
def test_each_message_is_written_once_in_order_after_any_end_of_transactions_and_processes(make_sender, seed):
    rng = random.Random(seed)
    log = Log(seed, ["committed", "committed", "answer lost", "torn", "nothing"])
    progress = MemoryProgress()
    total = 0
    for start in range(6):
        with make_sender(log, progress=progress, shards=rng.randint(1, 3)) as sender:
            left = [seq for seq in range(total) if seq not in progress.done]
            new = list(range(total, total + rng.randrange(80)))
            total += len(new)
            for seq in left + new:
                sender.offer(sender.delivery(seq, partition=seq % 4))
            if start < 5:  # killed: anything that its threads had not settled stays unsettled
                count = rng.randrange(len(left + new) + 1)
                eventually(lambda count=count, sender=sender: sender.listener.settled() >= count, 30)
            else:
                sender.wait(len(left + new))
        assert sender.listener.reported_twice == []
    log.verify(range(total))
    assert progress.done == set(range(total))
    assert all(
        settled_offset < len(log.records[partition])
        for partition, settled_offset in progress.offsets.items()
        if partition in log.records
    )


def test_the_log_in_memory_detects_duplicates(make_sender, monkeypatch):
    """Test the test: without the read-back, the same log has duplicates."""
    monkeypatch.setattr(
        FakeReadBack, "__call__", lambda self, offsets, wanted: ReadBackResult(ends=dict.fromkeys(offsets, 0))
    )
    log = Log(1, ["committed", "answer lost"])
    with make_sender(log) as sender:
        for seq in range(200):
            sender.offer(sender.delivery(seq, partition=seq % 4))
        sender.wait(200)
    with pytest.raises(AssertionError):
        log.verify(range(200))


def test_rejected_messages_are_identified_among_their_neighbours(make_sender):
    rejected_seqs = {17, 18, 60}
    log = Log(rejected_seqs=rejected_seqs)
    with make_sender(log, shards=1) as sender:
        for seq in range(100):
            sender.offer(sender.delivery(seq, partition=seq % 2))
        sender.wait(100)
        assert sender.listener.failed == dict.fromkeys(rejected_seqs, ("MSG_SIZE_TOO_LARGE", "rejected"))
    log.verify(set(range(100)) - rejected_seqs)


def test_a_shard_stops_when_its_id_is_taken_repeatedly_and_keeps_its_unsent_messages(make_sender):
    log = Log(endings=["fenced"])
    progress = MemoryProgress()
    with make_sender(log, progress=progress, shards=1) as sender:
        sender.offer(sender.delivery(0, partition=0))
        eventually(lambda: "fenced" in sender.listener.kinds)
        with pytest.raises(Fenced):
            sender.transport.produce(sender.delivery(1, partition=0))
        assert sender.transport.outstanding() == 1
        sender.transport.purge()
        assert sender.listener.failed == {0: ("_PURGE_QUEUE", None)}
        assert sender.listener.kinds.count("fenced") == 1
    assert progress.done == set()
    assert log.fences == {"t-id-0": 4}


def test_a_late_request_of_a_killed_process_does_not_stop_the_only_live_producer(make_sender):
    log = Log()
    with make_sender(log, shards=2) as sender:
        for round in range(3):
            sender.send(range(10 * round, 10 * round + 10), partition=round % 4)
            sender.wait(10 * round + 10)
            log.owners = dict.fromkeys(log.owners)  # the late request arrives; its process no longer runs
        sender.send(range(30, 50), partition=3)
        sender.wait(50)
        assert "fenced" not in sender.listener.kinds
        assert sender.listener.kinds.count("transactions_failing") >= 2
        assert sender.listener.kinds[-1] == "transactions_recovered"
    log.verify(range(50))


@pytest.mark.slow
def test_the_newer_of_two_live_producers_with_one_id_remains_without_loss_or_duplicates(make_sender):
    log = Log()
    with make_sender(log) as older:
        older.send(range(8), partition=0)
        older.wait(8)
        with make_sender(log, session=uuid.uuid4()) as newer:
            newer.send(range(1000, 1008), partition=0)
            newer.wait(8)
            sent = {older: 8, newer: 1008}
            while "fenced" not in older.listener.kinds:
                assert "fenced" not in newer.listener.kinds
                for sender in (older, newer):
                    with contextlib.suppress(Fenced):
                        sender.transport.produce(sender.delivery(sent[sender], partition=0))
                        sent[sender] += 1
                newer.wait(sent[newer] - 1000)
            newer.send([sent[newer]], partition=0)
            newer.wait(sent[newer] - 999)
            assert "fenced" not in newer.listener.kinds
            older.transport.purge()
    (seqs,) = log.seqs().values()
    assert Counter(seqs) == Counter([*older.listener.acknowledged, *newer.listener.acknowledged])
    for sequences in ([seq for seq in seqs if seq < 1000], [seq for seq in seqs if seq >= 1000]):
        assert sequences == sorted(sequences)


def test_messages_for_partitions_that_a_recreated_topic_lacks_go_to_existing_ones(make_sender, monkeypatch):
    log = Log()
    log.partitions = 6
    with make_sender(log, shards=2) as sender:
        monkeypatch.setattr(
            sender.transport._partitioner, "_query_count", lambda topic, timeout: log.partitions
        )
        sender.send(range(60))
        sender.wait(60)
        assert len(log.records) == 6

        with log.lock:  # the topic is deleted and recreated
            log.partitions = 2
            log.records.clear()
            sender.send(range(60, 120))
            for number in range(120, 160):
                sender.offer(sender.delivery(number, key=b"one key"))
        sender.offer(sender.delivery(160, partition=5))
        sender.wait(161)

        assert sender.listener.failed == {160: ("_UNKNOWN_PARTITION", "not_sent")}
        assert "Nothing was lost" not in " ".join(notice.text for notice in sender.listener.notices)
    by_partition = {partition: seqs for partition, seqs in log.seqs().items() if seqs}
    assert set(by_partition) == {("t", 0), ("t", 1)}
    assert Counter(seq for seqs in by_partition.values() for seq in seqs) == Counter(range(60, 160))
    keyed = [[seq for seq in seqs if seq >= 120] for seqs in by_partition.values()]
    assert sorted(keyed) == [[], list(range(120, 160))]


@pytest.mark.slow
def test_a_full_journal_delays_reports_and_repeats_no_message(make_sender):
    class FullOnce(MemoryProgress):
        refusals = 0

        def settle(self, seqs, offsets=None):
            if seqs and self.refusals < 1:
                self.refusals += 1
                raise JournalFull("no room")
            super().settle(seqs, offsets)

    log = Log()
    with make_sender(log, progress=FullOnce(), shards=1) as sender:
        sender.offer(sender.delivery(0, partition=0))
        sender.wait(1)
        assert sender.listener.kinds == ["journal_full", "journal_available"]
    log.verify([0])


@pytest.mark.slow
def test_a_purged_message_is_ambiguous_before_the_read_back_and_not_sent_after_it(
    make_sender, monkeypatch, core
):
    reading = threading.Event()
    log = Log()
    real = FakeReadBack.__call__

    def slow(self, offsets, wanted):
        assert reading.wait(30)
        return real(self, offsets, wanted)

    monkeypatch.setattr(FakeReadBack, "__call__", slow)
    progress = MemoryProgress()
    progress.settle((), {("t", 0): -1})
    with make_sender(log, progress=progress, shards=1) as sender:
        sender.offer(sender.delivery(0, partition=0))
        sender.transport.purge()
        assert sender.listener.failed == {0: ("_PURGE_QUEUE", None)}
        reading.set()
    if core == "native":  # a message does not wait in the queue
        return
    with make_sender(log, progress=progress, shards=1, age=60) as sender:
        eventually(lambda: sender.transport._shards[0].recovered.is_set())
        sender.offer(sender.delivery(1, partition=0))
        sender.transport.purge()
        assert sender.listener.failed == {1: ("_PURGE_QUEUE", "not_sent")}


def test_a_full_queue_rejects_messages(make_sender):
    log = Log()
    with make_sender(log, shards=1, age=60, settings={"queue.buffering.max.messages": 3}) as sender:
        log.lock.acquire()  # no transaction ends
        try:
            with pytest.raises(shard.ClientQueueFull):
                for seq in range(20):
                    sender.transport.produce(sender.delivery(seq, partition=0))
        finally:
            log.lock.release()


@pytest.mark.slow
@pytest.mark.parametrize("sent_before", [20, 0], ids=["", "copied before its first record"])
def test_a_journal_restored_from_a_copy_loses_and_repeats_no_message(make_sender, tmp_path, sent_before):
    log, path, copy = Log(), tmp_path / "j", tmp_path / "copy"

    def run(count, *, copied=False):
        with Journal.open(path) as journal, make_sender(log, progress=journal, ids=journal.ids) as sender:
            left = [record.seq for record in journal.read()]
            for seq in left:
                sender.offer(sender.delivery(seq, partition=seq % 4))
            new_seqs = range(journal.next_sequence, journal.next_sequence + count)
            for seq in new_seqs:
                journal.append(JournalRecord(seq, "t", None, b"x"))
            if copied:  # before any of the messages is written to the log
                shutil.copytree(path, copy)
            for seq in new_seqs:
                sender.offer(sender.delivery(seq, partition=seq % 4))
            sender.wait(len(left) + count)
            return [journal.ids.of(seq) for seq in new_seqs]

    expected = run(sent_before) + run(20, copied=True) + run(20)
    shutil.rmtree(path)
    copy.rename(path)
    expected += run(20)

    written = [id for records in log.records.values() for id in records if id is not None]
    assert sorted(written) == sorted(expected)
    assert len(set(written)) == 60 + sent_before


def _flip(offset):
    def flip(file):
        data = bytearray(file.read_bytes())
        data[offset] ^= 1
        file.write_bytes(data)

    return flip


DAMAGES = {
    "deleted": lambda file: file.unlink(),
    "emptied": lambda file: file.write_bytes(b""),
    "cut at 60 bytes": lambda file: file.write_bytes(file.read_bytes()[:60]),
    "zeros": lambda file: file.write_bytes(bytes(4096)),
    "a flipped bit at the start": _flip(3),
    "a flipped bit in the first step": _flip(20),
    "a flipped bit in a later step": _flip(150),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_settle_log_causes_no_duplicates(make_sender, tmp_path, damage):
    log, path, notices = Log(), tmp_path / "j", []

    def notice(kind, severity, text):
        notices.append(kind)

    def run(count, *, settles=True):
        with (
            Journal.open(path, notice=notice) as journal,
            make_sender(log, progress=journal, ids=journal.ids) as sender,
        ):
            left = [record.seq for record in journal.read()]
            new_seqs = range(journal.next_sequence, journal.next_sequence + count)
            for seq in new_seqs:
                journal.append(JournalRecord(seq, "t", None, b"x"))
            for seq in [*left, *new_seqs] if settles else ():
                sender.offer(sender.delivery(seq, partition=seq % 4))
            sender.wait(len(left) + count if settles else 0)

    run(20)
    run(20)
    assert notices == []
    DAMAGES[damage](path / "settled")
    run(0, settles=False)  # ends before it settles anything
    assert set(notices) <= {"journal_damaged", "journal_torn"} and notices
    reported_count = len(notices)
    run(5)

    assert len(notices) == reported_count  # the damage was repaired

    written = [id for records in log.records.values() for id in records if id is not None]
    assert (len(written), len(set(written))) == (45, 45)


def queue(*partitions, size=10):
    return deque(
        QueuedMessage(delivery(seq, partition), 0.0, size) for seq, partition in enumerate(partitions)
    )


def sequences(batch):
    return [one.delivery.seq for one in batch]


def test_a_batch_is_limited_by_count_and_bytes_and_has_at_least_one_message():
    assert sequences(take_batch(queue(0, 0, 0), 2, 1000, {})[0]) == [0, 1]
    assert sequences(take_batch(queue(0, 0, 0), 9, 15, {})[0]) == [0, 1]
    assert sequences(take_batch(queue(0, 0, 0, size=99), 9, 15, {})[0]) == [0]


@given(some.lists(some.integers(0, 2), max_size=40), some.integers(1, 20), some.integers(1, 3))
def test_a_limited_partition_keeps_its_order_and_loses_no_message(partitions, messages, limit):
    waiting, done = queue(*partitions), []
    while waiting:
        batch, passed = take_batch(waiting, messages, 10_000, {T0: limit})
        waiting.extendleft(reversed(passed))
        assert batch
        assert sum(one.partition == T0 for one in batch) <= limit
        done += batch
    for partition in (T0, T1, ("t", 2)):
        seqs = [one.delivery.seq for one in done if one.partition == partition]
        assert seqs == sorted(seqs)
    assert sorted(sequences(done)) == list(range(len(partitions)))
