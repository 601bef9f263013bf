"""The sender: the repeat interval of notifications, and when a repetition is dropped."""

from __future__ import annotations

import dataclasses

import pytest

from producer_core.alerts import AlertChange, AlertLog, RuleSet
from producer_core.alerts.alert_state import resolved
from producer_core.alerts.notification import RouteResult
from producer_core.alerts.sender import RouteSender
from tests.fixtures.alerts import HOUR, START, TwoClocks, lost


class Pager:
    """A route that records its notifications. It accepts none while `down`."""

    name, kind, severities, heartbeat, timeout = "pager", "callback", ("critical", "warning"), 0.0, 10.0

    def __init__(self, clock):
        self.clock = clock
        self.down = False
        self.received = []
        self.keys = []

    def send(self, notification):
        if self.down:
            return RouteResult(False, "HTTP 500")
        self.received.append(
            ((self.clock.now - START) / HOUR, notification.status, len(notification.payload["alerts"]))
        )
        self.keys.append(notification.key)
        return RouteResult(True, "ok")


@pytest.fixture
def clock():
    return TwoClocks(START)


@pytest.fixture
def pager(clock):
    return Pager(clock)


def fire(store, *items, **changes):
    AlertLog(store).record([AlertChange("fired", item) for item in items], told_by="p-1")
    decide(store, *items, **changes)


def decide(store, *items, **changes):
    store.take_lease("alerts", "test", 1e12, 0.0)
    decided = [
        AlertChange("decided", dataclasses.replace(item, **{"telling": "begin", **changes})) for item in items
    ]
    assert AlertLog(store).apply(decided, holder="test", lease="alerts")


def run(sender, clock, hours, step=1800.0):
    """Run the sender every `step` seconds for a number of hours."""
    for _ in range(round(hours * HOUR / step)):
        sender.run_once()
        clock.advance(step)


def make_sender(store, pager, clock, **rule_set):
    return RouteSender(
        store,
        pager,
        owner="me",
        rule_set=lambda: RuleSet(**rule_set),
        clock=clock,
        monotonic=clock.monotonic,
        lease=1e9,
    )


@pytest.mark.slow
def test_the_notification_of_a_firing_alert_is_repeated_every_four_hours(store, pager, clock):
    fire(store, lost())

    run(make_sender(store, pager, clock), clock, 12.5)

    assert [(at, status) for at, status, _ in pager.received] == [
        (0, "firing"),
        (4, "firing"),
        (8, "firing"),
        (12, "firing"),
    ]
    assert len(set(pager.keys)) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("repeat", "times"), [(1800.0, [0, 0.5, 1, 1.5]), (0.0, [0]), (HOUR, [0, 1])])
def test_the_repeat_interval_is_a_setting_and_zero_disables_it(store, pager, clock, repeat, times):
    fire(store, lost())

    run(make_sender(store, pager, clock, repeat=repeat), clock, 2.0)

    assert [at for at, _, _ in pager.received] == times


@pytest.mark.slow
def test_an_acknowledged_alert_is_not_repeated(store, pager, clock):
    fire(store, lost())
    sender = make_sender(store, pager, clock)
    run(sender, clock, 5)
    AlertLog(store).acknowledge(lost().alert_id, who="ada", origin="cli")
    run(sender, clock, 12)

    assert [at for at, _, _ in pager.received] == [0, 4]


@pytest.mark.slow
def test_a_silenced_alert_is_not_repeated_until_the_silence_ends(store, pager, clock):
    fire(store, lost())
    sender = make_sender(store, pager, clock)
    run(sender, clock, 1)
    decide(store, lost(), muted_by="silenced by ada")
    run(sender, clock, 9)
    decide(store, lost())
    run(sender, clock, 1)

    assert [at for at, _, _ in pager.received] == [0, 10]


@pytest.mark.slow
def test_a_resolved_alert_is_notified_as_resolved_and_not_repeated(store, pager, clock):
    fire(store, lost())
    sender = make_sender(store, pager, clock)
    run(sender, clock, 4.5)
    AlertLog(store).record([AlertChange("resolved", resolved(lost(), clock.now))])
    decide(store, lost(), telling_end=True)
    run(sender, clock, 9)

    assert [(at, status) for at, status, _ in pager.received] == [
        (0, "firing"),
        (4, "firing"),
        (4.5, "resolved"),
    ]


@pytest.mark.slow
def test_alerts_of_one_rule_are_repeated_in_one_notification(store, pager, clock):
    fire(store, lost(), lost("p-2"))

    run(make_sender(store, pager, clock), clock, 5)

    assert pager.received == [(0, "firing", 2), (4, "firing", 2)]


@pytest.mark.slow
def test_an_episode_that_continues_another_is_repeated(store, pager, clock):
    fire(store, lost(), telling="joined")

    run(make_sender(store, pager, clock), clock, 5)

    assert [at for at, _, _ in pager.received] == [4]


@pytest.mark.slow
def test_an_unsent_repetition_is_dropped_when_the_alert_is_acknowledged(store, pager, clock):
    fire(store, lost())
    sender = make_sender(store, pager, clock)
    run(sender, clock, 4)
    pager.down = True
    run(sender, clock, 0.5)
    assert store.rows("alert_routes")[0]["waiting"] == 1

    AlertLog(store).acknowledge(lost().alert_id, who="ada", origin="cli")
    pager.down = False
    run(sender, clock, 5)

    assert [at for at, _, _ in pager.received] == [0]
    assert store.rows("alert_routes")[0]["waiting"] == 0


@pytest.mark.slow
def test_the_next_process_continues_the_repeat_interval_of_the_last(store, pager, clock):
    fire(store, lost())
    first = make_sender(store, pager, clock)
    run(first, clock, 3)
    first.stop()
    run(make_sender(store, pager, clock), clock, 3)

    assert [at for at, _, _ in pager.received] == [0, 4]


@pytest.mark.slow
def test_a_clock_that_is_set_back_a_day_causes_at_most_one_extra_notification(store, pager, clock):
    fire(store, lost())
    sender = make_sender(store, pager, clock)
    sender.run_once()
    clock.now -= 24 * HOUR
    run(sender, clock, 8.5)

    assert len(pager.received) == 4
