"""The start of a resumable send: a first run, a resumed run, a restart, and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.cli.send.file_progress import FileProgress
from producer_core.cli.send.fingerprint import session_of
from producer_core.cli.send.recover_position import PositionSearch, RecoveredPosition
from producer_core.cli.send.resume import ResumeRefused, begin
from producer_core.cli.send.state_file import SendState, encode
from producer_core.cli.send.unsaved_rows import UnsavedRows
from producer_core.delivery.journal.ranges import Ranges
from producer_core.errors import JournalDamaged
from tests.fixtures.sends import JOB, LEAST, saved, state


def empty_topic(reason):
    return RecoveredPosition(lows={0: 0}, offsets={("orders", 0): -1})


def test_rows_beyond_the_end_of_the_input_do_not_count_as_possibly_sent(file):
    """A run saves its reach ahead of its rows, so a run killed near the end has saved more rows than exist."""
    file.write(state(LEAST, settled=((0, 7),), reached=50_020))
    start = begin(file, LEAST, restart=False, recover=empty_topic)
    start.progress.reach(19)

    start.progress.ends_at(20)

    assert start.progress.possibly_twice == saved(file).doubtful == 13
    assert (saved(file).reached, saved(file).possible()) == (20, 13)
    start.progress.close()
    assert saved(file).possible() == 13


@pytest.mark.parametrize(
    ("limit", "possible", "text"),
    [
        (None, 13, "Up to 13 more may already be on orders; they are sent again with the same ids."),
        (9, 2, "Up to 2 more may already be on orders; they are sent again with the same ids."),
        (8, 1, "Up to 1 more may already be on orders; it is sent again with the same id."),
        (7, 0, "No row is sent twice."),
        (0, 0, "No row is sent twice."),
    ],
)
def test_a_limit_bounds_the_announced_and_counted_resends(file, limit, possible, text):
    file.write(state(LEAST, settled=((0, 7),), reached=20))

    start = begin(file, LEAST, limit=limit)

    assert start.text == f"Resuming: 7 rows are settled. {text}"
    assert start.progress.possibly_twice == possible


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (None, "This run sends them again, with new message ids."),
        (3, "This run sends them again, with new message ids."),
        (2, "This run sends the first 2 of them again, with new message ids."),
        (1, "This run sends the first of them again, with a new message id."),
        (0, "This run sends none."),
    ],
)
def test_the_note_after_a_complete_run_respects_a_limit(file, limit, text):
    complete_at_least_once(file)

    assert (
        begin(file, LEAST, limit=limit).text == f"An earlier run sent 3 rows of this file to orders. {text}"
    )


def test_a_limited_run_does_not_end_an_unfinished_one(file):
    """Regression: the next run sent the whole file again, under new ids."""
    file.write(state(LEAST, settled=((0, 7),), reached=20))
    limited = begin(file, LEAST, limit=5).progress

    assert limited.finish(5, all_of_them=False)  # of the first five rows, each is settled
    limited.close()

    assert begin(file, LEAST).mode == "resumed"


def test_a_complete_at_least_once_job_is_sent_again_and_a_complete_exactly_once_job_is_not(file):
    least = FileProgress(file, SendState(LEAST, 0))
    least.settle(range(3))
    assert not least.finish(4, all_of_them=True)
    assert least.finish(3, all_of_them=True)
    again = begin(file, LEAST)
    assert (again.mode, again.progress.done) == ("new", 0)
    assert again.text == (
        "An earlier run sent 3 rows of this file to orders. This run sends them again, with new message ids."
    )

    file.remove()
    once = FileProgress(file, SendState(JOB, 0))
    once.settle(range(3))
    assert once.finish(3, all_of_them=True)
    assert begin(file, JOB, recover=empty_topic).mode == "complete"


def complete_at_least_once(file, *, all_of_them=True):
    progress = FileProgress(file, SendState(LEAST, 0))
    progress.settle(range(3))
    assert progress.finish(3, all_of_them=all_of_them)


@pytest.mark.parametrize("all_of_them", [True, False], ids=["whole file", "limit"])
@pytest.mark.parametrize("options", [JOB.options, {}], ids=["same options", "other options"])
def test_exactly_once_is_refused_after_a_complete_at_least_once_run_of_the_same_content(
    file, path, all_of_them, options
):
    complete_at_least_once(file, all_of_them=all_of_them)
    before = path.read_bytes()

    with pytest.raises(ResumeRefused, match="at_least_once sent 3 rows of this file to orders") as refusal:
        begin(file, replace(JOB, options=options), recover=empty_topic)

    assert "--restart" in refusal.value.fix
    assert path.read_bytes() == before
    assert begin(file, JOB, restart=True, recover=empty_topic).mode == "new"


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_new_content_is_sent_after_a_complete_at_least_once_run(file, delivery):
    complete_at_least_once(file)

    start = begin(file, replace(JOB, delivery=delivery, sha256="cd" * 32), recover=empty_topic)

    assert (start.mode, start.progress.done) == ("new", 0)


GROWN = replace(LEAST, size=190, sha256="cd" * 32)


def extended(before):
    return (before.size, before.sha256) == (LEAST.size, LEAST.sha256)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("options", [JOB.options, {}, {"skip": "2"}], ids=["same", "other", "short skip"])
def test_a_file_that_was_extended_after_a_complete_at_least_once_run_is_refused(
    file, path, delivery, options
):
    complete_at_least_once(file)
    before = path.read_bytes()
    job = replace(GROWN, delivery=delivery, options=options)

    with pytest.raises(ResumeRefused, match="was extended after an earlier run sent 3 rows") as refusal:
        begin(file, job, recover=empty_topic, extends=extended)

    assert "--skip" in refusal.value.fix
    assert "--restart" in refusal.value.fix
    assert path.read_bytes() == before
    assert begin(file, job, restart=True, extends=extended).mode == "new"


@pytest.mark.parametrize("size", [100, 190])
def test_new_options_that_skip_the_sent_rows_send_without_a_note(file, size):
    complete_at_least_once(file)
    job = LEAST if size == LEAST.size else GROWN

    start = begin(file, replace(job, options={"key": "id", "skip": "3"}), extends=extended)

    assert (start.mode, start.text) == ("new", "")


@pytest.mark.parametrize(
    ("size", "change"), [(100, "replaced"), (190, "replaced"), (90, "replaced or truncated")]
)
def test_a_replaced_file_is_sent_after_a_complete_at_least_once_run_with_a_note(file, size, change):
    complete_at_least_once(file)

    start = begin(file, replace(LEAST, size=size, sha256="cd" * 32), extends=lambda before: False)

    assert (start.mode, start.progress.done) == ("new", 0)
    assert start.text == (
        f"This file was {change} after an earlier run sent 3 rows from it to orders. This run sends its current rows."
    )


def test_other_options_after_a_complete_at_least_once_run_are_stated(file):
    complete_at_least_once(file)

    start = begin(file, replace(LEAST, options={"key": "n"}))

    assert start.mode == "new"
    assert start.text == (
        "An earlier run sent 3 rows of this file to orders with different options: key was id and is now n. "
        "This run sends them again, with new message ids."
    )


@pytest.mark.parametrize("job", [LEAST, GROWN], ids=["unchanged", "extended"])
def test_a_complete_run_that_sent_no_row_needs_no_note(file, job):
    FileProgress(file, SendState(LEAST, 0)).finish(0, all_of_them=True)

    start = begin(file, job, extends=extended)

    assert (start.mode, start.text) == ("new", "")


def test_a_full_disk_after_the_last_row_leaves_no_state_that_would_resume_the_run(file, path, monkeypatch):
    progress = FileProgress(file, SendState(LEAST, 0))
    progress.reach(2)
    progress.settle(range(3))

    def full(data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file, "write_bytes", full)

    assert progress.finish(3, all_of_them=True)
    assert not path.exists()


def test_the_first_run_starts_a_new_send(file):
    start = begin(file, JOB, recover=empty_topic)

    assert (start.mode, start.progress.done, dict(start.progress.offsets)) == ("new", 0, {("orders", 0): -1})


def test_the_second_run_resumes_the_send(file):
    file.write(state())

    start = begin(file, JOB, recover=None)

    assert start.mode == "resumed"
    assert start.progress.already == 10
    assert "10 rows are settled" in start.text
    assert start.progress.session == session_of(JOB, 3)


def test_at_least_once_reports_possible_duplicates_and_adds_them_up_over_runs(file):
    file.write(state(LEAST, reached=20, doubtful=4))

    start = begin(file, LEAST)

    assert "Up to 10 more" in start.text
    assert start.progress.possibly_twice == 14
    assert saved(file).doubtful == 4, "nothing is sent again yet"
    start.progress.reach(7)
    assert saved(file).doubtful == 14


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (replace(JOB, sha256="cd" * 32), "bytes differ"),
        (replace(JOB, size=90, sha256="cd" * 32), "truncated"),
        (replace(JOB, size=190, sha256="cd" * 32), "grown"),
        (replace(JOB, options={"key": "n"}), "key was id and is now n"),
        (replace(JOB, options={}), "key was id and is now not given"),
        (replace(JOB, delivery="at_least_once"), "--delivery exactly_once"),
    ],
)
def test_another_input_or_another_command_is_refused_and_the_state_is_unchanged(file, path, now, message):
    file.write(state())
    before = path.read_bytes()

    with pytest.raises(ResumeRefused, match=message) as refusal:
        begin(file, now, recover=empty_topic)

    assert "--restart" in refusal.value.fix
    assert path.read_bytes() == before


def test_changed_content_is_refused_after_a_finished_job(file):
    file.write(state(settled=((0, 12),), rows=12))

    with pytest.raises(ResumeRefused):
        begin(file, replace(JOB, size=101, sha256="cd" * 32), recover=empty_topic)


def test_a_restart_uses_new_message_ids(file):
    file.write(state())

    start = begin(file, JOB, restart=True)

    assert (start.mode, start.progress.done) == ("new", 0)
    assert start.progress.session != session_of(JOB, 3)
    assert saved(file).run == 3, "the earlier run stays until the first row is enqueued"
    start.progress.reach(0)
    assert saved(file).run > 3


def test_a_restart_saves_the_start_offsets_of_its_partitions(file):
    """The offsets let a restored copy of the state resume the run."""
    file.write(state())

    begin(file, JOB, restart=True, ends=lambda: {("orders", 0): 9}).progress.reach(0)

    assert saved(file).offsets == {("orders", 0): 9}


def test_a_damaged_exactly_once_state_is_set_aside_and_recovered_from_the_topic(file, path):
    path.write_bytes(encode(state())[:-9])
    reasons = []

    def recover(reason):
        reasons.append(reason)
        return RecoveredPosition({2: PositionSearch(Ranges([(0, 5)]), {0: 0})}, {0: 0}, {("orders", 0): 9})

    start = begin(file, JOB, recover=recover)

    assert "damaged" in reasons[0]
    assert path.with_suffix(".damaged").exists()
    assert (start.mode, start.progress.done, dict(start.progress.offsets)) == ("found", 5, {("orders", 0): 9})
    assert start.progress.session == session_of(JOB, 2)


def test_a_damaged_at_least_once_state_requires_an_explicit_restart(file, path):
    path.write_bytes(b"nonsense")

    with pytest.raises(JournalDamaged) as refusal:
        begin(file, LEAST)

    assert "--restart" in refusal.value.fix
    assert begin(file, LEAST, restart=True).mode == "new"


def test_a_topic_that_lost_acknowledged_records_is_refused(file):
    file.write(state())

    with pytest.raises(ResumeRefused, match="ends at offset 3"):
        begin(file, JOB, recover=empty_topic, truncated=lambda state: "partition 0 ends at offset 3")


@pytest.mark.parametrize(
    ("rows", "first", "lows", "refused"),
    [
        ([(0, 9)], {0: 0, 1: 1}, {0: 0, 1: 0}, False),  # nothing was removed
        ([(4, 9)], {0: 4, 1: 5}, {0: 0, 1: 0}, False),  # missing or malformed rows are sent again
        ([(0, 9)], {0: 0, 1: 1}, {0: 70, 1: 80}, False),  # retention removed older records of other producers
        ([(0, 4), (6, 9)], {0: 0, 1: 1}, {0: 70, 1: 0}, False),  # the gap is above the first row there
        ([(4, 9)], {0: 4, 1: 5}, {0: 70, 1: 0}, True),  # rows 0 to 3 may have been in partition 0
        ([(0, 2), (5, 9)], {0: 5, 1: 0}, {0: 70, 1: 0}, True),
        ([(2, 9)], {1: 2}, {0: 70, 1: 0}, True),  # partition 0 no longer has a row of this file
        ([], {}, {0: 70, 1: 0}, False),  # the topic has no row of this file, so the send begins
    ],
)
def test_a_send_is_refused_if_retention_may_have_removed_its_rows(file, rows, first, lows, refused):
    found = RecoveredPosition({0: PositionSearch(Ranges(rows), first)}, lows, {})

    if refused:
        with pytest.raises(ResumeRefused, match="retention") as refusal:
            begin(file, JOB, recover=lambda reason: found)
        assert "--restart" in refusal.value.fix
        assert file.read() is None
    else:
        begin(file, JOB, recover=lambda reason: found)


def test_the_last_of_several_runs_on_the_topic_is_resumed(file):
    runs = {0: PositionSearch(Ranges([(0, 9)]), {0: 0}), 5: PositionSearch(Ranges([(0, 2)]), {0: 0})}

    start = begin(file, JOB, recover=lambda reason: RecoveredPosition(runs, {0: 0}, {}))

    assert (start.progress.done, start.progress.session) == (2, session_of(JOB, 5))


def test_rows_found_on_the_topic_are_settled(file):
    file.write(state(LEAST, reached=20, doubtful=4))

    start = begin(file, LEAST, unsaved=lambda state: UnsavedRows(Ranges([(7, 9), (12, 15)]), copies=2))

    assert "15 rows are settled, 5 found on orders" in start.text
    assert "Up to 5 more" in start.text
    assert start.progress.is_settled(14)
    assert start.progress.possibly_twice == 4 + 5 + 2


def test_an_old_copy_of_the_state_counts_the_rows_that_a_client_can_hold(file):
    file.write(state(LEAST, settled=((0, 12),), reached=20))

    start = begin(file, LEAST, unsaved=lambda state: UnsavedRows(Ranges([(12, 30), (31, 40)])), in_client=100)

    assert "The state file is older" in start.text
    assert start.progress.possibly_twice == 101
    start.progress.ends_at(50)
    assert start.progress.possibly_twice == 11


@pytest.mark.parametrize("compacted", [False, True])
def test_a_topic_that_cannot_be_read_is_stated(file, compacted):
    file.write(state(LEAST, settled=((0, 12),), reached=12))
    unread = UnsavedRows(compacted=compacted, unread="The topic cannot be read: denied")

    start = begin(file, LEAST, unsaved=lambda state: unread)

    assert "The topic cannot be read: denied. If the state file is an older copy" in start.text
    assert "No row is sent twice" not in start.text
    assert ("may be compacted" in start.text) == compacted
    assert start.progress.topic_unread


@pytest.mark.parametrize("restart", [False, True])
def test_a_new_at_least_once_run_saves_its_start_offsets(file, restart):
    begin(file, LEAST, restart=restart, ends=lambda: {("orders", 0): 9}).progress.reach(0)

    assert saved(file).offsets == {("orders", 0): 9}
