"""Test the data of the fleet page on a real store."""

from __future__ import annotations

import pytest

from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.dashboard.queries.fleet import FORGOTTEN, STATES, fleet, state_of
from producer_core.dashboard.queries.view import View
from producer_core.dlq import DeadLetters
from producer_core.metrics.histogram import RELATIVE_ERROR
from tests.fixtures.fleet import add
from tests.fixtures.pages import VIEW, dead_letter

NOW = 0.0


def test_percentiles_come_from_merged_histograms_not_from_percentiles(store):
    add(store, "quick", rate=99, latency=0.005)
    add(store, "slow", rate=1, latency=1.0)
    p50, p95, p99, p999 = fleet(store, VIEW, NOW).found
    assert p50 == p95 == p99 == pytest.approx(0.005, rel=2 * RELATIVE_ERROR)
    assert p999 == pytest.approx(1.0, rel=2 * RELATIVE_ERROR)


def test_a_producer_has_its_own_numbers(store):
    add(store, "shop", rate=20, dead=3)
    DeadLetters(store).add(
        [dead_letter(number, failed_at=NOW - 5, producer_id="shop", topic="orders") for number in range(3)]
    )
    (member,) = fleet(store, VIEW, NOW).members
    assert member.rate == pytest.approx(20, rel=0.1)
    assert (member.dead, member.dead_letters, member.acknowledged) == (3, 3, 1200)
    assert member.p99 == pytest.approx(0.005, rel=2 * RELATIVE_ERROR)
    assert member.error_rate == pytest.approx(3 / 1203)


@pytest.mark.slow
def test_producers_are_sorted_worst_first_and_closed_last(store):
    add(store, "well")
    add(store, "failing", dead=1)
    add(store, "failing-more", dead=20)
    add(store, "silent", seen_at=NOW - 60)
    add(store, "cut-off", connected=False)
    add(store, "full", queue_messages=95_000)
    add(store, "closed", closed_at=NOW - 5, seen_at=NOW - 5)
    add(store, "idle", seconds=0)
    add(store, "alerting")
    AlertLog(store).record(
        [AlertChange("fired", alert("dedup_degraded", "alerting", NOW - 5, reason="no Redis"))]
    )
    found = fleet(store, VIEW, NOW)
    assert [member.name for member in found.members] == [
        "silent", "cut-off", "alerting", "failing-more", "failing", "full", "well", "idle", "closed",
    ]  # fmt: skip
    assert (found.running, len(found.troubled), found.hosts) == (7, 6, 7)


def test_a_producer_silent_for_a_day_is_no_longer_listed(store):
    add(store, "well")
    add(store, "gone", seconds=0, seen_at=NOW - FORGOTTEN - 5)
    assert [member.name for member in fleet(store, VIEW, NOW).members] == ["well"]
    all_producers = fleet(store, VIEW, NOW, include_all=True)
    assert [member.state for member in all_producers.members] == ["well", "gone"]
    assert all_producers.known == 2 and not all_producers.troubled


def test_a_topic_filter_keeps_the_producers_that_write_to_it(store):
    add(store, "one", topic="orders")
    add(store, "two", topic="refunds")
    found = fleet(store, View("5 min", topic="refunds"), NOW)
    assert [member.name for member in found.members] == ["two"]
    assert [member.name for member in fleet(store, View("5 min", producer="one"), NOW).members] == ["one"]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"closed": True, "silent": 99}, "closed"), ({"silent": 2 * FORGOTTEN}, "gone"), ({"silent": 41}, "silent"),
        ({"connected": False, "dead": 3}, "cut off"), ({"alerting": True, "dead": 3}, "alerting"), ({"dead": 1}, "failing"),
        ({"fill": 0.9}, "full"), ({}, "well"), ({"acknowledged": 0}, "idle"), ({"silent": 39}, "well"),
    ],
)  # fmt: skip
def test_the_worst_state_applies(changes, state):
    known = {
        "closed": False,
        "silent": 1.0,
        "connected": True,
        "alerting": False,
        "dead": 0,
        "acknowledged": 9,
        "fill": 0.1,
    }
    assert state_of(**{**known, **changes}) == state
    assert state in STATES


def test_store_wide_and_info_alerts_do_not_count_as_problems_of_a_producer(store):
    add(store, "shop")
    found = (
        alert("high_dlq_size", "shop", NOW - 5, value=500, threshold=100),
        alert("epoch_rose", "shop", NOW - 5, text="it rose"),
    )
    AlertLog(store).record([AlertChange("fired", one) for one in found], told_by="shop")
    (member,) = fleet(store, VIEW, NOW).members
    assert (member.alerts, member.troubled) == ((), False)


def test_an_alert_on_a_topic_belongs_to_the_producers_with_failures_there(store):
    add(store, "shop")
    add(store, "other")
    DeadLetters(store).add([dead_letter(1, failed_at=NOW - 5, producer_id="shop", topic="payments")])
    burns = alert(
        "error_budget_fast",
        "payments",
        NOW - 5,
        value=0.2,
        threshold=0.01,
        long="1 h",
        factor="200",
        objective="99.9%",
    )
    waits = alert("dedup_degraded", "shop", NOW - 1, reason="no Redis")
    AlertLog(store).record([AlertChange("fired", one) for one in (waits, burns)])
    first, second = fleet(store, VIEW, NOW).members
    assert (first.name, [severity for severity, _ in first.alerts]) == ("shop", ["critical", "warning"])
    assert second.alerts == ()
