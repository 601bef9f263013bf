"""A signal that arrives within a write of the journal neither damages other records nor returns a withdrawn one."""

from __future__ import annotations

import os

import pytest

from producer_core.delivery.journal import Journal
from producer_core.delivery.journal import segment as segment_module
from producer_core.delivery.journal.segment import Segment
from producer_core.errors import JournalFull
from tests.fixtures.journal import a_record, crash, fill, kept


@pytest.fixture(params=["process", "power"])
def journal(tmp_path, request, monkeypatch):
    monkeypatch.setattr("producer_core.delivery.journal.journal.can_map", lambda folder: False)
    monkeypatch.setattr(Segment, "_preallocate", lambda *_: None)  # every record takes a system call
    with Journal.open(tmp_path / "journal", level=request.param) as opened:
        yield opened


@pytest.mark.parametrize("step", ["_framed", "_write_at"])
@pytest.mark.parametrize("numbers", [[2], [2, 3, 4]])
def test_a_signal_handler_that_sends_within_a_write_overwrites_no_message(
    tmp_path, journal, monkeypatch, numbers, step
):
    """Regression: both wrote at the same offset, and the message of the handler was lost.

    The handler runs after the write's offset was read, or after the system call.
    """
    fill(journal, [0, 1])
    original, nested = getattr(Segment, step), [10]

    def interrupted(self, *args):
        result = original(self, *args)
        if nested:
            fill(journal, [nested.pop()])
        return result

    monkeypatch.setattr(Segment, step, interrupted)
    journal.append_many([a_record(number) for number in numbers])
    fill(journal, [5])

    assert_holds(journal, tmp_path, [0, 1, *numbers, 5, 10])


def test_a_signal_handler_that_sends_after_a_short_write_overwrites_no_message(
    tmp_path, journal, monkeypatch
):
    fill(journal, [0, 1])
    write, nested = os.pwrite, [10]

    def short(file, data, offset):
        if not nested:
            return write(file, data, offset)
        seq = nested.pop()
        count = write(file, data[:7], offset)
        fill(journal, [seq])
        return count

    with monkeypatch.context() as patch:
        patch.setattr(segment_module.os, "pwrite", short)
        fill(journal, [2])
    fill(journal, [3])

    assert_holds(journal, tmp_path, [0, 1, 2, 3, 10])


def test_a_disk_that_takes_no_byte_more_after_a_short_write_leaves_the_records_before(
    tmp_path, journal, monkeypatch
):
    fill(journal, [0, 1])
    write, counts = os.pwrite, [7, 0]

    def short(file, data, offset):
        return write(file, data[: counts.pop(0)], offset) if counts else write(file, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(segment_module.os, "pwrite", short)
        with pytest.raises(JournalFull, match="No space left"):
            fill(journal, [2])
    fill(journal, [3])

    assert_holds(journal, tmp_path, [0, 1, 3])


def assert_holds(journal, tmp_path, numbers):
    assert sorted(kept(journal)) == sorted(numbers)
    assert journal.unsettled() == len(numbers)
    with Journal.open(crash(tmp_path / "journal", tmp_path)) as again:
        assert sorted(kept(again)) == sorted(numbers)


@pytest.mark.parametrize("step", ["_write", "_add_index_entry"])
def test_an_interrupt_right_after_a_write_leaves_no_message_that_is_sent_later(
    tmp_path, journal, monkeypatch, step
):
    """Regression: the caller got the exception, and the message was delivered although it was not accepted."""
    fill(journal, [0])
    original = getattr(Segment, step)

    def interrupted(self, *args):
        original(self, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(segment_module, "_INDEX_STEP_BYTES", 0)
        journal._segments.active._next_index_offset = 0
        patch.setattr(Segment, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            fill(journal, [1])
    fill(journal, [2])

    assert sorted(kept(journal)) == [0, 2]
    assert journal.unsettled() == 2
    with Journal.open(crash(tmp_path / "journal", tmp_path)) as again:
        assert sorted(kept(again)) == [0, 2]
    assert list(journal._segments.active.without_settled().sequences) == [(0, 1), (2, 3)]


def test_an_interrupt_of_a_record_for_the_next_sync_leaves_no_message_that_is_sent_later(
    tmp_path, monkeypatch
):
    with Journal.open(tmp_path / "journal", level="power") as journal:
        fill(journal, [0, 1])
        defer_one = Segment.defer_one

        def interrupted(self, *args):
            self._sequences, sequences = Interrupted(), self._sequences
            try:
                return defer_one(self, *args)
            finally:
                self._sequences = sequences

        class Interrupted:
            def add(self, start, end):
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Segment, "defer_one", interrupted)
            with pytest.raises(KeyboardInterrupt):
                fill(journal, [2])
        fill(journal, [3])

        assert sorted(kept(journal)) == [0, 1, 3]
        assert journal.unsettled() == 3
        with Journal.open(crash(tmp_path / "journal", tmp_path)) as again:
            assert sorted(kept(again)) == [0, 1, 3]
