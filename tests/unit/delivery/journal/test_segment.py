"""A segment confirms no record after a failed sync, and its preallocated space is not damage."""

from __future__ import annotations

import os
import random

import pytest

from producer_core.delivery.journal.record import encode
from producer_core.delivery.journal.segment import Segment
from tests.fixtures.journal import a_record


def record(seq, value=b"v"):
    return seq, encode(a_record(seq, value))


def sync(segment):
    segment.group_sync.wait(segment.size)


@pytest.fixture
def segment(tmp_path):
    made = Segment(tmp_path / f"{0:020d}.journal", 7, create=True, durable=True)
    yield made
    made.close()


def recovered(segment):
    """Open the file again and return it with the damage that was reported."""
    damages = []
    again = Segment(segment.path, 7)
    again.recover(lambda path, damage, data: damages.append(damage) or True)
    return again, damages


def test_a_failed_sync_is_not_repeated(segment, monkeypatch):
    """The kernel drops the pages: another attempt would succeed and prove nothing."""
    segment.add([record(0)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda file: (_ for _ in ()).throw(OSError(5, "bad disk")))
        with pytest.raises(OSError):
            sync(segment)

    with pytest.raises(OSError):
        sync(segment)
    assert segment.group_sync.failed
    assert segment.group_sync.synced == 0


def test_records_written_during_a_sync_are_not_synced(segment, monkeypatch):
    segment.add([record(0)])
    size = segment.size
    monkeypatch.setattr(os, "fdatasync", lambda file: segment.add([record(1)]))

    sync(segment)

    assert segment.group_sync.synced == size < segment.size


def test_writes_find_preallocated_space_which_is_released_at_the_end(segment):
    sizes = []
    for seq in range(3):
        segment.add([record(seq)])
        sizes.append(segment.path.stat().st_size)
    assert len(set(sizes)) == 1 and sizes[0] > segment.size
    sync(segment)

    again, damages = recovered(segment)
    assert (again.size, again.unsettled, damages) == (segment.size, 3, [])
    again.close()

    segment.finish()
    assert segment.path.stat().st_size == segment.size


def test_the_release_of_preallocated_space_is_synced_too(segment, monkeypatch):
    """After a power failure, zeros at the end of a file that is not the last one would be reported as damage."""
    segment.add([record(0)])
    sync(segment)
    synced_sizes, fdatasync = [], os.fdatasync
    monkeypatch.setattr(
        os, "fdatasync", lambda file: (synced_sizes.append(os.fstat(file).st_size), fdatasync(file))
    )

    segment.finish()

    assert synced_sizes == [segment.size]


@pytest.mark.parametrize("failing", ["ftruncate", "fdatasync"])
def test_a_failed_release_of_preallocated_space_is_repeated(segment, monkeypatch, failing):
    """Regression: the next call did not sync the new size, or did not release the space at all."""
    segment.add([record(0)])
    sync(segment)
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, lambda *_: (_ for _ in ()).throw(OSError(5, "bad disk")))
        with pytest.raises(OSError):
            segment.finish()
    synced_sizes = []
    monkeypatch.setattr(os, "fdatasync", lambda file: synced_sizes.append(os.fstat(file).st_size))

    segment.finish()

    assert synced_sizes == [segment.size]


def test_a_closed_segment_has_no_record_whose_sync_failed(segment, monkeypatch):
    segment.add([record(0)])
    sync(segment)
    segment.add([record(1)])
    monkeypatch.setattr(os, "fdatasync", lambda file: (_ for _ in ()).throw(OSError(5, "bad disk")))
    with pytest.raises(OSError):
        sync(segment)

    segment.close()

    again, damages = recovered(segment)
    assert (list(again.sequences), damages) == ([(0, 1)], [])
    again.close()


def test_a_rewritten_segment_has_no_record_whose_sync_failed(segment, monkeypatch):
    segment.add([record(0), record(1)])
    sync(segment)
    segment.add([record(2)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda file: (_ for _ in ()).throw(OSError(5, "bad disk")))
        with pytest.raises(OSError):
            sync(segment)
    segment.settle(0, 1)

    rewritten = segment.without_settled()

    assert list(rewritten.sequences) == [(1, 2)]
    assert rewritten.readable_end == rewritten.size
    rewritten.close()


def test_a_failed_preallocation_leaves_no_zeros_at_the_end(segment, monkeypatch):
    """A full disk allocates a part of the space."""

    def partly(file, offset, size):
        os.ftruncate(file, offset + size // 2)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", partly)
    segment.add([record(0)])

    assert segment.path.stat().st_size == segment.size


def test_a_record_larger_than_the_preallocated_space_is_written(segment):
    segment.add([record(0, bytes(3 << 20))])
    segment.add([record(1)])
    sync(segment)

    again, damages = recovered(segment)
    assert (again.size, again.unsettled, damages) == (segment.size, 2, [])
    again.close()


def test_a_disk_without_room_for_preallocation_still_takes_records(segment, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    segment.add([record(0)])
    assert segment.path.stat().st_size == segment.size

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            segment.add([record(1)])
    segment.add([record(2)])
    again, damages = recovered(segment)
    assert (again.size, list(again.sequences), damages) == (segment.size, list(segment.sequences), [])
    again.close()


def test_one_system_call_writes_the_records_of_a_sync(segment, monkeypatch):
    segment.add([record(0)])
    sync(segment)
    written, pwrite = [], os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *args: written.append(args[2]) or pwrite(*args))
    start = segment.size
    for seq in range(1, 17):
        segment.add([record(seq)])
    assert written == []

    sync(segment)

    assert written == [start]
    again, damages = recovered(segment)
    assert (list(again.sequences), damages) == ([(0, 17)], [])
    again.close()


def test_a_single_record_leaves_the_usual_checks_to_the_sync(segment):
    assert segment.defer_one(*record(0), limit=1 << 20) == 0  # no space is allocated yet
    segment.add([record(0)])
    size = segment.size
    assert segment.defer_one(*record(1), limit=size + 1) == 0
    assert segment.defer_one(*record(1), limit=1 << 20) == segment.size > size
    sync(segment)

    again, damages = recovered(segment)
    assert (list(again.sequences), damages) == ([(0, 2)], [])
    again.close()
    segment.close()
    assert segment.defer_one(*record(2), limit=1 << 20) == 0


def test_withdrawn_records_that_no_sync_has_written_leave_no_zeros(segment):
    """Zeros at the end of a file that is not the last one are damage."""
    segment.add([record(0)])
    sync(segment)
    segment.add([record(1)])
    segment.settle(0, 2)

    segment.finish()

    again, damages = Segment(segment.path, 7), []
    again.recover(lambda path, damage, data: damages.append(damage) or True, last=False)
    assert (list(again.sequences), damages) == ([(0, 2)], [])
    again.close()


def test_a_record_without_allocated_space_leaves_no_gap_before_it(segment, monkeypatch):
    """A process that is killed would leave zeros there, which the next start reports as damage."""
    monkeypatch.setattr("producer_core.delivery.journal.segment._PREALLOCATE_BYTES", (0,))
    segment.add([record(0)])
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    segment.add([record(1, bytes(100_000))])

    again, damages = recovered(segment)
    assert (list(again.sequences), damages) == ([(0, 2)], [])
    again.close()


def test_a_file_that_is_closed_during_a_sync_keeps_its_number_until_the_sync_ends(segment, monkeypatch):
    """Otherwise the sync could write to another file, which got the same number."""
    segment.add([record(0)])
    number, pwrite, numbers = segment._file.number, os.pwrite, []

    def closing(file, *args):
        monkeypatch.setattr(os, "pwrite", pwrite)
        segment.delete()
        numbers.append(os.open(os.devnull, os.O_RDONLY))
        return pwrite(file, *args)

    monkeypatch.setattr(os, "pwrite", closing)
    sync(segment)

    assert number not in numbers
    assert os.open(os.devnull, os.O_RDONLY) == number
    for one in (number, *numbers):
        os.close(one)


def test_records_that_are_deferred_after_one_without_allocated_space_overwrite_nothing(segment, monkeypatch):
    monkeypatch.setattr("producer_core.delivery.journal.segment._PREALLOCATE_BYTES", (0,))
    segment.add([record(0)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        segment.add([record(1, bytes(100_000))])
    segment.add([record(2)])
    sync(segment)

    again, damages = recovered(segment)
    assert (list(again.sequences), damages) == ([(0, 3)], [])
    again.close()


@pytest.mark.parametrize("seed", range(10))
def test_a_segment_holds_its_records_whether_or_not_they_are_deferred(tmp_path, monkeypatch, seed):
    """Small parts of allocated space, which the disk sometimes refuses."""
    monkeypatch.setattr("producer_core.delivery.journal.segment._PREALLOCATE_BYTES", (4_096,))
    monkeypatch.setattr("producer_core.delivery.journal.segment._ALLOCATION_UNIT", 4_096)
    rng, expected, allocate = random.Random(seed), {}, os.posix_fallocate
    refuses = [False]

    def sometimes(*args):
        if refuses[0]:
            raise OSError(28, "No space left on device")
        allocate(*args)

    monkeypatch.setattr(os, "posix_fallocate", sometimes)
    segment = Segment(tmp_path / f"{0:020d}.journal", 7, create=True, durable=True)
    for seq in range(0, 600, 3):
        refuses[0] = rng.random() < 0.3
        count, value = rng.choice((1, 1, 3)), rng.randbytes(rng.choice((1, 200, 3_000)))
        contents = [record(seq + index, value) for index in range(count)]
        if count > 1 or not segment.defer_one(*contents[0], limit=1 << 30):
            segment.add(contents)
        expected |= dict(contents)
        if rng.random() < 0.2:
            sync(segment)
    sync(segment)
    handle = segment.duplicate_handle()
    assert dict(segment.read(handle, -1, 0, segment.size)) == expected
    os.close(handle)
    segment.close()
    again, damages = recovered(segment)
    assert (again.unsettled, damages) == (len(expected), [])
    again.close()
