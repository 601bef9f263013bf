"""Edits under an approval policy: an approval covers the content, so nobody sends an edit that no second person saw."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.approvals import requests
from producer_core.dlq.revisions.editor import Editor
from producer_core.errors import ApprovalRequired, NotPermitted
from tests.fixtures.approvals import ADA, BEN, GRACE, write_policy
from tests.fixtures.edits import add, fields, json_dead_letter
from tests.fixtures.replays import CLUSTER, ScriptedSender, preflight_done, runner

PAGE = {"who": ADA, "origin": "dashboard"}


@pytest.fixture(autouse=True)
def policy(tmp_path, monkeypatch):
    return write_policy(monkeypatch, tmp_path)


def sent_by_a_runner(store, clock):
    sender = ScriptedSender()
    runner(store, sender, clock).poll(preflight=False)
    return [one.value for one in sender.sent]


def started(store, clock, topic="orders"):
    """Plan and start a replay."""
    operation = replay.plan(
        store, DeadLetterFilter(topic=topic), **PAGE, can_run=CLUSTER, clock=clock, check_first=True
    )
    preflight_done(store, operation.operation_id)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE operations SET checked_at = ?", [clock.now])
    return replay.go(store, operation.operation_id, **PAGE, clock=clock)


def edit(store, clock, change, message_id):
    editor = Editor(store, clock=clock)
    preview = editor.preview(DeadLetterFilter(ids=(message_id,)), change)
    return editor.keep(preview, **PAGE, reason="wrong amount")


def approve(store, clock, raised):
    requests.approve(
        store, raised.value.request_id, who=GRACE, origin="dashboard", reason="checked", clock=clock
    )


def approved_and_started(store, clock):
    with pytest.raises(ApprovalRequired) as raised:
        started(store, clock)
    approve(store, clock, raised)
    return replay.go(store, raised.value.operation_id, **PAGE, clock=clock)


def test_an_edit_after_the_start_is_not_sent_before_a_second_approval(store, clock):
    ids = add(store, *(json_dead_letter(number) for number in range(3)))
    operation = approved_and_started(store, clock)

    result = edit(store, clock, fields({"amount": 1_000_000}), ids[1])

    assert f"Paused 1 replay ({operation.operation_id})" in result.text
    assert sent_by_a_runner(store, clock) == []
    with pytest.raises(ApprovalRequired) as raised:
        replay.resume(store, operation.operation_id, **PAGE, clock=clock)
    approve(store, clock, raised)
    replay.resume(store, operation.operation_id, **PAGE, clock=clock)
    assert len(sent_by_a_runner(store, clock)) == 3


def test_an_edit_undone_after_the_start_is_not_sent_before_a_second_approval(store, clock):
    ids = add(store, *(json_dead_letter(number) for number in range(3)))
    edit(store, clock, fields({"amount": 1}), ids[1])
    operation = approved_and_started(store, clock)

    result = Editor(store, clock=clock).undo(DeadLetterFilter(ids=(ids[1],)), **PAGE)

    assert f"Paused 1 replay ({operation.operation_id})" in result.text
    assert sent_by_a_runner(store, clock) == []


def test_an_edit_does_not_take_a_replay_out_of_the_count_of_its_person(store, clock):
    ids = add(store, *(json_dead_letter(number) for number in range(2)))
    add(store, *(json_dead_letter(number, topic="payments") for number in range(10, 12)))
    started(store, clock)
    edit(store, clock, fields({"amount": 1}), ids[0])

    with pytest.raises(ApprovalRequired, match=f"With the 2 records that {ADA} replayed"):
        started(store, clock, topic="payments")


def test_a_viewer_neither_edits_nor_undoes_an_edit(store, clock):
    (one,) = add(store, json_dead_letter(1))
    edit(store, clock, fields({"amount": 1}), one)
    editor, where = Editor(store, clock=clock), DeadLetterFilter(ids=(one,))

    with pytest.raises(NotPermitted):
        editor.keep(
            editor.preview(where, fields({"amount": 2})), who=BEN, origin="dashboard", reason="wrong amount"
        )
    with pytest.raises(NotPermitted):
        editor.undo(where, who=BEN, origin="dashboard")

    assert [item.undone_at for item in editor.lineage(one).revisions] == [None]


def test_a_user_without_a_role_does_not_edit_by_a_command(store, clock):
    (one,) = add(store, json_dead_letter(1))
    with pytest.raises(NotPermitted):
        Editor(store).undo(DeadLetterFilter(ids=(one,)), who="ann@host", origin="cli")
