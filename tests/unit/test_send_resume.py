"""The state of a resumable send: believed when whole, refused when the input is another, never in two hands."""

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
from producer_core.cli.send.resume_check import can_resume, options_of, same_again
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


def nothing_there(why):
    return RecoveredPosition(lows={0: 0}, offsets={("orders", 0): -1})


def saved(file):
    return file.read()


# the file


def test_what_is_written_is_read(file):
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


def test_no_byte_can_be_changed_unnoticed():
    data = encode(state())

    for place in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[place] ^= 1 << bit
            with pytest.raises(ValueError):
                decode(bytes(wrong))


def test_no_end_can_be_torn_unnoticed():
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


def test_a_disk_that_takes_nothing_leaves_the_old_state(file, path, monkeypatch):
    file.write(state(dead=1))

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.write(state(dead=2))
    monkeypatch.undo()
    assert file.read().dead == 1
    assert [one.name for one in path.parent.iterdir() if one.suffix == ".new"] == []


def test_only_its_owner_can_read_it(file, path):
    file.write(state())

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_second_process_is_refused_with_the_owners_number(file, path):
    code = "import sys; from pathlib import Path; from producer_core.cli.send.state_file import StateFile; StateFile(Path(sys.argv[1]))"

    other = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)

    assert other.returncode != 0
    assert (
        f"JournalLocked: This file is being sent to this topic already, by process {os.getpid()}"
        in other.stderr
    )


def test_a_killed_owner_leaves_no_lock(path):
    StateFile(path).close()
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".lock").write_text("4194304\n")

    StateFile(path).close()


def test_nothing_is_left_of_a_job_that_ended(file, path):
    file.write(state())
    file.remove()
    file.close()

    assert list(path.parent.iterdir()) == []


def test_one_process_cannot_hold_it_twice(file, path):
    with pytest.raises(JournalLocked):
        StateFile(path)


# identity


def test_ids_are_the_same_on_every_machine_and_differ_by_what_is_sent():
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


def test_a_new_run_fences_the_one_before_and_so_does_another_set_of_options():
    assert transactional_id_of(JOB) == transactional_id_of(replace(JOB, options={}))
    assert transactional_id_of(JOB) != transactional_id_of(replace(JOB, topic="refunds"))


def test_the_state_is_found_by_place_whatever_is_in_the_file(tmp_path):
    assert state_path(tmp_path, JOB) == state_path(tmp_path, replace(JOB, sha256="", size=0, options={}))
    assert state_path(tmp_path, JOB) != state_path(tmp_path, replace(JOB, cluster_id="c2"))


def test_a_file_that_is_written_to_while_it_is_sent_is_noticed(tmp_path):
    input = tmp_path / "a.jsonl"
    input.write_text("1\n2\n")
    content = fingerprint(input)

    with input.open("rb") as opened:
        content.check(opened.fileno(), "a.jsonl")
        with input.open("a") as more:
            more.write("3\n")
        with pytest.raises(InputError, match="was changed while it was sent"):
            content.check(opened.fileno(), "a.jsonl")


def test_the_checksum_is_of_the_whole_file_and_its_reading_is_told(tmp_path):
    input = tmp_path / "a.bin"
    input.write_bytes(random.Random(1).randbytes(3 << 20))
    told = []

    content = fingerprint(input, lambda done, total: told.append((done, total)))

    assert (content.size, told[-1]) == (3 << 20, (3 << 20, 3 << 20))
    input.write_bytes(random.Random(1).randbytes((3 << 20) - 1) + b"!")
    assert fingerprint(input).sha256 != content.sha256


# progress


def test_a_settled_row_and_its_offset_are_on_disk_together(file):
    progress = FileProgress(file, SendState(JOB, 0))

    progress.settle([0, 2, 1, 5], {("orders", 0): 4})
    progress.save()

    assert list(saved(file).settled) == [(0, 3), (5, 6)]
    assert saved(file).offsets == {("orders", 0): 4}
    assert [progress.is_settled(row) for row in (2, 3, 5)] == [True, False, True]


def test_where_the_log_begins_is_on_disk_at_once_and_other_marks_soon(file):
    progress = FileProgress(file, SendState(JOB, 0))
    progress.reach(0)

    progress.settle([0], {("orders", 0): 4})
    assert saved(file).offsets == {}
    progress.settle((), {("orders", 1): 8})

    assert saved(file).offsets == {("orders", 0): 4, ("orders", 1): 8}
    progress.settle([1])
    progress.close()
    assert list(saved(file).settled) == [(0, 2)]


def test_no_row_is_handed_over_that_the_file_does_not_allow_for(file):
    progress = FileProgress(file, SendState(LEAST, 0))

    for row in range(5000):
        progress.reach(row)
        assert saved(file).reached > row


def test_after_a_clean_end_nothing_is_in_doubt_but_what_was_before(file):
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


def test_no_row_beyond_the_end_of_the_input_is_called_possibly_sent(file):
    """How far a run may reach is written ahead; killed near the end it had said more rows than there are."""
    file.write(state(LEAST, settled=((0, 7),), reached=50_020))
    begun = begin(file, LEAST, restart=False, look=nothing_there)
    begun.progress.reach(19)

    begun.progress.ends_at(20)

    assert begun.progress.possibly_twice == saved(file).doubtful == 13
    assert (saved(file).reached, saved(file).possible()) == (20, 13)
    begun.progress.close()
    assert saved(file).possible() == 13


def test_dead_letters_count_as_done_once_and_malformed_rows_apart(file):
    progress = FileProgress(file, SendState(JOB, 0))
    progress.malformed(1)

    for _ in range(2):
        progress.give_up([0, 1])

    assert (progress.dead, progress.malformed_rows, progress.done) == (1, 1, 2)


def test_rows_are_known_by_their_messages_ids(file):
    progress = FileProgress(file, SendState(JOB, 0))
    ours = id_text(id_bytes(progress.session, 7))
    theirs = id_text(id_bytes(uuid.uuid4(), 8))

    assert progress.rows_of([ours, theirs]) == [7]


def test_a_full_disk_is_back_pressure_with_its_reason(file, monkeypatch):
    progress = FileProgress(file, SendState(JOB, 0))

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalFull, match="No space left"):
        progress.settle((), {("orders", 0): 1})


def test_at_least_once_forgets_what_ended_and_exactly_once_does_not(file):
    least = FileProgress(file, SendState(LEAST, 0))
    least.settle(range(3))
    assert not least.finish(4, all_of_them=True)
    assert least.finish(3, all_of_them=True)
    assert file.read() is None

    once = FileProgress(file, SendState(JOB, 0))
    once.settle(range(3))
    assert once.finish(3, all_of_them=True)
    assert begin(file, JOB, look=nothing_there).how == "complete"


# deciding


def test_the_first_time_it_begins(file):
    begun = begin(file, JOB, look=nothing_there)

    assert (begun.how, begun.progress.done, dict(begun.progress.offsets)) == ("new", 0, {("orders", 0): -1})


def test_the_second_time_it_goes_on(file):
    file.write(state())

    begun = begin(file, JOB, look=None)

    assert begun.how == "resumed"
    assert begun.progress.already == 10
    assert "10 rows are done" in begun.text
    assert begun.progress.session == session_of(JOB, 3)


def test_at_least_once_says_how_many_may_be_there_twice_and_adds_them_up(file):
    file.write(state(LEAST, reached=20, doubtful=4))

    begun = begin(file, LEAST)

    assert "Up to 10 more" in begun.text
    assert begun.progress.possibly_twice == 14
    assert saved(file).doubtful == 4, "nothing is sent again yet"
    begun.progress.reach(7)
    assert saved(file).doubtful == 14


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (replace(JOB, sha256="cd" * 32), "other bytes"),
        (replace(JOB, size=90, sha256="cd" * 32), "truncated"),
        (replace(JOB, size=190, sha256="cd" * 32), "grown"),
        (replace(JOB, options={"key": "n"}), "key was id, is n"),
        (replace(JOB, options={}), "key was id, is not given"),
        (replace(JOB, delivery="at_least_once"), "--delivery exactly_once"),
    ],
)
def test_another_input_or_another_command_is_refused_and_nothing_is_changed(file, path, now, words):
    file.write(state())
    before = path.read_bytes()

    with pytest.raises(ResumeRefused, match=words) as refusal:
        begin(file, now, look=nothing_there)

    assert "--restart" in refusal.value.fix
    assert path.read_bytes() == before


def test_a_finished_job_is_refused_another_content_as_well(file):
    file.write(state(settled=((0, 12),), rows=12))

    with pytest.raises(ResumeRefused):
        begin(file, replace(JOB, size=101, sha256="cd" * 32), look=nothing_there)


def test_restart_begins_with_ids_of_its_own(file):
    file.write(state())

    begun = begin(file, JOB, restart=True)

    assert (begun.how, begun.progress.done) == ("new", 0)
    assert begun.progress.session != session_of(JOB, 3)
    assert saved(file).run == 3, "a command that is refused now leaves the earlier run"
    begun.progress.reach(0)
    assert saved(file).run > 3


def test_a_restart_knows_where_its_partitions_begin_so_that_a_copy_of_its_state_can_be_put_back(file):
    file.write(state())

    begin(file, JOB, restart=True, ends=lambda: {("orders", 0): 9}).progress.reach(0)

    assert saved(file).offsets == {("orders", 0): 9}


def test_a_damaged_state_is_set_aside_and_the_topic_read(file, path):
    path.write_bytes(encode(state())[:-9])
    seen = []

    def look(why):
        seen.append(why)
        return RecoveredPosition({2: PositionSearch(Ranges([(0, 5)]), {0: 0})}, {0: 0}, {("orders", 0): 9})

    begun = begin(file, JOB, look=look)

    assert "damaged" in seen[0]
    assert path.with_suffix(".damaged").exists()
    assert (begun.how, begun.progress.done, dict(begun.progress.offsets)) == ("found", 5, {("orders", 0): 9})
    assert begun.progress.session == session_of(JOB, 2)


def test_a_damaged_state_of_at_least_once_is_for_a_person_to_decide(file, path):
    path.write_bytes(b"nonsense")

    with pytest.raises(JournalDamaged) as refusal:
        begin(file, LEAST)

    assert "--restart" in refusal.value.fix
    assert begin(file, LEAST, restart=True).how == "new"


def test_a_topic_that_lost_what_was_acknowledged_is_refused(file):
    file.write(state())

    with pytest.raises(ResumeRefused, match="ends at offset 3"):
        begin(file, JOB, look=nothing_there, cut=lambda state: "partition 0 ends at offset 3")


@pytest.mark.parametrize(
    ("rows", "first", "lows", "refused"),
    [
        ([(0, 9)], {0: 0, 1: 1}, {0: 0, 1: 0}, False),  # nothing was removed
        ([(4, 9)], {0: 4, 1: 5}, {0: 0, 1: 0}, False),  # torn, or malformed rows: they are sent again
        ([(0, 9)], {0: 0, 1: 1}, {0: 70, 1: 80}, False),  # older records of others were removed
        ([(0, 4), (6, 9)], {0: 0, 1: 1}, {0: 70, 1: 0}, False),  # a gap above what retention can have taken
        ([(4, 9)], {0: 4, 1: 5}, {0: 70, 1: 0}, True),  # rows 0 to 3 may have been in partition 0
        ([(0, 2), (5, 9)], {0: 5, 1: 0}, {0: 70, 1: 0}, True),
        ([(2, 9)], {1: 2}, {0: 70, 1: 0}, True),  # partition 0 holds none of ours any more
        ([], {}, {0: 70, 1: 0}, False),  # none of ours is there: it begins
    ],
)
def test_rows_that_retention_may_have_removed_are_not_sent_again_unasked(file, rows, first, lows, refused):
    found = RecoveredPosition({0: PositionSearch(Ranges(rows), first)}, lows, {})

    if refused:
        with pytest.raises(ResumeRefused, match="retention") as refusal:
            begin(file, JOB, look=lambda why: found)
        assert "--restart" in refusal.value.fix
        assert file.read() is None
    else:
        begin(file, JOB, look=lambda why: found)


def test_of_several_runs_on_the_topic_the_last_one_counts(file):
    runs = {0: PositionSearch(Ranges([(0, 9)]), {0: 0}), 5: PositionSearch(Ranges([(0, 2)]), {0: 0})}

    begun = begin(file, JOB, look=lambda why: RecoveredPosition(runs, {0: 0}, {}))

    assert (begun.progress.done, begun.progress.session) == (2, session_of(JOB, 5))


# the command


@pytest.mark.parametrize(
    ("input", "dedup", "cluster", "words"),
    [
        (None, False, "c1", "Standard input cannot be read again"),
        ("/dev/null", False, "c1", "no regular file"),
        (__file__, True, "c1", "--dedup remembers rows in memory"),
        (__file__, False, "embedded-1", "embedded broker"),
    ],
)
def test_what_cannot_be_exactly_once_is_refused_with_a_way_out(input, dedup, cluster, words):
    path = None if input is None else Path(input)

    with pytest.raises(ConfigError, match=words) as refusal:
        can_resume(path, "exactly_once", dedup=dedup, cluster_id=cluster, restart=False)

    assert refusal.value.fix
    least = can_resume(path, "at_least_once", dedup=dedup, cluster_id=cluster, restart=False)
    assert least == (input == __file__ and not dedup)


def test_there_is_nothing_to_restart_where_nothing_is_resumed():
    with pytest.raises(ConfigError, match="nothing to restart"):
        can_resume(None, "at_least_once", dedup=False, cluster_id="c1", restart=True)


def test_an_option_that_changes_rows_is_part_of_the_job():
    asked = {"partition": 0, "key": None, "null": (), "header": (("a", "b"),), "skip": 0}

    assert options_of(asked) == {"partition": "0", "header": "a=b", "skip": "0"}


def test_the_command_that_goes_on_begins_nothing_again_and_shows_no_secret():
    words = [
        "orders", "my rows.csv", "--key", "id", "--restart", "--delivery", "exactly_once", "--wait", "15s",
        "-X", "sasl.password=hunter2", "-X", "linger.ms=5", "--header", "a=b", "--no-store",
    ]  # fmt: skip
    context: click.Context = send.make_context("send", words)

    said = same_again(context)

    assert said.startswith("producer-core send orders 'my rows.csv' --key id")
    for part in ("--delivery exactly_once", "--wait 15s", "linger.ms=5", "--header a=b", "--no-store"):
        assert part in said
    assert "--restart" not in said
    assert "hunter2" not in said
