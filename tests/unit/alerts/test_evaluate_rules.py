"""The built-in rules and the subjects of a rule on a virtual clock: the exact times of changes."""

from __future__ import annotations

import dataclasses

import pytest

from producer_core.alerts import RULES
from tests.fixtures.alerts import DAY, DeadLetterCounts, World, between, errors, run, seen


def with_producer(world, at, evaluate=True, **changes):
    """Set the state of the producer, evaluate, and return the changes of this time."""
    world.now = world.start + at
    world.producers = (seen(**changes),)
    if evaluate:
        world.evaluate()
    return [(rule, kind) for when, kind, rule, _ in world.changes if when == at]


def test_a_silent_producer_is_gone_after_40_seconds_and_back_with_its_next_heartbeat():
    world = World(RULES)

    changes = {
        at: with_producer(world, at, silent=silent) for at, silent in [(35, 35), (40, 40), (45, 45), (50, 0)]
    }

    assert changes == {35: [], 40: [], 45: [("producer_gone", "fired")], 50: [("producer_gone", "resolved")]}


@pytest.mark.parametrize(("pending", "severity"), [(0, "warning"), (1, "critical")])
def test_a_killed_producer_is_critical_only_with_unsettled_messages(pending, severity):
    world = World(RULES)

    with_producer(world, 45, silent=45, pending=pending)

    (gone,) = world.known.values()
    assert (gone.rule, gone.severity) == ("producer_gone", severity)
    assert f"unsettled messages: {pending}" in gone.text


def test_a_rule_with_a_lower_severity_keeps_it():
    info = dataclasses.replace(RULES["producer_gone"], severity="info")
    world = World({"producer_gone": info})

    with_producer(world, 45, silent=45, pending=1)

    assert [gone.severity for gone in world.known.values()] == ["info"]


def test_a_closed_producer_is_not_gone():
    assert with_producer(World(RULES), 60, silent=60.0, closed=True) == []


def test_delivery_is_stalled_after_six_minutes_with_pending_messages_and_none_settled():
    world = World(RULES)
    world.record(good=100)

    fired = [at for at in range(5, 600, 5) if with_producer(world, at, pending=7)]

    # At 300 the settled messages leave the window of five minutes; the rule then waits for one minute.
    assert fired == [360]
    assert world.firing() == [("delivery_stalled", "p-1")]


def test_a_producer_with_one_message_in_flight_is_not_stalled():
    world = World(RULES)

    assert [with_producer(world, at, pending=int(at % 10 == 0)) for at in range(5, 600, 5)] == [[]] * 119


def test_memory_near_the_limit_of_the_container_fires_after_two_minutes():
    world = World(RULES)

    fired = [at for at in range(5, 300, 5) if with_producer(world, at, memory_bytes=97, memory_limit=100)]

    assert fired == [125]
    assert "97%" in next(iter(world.known.values())).text


def test_memory_without_a_limit_does_not_fire():
    assert not any(
        with_producer(World(RULES), at, memory_bytes=97, memory_limit=None) for at in range(5, 300, 5)
    )


@pytest.mark.parametrize(
    ("dead_letters", "rule"),
    [
        (DeadLetterCounts(1, 1_000_000.0 - 2 * DAY, {}), "dead_letters_old"),
        (DeadLetterCounts(5000, 1_000_000.0, {900.0: 1001}), "dead_letters_growing"),
    ],
)
def test_old_and_many_dead_letters_fire_after_a_minute(dead_letters, rule):
    world = World(RULES)
    world.dead_letters = {"orders": dead_letters}

    changes = [(at, with_producer(world, at)) for at in range(5, 200, 5)]

    assert [item for item in changes if item[1]] == [(65, [(rule, "fired")])]


def test_a_missing_part_of_the_snapshot_leaves_its_alerts_unchanged():
    rules = errors()
    world = run(World(rules), 150, between(100, 999))
    assert world.firing() == [("errors", "orders")]

    world.snapshot = lambda whole=world.snapshot: dataclasses.replace(
        whole(), sums={}, missing=frozenset({"sums"})
    )
    run(world, 400, lambda at: (50, 0))

    assert world.firing() == [("errors", "orders")]


def test_a_rule_with_subjects_evaluates_only_those():
    rules = errors(subjects=("pay*",))
    world = World(rules)
    for topic in ("payments", "orders"):
        world.record(bad=10, topic=topic)
    world.evaluate()

    assert world.firing() == [("errors", "payments")]
