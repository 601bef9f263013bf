"""After a crash, a disk error or a manual change, the journal returns all intact records and reports the damage."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.delivery.journal.frame import JournalFrame, frame, frames
from producer_core.errors import JournalDamaged, JournalFull
from tests.fixtures.journal import a_record, crash, fill, kept, segment_of


@pytest.fixture
def no_sync(monkeypatch):
    """Skip real syncs: the test opens hundreds of journals."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def tiny_record(seq):
    return JournalRecord(seq, "t", b"k", b"%d" % seq * (seq + 1))


def remove_copies(path):
    for damaged in path.glob("*.damaged"):
        damaged.unlink()


@pytest.fixture(scope="module")
def small_journal(tmp_path_factory):
    """Return the path of a journal with three records of different lengths, and the end of each record."""
    path = tmp_path_factory.mktemp("small") / "journal"
    ends = []
    with Journal.open(path) as journal:
        for seq in range(3):
            journal.append(tiny_record(seq))
            ends.append(journal.size())
    return path, ends


def test_a_journal_torn_at_any_byte_keeps_every_intact_record(small_journal, tmp_path, no_sync):
    path, ends = small_journal
    intact = segment_of(path).read_bytes()
    copy = crash(path, tmp_path)
    for length in range(len(intact)):
        segment_of(copy).write_bytes(intact[:length])
        notices = []
        with Journal.open(copy, notice=lambda kind, *_: notices.append(kind)) as journal:
            assert kept(journal) == [seq for seq, end in enumerate(ends) if end <= length]
            assert journal.next_sequence >= 3
            journal.append(tiny_record(3))
            assert kept(journal)[-1] == 3
        assert notices == ([] if length in (0, *ends) else ["journal_torn"])
        remove_copies(copy)  # the same damage is reported once


def test_a_changed_byte_loses_only_its_record_and_never_invents_one(small_journal, tmp_path, no_sync):
    path, ends = small_journal
    intact = segment_of(path).read_bytes()
    copy = crash(path, tmp_path)
    for offset in range(len(intact)):
        damaged = bytearray(intact)
        damaged[offset] ^= 0x41
        segment_of(copy).write_bytes(damaged)
        damaged_seq = next(seq for seq, end in enumerate(ends) if offset < end)
        notices = []
        with Journal.open(copy, notice=lambda kind, *_: notices.append(kind)) as journal:
            assert list(journal.read()) == [tiny_record(seq) for seq in range(3) if seq != damaged_seq]
        in_last_length = 4 <= offset - ends[-2] < 8  # such damage looks like an interrupted write
        assert notices == ["journal_damaged"] or (in_last_length and notices == ["journal_torn"])
        assert any(copy.glob("*.damaged"))


def test_a_settle_log_torn_at_any_byte_keeps_only_complete_steps(tmp_path, no_sync):
    path = tmp_path / "journal"
    with Journal.open(path) as journal:
        fill(journal, range(6))
        for seq in range(0, 6, 2):
            journal.settle((seq, seq + 1), {("orders", 0): seq})
    intact = (path / "settled").read_bytes().rstrip(b"\0") + b"\0" * 9
    for length in range(len(intact)):
        (path / "settled").write_bytes(intact[:length])
        with Journal.open(path) as journal:
            left = kept(journal)
            steps = (6 - len(left)) // 2
            assert left == list(range(steps * 2, 6))
            assert journal.offsets == ({("orders", 0): steps * 2 - 2} if steps else {})


def test_records_of_another_journal_inside_a_message_are_not_recovered(tmp_path):
    with Journal.open(tmp_path / "one") as journal:
        fill(journal, range(3))
    copied_bytes = segment_of(tmp_path / "one").read_bytes()
    with Journal.open(tmp_path / "two") as journal:
        journal.append(a_record(0, copied_bytes))
    segment = segment_of(tmp_path / "two")
    segment.write_bytes(segment.read_bytes()[:-1])

    with Journal.open(tmp_path / "two") as journal:
        assert kept(journal) == []


def test_records_of_the_same_journal_inside_a_message_are_not_recovered(tmp_path):
    with Journal.open(tmp_path / "journal") as journal:
        fill(journal, range(3))
        copied_bytes = segment_of(tmp_path / "journal").read_bytes()
        journal.append(a_record(3, copied_bytes * 3))
    segment = segment_of(tmp_path / "journal")
    segment.write_bytes(segment.read_bytes()[:-1])

    with Journal.open(tmp_path / "journal") as journal:
        assert kept(journal) == [0, 1, 2]


def test_damage_is_reported_once_and_later_starts_lose_nothing_more(small_journal, tmp_path):
    path, ends = small_journal
    copy = crash(path, tmp_path)
    damaged = bytearray(segment_of(copy).read_bytes())
    damaged[ends[0] + 20] ^= 1
    segment_of(copy).write_bytes(damaged)

    notices = []
    for _ in range(3):
        with Journal.open(copy, notice=lambda *notice: notices.append(notice)) as journal:
            assert kept(journal) == [0, 2]
    ((kind, severity, text),) = notices
    assert (kind, severity) == ("journal_damaged", "critical")
    assert f"{ends[1] - ends[0]} bytes of {segment_of(copy)} from byte {ends[0]}" in text


def test_a_damaged_settle_step_discards_the_later_ones_and_resets_their_partitions_to_the_beginning(tmp_path):
    """An offset is valid only with all settle steps before it. The affected messages are looked up, not skipped."""
    path = tmp_path / "journal"
    with Journal.open(path) as journal:
        fill(journal, range(6))
        journal.settle((0,), {("orders", 0): 10})
        before = len((path / "settled").read_bytes().rstrip(b"\0"))
        journal.settle((1,), {("orders", 1): 20})
        journal.settle((2,), {("orders", 0): 30, ("orders", 1): 21})
    data = bytearray((path / "settled").read_bytes())
    data[before + 14] ^= 1
    (path / "settled").write_bytes(data)

    notices = []
    with Journal.open(path, notice=lambda kind, *_: notices.append(kind)) as journal:
        assert kept(journal) == [1, 2, 3, 4, 5]
        assert journal.offsets == {("orders", 0): 10, ("orders", 1): -1}
    assert notices == ["journal_damaged"]


@pytest.mark.parametrize("name", ["session", "reserved"])
def test_a_flipped_bit_in_the_small_files_loses_nothing(small_journal, tmp_path, name):
    copy = crash(small_journal[0], tmp_path)
    data = bytearray((copy / name).read_bytes())
    data[20] ^= 1
    (copy / name).write_bytes(data)

    with Journal.open(small_journal[0]) as before, Journal.open(copy) as journal:
        assert kept(journal) == [0, 1, 2]
        assert (journal.lasting_id, journal.next_sequence) == (before.lasting_id, before.next_sequence)
        assert [journal.ids.of(seq) for seq in range(3)] == [before.ids.of(seq) for seq in range(3)]


def test_messages_without_their_session_file_are_kept_for_analysis(small_journal, tmp_path):
    copy = crash(small_journal[0], tmp_path)
    (copy / "session").unlink()
    for _ in range(2):  # the first attempt released the lock
        with pytest.raises(JournalDamaged, match="session"):
            Journal.open(copy)


@pytest.mark.parametrize("name", ["lock", "*.journal"])
def test_a_journal_whose_files_were_deleted_accepts_no_message_and_still_returns_the_others(tmp_path, name):
    now = [0.0]
    journal = Journal.open(tmp_path / "journal", clock=lambda: now[0])
    fill(journal, range(3))
    for file in (tmp_path / "journal").glob(name):
        file.unlink()

    now[0] = 2.0
    with pytest.raises(JournalDamaged, match="deleted"):
        journal.append(a_record(3))
    assert kept(journal) == [0, 1, 2]
    journal.settle((0, 1))
    assert kept(journal) == [2]
    journal.close()


def test_a_failed_sync_confirms_no_message_and_the_next_segment_works(tmp_path, monkeypatch):
    """After a failed fsync the kernel drops the pages, so a later successful one proves nothing."""
    journal = Journal.open(tmp_path / "journal", level="power")
    fill(journal, [0])
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(JournalFull, match="cannot be written"):
        journal.append(a_record(1))
    monkeypatch.setattr(os, "fdatasync", sync)

    fill(journal, [2])
    assert kept(journal) == [0, 2]
    assert len(list((tmp_path / "journal").glob("*.journal"))) == 2
    journal.close()
    with Journal.open(tmp_path / "journal") as again:
        assert kept(again) == [0, 2]


def test_a_sync_that_fails_before_the_next_segment_fails_the_waiting_messages(tmp_path, monkeypatch):
    with Journal.open(tmp_path / "journal", level="power", segment_bytes=1) as journal:
        ticket = journal.write([a_record(0)])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", lambda file: (_ for _ in ()).throw(OSError(5, "bad disk")))
            with pytest.raises(JournalFull):
                journal.append(a_record(1))

        journal.append(a_record(2))  # the sync of the next segment proves nothing about the first
        with pytest.raises(JournalFull):
            journal.wait_synced(ticket, [0])
        assert kept(journal) == [2]


def test_a_record_is_read_only_after_its_sync(tmp_path):
    with Journal.open(tmp_path / "journal", level="power") as journal:
        fill(journal, [0])
        ticket = journal.write([a_record(1)])
        cursor = journal.cursor()

        assert [record.seq for record in cursor.more()] == [0]
        journal.wait_synced(ticket, [1])
        assert [record.seq for record in cursor.more()] == [1]


def test_a_journal_torn_at_any_byte_and_extended_with_zeros_keeps_every_intact_record(
    small_journal, tmp_path, no_sync
):
    """After a power failure, the file can have its new size without its last bytes."""
    path, ends = small_journal
    intact = segment_of(path).read_bytes()
    copy = crash(path, tmp_path)
    for length in range(len(intact)):
        data = intact[:length].ljust(len(intact) + 600, b"\0")
        segment_of(copy).write_bytes(data)
        notices = []
        with Journal.open(copy, notice=lambda kind, *_: notices.append(kind)) as journal:
            assert kept(journal) == [seq for seq, end in enumerate(ends) if data[:end] == intact[:end]]
            journal.append(tiny_record(3))
            assert kept(journal)[-1] == 3
        assert notices == ["journal_torn"]
        remove_copies(copy)


@pytest.mark.parametrize("level", ["process", "power"])
def test_preallocated_space_of_a_killed_process_is_not_damage(tmp_path, level):
    path, notices = tmp_path / "journal", []
    with Journal.open(path, level="power") as journal:
        fill(journal, range(3))
        copy = crash(path, tmp_path)
        assert segment_of(copy).stat().st_size > journal.size()

    with Journal.open(copy, level=level, notice=lambda *notice: notices.append(notice)) as journal:
        fill(journal, [3])
        assert kept(journal) == [0, 1, 2, 3]
    assert notices == []
    assert not list(copy.glob("*.damaged"))


def test_zeros_at_the_end_of_an_earlier_segment_are_reported(tmp_path):
    """A segment with preallocated space is the last one, so zeros elsewhere are lost records."""
    path, notices = tmp_path / "journal", []
    with Journal.open(path, level="power", segment_bytes=1) as journal:
        fill(journal, range(2))
        copy = crash(path, tmp_path)
    first, last = sorted(copy.glob("*.journal"))
    assert first.stat().st_size < 1000 < last.stat().st_size
    os.truncate(first, last.stat().st_size)

    with Journal.open(copy, level="power", notice=lambda kind, *_: notices.append(kind)) as journal:
        assert kept(journal) == [0, 1]
    assert notices == ["journal_torn"]


@pytest.fixture
def crashed_power_journal(tmp_path):
    """Return the folder that a killed process left at the level `power`, with three records, and their size."""
    with Journal.open(tmp_path / "journal", level="power") as journal:
        fill(journal, [0])
        journal.append(JournalRecord(1, "orders", None, b"x" * 900))
        journal.append(JournalRecord(2, "orders", None, b"x" * 10 + bytes(20)))
        return crash(tmp_path / "journal", tmp_path), journal.size()


def change(path, start, content):
    data = bytearray(path.read_bytes())
    data[start : start + len(content)] = content
    path.write_bytes(data)


def recovered(folder):
    """Open the journal and return its sequences, and the kinds of the notices."""
    notices = []
    with Journal.open(folder, level="power", notice=lambda kind, *_: notices.append(kind)) as journal:
        return kept(journal), notices


def test_a_changed_record_that_ends_with_zeros_is_not_taken_for_an_interrupted_write(crashed_power_journal):
    folder, size = crashed_power_journal
    change(segment_of(folder), size - 25, b"?")

    assert recovered(folder) == ([0, 1], ["journal_damaged"])


@pytest.mark.parametrize("sector", [0, 1])
def test_a_record_without_its_first_or_last_sector_is_an_interrupted_write(tmp_path, sector):
    path = tmp_path / "journal"
    with Journal.open(path, level="power") as journal:
        journal.append(JournalRecord(0, "orders", None, b"x" * 700))
        folder = crash(path, tmp_path)
    change(segment_of(folder), 512 * sector, bytes(512))

    assert recovered(folder) == ([], ["journal_torn"])


def test_a_torn_end_on_a_full_disk_leaves_no_preallocated_space_in_the_journal(
    crashed_power_journal, monkeypatch
):
    """Without room for a copy, the torn bytes stay in the file. The zeros after them do not."""
    folder, size = crashed_power_journal
    torn_end = size - 40
    change(segment_of(folder), torn_end, bytes(40))

    def full(path, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("producer_core._internal.private_files.write", full)
        with Journal.open(folder, level="power", notice=lambda *_: None) as journal:
            assert journal.size() <= torn_end
            fill(journal, [3])
            assert kept(journal) == [0, 1, 3]
    assert recovered(folder)[0] == [0, 1, 3]
    (damaged,) = folder.glob("*.damaged")
    assert damaged.stat().st_size < 100


def test_damage_before_preallocated_space_is_reported_without_it(tmp_path):
    path, notices = tmp_path / "journal", []
    with Journal.open(path, level="power") as journal:
        fill(journal, range(3))
        size = journal.size()
        copy = crash(path, tmp_path)
    data = bytearray(segment_of(copy).read_bytes())
    data[size - 10] ^= 1
    segment_of(copy).write_bytes(data)

    with Journal.open(copy, level="power", notice=lambda kind, *_: notices.append(kind)) as journal:
        assert kept(journal) == [0, 1]
    assert notices == ["journal_damaged"]
    (damaged,) = copy.glob("*.damaged")
    assert damaged.stat().st_size == size * 1 // 3


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_frames_around_any_damage_are_recovered(contents, rng):
    data, starts = b"", []
    for content in contents:
        starts.append(len(data))
        data += frame(content, 7, len(data))
    damage_start = rng.randrange(len(data))
    length = rng.randrange(1, 40)
    damaged = (
        data[:damage_start]
        + bytes(byte ^ 0x55 for byte in data[damage_start : damage_start + length])
        + data[damage_start + length :]
    )

    found_frames = [one for one in frames(damaged, 7) if isinstance(one, JournalFrame)]
    ends = [*starts[1:], len(data)]
    intact = [
        (start, content)
        for start, end, content in zip(starts, ends, contents, strict=True)
        if end <= damage_start or start >= min(damage_start + length, len(data))
    ]
    assert [(one.start, one.content) for one in found_frames] == intact
