"""A segment confirms no record after a failed sync, and its preallocated space is not damage."""

from __future__ import annotations

import os

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
