"""Records that are written through memory survive crashes, full disks, signal handlers and a lack of memory."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from producer_core.delivery.journal import Journal
from producer_core.delivery.journal import mapped_end as mapped_end_module
from producer_core.delivery.journal.frame import HEADER_SIZE, is_torn
from producer_core.delivery.journal.mapped_end import MappedEnd, can_map
from producer_core.delivery.journal.record import encode
from producer_core.delivery.journal.segment import Segment
from producer_core.errors import JournalDamaged, JournalFull
from tests.fixtures.journal import a_record, crash, fill, kept, segment_of


def record(seq, value=b"v"):
    return seq, encode(a_record(seq, value))


def full(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.fixture
def segment(tmp_path):
    made = Segment(tmp_path / f"{1:020d}.journal", 7, create=True, mapped=True)
    yield made
    made.close()


@pytest.fixture
def mapping(monkeypatch):
    """Map files wherever the tests run."""
    monkeypatch.setattr("producer_core.delivery.journal.journal.can_map", lambda folder: True)


@pytest.fixture
def written(monkeypatch):
    """The offsets that were written with system calls, without those of zeros."""
    offsets, pwrite = [], os.pwrite

    def noted(file, data, offset):
        if bytes(data).strip(b"\0"):
            offsets.append(offset)
        return pwrite(file, data, offset)

    monkeypatch.setattr(os, "pwrite", noted)
    return offsets


def recovered(path):
    """Open the file again and return it with the damage that was reported."""
    again, damages = Segment(path, 7), []
    again.recover(lambda path, damage, data: damages.append((damage, data)) or True)
    return again, damages


def contents(segment):
    handle = segment.duplicate_handle()
    try:
        return dict(segment.read(handle, -1, 0, segment.size))
    finally:
        os.close(handle)


def test_single_records_are_written_through_memory_and_batches_with_a_system_call(segment, written):
    segment.add_one(*record(0))
    segment.add_one(*record(1))
    start = segment.size
    segment.add([record(2), record(3)])
    segment.add_one(*record(4))

    assert written == [start]
    assert list(segment.sequences) == [(0, 5)]
    again, damages = recovered(segment.path)
    assert (again.size, list(again.sequences), damages) == (segment.size, [(0, 5)], [])
    again.close()


def test_records_of_any_size_are_written_across_mapped_parts(segment):
    values = [os.urandom(size) for size in (10, 700_000, 700_000, 3 << 20, 0, 65_536, 1 << 20, 1)]
    for seq, value in enumerate(values):
        segment.add_one(*record(seq, value))

    assert contents(segment) == dict(record(seq, value) for seq, value in enumerate(values))
    segment.close()
    assert segment.path.stat().st_size == segment.size


def test_sequences_in_any_order_are_counted_once(segment):
    for seq in (5, 6, 2, 7, 3, 1, 8):
        segment.add_one(*record(seq))
        segment.settle(6, 7)

    assert segment.unsettled == 6
    assert list(segment.sequences) == [(1, 4), (5, 9)]
    assert segment.unsettled == 6


def test_a_reader_finds_the_records_after_a_sequence_with_the_index(segment):
    for seq in range(3000):
        segment.add_one(*record(seq, bytes(500)))

    handle = segment.duplicate_handle()
    try:
        assert [seq for seq, _ in segment.read(handle, 2900, 0, segment.size)] == list(range(2901, 3000))
        assert len(segment._index) > 4
    finally:
        os.close(handle)


class Memory:
    """Copies the file after each byte that is written through memory, as a killed process would leave it.

    A processor stores four bytes of a header at once.
    """

    def __init__(self, mapped, path, folder):
        self._mapped, self._path, self._folder, self._memory = mapped, path, folder, mapped._memory
        self.copies = []
        mapped._memory = self

    def __setitem__(self, place, data):
        step = 4 if len(data) == HEADER_SIZE else 1
        for index in range(0, len(data), step):
            start = place.start + index
            self._memory[start : start + step] = data[index : index + step]
            (folder := self._folder / f"{len(self.copies)}").mkdir()
            self.copies.append(Path(shutil.copy(self._path, folder)))

    def close(self):
        self._memory.close()


def test_a_process_killed_at_any_byte_of_a_write_through_memory_leaves_all_earlier_records(segment, tmp_path):
    segment.add_one(*record(0))
    (tmp_path / "copies").mkdir()
    memory = Memory(segment._mapped, segment.path, tmp_path / "copies")
    segment.add_one(*record(1))

    *partial, complete = memory.copies
    assert len(memory.copies) == segment.size // 2 - HEADER_SIZE + 3
    for path in memory.copies:
        again, damages = recovered(path)
        assert list(again.sequences) == [(0, 2 if path == complete else 1)]
        assert all(is_torn(data, damage.start) for damage, data in damages)
        assert bool(damages) == (path in partial[7:])  # the first seven bytes are zeros
        again.add([record(2)])
        again.close()


def test_a_journal_cut_off_at_any_byte_and_followed_by_zeros_keeps_every_complete_record(tmp_path, mapping):
    journal = Journal.open(tmp_path / "journal", level="process")
    ends = []
    for seq in range(3):
        fill(journal, [seq])
        ends.append(journal.size())
    copy = crash(tmp_path / "journal", tmp_path)
    journal.close()
    file = segment_of(copy)
    data = file.read_bytes()
    assert len(data) % 65_536 == 0 and not data[ends[-1] :].strip(b"\0")

    for cut in range(ends[0], ends[-1] + 2):
        (start := tmp_path / f"cut-{cut}").mkdir()
        folder = start / "journal"
        shutil.copytree(copy, folder)
        (folder / file.name).write_bytes(data[:cut].ljust(len(data), b"\0"))
        notices = []
        with Journal.open(folder, notice=lambda kind, *_, notices=notices: notices.append(kind)) as again:
            complete = sum(end <= len(data[:cut].rstrip(b"\0")) for end in ends)
            assert kept(again)[:complete] == list(range(complete))
            assert len(kept(again)) <= sum(end <= cut for end in ends)
            assert bool(notices) == (cut not in ends and bool(data[ends[complete - 1] : cut].strip(b"\0")))
            fill(again, [10])
            assert kept(again)[-1] == 10
        shutil.rmtree(start)


def test_after_a_failed_write_no_memory_beyond_the_end_of_the_file_is_used(segment, monkeypatch):
    """Such an access would end the process with SIGBUS."""
    segment.add_one(*record(0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            segment.add([record(1), record(2)])
    assert segment.path.stat().st_size == segment.size

    segment.add_one(*record(3))

    again, damages = recovered(segment.path)
    assert (again.unsettled, damages) == (2, [])
    again.close()


@pytest.mark.parametrize("fault", ["space", "memory", "zeros"])
def test_without_space_or_memory_records_are_written_with_system_calls_for_a_while(
    segment, monkeypatch, written, fault
):
    monkeypatch.setattr("producer_core.delivery.journal.segment._RETRY_BYTES", 1000)
    with monkeypatch.context() as patch:
        if fault == "space":
            patch.setattr(os, "posix_fallocate", full)
        elif fault == "memory":
            patch.setattr(mapped_end_module.mmap, "mmap", full)
        else:
            patch.setattr(os, "pwrite", lambda *args, real=os.pwrite: real(*args) if any(args[1]) else full())
        segment.add_one(*record(0))
        segment.add_one(*record(1))
    assert written == [0, segment.size // 2]
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            segment.add_one(*record(2))

    for seq in range(3, 40):
        segment.add_one(*record(seq))
    assert len(written) < 35  # memory again
    again, damages = recovered(segment.path)
    assert (again.unsettled, damages) == (39, [])
    again.close()


def test_a_file_system_that_may_copy_blocks_is_written_with_system_calls(tmp_path, monkeypatch, written):
    monkeypatch.setattr("producer_core.delivery.journal.journal.can_map", lambda folder: False)
    with Journal.open(tmp_path / "journal", level="process") as journal:
        fill(journal, range(20))
        assert segment_of(tmp_path / "journal").stat().st_size == journal.size()
        assert kept(journal) == list(range(20))
    assert len(written) >= 20


def test_only_file_systems_whose_preallocated_space_is_never_copied_are_written_through_memory(monkeypatch):
    mounts = b"""\
36 35 8:1 / / rw,noatime shared:1 - ext4 /dev/root rw,errors=continue
37 35 0:44 / /data rw - btrfs /dev/sdb rw
38 35 0:45 / /mnt\\040x rw master:1 propagate_from:2 - tmpfs none rw
"""
    monkeypatch.setattr(Path, "read_bytes", lambda path: mounts)
    found = []
    for device in (os.makedev(8, 1), os.makedev(0, 44), os.makedev(0, 45), os.makedev(9, 9)):
        monkeypatch.setattr(
            Path, "stat", lambda path, device=device: os.stat_result((0, 0, device, *[0] * 7))
        )
        found.append(can_map(Path("/journal")))

    assert found == [True, False, True, False]


def test_without_a_list_of_mounts_nothing_is_written_through_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "read_bytes", lambda path: (_ for _ in ()).throw(FileNotFoundError(path)))
    assert not can_map(tmp_path)


def test_a_mapped_part_starts_at_any_offset(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(20_000))
    with path.open("r+b") as file:
        mapped = MappedEnd(file.fileno(), 7, 5_000, 20_000)
        assert not mapped.append(0, b"content")  # nothing is allowed yet
        mapped.allow(1 << 20)
        assert mapped.append(0, b"content")
        assert not mapped.append(2, b"content")
        assert not mapped.append(1, bytes(20_000))
        assert mapped.append(1, bytes(20_000 - mapped.size - HEADER_SIZE))
        assert mapped.size == mapped.end == 20_000
        mapped.close()

    data = path.read_bytes()
    assert len(data) == 20_000 and not data[:5_000].strip(b"\0")
    assert data[5_000 + HEADER_SIZE : 5_007 + HEADER_SIZE] == b"content"


@pytest.mark.parametrize("seed", range(10))
def test_a_segment_holds_exactly_its_records_after_any_writes_failures_and_crashes(
    tmp_path, monkeypatch, seed
):
    """Small parts, so that the mapped part moves often."""
    rng, seqs, expected = random.Random(seed), itertools.count(), {}
    for name, value in (
        ("_PREALLOCATE_BYTES", (8192, 4096)),
        ("_ALLOCATION_UNIT", 4096),
        ("_RETRY_BYTES", 500),
    ):
        monkeypatch.setattr(f"producer_core.delivery.journal.segment.{name}", value)
    faulty = {"pwrite": False, "posix_fallocate": False}
    for name in faulty:
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, name=name, real=real: full() if faulty[name] else real(*args)
        )
    segment = Segment(tmp_path / f"{1:020d}.journal", 7, create=True, mapped=True)

    for step in range(150):
        faulty = dict.fromkeys(faulty, False) | {rng.choice([*faulty]): rng.random() < 0.15}
        batch = [
            record(next(seqs), rng.randbytes(rng.choice((0, 1, 50, 300, 5000))))
            for _ in range(rng.choice((1, 1, 1, 4)))
        ]
        try:
            segment.add_one(*batch[0]) if len(batch) == 1 else segment.add(batch)
        except OSError:
            batch = []
        faulty = dict.fromkeys(faulty, False)
        expected |= dict(batch)
        if rng.random() < 0.1:
            crashed = Path(shutil.copy(segment.path, (folder := tmp_path / f"{step}").mkdir() or folder))
            if rng.random() < 0.5:  # killed during the next write
                with crashed.open("r+b") as file:
                    file.seek(segment.size)
                    file.write(bytes(HEADER_SIZE) + rng.randbytes(20))
            segment.close()
            segment = Segment(crashed, 7, mapped=True)
            damages = []
            segment.recover(
                lambda path, damage, data, damages=damages: damages.append((damage, data)) or True
            )
            assert all(is_torn(data, damage.start) for damage, data in damages)
        assert contents(segment) == expected
        assert segment.unsettled == len(expected)
    segment.close()
    assert segment.path.stat().st_size == segment.size


# the journal


def test_a_full_journal_rejects_messages_at_its_limit_in_bytes(tmp_path, mapping):
    with Journal.open(tmp_path / "journal", max_bytes=100_000) as journal:
        with pytest.raises(JournalFull, match="limit of 100,000 bytes"):
            fill(journal, range(1000), bytes(500))
        assert 90_000 < journal.size() <= 100_000
        count = journal.unsettled()
        journal.settle(range(count))
        fill(journal, range(count, 2 * count), bytes(500))
        assert kept(journal) == list(range(count, 2 * count))


def test_segments_end_at_their_size_and_without_preallocated_space(tmp_path, mapping):
    with Journal.open(tmp_path / "journal", segment_bytes=20_000) as journal:
        fill(journal, range(200), bytes(500))
        sizes = [path.stat().st_size for path in sorted((tmp_path / "journal").glob("*.journal"))]
        assert len(sizes) > 4
        assert all(20_000 <= size < 21_000 for size in sizes[:-1])
        assert kept(journal) == list(range(200))
        journal.settle(range(150))
        assert len(list((tmp_path / "journal").glob("*.journal"))) < len(sizes)
        size = journal.size()
    assert sum(path.stat().st_size for path in (tmp_path / "journal").glob("*.journal")) == size


def test_a_journal_whose_file_was_deleted_accepts_no_message_a_second_later(tmp_path, mapping):
    now = [0.0]
    journal = Journal.open(tmp_path / "journal", clock=lambda: now[0])
    fill(journal, range(8))
    segment_of(tmp_path / "journal").unlink()
    fill(journal, [8, 9])  # within the second

    now[0] = 1.5
    with pytest.raises(JournalDamaged):
        fill(journal, [10])
    journal.close()


def test_a_signal_handler_that_sends_during_a_write_overwrites_no_message(tmp_path, mapping, monkeypatch):
    """At the worst moment: after the header of the interrupted message was computed for its place."""
    journal = Journal.open(tmp_path / "journal")
    fill(journal, [0, 1])
    extend, nested = mapped_end_module.extend, [10]

    def interrupted(*args):
        checksum = extend(*args)
        if nested:
            fill(journal, [nested.pop()])
        return checksum

    monkeypatch.setattr(mapped_end_module, "extend", interrupted)
    fill(journal, [2, 3])

    assert sorted(kept(journal)) == [0, 1, 2, 3, 10]
    assert journal.unsettled() == 5
    with Journal.open(crash(tmp_path / "journal", tmp_path)) as again:
        assert sorted(kept(again)) == [0, 1, 2, 3, 10]
    journal.close()


def test_real_signal_handlers_that_send_lose_no_message(tmp_path, mapping):
    journal = Journal.open(tmp_path / "journal")
    numbers, accepted = itertools.count(), []

    def send(*_):
        seq = next(numbers)
        journal.append(a_record(seq, b"%d" % seq * 100))
        accepted.append(seq)

    send()
    before, rng = signal.signal(signal.SIGALRM, send), random.Random(1)
    try:
        for number in range(8_000):
            if number % 8 == 0:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.000_001, 0.000_1))
            send()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    records = {record.seq: record.value for record in journal.read()}
    assert len(accepted) > 8_001
    assert [seq for seq in accepted if records.get(seq) != b"%d" % seq * 100] == []
    assert journal.unsettled() == len(accepted)
    journal.close()
