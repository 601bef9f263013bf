"""The journal after a crash, a bad disk or a careless hand: every whole record, never a wrong one, and it is said."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.delivery.journal.frame import JournalFrame, frame, frames
from producer_core.errors import JournalDamaged, JournalFull
from tests.unit.journaling import a_record, crash, fill, kept, segment_of


@pytest.fixture
def no_sync(monkeypatch):
    """Hundreds of journals are opened; the disk's own pace says nothing here."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def tiny(seq):
    return JournalRecord(seq, "t", b"k", b"%d" % seq * (seq + 1))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A journal of three records of different lengths, and where each ends."""
    path = tmp_path_factory.mktemp("small") / "journal"
    ends = []
    with Journal.open(path) as journal:
        for seq in range(3):
            journal.append(tiny(seq))
            ends.append(journal.size())
    return path, ends


def test_a_journal_torn_at_any_byte_keeps_every_whole_record(small, tmp_path, no_sync):
    path, ends = small
    whole = segment_of(path).read_bytes()
    copy = crash(path, tmp_path)
    for length in range(len(whole)):
        segment_of(copy).write_bytes(whole[:length])
        said = []
        with Journal.open(copy, notice=lambda kind, *_: said.append(kind)) as journal:
            assert kept(journal) == [seq for seq, end in enumerate(ends) if end <= length]
            assert journal.next_sequence >= 3
            journal.append(tiny(3))
            assert kept(journal)[-1] == 3
        assert said == ([] if length in (0, *ends) else ["journal_torn"])


def test_a_flip_of_any_byte_loses_that_record_only_and_never_invents_one(small, tmp_path, no_sync):
    path, ends = small
    whole = segment_of(path).read_bytes()
    copy = crash(path, tmp_path)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        segment_of(copy).write_bytes(damaged)
        hit = next(seq for seq, end in enumerate(ends) if place < end)
        said = []
        with Journal.open(copy, notice=lambda kind, *_: said.append(kind)) as journal:
            assert list(journal.read()) == [tiny(seq) for seq in range(3) if seq != hit]
        in_last_length = 4 <= place - ends[-2] < 8  # then it looks like a write that did not end
        assert said == ["journal_damaged"] or (in_last_length and said == ["journal_torn"])
        assert any(copy.glob("*.damaged"))


def test_a_settle_log_torn_at_any_byte_counts_whole_steps_only(tmp_path, no_sync):
    path = tmp_path / "journal"
    with Journal.open(path) as journal:
        fill(journal, range(6))
        for seq in range(0, 6, 2):
            journal.settle((seq, seq + 1), {("orders", 0): seq})
    whole = (path / "settled").read_bytes().rstrip(b"\0") + b"\0" * 9
    for length in range(len(whole)):
        (path / "settled").write_bytes(whole[:length])
        with Journal.open(path) as journal:
            left = kept(journal)
            steps = (6 - len(left)) // 2
            assert left == list(range(steps * 2, 6))
            assert journal.offsets == ({("orders", 0): steps * 2 - 2} if steps else {})


def test_a_message_that_contains_a_journal_is_not_taken_for_records(tmp_path):
    with Journal.open(tmp_path / "one") as journal:
        fill(journal, range(3))
    inside = segment_of(tmp_path / "one").read_bytes()
    with Journal.open(tmp_path / "two") as journal:
        journal.append(a_record(0, inside))
    segment = segment_of(tmp_path / "two")
    segment.write_bytes(segment.read_bytes()[:-1])

    with Journal.open(tmp_path / "two") as journal:
        assert kept(journal) == []


def test_a_message_that_contains_its_own_journal_is_not_taken_for_records(tmp_path):
    with Journal.open(tmp_path / "journal") as journal:
        fill(journal, range(3))
        inside = segment_of(tmp_path / "journal").read_bytes()
        journal.append(a_record(3, inside * 3))
    segment = segment_of(tmp_path / "journal")
    segment.write_bytes(segment.read_bytes()[:-1])

    with Journal.open(tmp_path / "journal") as journal:
        assert kept(journal) == [0, 1, 2]


def test_damage_is_told_once_and_nothing_else_is_lost_at_later_starts(small, tmp_path):
    path, ends = small
    copy = crash(path, tmp_path)
    damaged = bytearray(segment_of(copy).read_bytes())
    damaged[ends[0] + 20] ^= 1
    segment_of(copy).write_bytes(damaged)

    said = []
    for _ in range(3):
        with Journal.open(copy, notice=lambda *words: said.append(words)) as journal:
            assert kept(journal) == [0, 2]
    ((kind, severity, text),) = said
    assert (kind, severity) == ("journal_damaged", "critical")
    assert f"{ends[1] - ends[0]} bytes of {segment_of(copy)} from byte {ends[0]}" in text


def test_a_damaged_mark_takes_the_later_ones_along_and_sends_their_partitions_to_their_beginning(tmp_path):
    """An offset is true only with every mark before it: what is in doubt is looked for, never left out."""
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

    said = []
    with Journal.open(path, notice=lambda kind, *_: said.append(kind)) as journal:
        assert kept(journal) == [1, 2, 3, 4, 5]
        assert journal.offsets == {("orders", 0): 10, ("orders", 1): -1}
    assert said == ["journal_damaged"]


@pytest.mark.parametrize("name", ["session", "reserved"])
def test_a_flip_in_the_small_files_costs_nothing(small, tmp_path, name):
    copy = crash(small[0], tmp_path)
    data = bytearray((copy / name).read_bytes())
    data[20] ^= 1
    (copy / name).write_bytes(data)

    with Journal.open(small[0]) as before, Journal.open(copy) as journal:
        assert kept(journal) == [0, 1, 2]
        assert (journal.lasting_id, journal.next_sequence) == (before.lasting_id, before.next_sequence)
        assert [journal.ids.of(seq) for seq in range(3)] == [before.ids.of(seq) for seq in range(3)]


def test_messages_without_their_session_are_kept_for_a_person(small, tmp_path):
    copy = crash(small[0], tmp_path)
    (copy / "session").unlink()
    for _ in range(2):  # the lock was let go
        with pytest.raises(JournalDamaged, match="session"):
            Journal.open(copy)


@pytest.mark.parametrize("name", ["lock", "*.journal"])
def test_files_deleted_in_use_stop_the_accepting_and_are_still_delivered(tmp_path, name):
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


def test_a_sync_that_failed_promises_nothing_to_anybody_and_the_next_file_works(tmp_path, monkeypatch):
    """After a failed fsync the kernel drops the pages; a second one that succeeds proves nothing."""
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


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_frames_around_any_damage_are_found(contents, chance):
    data, starts = b"", []
    for content in contents:
        starts.append(len(data))
        data += frame(content, 7, len(data))
    hit = chance.randrange(len(data))
    length = chance.randrange(1, 40)
    damaged = data[:hit] + bytes(byte ^ 0x55 for byte in data[hit : hit + length]) + data[hit + length :]

    found = [one for one in frames(damaged, 7) if isinstance(one, JournalFrame)]
    ends = [*starts[1:], len(data)]
    whole = [
        (start, content)
        for start, end, content in zip(starts, ends, contents, strict=True)
        if end <= hit or start >= min(hit + length, len(data))
    ]
    assert [(one.start, one.content) for one in found] == whole
