"""The life of alerts on a virtual clock: what fires and resolves, exactly when, and what people hear of it."""

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
from producer_core.alerts.snapshot import StoreSnapshot, WindowSums, WriterState
from tests.unit.alerting import DeadLetterCounts, World, seen

HOUR, DAY = 3600.0, 86400.0
ERRORS = AlertRule(
    "critical", "{subject}: {says}", "Look.", condition=Threshold("error_rate", above=0.05, window=60.0)
)


def errors(**changes):
    return {"errors": dataclasses.replace(ERRORS, **changes)}


def lived(world, until, happens, step=5.0):
    """Seconds pass in steps; `happens(seconds since the start)` gives good and bad messages of a step."""
    while world.now - world.start < until:
        world.now += step
        seconds = world.now - world.start
        good, bad = happens(seconds)
        if good or bad:
            world.happens(good, bad)
        world.look()
    return world


def between(first, last, inside=(45, 5), outside=(50, 0)):
    return lambda seconds: inside if first <= seconds < last else outside


# scenarios: the rule, what happens, how long; when it fires and resolves, in seconds since the start

SCENARIOS = {
    "an error rate above the limit fires at once without for": (
        errors(),
        between(100, 200),
        400,
        # 10 % of a window of 60 s is bad: above 5 % once 7 of its 12 steps are, again below once 6 are left
        [(130, "fired"), (225, "resolved")],
    ),
    "with for it is pending first": (
        errors(for_=45.0),
        between(100, 200),
        400,
        [(175, "fired"), (225, "resolved")],
    ),
    "what ends while it is pending never was an alert": (errors(for_=120.0), between(100, 200), 400, []),
    "it keeps firing for a while": (
        errors(keep_firing_for=60.0),
        between(100, 200),
        400,
        [(130, "fired"), (285, "resolved")],
    ),
    "what returns in that time has not resolved": (
        errors(keep_firing_for=60.0),
        lambda at: (45, 5) if 100 <= at < 200 or 250 <= at < 320 else (50, 0),
        600,
        [(130, "fired"), (405, "resolved")],
    ),
    "flapping every minute is one alert": (
        errors(keep_firing_for=300.0),
        lambda at: (10, 40) if 100 <= at < 2000 and at % 120 < 60 else (50, 0),
        3000,
        [(120, "fired"), (2335, "resolved")],
    ),
    "one failure in a hundred pages nobody": (RULES, lambda at: (1, int(at == 1800)), 3600, []),
    "three failures of three in a quiet topic page nobody": (
        RULES,
        lambda at: (0, int(at in (500, 505, 510))),
        3600,
        [],
    ),
    "14.4 times the budget in an hour and in five minutes fires": (
        {"burn": dataclasses.replace(RULES["error_budget_fast"], condition=BurnRate(pairs=(WindowPair(HOUR, 300, 14.4),)))},
        between(3600, 4500),
        6000,
        # 10 % bad: 1.44 % of the hour's 720 steps from the 104th bad one, 3600 + 103 * 5; of the five minutes' 60 steps
        # until 8 bad ones are left, 4500 - 5 + 52 * 5 + 5; then it keeps firing for five minutes
        [(4115, "fired"), (5055, "resolved")],
    ),
    "six times the budget in six hours and in thirty minutes fires": (
        {"burn": dataclasses.replace(RULES["error_budget_fast"], condition=BurnRate(pairs=(WindowPair(6 * HOUR, 1800, 6.0),)))},
        # steps of a minute: 0.6 % of 360 minutes from the 22nd bad minute at 10 %; of 30 minutes until 1 is left
        (60.0, between(21600, 25200)),
        30000,
        [(22860, "fired"), (27180, "resolved")],
    ),
    "the budget's own pace over three days is a warning": (
        {"burn": dataclasses.replace(RULES["error_budget_slow"], keep_firing_for=0.0)},
        # steps of ten minutes, 1 % bad: 0.1 % of the 432 steps from the 44th bad one; of six hours' 36 until 3 are left
        (600.0, between(3 * DAY, 3 * DAY + 15 * HOUR, inside=(990, 10), outside=(1000, 0))),
        4.5 * DAY,
        [(3 * DAY + 43 * 600, "fired"), (3 * DAY + 15 * HOUR + 32 * 600, "resolved")],
    ),
    "a failure rate that only the short window sees does not fire": (
        {"burn": dataclasses.replace(RULES["error_budget_fast"], condition=BurnRate(pairs=(WindowPair(HOUR, 300, 14.4),)))},
        between(3600, 3660),
        5000,
        [],
    ),
    "a topic that is written to no longer": (
        {"silent": AlertRule("warning", "{subject}", "Look.", condition=Absence("traffic", after=600.0, lookback=HOUR))},
        between(1000, 2000, inside=(0, 0)),
        3000,
        [(1595, "fired"), (2000, "resolved")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name):
    rules, happens, until, expected = SCENARIOS[name]
    step, happens = happens if isinstance(happens, tuple) else (5.0, happens)

    world = lived(World(rules), until, happens, step)

    assert [(at, kind) for at, kind, _, _ in world.told] == expected
    assert [(at, {"firing": "fired"}.get(kind, kind)) for at, kind, _, _ in world.heard] == expected


def producers(world, at, look=True, **changes):
    world.now = world.start + at
    world.producers = (seen(**changes),)
    if look:
        world.look()
    return [(rule, kind) for when, kind, rule, _ in world.told if when == at]


def test_a_producer_that_is_not_seen_is_gone_after_40_seconds_and_back_with_its_first_sign():
    world = World(RULES)

    told = {at: producers(world, at, silent=silent) for at, silent in [(35, 35), (40, 40), (45, 45), (50, 0)]}

    assert told == {35: [], 40: [], 45: [("producer_gone", "fired")], 50: [("producer_gone", "resolved")]}


def test_a_closed_producer_is_not_missed():
    assert producers(World(RULES), 60, silent=60.0, closed=True) == []


def test_messages_that_wait_while_nothing_is_settled_are_told_after_six_minutes():
    world = World(RULES)
    world.happens(good=100)

    told = [at for at in range(5, 600, 5) if producers(world, at, pending=7)]

    assert (
        told == [360]
    )  # nothing was settled for five minutes at 300, and that for one minute: what was settled counts until then
    assert world.firing() == [("delivery_stalled", "p-1")]


def test_a_producer_whose_only_message_is_on_its_way_is_not_stalled():
    world = World(RULES)

    assert [producers(world, at, pending=int(at % 10 == 0)) for at in range(5, 600, 5)] == [[]] * 119


def test_memory_near_the_containers_limit_fires_after_two_minutes():
    world = World(RULES)

    told = [at for at in range(5, 300, 5) if producers(world, at, memory_bytes=97, memory_limit=100)]

    assert told == [125]
    assert "97%" in next(iter(world.known.values())).text


def test_without_a_limit_nobody_speaks_of_memory():
    assert not any(producers(World(RULES), at, memory_bytes=97, memory_limit=None) for at in range(5, 300, 5))


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

    told = [(at, producers(world, at)) for at in range(5, 200, 5)]

    assert [item for item in told if item[1]] == [(65, [(rule, "fired")])]


def test_a_part_that_cannot_be_read_changes_nothing():
    rules = errors()
    world = lived(World(rules), 150, between(100, 999))
    assert world.firing() == [("errors", "orders")]

    world.reading = lambda whole=world.reading: dataclasses.replace(
        whole(), sums={}, missing=frozenset({"sums"})
    )
    lived(world, 400, lambda at: (50, 0))

    assert world.firing() == [("errors", "orders")]


def test_an_alert_whose_rule_is_taken_away_resolves():
    world = lived(World(errors()), 150, between(100, 999))

    world.rules = {}
    world.look()

    assert [kind for _, kind, _, _ in world.told] == ["fired", "resolved"]


def test_only_the_named_subjects_are_judged():
    rules = errors(subjects=("pay*",))
    world = World(rules)
    for topic in ("payments", "orders"):
        world.happens(bad=10, topic=topic)
    world.look()

    assert world.firing() == [("errors", "payments")]


# who is told


def silence(world, until, rule="errors", subject=""):
    world.silences = (Silence(rule, subject, world.start + until, "ann", "deploy", world.start),)


def test_a_silence_keeps_people_from_hearing_until_it_expires():
    world = World(errors())
    silence(world, 300)

    lived(world, 500, between(100, 999))

    assert world.told == [(130, "fired", "errors", "orders")]
    assert world.heard == [(300, "firing", "errors", "orders")]


def test_what_resolves_under_a_silence_is_never_heard_of():
    world = World(errors())
    silence(world, 300)

    lived(world, 500, between(100, 200))

    assert [kind for _, kind, _, _ in world.told] == ["fired", "resolved"]
    assert world.heard == []


def test_who_heard_the_beginning_hears_the_end_whatever_was_silenced_meanwhile():
    world = lived(World(errors()), 150, between(100, 200))
    silence(world, 999)

    lived(world, 500, between(100, 200))

    assert [kind for _, kind, _, _ in world.heard] == ["firing", "resolved"]


def test_a_muted_alert_says_why():
    world = World(errors())
    silence(world, 300)

    lived(world, 150, between(100, 999))

    (item,) = world.known.values()
    assert item.muted_by.startswith("silenced by ann until 1970-01-12 13:51:40Z: deploy")


def test_an_acknowledged_alert_stays_acknowledged_and_fires_on():
    world = lived(World(errors()), 150, between(100, 300))
    (alert_id,) = world.known
    world.known[alert_id] = dataclasses.replace(
        world.known[alert_id], acknowledged_by="ann", acknowledged_at=1.0
    )

    lived(world, 250, between(100, 300))

    assert world.known[alert_id].acknowledged_by == "ann"
    assert [kind for _, kind, _, _ in world.heard] == ["firing"]
    lived(world, 500, between(100, 300))
    assert [kind for _, kind, _, _ in world.heard] == ["firing", "resolved"]


def test_who_acknowledges_before_anybody_was_told_spares_the_page():
    world = World(errors())
    silence(world, 300)
    lived(world, 150, between(100, 999))
    (alert_id,) = world.known
    world.known[alert_id] = dataclasses.replace(world.known[alert_id], acknowledged_by="ann")

    lived(world, 500, between(100, 999))

    assert world.heard == []


def told_by_its_producer(world, *rules, subject="p-1"):
    """The producer says which of these fire now."""
    live = {key: item for item in world.known.values() if item.state == "firing" and (key := item.key)}
    mine = {key: item for key, item in live.items() if item.told_by}
    found = [
        alert(rule, subject, world.now, value=0.5, threshold=0.05, reason="refused", text="x")
        for rule in rules
    ]
    world.tell(follow(mine, found, world.now))  # fmt: skip


def test_a_lost_connection_mutes_the_alerts_of_its_producers_topics():
    world = World({**RULES, "errors": ERRORS, "connection_lost": dataclasses.replace(
        RULES["connection_lost"], inhibits=("errors", *RULES["connection_lost"].inhibits))})  # fmt: skip
    told_by_its_producer(world, "connection_lost")

    lived(world, 150, between(100, 999))

    assert ("errors", "orders") in world.firing()
    assert [(rule, kind) for _, kind, rule, _ in world.heard] == [("connection_lost", "firing")]
    told_by_its_producer(world)
    lived(world, 200, between(100, 999))
    assert ("errors", "firing") in [(rule, kind) for _, kind, rule, _ in world.heard]


def test_a_topic_that_another_producer_fails_on_as_well_is_not_muted():
    world = World({**RULES, "errors": ERRORS, "connection_lost": dataclasses.replace(
        RULES["connection_lost"], inhibits=("errors", *RULES["connection_lost"].inhibits))})  # fmt: skip
    told_by_its_producer(world, "connection_lost")
    world.happens(bad=10)
    world.happens(bad=10, producer="p-2")

    world.look()

    assert ("errors", "firing") in [(rule, kind) for _, kind, rule, _ in world.heard]


def test_dead_letters_of_one_store_are_told_once_however_many_producers_see_them():
    first, second = (
        alert("high_dlq_size", producer, at, value=500, threshold=100)
        for producer, at in (("p-1", 10.0), ("p-2", 12.0))
    )
    after = {one.alert.subject: one.alert for one in decide(RULES, [second, first], StoreSnapshot(20.0))}
    assert (after["p-1"].telling, after["p-2"].telling) == ("begin", None)
    assert after["p-2"].muted_by == "another producer on this store says the same"


def test_a_producer_that_flaps_is_heard_of_once():
    world = World(RULES)

    for at in range(0, 1200, 30):
        world.now = world.start + at
        told_by_its_producer(world, *(["high_error_rate"] if at % 60 == 0 and at <= 600 else []))
        world.look()

    assert world.heard == [
        (0, "firing", "high_error_rate", "p-1"),
        (930, "resolved", "high_error_rate", "p-1"),
    ]


def test_what_a_producer_told_ends_with_the_producer():
    world = World(RULES)
    told_by_its_producer(world, "connection_lost")
    world.look()

    world.now += 10
    world.producers = (seen(closed=True),)
    world.look()

    assert [kind for _, kind, rule, _ in world.told if rule == "connection_lost"] == ["resolved"]


def test_a_told_rule_that_is_switched_off_is_only_written_down():
    world = World({**RULES, "high_error_rate": dataclasses.replace(RULES["high_error_rate"], enabled=False)})
    told_by_its_producer(world, "high_error_rate")
    world.look()

    assert (world.firing(), world.heard) == ([("high_error_rate", "p-1")], [])


# what always holds


MOMENTS = st.lists(
    st.tuples(
        st.floats(min_value=0.1, max_value=40),  # seconds until the next look
        st.sets(st.sampled_from(["a", "b"])),  # topics above the limit
        st.sampled_from([0.0, 0.0, 0.0, 0.0, -3600.0, 3600.0]),  # the clock is set
        st.booleans(),  # everything is silenced
        st.booleans(),  # somebody acknowledges what fires
    ),
    max_size=40,
)


@given(MOMENTS, st.sampled_from([0.0, 20.0]), st.sampled_from([0.0, 30.0]))
def test_every_alert_fires_once_resolves_once_and_is_told_in_pairs(moments, waits, keeps):
    rules = errors(for_=waits, keep_firing_for=keeps, condition=Threshold("dead", above=0.5, window=60.0))
    world, held = World(rules), {}
    elapsed = 0.0
    for pause, bad, jump, quiet, seen_by in moments:
        world.now += pause + jump
        elapsed += pause
        if jump:  # what the evaluator does when the clock was set
            world.known = {
                key: dataclasses.replace(item, since=None if item.since is None else item.since + jump)
                for key, item in world.known.items()
            }
        world.silences = (Silence("errors", "", world.now + 1, "ann", "", world.now),) if quiet else ()
        sums = {WriterState(topic, "p-1"): WindowSums(dead=1, failed_attempts=1) for topic in bad}
        world.reading = lambda sums=sums: StoreSnapshot(world.now, sums={60.0: sums}, silences=world.silences)
        held = {topic: held.get(topic, elapsed) for topic in bad}
        before = len(world.told)
        world.look()

        for _, kind, _, topic in world.told[before:]:
            if kind == "fired":
                assert elapsed - held[topic] >= waits - 1e-3, "it fired before its time"
            else:
                assert topic not in bad, "it resolved while it held"
        if waits == 0:
            assert set(bad) <= {topic for _, topic in world.firing()}
        if seen_by:
            world.known = {
                key: dataclasses.replace(item, acknowledged_by=item.acknowledged_by or "ann")
                for key, item in world.known.items()
            }
        for topic in ("a", "b"):
            assert one_after_the_other([kind for _, kind, _, about in world.told if about == topic], "fired")
            assert one_after_the_other(
                [kind for _, kind, _, about in world.heard if about == topic], "firing"
            )
        assert len({item.key for item in world.known.values() if item.state != "resolved"}) == len(
            [item for item in world.known.values() if item.state != "resolved"]
        )


def one_after_the_other(kinds, first):
    return all(kind == (first if place % 2 == 0 else "resolved") for place, kind in enumerate(kinds))


@given(st.lists(st.tuples(st.floats(min_value=0.5, max_value=100), st.booleans()), max_size=40))
def test_what_producers_tell_is_heard_in_pairs_and_its_last_state_in_the_end(steps):
    world = World(RULES)
    for pause, fires in steps:
        world.now += pause
        told_by_its_producer(world, *(["high_error_rate"] if fires else []))
        world.look()
        assert one_after_the_other([kind for _, kind, _, _ in world.heard], "firing")
    for _ in range(2):
        world.now += 400
        world.look()

    kinds = [kind for _, kind, _, _ in world.heard]
    assert one_after_the_other(kinds, "firing")
    if kinds:
        assert (kinds[-1] == "firing") == bool(steps and steps[-1][1])


def test_an_end_is_not_counted_from_a_moment_ahead_of_the_clock():
    item = resolved(dataclasses.replace(alert("high_latency", "p-1", 1000.0, value=1, threshold=1), told_by="p-1",
                                        telling="begin"), 1000.0)  # fmt: skip
    world = SimpleNamespace(now=-2600.0)

    (change,) = decide(RULES, [item], StoreSnapshot(world.now))

    assert change.alert.telling_end is True
