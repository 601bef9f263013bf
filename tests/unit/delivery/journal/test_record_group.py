"""A group of records is read back as it was written, and damage to it loses this group only."""

from __future__ import annotations

import os
import random
import shutil

import pytest

from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.delivery.journal.frame import frames, seed
from producer_core.delivery.journal.record import encode
from producer_core.delivery.journal.record_group import MAX_RECORDS, group, is_group, records
from tests.fixtures.journal import a_record, crash, kept, segment_of


def encoded(count, size=1):
    return [encode(a_record(seq, bytes(size))) for seq in range(count)]


@pytest.mark.parametrize("count", [1, 2, MAX_RECORDS, MAX_RECORDS + 1, 100])
def test_records_are_read_back_in_order(count):
    contents = encoded(count)

    found = list(group(contents))

    assert [one for content in found for one in records(content)] == contents
    assert len(found) == -(-count // MAX_RECORDS)


def test_a_single_record_is_stored_as_before():
    (content,) = encoded(1)

    assert list(group([content])) == [content]
    assert not is_group(content)


def test_a_large_record_has_a_frame_of_its_own():
    contents = [*encoded(3), *encoded(1, 10 << 20), *encoded(2)]

    sizes = [len(list(records(content))) for content in group(contents)]

    assert sizes == [3, 1, 2]


@pytest.mark.parametrize("start", range(20))
def test_any_sizes_are_read_back(start):
    rng = random.Random(start)
    contents = [
        encode(a_record(seq, rng.randbytes(rng.choice((0, 1, 200, 5_000, 70_000)))))
        for seq in range(rng.randrange(1, 90))
    ]

    assert [one for content in group(contents) for one in records(content)] == contents


def test_the_highest_sequence_is_no_group():
    assert not is_group(encode(JournalRecord((1 << 63) - 1, "t", None, None)))


# the journal


@pytest.fixture
def three_groups(tmp_path):
    """A journal with three groups in one file, and the folder that a crash leaves."""
    journal = Journal.open(tmp_path / "journal")
    for first in (0, 3, 6):
        journal.append_many([a_record(seq, b"%d" % seq * 9) for seq in range(first, first + 3)])
    copy = crash(tmp_path / "journal", tmp_path)
    journal.close()
    return copy


def ends_of(folder, data):
    with Journal.open(folder) as journal:
        start = seed(journal._folder.identity.secret, segment_of(folder).name)
    return [found.end for found in frames(data, start)]


def test_each_damaged_byte_of_a_group_loses_this_group_only(three_groups, tmp_path):
    file = segment_of(three_groups)
    data = file.read_bytes().rstrip(b"\0")
    ends = ends_of(shutil.copytree(three_groups, tmp_path / "whole"), data)
    assert len(ends) == 3
    middle = range(ends[0], ends[1])
    for position in sorted({*middle, *range(0, len(data), 7)}):
        (start := tmp_path / f"at-{position}").mkdir()
        folder = start / "journal"
        shutil.copytree(three_groups, folder)
        damaged = bytearray(data)
        damaged[position] ^= 0x21
        (folder / file.name).write_bytes(damaged)
        lost = next(index for index, end in enumerate(ends) if position < end)
        notices = []
        with Journal.open(folder, notice=lambda kind, *_, notices=notices: notices.append(kind)) as again:
            assert kept(again) == [seq for seq in range(9) if seq // 3 != lost]
            assert {record.value for record in again.read()} <= {b"%d" % seq * 9 for seq in range(9)}
        assert len(notices) == 1
        shutil.rmtree(start)


@pytest.mark.parametrize("fill", [b"", b"\0"])
def test_a_file_cut_off_at_any_byte_keeps_the_complete_groups(three_groups, tmp_path, fill):
    file = segment_of(three_groups)
    whole = file.read_bytes()
    data = whole.rstrip(b"\0")
    ends = ends_of(shutil.copytree(three_groups, tmp_path / "whole"), data)
    last = range(ends[1], ends[2] + 1)
    for cut in sorted({*last, *range(0, ends[1], 9), ends[0]}):
        (start := tmp_path / f"cut-{cut}").mkdir()
        folder = start / "journal"
        shutil.copytree(three_groups, folder)
        (folder / file.name).write_bytes(data[:cut].ljust(len(whole) if fill else 0, b"\0"))
        with Journal.open(folder, notice=lambda *_: None) as again:
            complete = sum(end <= cut for end in ends)
            assert kept(again) == list(range(3 * complete))
            again.append_many([a_record(20), a_record(21)])
            assert kept(again)[-2:] == [20, 21]
        shutil.rmtree(start)


@pytest.mark.parametrize("level", ["buffered", "process", "power"])
def test_settled_records_of_a_group_are_not_read_again(tmp_path, level):
    with Journal.open(tmp_path / "journal", level=level) as journal:
        journal.append_many([a_record(seq) for seq in range(100)])
        journal.append(a_record(100))
        journal.settle([0, 1, 40, 41, 99, 100])
        journal.sync()
        expected = [seq for seq in range(99) if seq not in (0, 1, 40, 41)]
        assert kept(journal) == expected
        assert [record.seq for record in journal.read(after=50)] == list(range(51, 99))
    with Journal.open(tmp_path / "journal", level=level) as again:
        assert kept(again) == expected


def test_a_journal_that_is_nearly_full_keeps_the_unsettled_records_of_a_group(tmp_path):
    with Journal.open(tmp_path / "journal", max_bytes=60_000, segment_bytes=10_000) as journal:
        for first in range(0, 150, 30):
            journal.append_many([a_record(seq, bytes(300)) for seq in range(first, first + 30)])
        journal.settle([seq for seq in range(150) if seq % 10])
        journal.append_many([a_record(seq, bytes(300)) for seq in range(150, 240)])
        assert kept(journal) == [*range(0, 150, 10), *range(150, 240)]
    with Journal.open(tmp_path / "journal") as again:
        assert kept(again) == [*range(0, 150, 10), *range(150, 240)]


def test_large_values_of_a_group_are_read_back(tmp_path):
    values = [os.urandom(size) for size in (5, 10 << 20, 7, 3 << 20)]
    for level in ("process", "power"):
        with Journal.open(tmp_path / level, level=level) as journal:
            journal.append_many([a_record(seq, value) for seq, value in enumerate(values)])
        with Journal.open(tmp_path / level, level=level) as again:
            assert [record.value for record in again.read()] == values
