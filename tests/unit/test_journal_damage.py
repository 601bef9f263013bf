"""The journal after a crash, a bad disk or a careless hand: every whole record, never a wrong one, and it is said."""

from __future__ import annotations

import pytest

from producer_core.journal import Journal
from tests.unit.journaling import a_record, crash, fill, kept, segment_of


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A journal of four records of different lengths, and where each ends."""
    path = tmp_path_factory.mktemp("small") / "journal"
    ends = []
    with Journal.open(path) as journal:
        for seq in range(4):
            journal.append(a_record(seq, b"%d" % seq * (seq * 7)))
            ends.append(journal.size())
    return path, ends


def test_a_journal_torn_at_any_byte_keeps_every_whole_record(small, tmp_path):
    path, ends = small
    whole = segment_of(path).read_bytes()
    copy = crash(path, tmp_path)
    for length in range(len(whole)):
        segment_of(copy).write_bytes(whole[:length])
        said = []
        with Journal.open(copy, notice=lambda kind, *_: said.append(kind)) as journal:
            assert kept(journal) == [seq for seq, end in enumerate(ends) if end <= length]
            assert journal.next_sequence >= 4
            journal.append(a_record(4))
            assert kept(journal)[-1] == 4
        assert said == ([] if length in (0, *ends) else ["journal_torn"])


def test_a_flip_of_any_byte_loses_that_record_only_and_never_invents_one(small, tmp_path):
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
            assert list(journal.read()) == [
                a_record(seq, b"%d" % seq * (seq * 7)) for seq in range(4) if seq != hit
            ]
        in_last_length = 4 <= place - ends[-2] < 8  # then it looks like a write that did not end
        assert said == ["journal_damaged"] or (in_last_length and said == ["journal_torn"])
        assert any(copy.glob("*.damaged"))


def test_a_settle_log_torn_at_any_byte_counts_whole_steps_only(tmp_path):
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
