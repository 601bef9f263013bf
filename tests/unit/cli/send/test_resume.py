"""The state of a resumable send: rejected when damaged or for another input, and held by one process at a time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import click
import pytest

from producer_core.cli.send.file_progress import FileProgress
from producer_core.cli.send.fingerprint import fingerprint, session_of, state_path, transactional_id_of
from producer_core.cli.send.open_rows import InputError
from producer_core.cli.send.recover_position import PositionSearch, RecoveredPosition
from producer_core.cli.send.resume import ResumeRefused, begin
from producer_core.cli.send.resume_check import can_resume, options_of, resume_command
from producer_core.cli.send.send_command import send
from producer_core.cli.send.state_file import SendJob, SendState, StateFile, decode, encode
from producer_core.delivery.journal.ranges import Ranges
from producer_core.errors import ConfigError, JournalDamaged, JournalFull, JournalLocked
from producer_core.messages import id_bytes, id_text

JOB = SendJob("orders", "c1", "/data/rows.csv", "exactly_once", {"key": "id"}, 100, "ab" * 32)
LEAST = replace(JOB, delivery="at_least_once")


def state(job=JOB, *, settled=((0, 7), (9, 12)), **more):
    return SendState(job, 3, settled=Ranges(settled), offsets={("orders", 0): 41, ("orders", 1): -1}, **more)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sends" / "a.state"


@pytest.fixture
def file(path):
    opened = StateFile(path)
    yield opened
    opened.close()


def empty_topic(reason):
    return RecoveredPosition(lows={0: 0}, offsets={("orders", 0): -1})


def saved(file):
    return file.read()


# the file


def test_a_state_round_trips_through_the_file(file):
    file.write(state(dead=2, malformed=1, doubtful=5, reached=20, rows=12))

    found = file.read()

    assert found.job == JOB
    assert list(found.settled) == [(0, 7), (9, 12)]
    assert found.offsets == {("orders", 0): 41, ("orders", 1): -1}
    assert (found.run, found.dead, found.malformed, found.doubtful, found.reached, found.rows) == (
        3,
        2,
        1,
        5,
        20,
        12,
    )
    assert found.possible() == 10


def test_every_changed_bit_is_detected():
    data = encode(state())

    for position in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[position] ^= 1 << bit
            with pytest.raises(ValueError):
                decode(bytes(wrong))


def test_every_truncation_and_extension_is_detected():
    data = encode(state())

    for length in range(len(data)):
        with pytest.raises(ValueError):
            decode(data[:length])
    with pytest.raises(ValueError):
        decode(data + b"x")
    with pytest.raises(ValueError):
        decode(data + data)


def test_a_crash_before_the_rename_leaves_the_old_state(file, path):
    file.write(state(dead=1))
    path.with_suffix(".new").write_bytes(encode(state(dead=2))[:50])

    assert file.read().dead == 1


def test_a_failed_write_leaves_the_old_state(file, path, monkeypatch):
    file.write(state(dead=1))

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.write(state(dead=2))
    monkeypatch.undo()
    assert file.read().dead == 1
    assert [one.name for one in path.parent.iterdir() if one.suffix == ".new"] == []


def test_only_the_owner_can_read_the_state_file(file, path):
    file.write(state())

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_second_process_is_refused_with_the_process_id_of_the_owner(file, path):
    code = "import sys; from pathlib import Path; from producer_core.cli.send.state_file import StateFile; StateFile(Path(sys.argv[1]))"

    other = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)

    assert other.returncode != 0
    assert f"JournalLocked: Process {os.getpid()} is already sending this file to this topic" in other.stderr


def test_a_killed_owner_leaves_no_lock(path):
    StateFile(path).close()
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".lock").write_text("4194304\n")

    StateFile(path).close()


def test_a_finished_job_leaves_no_file(file, path):
    file.write(state())
    file.remove()
    file.close()

    assert list(path.parent.iterdir()) == []


def test_one_process_cannot_lock_the_state_twice(file, path):
    with pytest.raises(JournalLocked):
        StateFile(path)


# identity


def test_message_ids_are_the_same_on_every_machine_and_depend_on_the_job():
    here = session_of(JOB, 0)

    assert session_of(replace(JOB, path="/elsewhere", cluster_id="c2"), 0) == here
    assert here.version == 8
    assert here.variant == uuid.RFC_4122
    for other in (
        replace(JOB, topic="refunds"), replace(JOB, sha256="cd" * 32), replace(JOB, options={"key": "n"}), LEAST
    ):  # fmt: skip
        assert session_of(other, 0).bytes[:12] != here.bytes[:12]
    assert session_of(JOB, 1).bytes[:12] == here.bytes[:12]
    assert session_of(JOB, 1) != here


def test_a_new_run_and_a_run_with_other_options_fence_the_earlier_run():
    assert transactional_id_of(JOB) == transactional_id_of(replace(JOB, options={}))
    assert transactional_id_of(JOB) != transactional_id_of(replace(JOB, topic="refunds"))


def test_the_state_path_does_not_depend_on_the_content_of_the_file(tmp_path):
    assert state_path(tmp_path, JOB) == state_path(tmp_path, replace(JOB, sha256="", size=0, options={}))
    assert state_path(tmp_path, JOB) != state_path(tmp_path, replace(JOB, cluster_id="c2"))


def test_a_write_to_the_file_during_the_send_is_detected(tmp_path):
    input = tmp_path / "a.jsonl"
    input.write_text("1\n2\n")
    content = fingerprint(input)

    with input.open("rb") as opened:
        content.check(opened.fileno(), "a.jsonl")
        with input.open("a") as more:
            more.write("3\n")
        with pytest.raises(InputError, match="was changed while it was being sent"):
            content.check(opened.fileno(), "a.jsonl")


def test_the_checksum_covers_the_whole_file_and_reports_its_progress(tmp_path):
    input = tmp_path / "a.bin"
    input.write_bytes(random.Random(1).randbytes(3 << 20))
    reports = []

    content = fingerprint(input, lambda done, total: reports.append((done, total)))

    assert (content.size, reports[-1]) == (3 << 20, (3 << 20, 3 << 20))
    input.write_bytes(random.Random(1).randbytes((3 << 20) - 1) + b"!")
    assert fingerprint(input).sha256 != content.sha256


# progress


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


def test_the_saved_reach_covers_every_row_before_it_is_enqueued(file):
    progress = FileProgress(file, SendState(LEAST, 0))

    for row in range(5000):
        progress.reach(row)
        assert saved(file).reached > row


def test_a_clean_end_leaves_only_the_uncertain_rows_of_earlier_runs(file):
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


def test_at_least_once_deletes_the_state_of_a_finished_job_and_exactly_once_keeps_it(file):
    least = FileProgress(file, SendState(LEAST, 0))
    least.settle(range(3))
    assert not least.finish(4, all_of_them=True)
    assert least.finish(3, all_of_them=True)
    assert file.read() is None

    once = FileProgress(file, SendState(JOB, 0))
    once.settle(range(3))
    assert once.finish(3, all_of_them=True)
    assert begin(file, JOB, recover=empty_topic).mode == "complete"


# the decision


def test_the_first_run_begins(file):
    start = begin(file, JOB, recover=empty_topic)

    assert (start.mode, start.progress.done, dict(start.progress.offsets)) == ("new", 0, {("orders", 0): -1})


def test_the_second_run_resumes(file):
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
        (replace(JOB, options={"key": "n"}), "key was id, is n"),
        (replace(JOB, options={}), "key was id, is not given"),
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
        ([(2, 9)], {1: 2}, {0: 70, 1: 0}, True),  # partition 0 has no row of this file any more
        ([], {}, {0: 70, 1: 0}, False),  # the topic has no row of this file, so the send begins
    ],
)
def test_a_send_is_refused_where_retention_may_have_removed_its_rows(file, rows, first, lows, refused):
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


# the command


@pytest.mark.parametrize(
    ("input", "dedup", "cluster", "message"),
    [
        (None, False, "c1", "Standard input cannot be read again"),
        ("/dev/null", False, "c1", "not a regular file"),
        (__file__, True, "c1", "--dedup keeps row hashes in memory"),
        (__file__, False, "embedded-1", "embedded broker"),
    ],
)
def test_an_input_that_cannot_be_exactly_once_is_refused_with_a_fix(input, dedup, cluster, message):
    path = None if input is None else Path(input)

    with pytest.raises(ConfigError, match=message) as refusal:
        can_resume(path, "exactly_once", dedup=dedup, cluster_id=cluster, restart=False)

    assert refusal.value.fix
    least = can_resume(path, "at_least_once", dedup=dedup, cluster_id=cluster, restart=False)
    assert least == (input == __file__ and not dedup)


def test_restart_is_refused_where_nothing_can_be_resumed():
    with pytest.raises(ConfigError, match="nothing to restart"):
        can_resume(None, "at_least_once", dedup=False, cluster_id="c1", restart=True)


def test_an_option_that_changes_rows_is_part_of_the_job():
    given = {"partition": 0, "key": None, "null": (), "header": (("a", "b"),), "skip": 0}

    assert options_of(given) == {"partition": "0", "header": "a=b", "skip": "0"}


def test_the_resume_command_omits_restart_and_masks_secrets():
    arguments = [
        "orders", "my rows.csv", "--key", "id", "--restart", "--delivery", "exactly_once", "--wait", "15s",
        "-X", "sasl.password=hunter2", "-X", "linger.ms=5", "--header", "a=b", "--no-store",
    ]  # fmt: skip
    context: click.Context = send.make_context("send", arguments)

    command = resume_command(context)

    assert command.startswith("producer-core send orders 'my rows.csv' --key id")
    for part in ("--delivery exactly_once", "--wait 15s", "linger.ms=5", "--header a=b", "--no-store"):
        assert part in command
    assert "--restart" not in command
    assert "hunter2" not in command
