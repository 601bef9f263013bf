"""The saved progress of a send: settled rows, their offsets, and the rows that may have been sent."""

from __future__ import annotations

import os
import uuid

import pytest

from producer_core.cli.send.file_progress import FileProgress
from producer_core.cli.send.send_run import DuplicateCounter
from producer_core.cli.send.state_file import SendState
from producer_core.delivery.journal.ranges import Ranges
from producer_core.errors import JournalFull
from producer_core.messages import id_bytes, id_text
from tests.fixtures.sends import JOB, LEAST, saved


def test_a_settled_row_and_its_offset_are_saved_together(file):
    progress = FileProgress(file, SendState(JOB, 0))

    progress.settle([0, 2, 1, 5], {("orders", 0): 4})
    progress.save()

    assert list(saved(file).settled) == [(0, 3), (5, 6)]
    assert saved(file).offsets == {("orders", 0): 4}
    assert [progress.is_settled(row) for row in (2, 3, 5)] == [True, False, True]


def test_start_offsets_are_saved_at_once_and_settled_rows_later(file):
    progress = FileProgress(file, SendState(JOB, 0))
    progress.reach(0)

    progress.settle([0], {("orders", 0): 4})
    assert saved(file).offsets == {}
    progress.settle((), {("orders", 1): 8})

    assert saved(file).offsets == {("orders", 0): 4, ("orders", 1): 8}
    progress.settle([1])
    progress.close()
    assert list(saved(file).settled) == [(0, 2)]


def test_a_row_is_covered_by_the_saved_progress_before_it_is_enqueued(file):
    progress = FileProgress(file, SendState(LEAST, 0))

    for row in range(5000):
        progress.reach(row)
        assert saved(file).reached > row


def test_after_a_clean_end_only_rows_of_earlier_runs_are_uncertain(file):
    progress = FileProgress(file, SendState(LEAST, 0))
    for row in range(100):
        progress.reach(row)
    progress.settle(range(100))
    progress.close()
    assert saved(file).possible() == 0

    doubtful = FileProgress(file, SendState(LEAST, 0, settled=Ranges([(0, 100)]), reached=150))
    doubtful.settle([0])
    doubtful.close()
    assert saved(file).possible() == 50


def test_a_dead_letter_settles_its_row_once_and_malformed_rows_are_counted_separately(file):
    progress = FileProgress(file, SendState(JOB, 0))
    progress.malformed(1)

    for _ in range(2):
        progress.give_up([0, 1])

    assert (progress.dead, progress.malformed_rows, progress.done) == (1, 1, 2)


def test_rows_are_identified_by_their_message_ids(file):
    progress = FileProgress(file, SendState(JOB, 0))
    ours = id_text(id_bytes(progress.session, 7))
    theirs = id_text(id_bytes(uuid.uuid4(), 8))

    assert progress.rows_of([ours, theirs]) == [7]


def test_a_full_disk_raises_journal_full_with_the_reason(file, monkeypatch):
    progress = FileProgress(file, SendState(JOB, 0))

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalFull, match="No space left"):
        progress.settle((), {("orders", 0): 1})


def test_a_possible_duplicate_of_a_retry_is_saved_for_later_runs(file):
    progress = FileProgress(file, SendState(LEAST, 0, doubtful=2))
    counter = DuplicateCounter(progress)
    progress.reach(0)

    for what in ("possible_duplicates", "landed"):
        counter.counted("orders", what)
    progress.close()

    assert progress.possibly_twice == saved(file).doubtful == 3


def test_a_state_that_cannot_be_written_is_logged_once_with_its_error(file, monkeypatch, caplog):
    progress = FileProgress(file, SendState(JOB, 0))

    def full():
        raise JournalFull("No space left on device")

    monkeypatch.setattr(progress, "save", full)
    progress._try_to_save()
    progress._try_to_save()

    assert caplog.messages == ["state of a send not written: error=No space left on device"]
