"""Approvals from Python: the methods of Monitor and of a replay's handle, and a queue in memory."""

from __future__ import annotations

import pytest

from producer_core import Monitor, replay
from producer_core._internal.identity import system_user
from producer_core.dlq.approvals import gate, requests
from producer_core.errors import ApprovalRequired, NotPermitted
from producer_core.producer.dead_letter_backend import MemoryBackend
from producer_core.replay.handle import Replay
from producer_core.store import Store
from tests.fixtures.approvals import ADA, GRACE, POLICY, write_policy
from tests.fixtures.replays import (
    ALL,
    CLUSTER,
    ScriptedSender,
    add_dead_letters,
    dead_letter,
    preflight_done,
)

ME = system_user()


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    yield opened
    opened.close()


@pytest.fixture
def policy(tmp_path, monkeypatch):
    return write_policy(monkeypatch, tmp_path, POLICY.replace('"grace", "linus"', f'"grace", "{ME}"'))


def planned(store, who, origin):
    add_dead_letters(store, 3)
    operation = replay.plan(store, ALL, who=who, origin=origin, can_run=CLUSTER, check_first=True)
    preflight_done(store, operation.operation_id)
    return operation.operation_id


def test_a_replay_of_a_notebook_asks_and_shows_its_request(store, policy):
    handle = Replay(store, planned(store, ME, "notebook"))
    assert handle.request is None
    with pytest.raises(ApprovalRequired, match="waits for approval"):
        handle.go()
    assert handle.request.state == "pending"
    assert f"Request {handle.request.request_id} is pending until" in repr(handle)
    assert handle.request.request_id in handle._repr_html_()
    with pytest.raises(NotPermitted, match="a requester cannot decide it"):
        Monitor(store).approve(handle.request.request_id)
    requests.approve(store, handle.request.request_id, who=GRACE, origin="dashboard")
    assert "is approved by grace" in repr(handle)
    handle.go(timeout=0)
    assert handle.state == "planned"


def test_a_monitor_lists_approves_and_refuses(store, policy):
    operation = planned(store, ADA, "dashboard")
    with pytest.raises(ApprovalRequired) as raised:
        replay.go(store, operation, who=ADA, origin="dashboard")
    monitor = Monitor(store)
    (listed,) = monitor.requests("pending")
    assert listed.request_id == raised.value.request_id
    assert listed.request_id in monitor.requests()._repr_html_()
    assert monitor.refuse(listed.request_id, reason="later").state == "refused"
    with pytest.raises(ApprovalRequired) as raised:
        replay.go(store, operation, who=ADA, origin="dashboard")
    approved = monitor.approve(raised.value.request_id)
    assert (approved.state, approved.decided_by) == ("approved", ME)
    assert replay.go(store, operation, who=ADA, origin="dashboard").state == "planned"


def test_a_queue_in_memory_above_the_limit_is_refused(policy):
    gate.check_without_store(2, who=ME, origin="python")
    with pytest.raises(
        NotPermitted, match="It sends 3 records, and replays of more than 2 records need"
    ) as raised:
        gate.check_without_store(3, who=ME, origin="python")
    assert "Give the producer a store" in raised.value.fix


def test_a_queue_in_memory_without_a_policy_is_not_limited(monkeypatch):
    monkeypatch.delenv("PRODUCER_CORE_POLICY", raising=False)
    gate.check_without_store(10**6, who=ME, origin="python")


def test_replays_of_a_queue_in_memory_in_parts_count_together(policy, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    backend, sender = MemoryBackend(100), ScriptedSender()
    for number in range(4):
        backend.died(dead_letter(number))

    def replayed():
        return backend.replay(sender, "orders", 2, 5.0, "keep")

    assert replayed() == 2
    with pytest.raises(
        NotPermitted, match="With the 2 records replayed within the last hour it sends 4 records"
    ):
        replayed()
    assert len(sender.sent) == 2
    policy.unlink()
    monkeypatch.delenv("PRODUCER_CORE_POLICY")
    assert replayed() == 2
