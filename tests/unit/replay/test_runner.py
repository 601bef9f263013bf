"""The runner takes operations of its cluster only, and only after the lease of their owner has expired."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.errors import OtherCluster, StoreLocked
from tests.fixtures.replays import (
    BY,
    FakeClock,
    ScriptedSender,
    add_dead_letters,
    claimed_by_a_dead_runner,
    counts,
    planned,
    probe_with,
    runner,
    states,
    successor,
)


def test_a_runner_of_another_cluster_does_not_touch_the_operation(store, clock):
    add_dead_letters(store, 1)
    operation = planned(store, clock)
    stranger = ScriptedSender()
    stranger.cluster_id = "elsewhere"

    assert not runner(store, stranger, clock).poll()
    with pytest.raises(OtherCluster):
        runner(store, stranger, clock).run_one(operation.operation_id, 1)
    assert stranger.sent == []


@pytest.mark.slow
def test_a_runner_does_not_take_an_operation_before_its_lease_expires(store, clock):
    add_dead_letters(store, 3)
    operation, _, _ = claimed_by_a_dead_runner(store, clock)
    sender = ScriptedSender()
    running = successor(store, sender, clock, probe=probe_with({}), after=14)

    assert not running.poll()
    assert sender.sent == []
    clock.forward(2)
    assert running.poll()
    assert counts(replay.get(store, operation.operation_id)) == (1, 0, 0, 2)


def test_a_live_owner_keeps_its_operation_when_the_clock_is_set(store, clock):
    add_dead_letters(store, 3)
    operation, owner, _ = claimed_by_a_dead_runner(store, clock)
    monotonic = FakeClock()
    watching = runner(store, ScriptedSender(), clock, monotonic=monotonic)

    for step in (3600, -7200, 3600):
        assert not watching.poll()
        clock.forward(step)
        assert not watching.poll()
        monotonic.forward(5)
        assert owner.renew()

    assert not watching.poll()
    assert replay.get(store, operation.operation_id).owner == "dead"


@pytest.mark.slow
def test_a_dead_owner_is_replaced_even_if_the_clock_was_set_back(store, clock):
    add_dead_letters(store, 3)
    claimed_by_a_dead_runner(store, clock)
    clock.forward(-3600)

    assert successor(store, ScriptedSender(), clock, probe=probe_with({})).poll()


@pytest.mark.slow
def test_a_cancelled_operation_of_a_dead_runner_is_settled_without_sending(store, clock):
    add_dead_letters(store, 4)
    operation, _, (landed, absent) = claimed_by_a_dead_runner(store, clock)
    replay.cancel(store, operation.operation_id, **BY, clock=clock)
    assert not replay.get(store, operation.operation_id).ended
    sender = ScriptedSender()

    assert successor(store, sender, clock, probe=probe_with({landed: "found"})).poll()

    done = replay.get(store, operation.operation_id)
    assert sender.sent == []
    assert counts(done) == (0, 1, 0, 3)
    assert states(store)[absent] == "dead"


@pytest.mark.slow
def test_a_cancelled_operation_of_a_dead_runner_is_settled_after_the_wait_for_old_attempts(store, clock):
    add_dead_letters(store, 4)
    operation, _, (landed, _) = claimed_by_a_dead_runner(store, clock)
    replay.cancel(store, operation.operation_id, **BY, clock=clock)

    running = successor(store, ScriptedSender(), clock, quiet=16.2, probe=probe_with({landed: "found"}))
    done = running.run_one(operation.operation_id, 60)

    assert (done.ended, counts(done)) == (True, (0, 1, 0, 3))
    assert sorted(states(store).values()) == ["dead", "dead", "dead", "landed"]


@pytest.mark.slow
def test_the_runner_waits_for_a_locked_store(store, clock, monkeypatch):
    add_dead_letters(store, 3)
    operation = planned(store, clock)
    running = runner(store, ScriptedSender(), clock)
    answers, look = iter([StoreLocked("held"), StoreLocked("held")]), running._candidates.ask

    def waiting(cluster, operation_id):
        if (error := next(answers, None)) is not None:
            raise error
        return look(cluster, operation_id)

    monkeypatch.setattr(running._candidates, "ask", waiting)

    assert running.run_one(operation.operation_id, 30).acknowledged == 3
