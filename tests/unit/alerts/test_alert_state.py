"""The life cycle of alerts on a virtual clock: the exact times of changes and of notifications."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.alerts import (
    RULES,
    Absence,
    AlertRule,
    BurnRate,
    Silence,
    Threshold,
    WindowPair,
    after,
    follow,
)
from producer_core.alerts.snapshot import StoreSnapshot, WindowSums, Writer
from tests.fixtures.alerts import DAY, World, alternates, between, errors, kinds, run, too_slow

HOUR = 3600.0
SCENARIOS = {
    "an error rate above the limit fires at once without `for`": (
        errors(),
        between(100, 200),
        400,
        # 10% of the messages are bad: above 5% once 7 of the window's 12 steps are bad, below once 6 are left
        [(130, "fired"), (225, "resolved")],
    ),
    "a rule with `for` is pending first": (
        errors(for_=45.0),
        between(100, 200),
        400,
        [(175, "fired"), (225, "resolved")],
    ),
    "a condition that ends while it is pending never fires": (
        errors(for_=120.0),
        between(100, 200),
        400,
        [],
    ),
    "a rule with `keep_firing_for` resolves later": (
        errors(keep_firing_for=60.0),
        between(100, 200),
        400,
        [(130, "fired"), (285, "resolved")],
    ),
    "a condition that returns within `keep_firing_for` does not resolve": (
        errors(keep_firing_for=60.0),
        lambda at: (45, 5) if 100 <= at < 200 or 250 <= at < 320 else (50, 0),
        600,
        [(130, "fired"), (405, "resolved")],
    ),
    "a condition that flaps every minute is one alert": (
        errors(keep_firing_for=300.0),
        lambda at: (10, 40) if 100 <= at < 2000 and at % 120 < 60 else (50, 0),
        3000,
        [(120, "fired"), (2335, "resolved")],
    ),
    "one failure in a hundred messages does not fire": (RULES, lambda at: (1, int(at == 1800)), 3600, []),
    "three failures of three messages on a quiet topic do not fire": (
        RULES,
        lambda at: (0, int(at in (500, 505, 510))),
        3600,
        [],
    ),
    "14.4 times the budget in an hour and in five minutes fires": (
        {"burn": dataclasses.replace(RULES["error_budget_fast"], condition=BurnRate(pairs=(WindowPair(HOUR, 300, 14.4),)))},
        between(3600, 4500),
        6000,
        # 10% bad: 1.44% of the hour's 720 steps from the 104th bad one, 3600 + 103 * 5; of the five minutes' 60 steps
        # until 8 bad ones are left, 4500 - 5 + 52 * 5 + 5; then it keeps firing for five minutes
        [(4115, "fired"), (5055, "resolved")],
    ),
    "six times the budget in six hours and in thirty minutes fires": (
        {"burn": dataclasses.replace(RULES["error_budget_fast"], condition=BurnRate(pairs=(WindowPair(6 * HOUR, 1800, 6.0),)))},
        # steps of a minute: 0.6% of 360 minutes from the 22nd bad minute at 10%; of 30 minutes until 1 is left
        (60.0, between(21600, 25200)),
        30000,
        [(22860, "fired"), (27180, "resolved")],
    ),
    "a burn rate of 1 over three days is a warning": (
        {"burn": dataclasses.replace(RULES["error_budget_slow"], keep_firing_for=0.0)},
        # steps of ten minutes, 1% bad: 0.1% of the 432 steps from the 44th bad one; of six hours' 36 until 3 are left
        (600.0, between(3 * DAY, 3 * DAY + 15 * HOUR, inside=(990, 10), outside=(1000, 0))),
        4.5 * DAY,
        [(3 * DAY + 43 * 600, "fired"), (3 * DAY + 15 * HOUR + 32 * 600, "resolved")],
    ),
    "a failure rate that is high only in the short window does not fire": (
        {"burn": dataclasses.replace(RULES["error_budget_fast"], condition=BurnRate(pairs=(WindowPair(HOUR, 300, 14.4),)))},
        between(3600, 3660),
        5000,
        [],
    ),
    "a topic without traffic fires": (
        {"silent": AlertRule("warning", "{subject}", "Investigate.", condition=Absence("traffic", after=600.0, lookback=HOUR))},
        between(1000, 2000, inside=(0, 0)),
        3000,
        [(1595, "fired"), (2000, "resolved")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_alert_fires_and_resolves_at_the_expected_times(name):
    rules, traffic, until, expected = SCENARIOS[name]
    step, traffic = traffic if isinstance(traffic, tuple) else (5.0, traffic)

    world = run(World(rules), until, traffic, step)

    assert [(at, kind) for at, kind, _, _ in world.changes] == expected
    assert [(at, {"firing": "fired"}.get(kind, kind)) for at, kind, _, _ in world.notified] == expected


def test_an_alert_resolves_when_its_rule_is_removed():
    world = run(World(errors()), 150, between(100, 999))

    world.rules = {}
    world.evaluate()

    assert [kind for _, kind, _, _ in world.changes] == ["fired", "resolved"]


EVALUATIONS = st.lists(
    st.tuples(
        st.floats(min_value=0.1, max_value=40),  # seconds until the next evaluation
        st.sets(st.sampled_from(["a", "b"])),  # topics above the limit
        st.sampled_from([0.0, 0.0, 0.0, 0.0, -3600.0, 3600.0]),  # a change of the system clock
        st.booleans(),  # every alert is silenced
        st.booleans(),  # an operator acknowledges the firing alerts
    ),
    max_size=40,
)


@pytest.mark.slow
@given(EVALUATIONS, st.sampled_from([0.0, 20.0]), st.sampled_from([0.0, 30.0]))
def test_every_alert_fires_once_resolves_once_and_is_notified_in_pairs(evaluations, delay, keeps):
    rules = errors(for_=delay, keep_firing_for=keeps, condition=Threshold("dead", above=0.5, window=60.0))
    world, held = World(rules), {}
    elapsed = 0.0
    for pause, bad, jump, silenced, acknowledged in evaluations:
        world.now += pause + jump
        elapsed += pause
        if jump:  # the evaluator does this after a change of the clock
            world.known = {
                key: dataclasses.replace(item, since=None if item.since is None else item.since + jump)
                for key, item in world.known.items()
            }
        world.silences = (Silence("errors", "", world.now + 1, "ann", "", world.now),) if silenced else ()
        sums = {Writer(topic, "p-1"): WindowSums(dead=1, failed_attempts=1) for topic in bad}
        world.snapshot = lambda sums=sums: StoreSnapshot(
            world.now, sums={60.0: sums}, silences=world.silences
        )
        held = {topic: held.get(topic, elapsed) for topic in bad}
        before = len(world.changes)
        world.evaluate()

        for _, kind, _, topic in world.changes[before:]:
            if kind == "fired":
                assert elapsed - held[topic] >= delay - 1e-3, "it fired too early"
            else:
                assert topic not in bad, "it resolved while its condition held"
        if delay == 0:
            assert set(bad) <= {topic for _, topic in world.firing()}
        if acknowledged:
            world.known = {
                key: dataclasses.replace(item, acknowledged_by=item.acknowledged_by or "ann")
                for key, item in world.known.items()
            }
        for topic in ("a", "b"):
            assert alternates([kind for _, kind, _, subject in world.changes if subject == topic], "fired")
            assert alternates([kind for _, kind, _, subject in world.notified if subject == topic], "firing")
        assert len({item.key for item in world.known.values() if item.state != "resolved"}) == len(
            [item for item in world.known.values() if item.state != "resolved"]
        )


def test_an_alert_fires_once_and_resolves_once():
    firing, observed = {}, []
    for now, found in [(1, [too_slow(1)]), (2, [too_slow(2)]), (3, []), (4, [])]:
        changes = follow(firing, found, now)
        firing = after(firing, changes)
        observed += kinds(changes)

    assert observed == [("fired", "high_latency"), ("resolved", "high_latency")]
    assert firing == {}


def test_text_and_value_are_updated_without_a_second_firing():
    firing = after({}, follow({}, [too_slow(1)], 1))

    (change,) = follow(firing, [too_slow(2, value=2500.0)], 2)

    assert change.kind == "updated"
    assert change.alert.text == "Messages take 2500 ms on average; the limit is 1000 ms"
    assert (change.alert.started_at, change.alert.changed_at) == (1, 2)
    assert change.alert.alert_id == too_slow(1).alert_id


def test_two_subjects_of_one_rule_are_two_alerts():
    one, other = too_slow(1), replace(too_slow(1), subject="p-2")

    changes = follow(after({}, follow({}, [one], 1)), [other], 2)

    assert [(change.kind, change.alert.subject) for change in changes] == [
        ("fired", "p-2"),
        ("resolved", "p-1"),
    ]


def test_the_next_episode_has_another_id():
    assert too_slow(1).alert_id != too_slow(2).alert_id
