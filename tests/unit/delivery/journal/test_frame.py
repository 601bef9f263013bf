"""Frames prove that a record is complete, at its offset, in its file."""

from __future__ import annotations

import os

import pytest

from producer_core.delivery.journal.frame import (
    HEADER_SIZE,
    MAGIC,
    FrameDamage,
    JournalFrame,
    frame,
    frames,
    is_torn,
    scan,
    seed,
)

SEED = seed(7, "00000001.log")
CONTENTS = [b"first", b"", bytes(range(256)) * 20]


def file_of(contents, start=SEED):
    data = b""
    for content in contents:
        data += frame(content, start, len(data))
    return data


def test_contents_are_read_back_with_their_offsets():
    data = file_of(CONTENTS)

    found = list(frames(data, SEED))

    assert [one.content for one in found] == CONTENTS
    assert [one.start for one in found] == [0, found[0].end, found[1].end]
    assert found[-1].end == len(data)
    assert list(frames(b"", SEED)) == []


def test_bytes_after_an_offset_are_read_with_that_base():
    data = file_of(CONTENTS)
    end = HEADER_SIZE + len(CONTENTS[0])

    assert list(frames(data[end:], SEED, end)) == list(frames(data, SEED))[1:]


def test_a_frame_at_another_offset_or_of_another_file_is_damage():
    data = file_of(CONTENTS[:1])

    assert list(frames(data, SEED, base=100)) == [FrameDamage(100, 100 + len(data), last=True)]
    assert list(frames(data, seed(7, "00000002.log"))) == [FrameDamage(0, len(data), last=True)]


@pytest.mark.parametrize("position", range(HEADER_SIZE + 5))
def test_a_changed_byte_damages_only_its_own_frame(position):
    data = bytearray(file_of(CONTENTS))
    data[position] ^= 0x10
    end = HEADER_SIZE + len(CONTENTS[0])

    damage, *others = frames(bytes(data), SEED)

    assert damage == FrameDamage(0, end, last=False)
    assert [one.content for one in others] == CONTENTS[1:]


def test_a_frame_inside_a_message_is_not_taken_for_a_frame():
    inner = file_of([b"copied"])
    data = file_of([inner])
    damaged = b"\0" + data[1:]

    assert list(frames(damaged, SEED)) == [FrameDamage(0, len(data), last=True)]


def test_a_truncated_end_is_damage_at_the_end():
    data = file_of(CONTENTS)

    found = list(frames(data[:-1], SEED))

    assert isinstance(found[-1], FrameDamage) and found[-1].last
    assert is_torn(data[found[-1].start : -1])


def test_an_interrupted_write_differs_from_changed_bytes():
    whole = frame(b"x" * 50, SEED, 0)

    assert is_torn(b"") and is_torn(whole[:5]) and is_torn(whole[:-1]) and is_torn(bytes(4096))
    assert is_torn(MAGIC + whole[4:] + bytes(512))
    assert not is_torn(whole)
    assert not is_torn(b"\0" + whole[1:])


def test_a_file_is_scanned_in_windows(tmp_path, monkeypatch):
    monkeypatch.setattr("producer_core.delivery.journal.frame._WINDOW_BYTES", 64)
    contents = [b"%d" % number * 30 for number in range(9)]
    data = file_of(contents)
    path = tmp_path / "segment"
    path.write_bytes(data)
    file = os.open(path, os.O_RDONLY)
    try:
        found = list(scan(file, 0, len(data), SEED))
        assert [one.content for one in found] == contents
        assert list(scan(file, found[3].start, found[4].end, SEED)) == found[3:5]
        assert all(isinstance(one, JournalFrame) for one in found)
    finally:
        os.close(file)
