"""The journal returns accepted messages byte for byte until they are settled."""

from __future__ import annotations

import errno
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.delivery.journal import frame as frame_module
from producer_core.delivery.journal import mapped_end as mapped_end_module
from producer_core.delivery.journal.ranges import Ranges, ranges_of
from producer_core.delivery.journal.record import decode, encode
from producer_core.errors import JournalError, JournalFull
from producer_core.messages import Placement
from tests.fixtures.journal import a_record, crash, fill, kept
from tests.support import eventually


class LevelFolder:
    """A journal folder at one level."""

    def __init__(self, path, level):
        self.path, self.level = path, level

    def open(self, **bounds):
        return Journal.open(self.path, level=self.level, **bounds)

    def reopen(self, journal):
        journal.close()
        return self.open()


@pytest.fixture(params=["buffered", "process", "power"])
def journal_folder(request, tmp_path):
    return LevelFolder(tmp_path / "journal", request.param)


@pytest.fixture
def journal(journal_folder):
    opened = journal_folder.open()
    yield opened
    opened.close()


def test_appended_records_are_read_back_byte_for_byte(journal):
    records = [
        JournalRecord(0, "orders", None, None),
        JournalRecord(
            1, "orders", b"", b"", (("a", b""), ("a", None), ("\u00e4", b"\xff\x00")), Placement(0, 1), 0.5
        ),
        a_record(2, os.urandom(3_000_000)),
    ]
    for record in records:
        journal.append(record)

    assert list(journal.read()) == records
    assert journal.unsettled() == 3
    assert journal.size() > 3_000_000


def test_settled_messages_stay_settled_after_a_restart(journal_folder):
    journal = journal_folder.open()
    fill(journal, range(10))
    journal.settle([0, 1, 2, 7], {("orders", 3): 41})
    journal.settle((), {("orders", 4): 9})

    assert kept(journal) == [3, 4, 5, 6, 8, 9]
    assert [journal.is_settled(seq) for seq in (2, 3)] == [True, False]
    again = journal_folder.reopen(journal)
    assert kept(again) == [3, 4, 5, 6, 8, 9]
    assert again.unsettled() == 6
    assert again.offsets == {("orders", 3): 41, ("orders", 4): 9}
    assert again.next_sequence == 10
    again.close()


def test_settling_twice_or_settling_an_unknown_sequence_changes_nothing(journal):
    fill(journal, range(5))
    for _ in range(2):
        journal.settle([4, 1, 1, 99])

    assert kept(journal) == [0, 2, 3]
    assert journal.unsettled() == 3


@pytest.mark.slow
def test_a_read_from_a_sequence_includes_records_appended_meanwhile(journal):
    fill(journal, range(1000))
    reader = journal.read(after=499)

    assert next(reader).seq == 500
    fill(journal, range(1000, 1010))
    journal.settle(range(600, 1005))
    assert [record.seq for record in reader] == [*range(501, 600), *range(1005, 1010)]


def test_a_cursor_continues_after_its_last_record_and_returns_lower_sequences(journal):
    """Threads can append in an order that differs from the sequences."""
    fill(journal, [3, 1, 5])
    cursor = journal.cursor()

    assert [record.seq for record in cursor.more()] == [3, 1, 5]
    assert list(cursor.more()) == []
    fill(journal, [2, 6, 4])
    journal.settle((6,))
    assert [record.seq for record in cursor.more()] == [2, 4]


@pytest.mark.slow
def test_a_reader_returns_each_record_once_while_threads_append_and_settle(journal_folder):
    journal = journal_folder.open(segment_bytes=3_000)
    seen, ended = [], threading.Event()

    def write():
        for seq in range(600):
            journal.append(a_record(seq))
            if seq % 3:
                journal.settle((seq,))
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not ended.is_set():
        seen += [record.seq for record in journal.read(seen[-1] if seen else -1)]
    writer.join()
    seen += [record.seq for record in journal.read(seen[-1] if seen else -1)]

    assert [seq for seq in seen if seq % 3 == 0] == list(range(0, 600, 3))
    assert len(set(seen)) == len(seen)
    journal.close()


def test_a_full_journal_rejects_messages_until_some_are_settled(journal_folder):
    journal = journal_folder.open(max_bytes=20_000)
    seq = 0
    with pytest.raises(JournalFull, match="limit"):
        for seq in range(1000):  # stops at the first rejected sequence
            journal.append(a_record(seq))
    assert kept(journal) == list(range(seq))
    with pytest.raises(JournalFull, match="limit"):
        journal.append(a_record(seq))

    journal.settle(range(seq))
    fill(journal, [seq])
    assert kept(journal) == [seq]
    journal.close()


@pytest.mark.slow
def test_one_unsettled_message_does_not_fill_the_journal(journal_folder):
    """An unavailable partition must not use up the room of the others."""
    journal = journal_folder.open(max_bytes=10_000)
    for seq in range(1000):
        journal.append(a_record(seq))
        if seq % 50:
            journal.settle((seq,))

    left = list(range(0, 1000, 50))
    assert kept(journal) == left
    again = journal_folder.reopen(journal)
    assert kept(again) == left
    assert again.next_sequence == 1000
    again.close()


def test_a_closed_journal_rejects_every_call(journal):
    journal.close()
    journal.close()
    for use in (lambda: journal.append(a_record(0)), lambda: journal.settle((0,)), lambda: kept(journal)):
        with pytest.raises(JournalError, match="closed"):
            use()


def test_concurrent_appends_lose_no_message(journal):
    threads = [
        threading.Thread(target=fill, args=(journal, range(number * 100, number * 100 + 100)))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kept(journal)) == list(range(800))


# files


def test_a_sequence_is_never_reused_even_when_the_buffer_was_lost(tmp_path):
    journal = Journal.open(tmp_path / "journal", level="buffered", buffered_ms=3_600_000)
    fill(journal, range(5))

    with Journal.open(crash(tmp_path / "journal", tmp_path)) as again:
        assert kept(again) == []
        assert again.next_sequence > 4
    journal.close()


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"?" * 9000)])
def test_a_sequence_is_never_reused_even_when_the_reserved_file_is_lost(tmp_path, damage):
    with Journal.open(tmp_path / "journal") as journal:
        fill(journal, range(5))
        journal.settle(range(5))
    damage(tmp_path / "journal" / "reserved")

    with Journal.open(tmp_path / "journal") as again:
        assert again.next_sequence >= 5 + (1 << 20)


def test_buffered_messages_reach_the_file_without_a_flush(tmp_path):
    with Journal.open(tmp_path / "journal", level="buffered", buffered_ms=5) as journal:
        fill(journal, [0])
        eventually(lambda: [path.stat().st_size for path in (tmp_path / "journal").glob("*.journal")] > [0])


def test_while_the_disk_is_full_a_buffered_journal_accepts_only_one_buffer(tmp_path, monkeypatch):
    notices = []
    with Journal.open(
        tmp_path / "journal", level="buffered", buffered_ms=5, notice=lambda kind, *_: notices.append(kind)
    ) as journal:
        write = journal._segments.write

        def full(contents):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(journal._segments, "write", full)
        fill(journal, [0])
        eventually(lambda: notices == ["journal_full"])
        with pytest.raises(JournalFull):
            fill(journal, [1])

        monkeypatch.setattr(journal._segments, "write", write)
        fill(journal, [2])
        journal.sync()
        assert kept(journal) == [0, 2]
        eventually(lambda: notices == ["journal_full", "journal_available"])


def test_messages_settled_in_the_buffer_are_never_written(tmp_path):
    journal = Journal.open(tmp_path / "journal", level="buffered", buffered_ms=3_600_000)
    fill(journal, range(100))
    journal.settle(range(99))
    journal.sync()

    assert (tmp_path / "journal").joinpath(f"{99:020d}.journal").stat().st_size < 200
    journal.close()


def test_segments_are_deleted_when_all_their_records_are_settled(tmp_path):
    journal = Journal.open(tmp_path / "journal", segment_bytes=10_000)
    fill(journal, range(1000))
    segment_count = len(list((tmp_path / "journal").glob("*.journal")))

    journal.settle(range(1, 1000))
    left = list((tmp_path / "journal").glob("*.journal"))

    assert segment_count > 5
    assert len(left) == 2  # the segment with message 0 and the active one
    assert kept(journal) == [0]
    journal.close()
    with Journal.open(tmp_path / "journal") as again:
        assert kept(again) == [0]


@pytest.mark.slow
def test_the_settle_log_stays_short(tmp_path, monkeypatch):
    monkeypatch.setattr("producer_core.delivery.journal.settle_log._REWRITE_BYTES", 2_000)
    with Journal.open(tmp_path / "journal", segment_bytes=5_000) as journal:
        for seq in range(3000):
            journal.append(a_record(seq))
            journal.settle((seq,), {("orders", seq % 3): seq})
        assert len((tmp_path / "journal" / "settled").read_bytes().rstrip(b"\0")) < 4_000
    with Journal.open(tmp_path / "journal") as again:
        assert again.unsettled() == 0
        assert again.offsets == {("orders", 0): 2997, ("orders", 1): 2998, ("orders", 2): 2999}


def test_other_users_cannot_read_the_journal(tmp_path):
    with Journal.open(tmp_path / "journal") as journal:
        fill(journal, range(3))
        journal.settle((0,))
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "journal").iterdir()} == {0o600}


def test_an_unusable_folder_is_named_in_the_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="file cannot be used"):
        Journal.open(tmp_path / "file")


# parts

texts = st.text(max_size=20)


@given(
    st.builds(
        JournalRecord,
        st.integers(0, 2**64 - 1),
        texts,
        st.none() | st.binary(max_size=50),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(texts, st.none() | st.binary(max_size=20)), max_size=4).map(tuple),
        st.tuples(st.integers(-1, 2**31 - 1), st.integers(0, 2**62)).map(lambda both: Placement(*both)),
        st.floats(0, 1e10),
        st.none() | texts,
    )
)
def test_decoding_an_encoded_record_returns_the_record(record):
    assert decode(encode(record)) == record


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=20), st.integers(0, 60))
def test_ranges_behave_like_a_set_of_integers(spans, probe):
    ranges, numbers = Ranges(), set()
    for start, length in spans:
        new = ranges.add(start, start + length)
        assert new == len(set(range(start, start + length)) - numbers)
        numbers |= set(range(start, start + length))
    assert len(ranges) == len(numbers)
    assert (probe in ranges) == (probe in numbers)
    assert list(ranges) == [tuple(span) for span in ranges_of(numbers)] or not numbers
    inside = {n for low, high in ranges.overlap(probe, probe + 15) for n in range(low, high)}
    assert inside == numbers & set(range(probe, probe + 15))


def test_extra_bytes_of_an_earlier_version_after_the_checksum_are_ignored():
    record = a_record(7)
    assert decode(encode(record) + b"\x00\x00\x00\x06orders") == record


@pytest.mark.parametrize("level", ["process", "power"])
def test_records_appended_together_survive_a_crash_together(tmp_path, level):
    path = tmp_path / "own"
    with Journal.open(path, level=level) as journal:
        journal.append_many([a_record(seq) for seq in range(5)])
        copy = crash(path, tmp_path)

    with Journal.open(copy, level=level) as again:
        assert kept(again) == [0, 1, 2, 3, 4]
        assert again.next_sequence >= 5


def test_records_that_do_not_fit_together_are_all_refused(tmp_path):
    with Journal.open(tmp_path / "own", max_bytes=20_000) as journal:
        with pytest.raises(JournalFull):
            journal.append_many([a_record(seq, b"x" * 5_000) for seq in range(10)])
        assert kept(journal) == []
        journal.append_many([a_record(seq) for seq in range(10, 12)])
        assert kept(journal) == [10, 11]


def test_records_whose_sync_failed_are_not_accepted(tmp_path, monkeypatch):
    with Journal.open(tmp_path / "own", level="power") as journal:
        monkeypatch.setattr(os, "fdatasync", lambda file: (_ for _ in ()).throw(OSError(5, "bad disk")))
        with pytest.raises(JournalFull):
            journal.append_many([a_record(seq) for seq in range(3)])
        monkeypatch.undo()
        assert kept(journal) == []


@pytest.mark.parametrize("level", ["process", "power"])
def test_close_in_a_signal_handler_during_a_write_is_reported_as_a_closed_journal(
    tmp_path, monkeypatch, level
):
    """Regression: the interrupted write raised TypeError, because its file was closed."""
    journal = Journal.open(tmp_path / "own", level=level)
    fill(journal, [0])
    checksum = frame_module.extend

    def closing(*args):
        patch.undo()
        journal.close()
        return checksum(*args)

    with monkeypatch.context() as patch:
        patch.setattr(frame_module, "extend", closing)
        patch.setattr(mapped_end_module, "extend", closing)
        with pytest.raises(JournalError, match="closed"):
            fill(journal, [1])

    with Journal.open(tmp_path / "own", level=level) as again:
        assert kept(again) == [0]
