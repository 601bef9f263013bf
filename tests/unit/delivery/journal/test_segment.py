"""A segment confirms no record after a failed sync, its preallocated space is not damage, and memory writes are safe."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from pathlib import Path

import pytest

from producer_core.delivery.journal.frame import HEADER_SIZE, is_torn
from producer_core.delivery.journal.mapped_end import MappedEnd, can_map
from producer_core.delivery.journal.record import encode
from producer_core.delivery.journal.segment import Segment
from tests.fixtures.journal import a_record


def record(seq, value=b"v"):
    return seq, encode(a_record(seq, value))


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
            segment.sync()

    with pytest.raises(OSError):
        segment.sync()
    assert segment.group_sync.failed
    assert segment.group_sync.synced == 0


def test_records_written_during_a_sync_are_not_synced(segment, monkeypatch):
    segment.add([record(0)])
    size = segment.size
    monkeypatch.setattr(os, "fdatasync", lambda file: segment.add([record(1)]))

    segment.sync()

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
    segment.sync()
    synced_sizes, sync = [], os.fdatasync
    monkeypatch.setattr(
        os, "fdatasync", lambda file: (synced_sizes.append(os.fstat(file).st_size), sync(file))
    )

    segment.finish()

    assert synced_sizes == [segment.size]


def test_a_rewritten_segment_has_no_record_whose_sync_failed(segment, monkeypatch):
    segment.add([record(0), record(1)])
    segment.sync()
    segment.add([record(2)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda file: (_ for _ in ()).throw(OSError(5, "bad disk")))
        with pytest.raises(OSError):
            segment.sync()
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


# writes through memory


@pytest.fixture
def mapped(tmp_path):
    made = Segment(tmp_path / f"{1:020d}.journal", 7, create=True, mapped=True)
    yield made
    made.close()


def full(*_, **__):
    raise OSError(28, "No space left on device")


def test_single_records_are_written_through_memory_and_batches_with_a_system_call(mapped, monkeypatch):
    writes, pwrite = [], os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *args: (writes.append(args[2]), pwrite(*args))[1])
    sizes = [mapped.add_one(*record(0)), mapped.add_one(*record(1))]
    sizes.append(mapped.add([record(2), record(3)]))
    sizes.append(mapped.add_one(*record(4)))

    assert writes == [sizes[0] + sizes[1]]
    assert mapped.size == sum(sizes)
    again, damages = recovered(mapped)
    assert (again.size, list(again.sequences), damages) == (mapped.size, [(0, 5)], [])
    again.close()


def test_records_of_any_size_are_written_across_mapped_parts(mapped):
    """The preallocated space is mapped a part at a time."""
    values = [os.urandom(size) for size in (10, 700_000, 700_000, 3 << 20, 0, 65_536, 1 << 20, 1)]
    for seq, value in enumerate(values):
        mapped.add_one(*record(seq, value))

    handle = mapped.duplicate_handle()
    contents = [content for _, content in mapped.read(handle, -1, 0, mapped.size)]
    os.close(handle)
    assert contents == [encode(a_record(seq, value)) for seq, value in enumerate(values)]
    mapped.close()
    assert mapped.path.stat().st_size == mapped.size


class Memory:
    """Copies the file after each byte that is written through memory, as a killed process would leave it.

    A processor stores four bytes of a header at once.
    """

    def __init__(self, mapped, folder):
        self._mapped, self._folder, self._memory = mapped, folder, mapped._mapped._memory
        self.copies = []
        mapped._mapped._memory = self

    def __setitem__(self, place, data):
        step = 4 if len(data) == HEADER_SIZE else 1
        for index in range(0, len(data), step):
            start = place.start + index
            self._memory[start : start + step] = data[index : index + step]
            (folder := self._folder / f"{len(self.copies)}").mkdir()
            self.copies.append(Path(shutil.copy(self._mapped.path, folder)))

    def close(self):
        self._memory.close()


def test_a_process_killed_at_any_byte_of_a_write_through_memory_leaves_all_earlier_records(mapped, tmp_path):
    mapped.add_one(*record(0))
    (tmp_path / "copies").mkdir()
    memory = Memory(mapped, tmp_path / "copies")
    mapped.add_one(*record(1))

    *partial, complete = memory.copies
    assert len(memory.copies) == mapped.size // 2 - HEADER_SIZE + 3
    for path in memory.copies:
        again, damages = Segment(path, 7), []
        again.recover(lambda path, damage, data, damages=damages: damages.append((damage, data)) or True)
        assert list(again.sequences) == [(0, 2 if path == complete else 1)]
        assert all(is_torn(data, damage.start) for damage, data in damages)
        assert bool(damages) == (path in partial[7:])  # the first seven bytes are zeros
        again.add([record(2)])
        again.close()


def test_after_a_failed_write_no_memory_beyond_the_end_of_the_file_is_used(mapped, monkeypatch):
    """Such an access would end the process with SIGBUS."""
    mapped.add_one(*record(0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            mapped.add([record(1), record(2)])
    assert mapped.path.stat().st_size == mapped.size

    mapped.add_one(*record(3))

    again, damages = recovered(mapped)
    assert (again.unsettled, damages) == (2, [])
    again.close()


@pytest.mark.parametrize("fault", ["disk", "memory"])
def test_without_space_or_memory_to_map_records_are_written_with_system_calls(mapped, monkeypatch, fault):
    with monkeypatch.context() as patch:
        if fault == "disk":
            patch.setattr(os, "posix_fallocate", full)
        else:
            patch.setattr("producer_core.delivery.journal.mapped_end.mmap.mmap", full)
        mapped.add_one(*record(0))
        mapped.add_one(*record(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            mapped.add_one(*record(2))

    mapped.add_one(*record(3))
    again, damages = recovered(mapped)
    assert (again.unsettled, damages) == (3, [])
    again.close()


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
        mapped = MappedEnd(file.fileno(), 5_000, 20_000)
        mapped.write(b"head", b"content", 5_000)
        mapped.write(b"head", b"last", 20_000 - 8)
        mapped.close()

    assert path.read_bytes() == bytes(5_000) + b"headcontent" + bytes(15_000 - 19) + b"headlast"


@pytest.mark.parametrize("seed", range(10))
def test_a_segment_holds_exactly_its_records_after_any_writes_failures_and_crashes(
    tmp_path, monkeypatch, seed
):
    """Small parts, so that the mapped part moves often."""
    rng, seqs, expected = random.Random(seed), itertools.count(), {}
    for name, value in (("_PREALLOCATE_BYTES", (8192, 4096)), ("_ALLOCATION_UNIT", 4096)):
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
        handle = segment.duplicate_handle()
        assert dict(segment.read(handle, -1, 0, segment.size)) == expected
        os.close(handle)
    segment.close()
    assert segment.path.stat().st_size == segment.size
