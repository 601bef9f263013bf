"""A signal that arrives within a write of the journal neither damages other records nor returns a withdrawn one."""

from __future__ import annotations

import pytest

from producer_core.delivery.journal import Journal
from producer_core.delivery.journal import segment as segment_module
from producer_core.delivery.journal.segment import Segment
from tests.fixtures.journal import a_record, crash, fill, kept


@pytest.fixture(params=["process", "power"])
def journal(tmp_path, request, monkeypatch):
    monkeypatch.setattr("producer_core.delivery.journal.journal.can_map", lambda folder: False)
    monkeypatch.setattr(Segment, "_preallocate", lambda *_: None)  # every record takes a system call
    with Journal.open(tmp_path / "journal", level=request.param) as opened:
        yield opened


@pytest.mark.parametrize("numbers", [[2], [2, 3, 4]])
def test_a_signal_handler_that_sends_after_the_system_call_of_a_write_overwrites_no_message(
    tmp_path, journal, monkeypatch, numbers
):
    """Regression: both wrote at the same offset, and the message of the handler was lost."""
    fill(journal, [0, 1])
    write_whole, nested = segment_module.write_whole, [10]

    def interrupted(*args):
        write_whole(*args)
        if nested:
            fill(journal, [nested.pop()])

    monkeypatch.setattr(segment_module, "write_whole", interrupted)
    journal.append_many([a_record(number) for number in numbers])
    fill(journal, [5])

    assert sorted(kept(journal)) == [0, 1, *numbers, 5, 10]
    assert journal.unsettled() == 4 + len(numbers)
    with Journal.open(crash(tmp_path / "journal", tmp_path)) as again:
        assert sorted(kept(again)) == [0, 1, *numbers, 5, 10]


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
