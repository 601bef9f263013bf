"""The hashes that an approval binds: bodies are read only for a request, outside the write block, and a change is noticed."""

from __future__ import annotations

import threading

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.approvals import binding, gate, requests
from producer_core.dlq.approvals.binding import Binding, read_contents
from producer_core.dlq.revisions.editor import Editor
from producer_core.errors import ApprovalRequired, ReplayError
from producer_core.replay import operation as operations
from producer_core.store import Store
from tests.fixtures.approvals import ADA, GRACE, write_policy
from tests.fixtures.edits import add, fields, json_dead_letter
from tests.fixtures.replays import ALL, CLUSTER, add_dead_letters

BY = {"who": ADA, "origin": "dashboard"}


@pytest.fixture
def policy(tmp_path, monkeypatch):
    return write_policy(monkeypatch, tmp_path)


@pytest.fixture
def body_reads(store, monkeypatch):
    """The reads of bodies for a hash, each with whether the thread held the store exclusively."""
    seen: list[bool] = []
    rows = Store.rows

    def watched(self, name, /, **params):
        if name == "approval_hashes":
            pool = self._pool
            seen.append(pool._owner == threading.get_ident() and pool._writing)
        return rows(self, name, **params)

    monkeypatch.setattr(Store, "rows", watched)
    return seen


def plan(store, clock, **choices):
    return replay.plan(store, ALL, **BY, can_run=CLUSTER, clock=clock, **choices)


def asked(store, clock):
    with pytest.raises(ApprovalRequired) as raised:
        plan(store, clock)
    return raised.value


def approve(store, clock, request_id):
    return requests.approve(store, request_id, who=GRACE, origin="dashboard", clock=clock)


def edit_elsewhere(store, clock, message_id):
    """Edit a dead letter in another process's way: with a store object of its own."""
    other = Store.open(store.path, clock=clock)
    editor = Editor(other, clock=clock)
    preview = editor.preview(DeadLetterFilter(ids=(message_id,)), fields({"amount": 9}))
    editor.keep(preview, **BY, reason="wrong amount")
    other.close()


def test_the_bodies_are_hashed_while_other_processes_can_write(store, clock, policy, body_reads):
    add_dead_letters(store, 3)
    waiting = asked(store, clock)
    assert len(body_reads) > 0
    approve(store, clock, waiting.request_id)
    replay.go(store, waiting.operation_id, **BY, clock=clock)
    replay.pause(store, waiting.operation_id, **BY)
    before = len(body_reads)
    replay.resume(store, waiting.operation_id, **BY, clock=clock)
    assert len(body_reads) == before  # an admitted replay
    assert not any(body_reads)


def test_a_resume_at_a_higher_rate_hashes_outside_the_write_block_too(store, clock, policy, body_reads):
    add_dead_letters(store, 3)
    with pytest.raises(ApprovalRequired) as raised:
        plan(store, clock, rate=5)
    approve(store, clock, raised.value.request_id)
    replay.go(store, raised.value.operation_id, **BY, clock=clock)
    replay.pause(store, raised.value.operation_id, **BY)
    with pytest.raises(ApprovalRequired):
        replay.resume(store, raised.value.operation_id, **BY, rate=50, clock=clock)
    assert not any(body_reads)


def test_no_body_is_hashed_without_a_policy(store, clock, body_reads):
    add_dead_letters(store, 3)
    plan(store, clock)
    assert body_reads == []


def test_no_body_is_hashed_for_a_replay_below_the_limit(store, clock, policy, body_reads):
    add_dead_letters(store, 2)
    operation = plan(store, clock)
    replay.pause(store, operation.operation_id, **BY)
    assert replay.resume(store, operation.operation_id, **BY, clock=clock).state == "planned"
    assert body_reads == []


def test_an_edit_between_the_hash_and_the_start_voids_the_approval(store, clock, policy, monkeypatch):
    ids = add(store, *(json_dead_letter(number) for number in range(3)))
    waiting = asked(store, clock)
    approve(store, clock, waiting.request_id)
    read = gate.read_for_start

    def read_then_edit(*given, **named):
        found = read(*given, **named)
        edit_elsewhere(store, clock, ids[1])
        return found

    monkeypatch.setattr(operations.gate, "read_for_start", read_then_edit)
    with pytest.raises(ApprovalRequired) as raised:
        replay.go(store, waiting.operation_id, **BY, clock=clock)
    assert raised.value.request_id != waiting.request_id
    assert requests.get_request(store, waiting.request_id).state == "void"


def test_an_archive_between_the_hash_and_the_approval_approves_nothing(store, clock, policy, monkeypatch):
    add_dead_letters(store, 3)
    waiting = asked(store, clock)
    read = requests.read_contents

    def read_then_archive(*given):
        found = read(*given)
        clock.forward(1)
        DeadLetters(store, clock=clock).archive(DeadLetterFilter(until=1000.5), **BY)
        return found

    monkeypatch.setattr(requests, "read_contents", read_then_archive)
    with pytest.raises(ReplayError, match="Nothing was approved"):
        approve(store, clock, waiting.request_id)


def test_slices_do_not_change_the_hash(store, clock, policy, monkeypatch):
    add_dead_letters(store, 4_100)
    operation_id = asked(store, clock).operation_id
    (row,) = store.rows("operations", operation=operation_id)
    whole = Binding(store, row).content
    monkeypatch.setattr(binding, "_SLICE_PARTS", 1)
    assert len(read_contents(store, operation_id).parts) == 2
    assert Binding(store, row).content == whole


def test_a_person_without_a_name_leaves_no_replay_that_waits(store, clock, policy):
    from producer_core._internal.identity import Identity
    from producer_core.errors import NotPermitted

    add_dead_letters(store, 3)
    with pytest.raises(NotPermitted, match="no sign-in"):
        replay.plan(
            store, ALL, who=Identity("ada", known=False), origin="dashboard", can_run=CLUSTER, clock=clock
        )
    assert replay.live(store) == []
