"""Which alert is notified, when, and why another one is muted."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.alerts import RULES, Silence, alert, follow
from producer_core.alerts.alert_state import resolved
from producer_core.alerts.notify_policy import decide
from producer_core.alerts.snapshot import StoreSnapshot
from tests.fixtures.alerts import ERRORS, World, alternates, between, errors, run, seen


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


@pytest.mark.slow
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
