"""The state of one send: its start, its command, and the rows that may be sent twice."""

from __future__ import annotations

from types import SimpleNamespace

from producer_core.cli.send.run_state import RunState


def state_of(*, skip=0, **options):
    return RunState(None, SimpleNamespace(skip=skip), "orders", **options)


def saved(**changes):
    known = {"dead": 2, "malformed_rows": 1, "begun": True, "possibly_twice": 3}
    return SimpleNamespace(**{**known, **changes})


def test_a_send_without_saved_progress_starts_at_the_skipped_rows():
    state = state_of(skip=7)

    assert (state.position, state.dead_before, state.malformed_before) == (7, 0, 0)
    assert state.possibly_twice(2) == 2


def test_a_resumed_send_has_the_counts_of_earlier_runs():
    state = state_of(progress=saved())

    assert (state.dead_before, state.malformed_before) == (2, 1)
    assert state.possibly_twice(2) == 3, "the saved number includes those of this run"


def test_skip_may_leave_out_the_whole_input():
    state = state_of(skip=7)
    assert not state.skipped_all

    state.exhausted = True
    assert state.skipped_all
    state.read = 1
    assert not state.skipped_all


def test_the_command_repeats_restart_until_the_restart_has_sent_a_row():
    assert state_of(command="send orders").resume_command == "send orders"
    for begun, command in ((False, "send orders --restart"), (True, "send orders")):
        state = state_of(command="send orders", restart=True, progress=saved(begun=begun))
        assert state.resume_command == command
