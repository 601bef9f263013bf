"""Test the data of the alerts page on a real store."""

from __future__ import annotations

import time

import pytest

from producer_core.alerts import RULES, AlertChange, AlertLog, Callback, alert, follow
from producer_core.alerts.alert_state import resolved
from producer_core.alerts.sender import RouteSender
from producer_core.dashboard import queries
from producer_core.dashboard.queries import View
from producer_core.dashboard.queries import alerts as alert_queries
from tests.fixtures.alert_pages import NOW, burning, fire, lost, page
from tests.fixtures.alerts import receiver, write


def _queue_notifications(store):
    """Mark the alerts for notification, as the evaluator does."""
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE alerts SET telling = 'begin'")


def test_an_empty_store_shows_every_rule_and_no_routes(store):
    found = page(store)

    assert (found.firing, found.pending, found.history.alerts, found.routes, found.evaluator) == (
        (),
        (),
        (),
        (),
        None,
    )
    assert {one.name for one in found.rules} == set(RULES)


@pytest.mark.slow
def test_unacknowledged_alerts_come_first(store):
    fire(store, alert("dedup_degraded", "p-1", NOW - 10, reason="x"), lost(), burning(), lost(subject="p-2"))
    log = AlertLog(store, clock=lambda: NOW)
    log.acknowledge(lost().alert_id, who="ada", origin="cli")
    log.silence("error_budget_fast", "payments", until=NOW + 60, who="ada", why="", origin="cli")

    order = [(item.rule, item.subject) for item in page(store).firing]

    assert order == [
        ("connection_lost", "p-2"), ("dedup_degraded", "p-1"), ("connection_lost", "p-1"), ("error_budget_fast", "payments"),
    ]  # fmt: skip
    assert page(store).silence_of(burning()).who == "ada"


def test_the_topic_filter_narrows_the_alerts_and_counts_the_others(store):
    fire(store, burning(), burning(subject="payments/3"), burning(subject="payments2"), lost())

    found = page(store, topic="payments")

    assert {item.subject for item in found.firing} == {"payments", "payments/3"}
    assert found.elsewhere == 2


def test_the_history_covers_the_time_range(store):
    old, new = lost(NOW - 50_000), lost(NOW - 900)
    for item, ended in ((old, NOW - 40_000), (new, NOW - 60)):
        fire(store, item)
        AlertLog(store).record([AlertChange("resolved", resolved(item, ended))])

    (shown,) = page(store).history.alerts
    assert (shown.latest.alert_id, shown.episodes) == (new.alert_id, 1)
    assert alert_queries.alerts(store, View("24 hours"), NOW).history.total == 2


def test_a_rule_shows_its_episodes_and_its_silence(store):
    fire(store, burning())
    AlertLog(store, clock=lambda: NOW).silence(
        "error_budget_fast", until=NOW + 60, who="ada", why="upgrade", origin="cli"
    )

    first = page(store).rules[0]

    assert (first.name, first.firing, first.episodes, first.silence.why) == (
        "error_budget_fast",
        1,
        1,
        "upgrade",
    )
    assert not first.reported and next(one for one in page(store).rules if one.name == "fenced").reported


def test_mistakes_in_the_rules_file_are_listed_and_the_built_in_rules_apply(store):
    file = store.path.with_name("alerts.toml")
    file.write_text('[rules.slow_delivery]\nabove = "soon"\n[rules.mine]\nkind = "threshhold"\n')

    found = page(store)

    assert found.file.path == file
    assert "2 mistakes" in found.file.problem[0] and "line 2" in found.file.problem[1]
    assert "line 4" in found.file.problem[2]
    assert {one.name for one in found.rules} == set(RULES)


@pytest.mark.slow
def test_a_failing_route_shows_its_undelivered_alerts_but_not_its_address(store, monkeypatch):
    with receiver() as hook:
        monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", hook.url)
        hook.status = 500
        fire(store, burning())
        _queue_notifications(store)
        from producer_core.alerts.routes import routes_of

        (route,) = routes_of(alert_queries.rule_set_of(store))
        RouteSender(store, route, owner="me").run_once()
        found = page(store)

    (shown,) = found.routes
    assert (shown.name, shown.source, shown.here, shown.waiting) == (
        "webhook",
        "$PRODUCER_CORE_ALERT_WEBHOOK",
        True,
        1,
    )
    assert shown.failing_since is not None and "HTTP 500" in shown.answer
    assert [(row["rule"], row["status"], row["attempts"]) for row in found.undelivered] == [
        ("error_budget_fast", "firing", 1)
    ]
    assert "s3cr3t" not in repr(found)


def test_a_route_of_another_process_is_shown_without_a_test(store):
    RouteSender(store, Callback("pager", print), owner="elsewhere").run_once()

    (shown,) = page(store).routes

    assert (shown.name, shown.kind, shown.here) == ("pager", "callback", False)


@pytest.mark.slow
def test_the_alert_details_name_topic_time_and_notifications(store):
    write(store, NOW - 200, topic="payments", good=1)
    alert_id = fire(store, burning())
    _queue_notifications(store)
    RouteSender(store, Callback("mine", lambda payload: None), owner="me", clock=lambda: NOW).run_once()

    found = alert_queries.alert_detail(store, alert_id, NOW)

    assert (found.topic, found.until) == ("payments", NOW + 30)
    assert found.since == burning().started_at - 3600
    assert [(row["route"], row["status"], row["outcome"]) for row in found.notifications] == [
        ("mine", "firing", "told")
    ]
    assert alert_queries.alert_detail(store, "nothing", NOW) is None


def test_a_producer_alert_shows_the_producer_name(store):
    write(store, NOW - 5, good=1)
    alert_id = fire(store, lost())

    assert page(store).names == {"p-1": "shop (process 4711 on host-7)"}

    assert alert_queries.alert_detail(store, alert_id, NOW).producer == "p-1"


def test_the_same_alert_of_two_producers_appears_once(store):
    """The store merges alerts with the same rule and subject."""
    AlertLog(store).record(follow({}, [lost()], NOW), told_by="p-1")
    AlertLog(store).record(follow({}, [lost()], NOW), told_by="p-2")

    assert len(page(store).firing) == 1


def test_the_replays_after_an_alert_cover_its_topic(store):
    from producer_core import replay
    from producer_core.dlq import DeadLetterFilter

    for topic in ("payments", "orders", None):
        replay.plan(store, DeadLetterFilter(topic=topic), who="ada", origin="cli", can_run=True)

    found = alert_queries.replays_since(store, "payments", time.time() - 60)

    assert len(found) == 2 and alert_queries.replays_since(store, "payments", time.time() + 60) == ()


@pytest.mark.slow
def test_an_alert_about_the_store_appears_once_for_all_producers(store):
    log = AlertLog(store, clock=lambda: NOW)
    for producer, at in (("p-1", NOW - 90), ("p-2", NOW - 60)):
        found = alert("high_dlq_size", producer, at, value=500, threshold=100)
        log.record([AlertChange("fired", found)], told_by=producer)
    fire(store, lost(subject="p-1"), lost(subject="p-2"))
    assert [(one.rule, one.subject) for one in page(store).firing if one.rule == "high_dlq_size"] == [
        ("high_dlq_size", "p-1")
    ]
    assert len(page(store).firing) == 3
    first = queries.overview(store, View("1 hour"), NOW)
    assert [(one["rule"], len(one["alert_ids"])) for one in first.alerts] == [
        ("connection_lost", 2),
        ("high_dlq_size", 1),
    ]
