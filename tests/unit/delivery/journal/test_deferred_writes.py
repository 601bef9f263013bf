"""The next sync writes the deferred parts of a file, in order and at their offsets."""

from __future__ import annotations

import errno
import os

import pytest

from producer_core.delivery.journal import deferred_writes
from producer_core.delivery.journal.deferred_writes import DeferredWrites


@pytest.fixture
def file(tmp_path):
    number = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield number
    os.close(number)


@pytest.fixture
def deferred():
    made = DeferredWrites()
    for offset, data in ((3, b"abc"), (6, b"de"), (8, b"f")):
        made.append((offset, data))
    return made


def content(file):
    return os.pread(file, 100, 0)


def test_all_parts_are_written_in_one_call_and_kept_until_they_are_synced(deferred, file, monkeypatch):
    calls, pwrite = [], os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *args: calls.append(args[2]) or pwrite(*args))

    assert deferred.write(file) == 9
    assert deferred.write(file) == 9  # as a signal handler of the syncing thread does

    assert calls == [3, 3]
    assert content(file) == b"\0\0\0abcdef"
    deferred.append((9, b"g"))
    deferred.forget(9)
    assert deferred
    deferred.forget(10)
    assert not deferred


def test_bytes_between_two_parts_are_left_as_they_are(deferred, file):
    os.pwrite(file, b"direct", 9)
    deferred.append((15, b"g"))

    deferred.write(file)

    assert content(file) == b"\0\0\0abcdefdirectg"


def test_a_large_part_is_written_alone(deferred, file, monkeypatch):
    monkeypatch.setattr(deferred_writes, "_JOINED_BYTES", 4)
    sizes, pwrite = [], os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *args: sizes.append(len(args[1])) or pwrite(*args))

    deferred.write(file)

    assert sizes == [3, 3]
    assert content(file) == b"\0\0\0abcdef"


def test_a_short_write_is_continued(deferred, file, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda number, data, offset: pwrite(number, data[:1], offset))

    deferred.write(file)

    assert content(file) == b"\0\0\0abcdef"


def test_a_write_of_no_bytes_is_a_full_disk(deferred, file, monkeypatch):
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError) as failure:
        deferred.write(file)
    assert failure.value.errno == errno.ENOSPC


def test_a_write_that_a_signal_handler_cancels_writes_nothing_more(deferred, file, monkeypatch):
    """Otherwise it would write records behind the end of a file that was cut off after a failed sync."""
    monkeypatch.setattr(deferred_writes, "_JOINED_BYTES", 1)
    pwrite = os.pwrite

    def cancelled(*args):
        count = pwrite(*args)
        deferred.cancel()
        return count

    monkeypatch.setattr(os, "pwrite", cancelled)
    deferred.write(file)

    assert content(file) == b"\0\0\0abc"
    assert not deferred
