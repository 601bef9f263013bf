"""The life cycle of alerts on a virtual clock: the exact times of changes and of notifications."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

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
    alert,
    follow,
)
from producer_core.alerts.alert_state import resolved
from producer_core.alerts.notify_policy import decide
from producer_core.alerts.snapshot import StoreSnapshot, WindowSums, Writer
from tests.fixtures.alerts import DeadLetterCounts, World, seen

HOUR, DAY = 3600.0, 86400.0
ERRORS = AlertRule(
    "critical",
    "{subject}: {says}",
    "Investigate.",
    condition=Threshold("error_rate", above=0.05, window=60.0),
)


def errors(**changes):
    return {"errors": dataclasses.replace(ERRORS, **changes)}


def run(world, until, traffic, step=5.0):
    """Advance the clock in steps; `traffic(seconds since the start)` returns the good and bad messages of a step."""
    while world.now - world.start < until:
        world.now += step
        seconds = world.now - world.start
        good, bad = traffic(seconds)
        if good or bad:
            world.record(good, bad)
        world.evaluate()
    return world


def between(first, last, inside=(45, 5), outside=(50, 0)):
    return lambda seconds: inside if first <= seconds < last else outside


# scenarios: the rules, the traffic, the duration; and the times of the changes, in seconds since the start

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


def test_an_alert_resolves_when_its_rule_is_removed():
    world = run(World(errors()), 150, between(100, 999))

    world.rules = {}
    world.evaluate()

    assert [kind for _, kind, _, _ in world.changes] == ["fired", "resolved"]


def test_a_rule_with_subjects_evaluates_only_those():
    rules = errors(subjects=("pay*",))
    world = World(rules)
    for topic in ("payments", "orders"):
        world.record(bad=10, topic=topic)
    world.evaluate()

    assert world.firing() == [("errors", "payments")]


# notifications


def silence(world, until, rule="errors", subject=""):
    world.silences = (Silence(rule, subject, world.start + until, "ann", "deploy", world.start),)


def test_a_silence_delays_the_notification_until_it_expires():
    world = World(errors())
    silence(world, 300)

    run(world, 500, between(100, 999))

    assert world.changes == [(130, "fired", "errors", "orders")]
    assert world.notified == [(300, "firing", "errors", "orders")]


def test_an_alert_that_resolves_during_a_silence_is_never_notified():
    world = World(errors())
    silence(world, 300)

    run(world, 500, between(100, 200))

    assert [kind for _, kind, _, _ in world.changes] == ["fired", "resolved"]
    assert world.notified == []


def test_the_end_of_a_notified_alert_is_notified_despite_a_silence():
    world = run(World(errors()), 150, between(100, 200))
    silence(world, 999)

    run(world, 500, between(100, 200))

    assert [kind for _, kind, _, _ in world.notified] == ["firing", "resolved"]


def test_a_muted_alert_has_a_reason():
    world = World(errors())
    silence(world, 300)

    run(world, 150, between(100, 999))

    (item,) = world.known.values()
    assert item.muted_by.startswith("silenced by ann until 1970-01-12 13:51:40Z: deploy")


def test_an_acknowledged_alert_stays_acknowledged_and_keeps_firing():
    world = run(World(errors()), 150, between(100, 300))
    (alert_id,) = world.known
    world.known[alert_id] = dataclasses.replace(
        world.known[alert_id], acknowledged_by="ann", acknowledged_at=1.0
    )

    run(world, 250, between(100, 300))

    assert world.known[alert_id].acknowledged_by == "ann"
    assert [kind for _, kind, _, _ in world.notified] == ["firing"]
    run(world, 500, between(100, 300))
    assert [kind for _, kind, _, _ in world.notified] == ["firing", "resolved"]


def test_an_alert_that_is_acknowledged_during_a_silence_is_not_notified():
    world = World(errors())
    silence(world, 300)
    run(world, 150, between(100, 999))
    (alert_id,) = world.known
    world.known[alert_id] = dataclasses.replace(world.known[alert_id], acknowledged_by="ann")

    run(world, 500, between(100, 999))

    assert world.notified == []


def report_from_producer(world, *rules, subject="p-1"):
    """Report the rules that fire now, as the producer does."""
    reported = {item.key: item for item in world.known.values() if item.state == "firing" and item.told_by}
    found = [
        alert(rule, subject, world.now, value=0.5, threshold=0.05, reason="refused", text="x")
        for rule in rules
    ]
    world.report(follow(reported, found, world.now))


def test_a_lost_connection_mutes_the_alerts_of_the_topics_of_its_producer():
    world = World({**RULES, "errors": ERRORS, "connection_lost": dataclasses.replace(
        RULES["connection_lost"], inhibits=("errors", *RULES["connection_lost"].inhibits))})  # fmt: skip
    report_from_producer(world, "connection_lost")

    run(world, 150, between(100, 999))

    assert ("errors", "orders") in world.firing()
    assert [(rule, kind) for _, kind, rule, _ in world.notified] == [("connection_lost", "firing")]
    report_from_producer(world)
    run(world, 200, between(100, 999))
    assert ("errors", "firing") in [(rule, kind) for _, kind, rule, _ in world.notified]


def test_a_topic_on_which_another_producer_also_fails_is_not_muted():
    world = World({**RULES, "errors": ERRORS, "connection_lost": dataclasses.replace(
        RULES["connection_lost"], inhibits=("errors", *RULES["connection_lost"].inhibits))})  # fmt: skip
    report_from_producer(world, "connection_lost")
    world.record(bad=10)
    world.record(bad=10, producer="p-2")

    world.evaluate()

    assert ("errors", "firing") in [(rule, kind) for _, kind, rule, _ in world.notified]


def test_a_shared_alert_of_several_producers_on_one_store_is_notified_once():
    first, second = (
        alert("high_dlq_size", producer, at, value=500, threshold=100)
        for producer, at in (("p-1", 10.0), ("p-2", 12.0))
    )
    after = {
        change.alert.subject: change.alert for change in decide(RULES, [second, first], StoreSnapshot(20.0))
    }
    assert (after["p-1"].telling, after["p-2"].telling) == ("begin", None)
    assert after["p-2"].muted_by == "another producer on this store reports the same alert"


def test_a_reported_alert_that_flaps_is_notified_once():
    world = World(RULES)

    for at in range(0, 1200, 30):
        world.now = world.start + at
        report_from_producer(world, *(["high_error_rate"] if at % 60 == 0 and at <= 600 else []))
        world.evaluate()

    assert world.notified == [
        (0, "firing", "high_error_rate", "p-1"),
        (930, "resolved", "high_error_rate", "p-1"),
    ]


def test_a_reported_alert_resolves_when_its_producer_is_closed():
    world = World(RULES)
    report_from_producer(world, "connection_lost")
    world.evaluate()

    world.now += 10
    world.producers = (seen(closed=True),)
    world.evaluate()

    assert [kind for _, kind, rule, _ in world.changes if rule == "connection_lost"] == ["resolved"]


def test_a_reported_alert_of_a_disabled_rule_is_stored_and_not_notified():
    world = World({**RULES, "high_error_rate": dataclasses.replace(RULES["high_error_rate"], enabled=False)})
    report_from_producer(world, "high_error_rate")
    world.evaluate()

    assert (world.firing(), world.notified) == ([("high_error_rate", "p-1")], [])


# properties


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


def alternates(kinds, first):
    return all(kind == (first if index % 2 == 0 else "resolved") for index, kind in enumerate(kinds))


@given(st.lists(st.tuples(st.floats(min_value=0.5, max_value=100), st.booleans()), max_size=40))
def test_reported_alerts_are_notified_in_pairs_up_to_their_last_state(steps):
    world = World(RULES)
    for pause, fires in steps:
        world.now += pause
        report_from_producer(world, *(["high_error_rate"] if fires else []))
        world.evaluate()
        assert alternates([kind for _, kind, _, _ in world.notified], "firing")
    for _ in range(2):
        world.now += 400
        world.evaluate()

    kinds = [kind for _, kind, _, _ in world.notified]
    assert alternates(kinds, "firing")
    if kinds:
        assert (kinds[-1] == "firing") == bool(steps and steps[-1][1])


def test_a_resolution_in_the_future_does_not_delay_its_notification():
    item = resolved(dataclasses.replace(alert("high_latency", "p-1", 1000.0, value=1, threshold=1), told_by="p-1",
                                        telling="begin"), 1000.0)  # fmt: skip
    world = SimpleNamespace(now=-2600.0)

    (change,) = decide(RULES, [item], StoreSnapshot(world.now))

    assert change.alert.telling_end is True
