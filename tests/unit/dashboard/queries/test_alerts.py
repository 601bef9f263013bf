"""Test the alerts page: its texts, its data and its actions, and the server's alert worker."""

from __future__ import annotations

import threading
import time

import pytest

from producer_core.alerts import RULES, AlertChange, AlertLog, Callback, Silence, alert, follow
from producer_core.alerts.alert_state import resolved
from producer_core.alerts.sender import RouteSender
from producer_core.dashboard import queries, wording
from producer_core.dashboard.actions import alerts as actions_alerts
from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.auth.sessions import LoginSessions
from producer_core.dashboard.html import text_of
from producer_core.dashboard.queries import View
from producer_core.dashboard.queries import alerts as alert_queries
from producer_core.dashboard.server import alert_worker
from producer_core.dashboard.views import alert_cards, common
from producer_core.dashboard.wording import alerts as alert_wording
from producer_core.store import Store
from tests.fixtures.alerts import receiver, write
from tests.support import eventually

NOW = 1_700_000_000.0
HOSTILE = "<img src=x onerror=alert(1)> **bold** [x](javascript:alert(1))"


@pytest.fixture(autouse=True)
def _isolated_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(access, "_guards", [access.AccessGuard()])
    monkeypatch.delenv("PRODUCER_CORE_ALERTS", raising=False)
    monkeypatch.delenv("PRODUCER_CORE_ALERT_WEBHOOK", raising=False)


def lost(at=NOW - 600, subject="p-1"):
    return alert("connection_lost", subject, at, reason="refused")


def burning(at=NOW - 300, subject="payments", text=None):
    return alert(
        "error_budget_fast", subject, at, value=0.2, threshold=0.0144, long="1 h", factor="200", objective="99.9 %"
    )  # fmt: skip


def fire(store, *items):
    log = AlertLog(store, clock=lambda: NOW)
    log.record([AlertChange("fired", item) for item in items], told_by="p-1")
    return items[0].alert_id


def page(store, **view):
    return alert_queries.alerts(store, View("1 hour", **view), NOW)


# texts


def sentence(*firing, pending=0, elsewhere=0, evaluated=True):
    return alert_wording.alerts_sentence(firing, pending, elsewhere, evaluated, 34)


def changed(item, **changes):
    from dataclasses import replace

    return replace(item, **changes)


@pytest.mark.parametrize(
    ("firing", "more", "tone", "text"),
    [
        ((), {}, "good", "No alerts firing. 34 rules evaluated."),
        ((lost(),), {}, "bad", "1 alert firing."),
        ((lost(), burning()), {"pending": 1}, "bad", "2 alerts firing; 1 pending."),
        ((changed(lost(), acknowledged_by="ada"),), {}, "quiet", "1 alert firing, acknowledged."),
        (
            (changed(lost(), silenced=True),),
            {},
            "quiet",
            "All firing alerts are suppressed; 1 silenced.",
        ),
        (
            (lost(), *[changed(burning(), muted_by="connection_lost fires and explains it")] * 2),
            {},
            "bad",
            "1 alert firing; 2 inhibited by connection_lost.",
        ),
        ((alert("dedup_degraded", "p", NOW, reason="x"),), {}, "warning", "1 alert firing."),
        (
            (),
            {"elsewhere": 2},
            "quiet",
            "No alerts firing. 2 more firing outside the current filter.",
        ),
    ],
)
def test_the_summary_sentence_covers_each_situation(firing, more, tone, text):
    assert sentence(*firing, **more) == (tone, text)


def test_an_alert_whose_condition_is_over_omits_its_advice():
    found = {
        "severity": "critical",
        "started_at": NOW - 300,
        "text": "it burns",
        "advice": "Run.",
        "rule": "error_budget_fast",
        "keep_firing_for": 300.0,
    }
    assert wording.alert({**found, "since": None}, NOW) == "Critical for 5 min: it burns. Run."
    assert (
        wording.alert({**found, "since": NOW - 60}, NOW)
        == "Critical for 5 min: it burns. Cleared 60 s ago; resolves in 4 min."
    )


def test_a_missing_evaluator_is_reported_first():
    tone, text = sentence(evaluated=False)

    assert tone == "bad" and text.startswith("Alert evaluation is not running; data may be stale.")


def test_the_next_state_change_is_described():
    rule = RULES["slow_delivery"]
    pending = changed(burning(), state="pending", since=NOW - 60)

    assert alert_wording.next_transition(pending, rule, NOW) == "Fires in 4 min if the condition persists."
    assert alert_wording.next_transition(changed(pending, state="firing"), rule, NOW) == (
        "Condition cleared; resolves in 9 min."
    )
    assert alert_wording.next_transition(
        alert("acknowledged_lost", "t", NOW, text="x"), RULES["acknowledged_lost"], NOW
    ) == ("Fires until acknowledged.")


def test_a_failing_route_shows_its_duration_and_error():
    assert alert_wording.route_state(True, "3 min ago", 2, 0, "HTTP 500") == (
        "bad", "Delivery began failing 3 min ago: HTTP 500. 2 notifications queued.",
    )  # fmt: skip
    assert alert_wording.route_state(True, "", 0, 0, "")[0] == "good"
    assert alert_wording.route_state(False, "", 0, 0, "")[0] == "quiet"


# data


def test_an_empty_store_shows_every_rule_and_no_routes(store):
    found = page(store)

    assert (found.firing, found.pending, found.ended, found.routes, found.evaluator) == ((), (), (), (), None)
    assert {one.name for one in found.rules} == set(RULES)


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

    assert [item.alert_id for item in page(store).ended] == [new.alert_id]
    assert alert_queries.alerts(store, View("24 hours"), NOW).ended_total == 2


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


def _queue_notifications(store):
    """Mark the alerts for notification, as the evaluator does."""
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE alerts SET telling = 'begin'")


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


# actions


def audited(store):
    return [(row["action"], row["outcome"]) for row in store.rows("audit_latest")]


def test_a_silence_and_its_end_are_audited(store):
    done = actions_alerts.silence(store, "error_budget_fast", "payments", 3600, " upgrade ")
    assert done.ok and "silenced for payments" in done.text
    (silence,) = AlertLog(store).silences()
    assert (silence.subject, silence.why, silence.who) == ("payments", "upgrade", access.user())

    assert actions_alerts.unsilence(store, "error_budget_fast", "payments").ok
    assert not actions_alerts.unsilence(store, "error_budget_fast", "payments").ok
    assert [action for action, _ in audited(store)] == ["unsilence", "unsilence", "silence"]


def test_read_only_users_cannot_silence_or_test(store):
    access.set_guard(access.AccessGuard(AccessRules(read_only=("*",)), LoginSessions(1.0)))

    assert not actions_alerts.silence(store, "error_budget_fast", "", 60, "").ok
    assert not actions_alerts.send_test(store, "webhook").ok
    assert AlertLog(store).silences() == []
    assert all(outcome.startswith("Refused") for _, outcome in audited(store))


def test_a_test_alert_is_sent_in_the_background_and_its_result_is_kept(store, monkeypatch):
    with receiver() as hook:
        monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", hook.url)
        hook.hanging = True
        assert actions_alerts.send_test(store, "webhook").ok  # returns although the receiver does not respond
        assert actions_alerts.route_tests().result(store, "webhook") == (True, None)
        assert not actions_alerts.send_test(store, "webhook").ok
        hook.hang.set()
        _, first = eventually(
            lambda: (found := actions_alerts.route_tests().result(store, "webhook"))[1] and found
        )
        assert not first.ok and first.text.startswith("NOT accepted")

        hook.hanging = False
        actions_alerts.send_test(store, "webhook")
        eventually(lambda: (last := actions_alerts.route_tests().result(store, "webhook")[1]) and last.ok)
    assert hook.received == [
        ("TestAlert", "producer_core", "firing"),
        ("TestAlert", "producer_core", "resolved"),
    ]
    assert audited(store)[0] == ("test_route", "sent a test")


# the page


def draw_page(path):
    from pathlib import Path

    from producer_core.dashboard.views import alerts

    alerts.show(Path(path))


def run(path, **query):
    from streamlit.testing.v1 import AppTest

    app = AppTest.from_function(draw_page, args=(str(path),), default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def texts(app):
    """Return all texts of the page except widgets, as one string."""
    html = " ".join(item.proto.body for item in app.get("html"))
    parts = [str(item.proto) for item in app.get("bidi_component")]
    return " ".join([html, *parts, *(item.value for item in app.text)])


def test_the_page_shows_firing_alerts_with_their_advice(store):
    fire(store, lost(time.time() - 60))

    text = texts(run(store.path))

    assert "No connection to the brokers: refused" in text
    assert "Check the address, the network" in text


def test_a_click_acknowledges_the_alert_and_the_page_shows_it(store):
    item = lost(time.time() - 60)
    fire(store, item)
    app = run(store.path)

    app.button(key=f"ack-{item.alert_id}").click().run()

    assert not app.exception
    assert AlertLog(store).list(state="firing")[0].acknowledged_by == access.user()
    assert f"Acknowledged by {access.user()}" in texts(app)
    assert f"ack-{item.alert_id}" not in [button.key for button in app.button]


def test_the_result_of_an_action_appears_in_its_section_only(store):
    item = lost(time.time() - 60)
    fire(store, item)
    app = run(store.path)
    app.button(key=f"ack-{item.alert_id}").click().run()
    assert "Acknowledged." in texts(app)

    app.segmented_control(key="show").set_value("Rules").run()

    assert not app.exception
    assert "Acknowledged." not in texts(app)


def test_the_firing_time_is_not_the_time_since_the_acknowledgement():
    item = changed(lost(NOW - 22 * 60), acknowledged_by="ada", acknowledged_at=NOW - 1)

    drawn = text_of(alert_cards.card(item, RULES["connection_lost"], None, NOW, {}))

    assert "firing for 22 min, acknowledged · connection_lost" in drawn
    assert "acknowledged for" not in drawn


def test_opening_an_address_never_changes_an_alert(store):
    item = lost(time.time() - 60)
    fire(store, item)

    run(store.path, alert=item.alert_id, ack=item.alert_id, acknowledge="1", silence="connection_lost")

    assert AlertLog(store).list(state="firing")[0].acknowledged_by is None
    assert AlertLog(store).silences() == [] and audited(store) == []


def test_an_alert_is_silenced_and_unsilenced_on_its_own_page(store):
    item = lost(time.time() - 60)
    fire(store, item)
    app = run(store.path, alert=item.alert_id)
    app.button(key=f"silence-{item.alert_id}").click().run()
    app.selectbox(key=f"length-of-{item.alert_id}").select("4 hours")
    app.text_input(key=f"why-of-{item.alert_id}").input("broker upgrade")
    next(button for button in app.button if button.label == "Silence").click().run()

    (silence,) = AlertLog(store).silences()
    assert (silence.rule, silence.subject, silence.why) == ("connection_lost", "p-1", "broker upgrade")
    assert 3.9 * 3600 < silence.until - time.time() < 4 * 3600
    assert "broker upgrade" in texts(app)

    app.button(key=f"unsilence-{item.alert_id}").click().run()
    assert AlertLog(store).silences() == []


def test_an_unknown_alert_shows_a_message(store):
    assert "This store has no alert with this id" in texts(run(store.path, alert="0123456789ab"))


@pytest.mark.parametrize("section", ["Now", "History", "Rules", "Notifications", "Silences"])
def test_every_section_has_its_address(store, section):
    fire(store, lost(time.time() - 60))

    app = run(store.path, show=section)

    expected = {
        "Now": "No connection to the brokers",
        "History": "No alert was resolved in the last 15 min.", "Rules": "The built-in rules apply",
        "Notifications": "No notifications are sent because no route is configured", "Silences": "No silences.",
    }  # fmt: skip
    assert expected[section] in texts(app)


def test_disabled_buttons_tell_read_only_users_the_reason(store):
    item = lost(time.time() - 60)
    fire(store, item)
    access.set_guard(access.AccessGuard(AccessRules(read_only=("*",)), LoginSessions(1.0)))

    button = run(store.path).button(key=f"ack-{item.alert_id}")

    assert button.disabled and "read-only access" in button.help


def test_texts_of_alerts_and_silences_are_escaped(store):
    item = alert("connection_lost", HOSTILE, time.time() - 60, reason=HOSTILE)
    fire(store, item)
    AlertLog(store).silence(
        "connection_lost", HOSTILE, until=time.time() + 60, who=HOSTILE, why=HOSTILE, origin="cli"
    )

    for query in ({}, {"alert": item.alert_id}, {"show": "Silences"}, {"show": "Rules"}):
        app = run(store.path, **query)
        assert "<img src=x" not in " ".join(item.proto.body for item in app.get("html"))
        assert not [item for item in app.markdown if "bold" in item.value]


# the alert worker


@pytest.fixture
def worker():
    yield alert_worker
    alert_worker.stop_all()


def threads():
    names = (thread.name for thread in threading.enumerate())
    return [name for name in names if name.startswith(("alerts", "dashboard-alerts"))]


def test_the_server_evaluates_alerts_once_for_all_sessions_and_stops_cleanly(store, worker):
    before = sorted(threads())
    for _ in range(5):
        worker.start(store.path)
    evaluator = eventually(lambda: page(store).evaluator)

    assert evaluator.here
    assert threads().count("dashboard-alerts") == 1
    assert threads().count("alerts") <= 1 + before.count("alerts")
    worker.stop_all()
    assert sorted(threads()) == before
    assert store.rows("lease_holder", name="alerts") == []


def test_the_worker_waits_for_a_store_that_does_not_exist_yet(tmp_path, worker, monkeypatch):
    monkeypatch.setattr(alert_worker, "_RETRY_EVERY", 0.05)
    path = tmp_path / "later.duckdb"
    worker.start(path)
    assert not path.exists()

    store = Store.open(path)
    eventually(lambda: page(store).evaluator)
    worker.stop_all()
    store.close()


def test_a_silence_of_a_whole_rule_is_described_as_such():
    assert (
        alert_wording.silence_subject(Silence("high_latency", "", NOW, "ada", "", NOW))
        == "high_latency, all subjects"
    )


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


def test_times_in_alert_texts_are_shown_in_local_time_and_utc():
    text = "shop has given no sign of life since 2026-11-21 15:15:57 UTC and was not closed"
    at = 1_795_274_157.0
    assert wording.local(text, "Asia/Kolkata", at + 60) == (
        "shop has given no sign of life since 20:45:57 IST (2026-11-21 15:15:57 UTC) and was not closed"
    )
    assert wording.local("silenced by ada until 2026-11-21 15:15:57Z: known", "Asia/Kolkata", at).endswith(
        "until 20:45:57 IST (2026-11-21 15:15:57Z): known"
    )
    for zone in (None, "UTC", "No/Such_Zone"):
        assert wording.local(text, zone, at) == text
    assert (
        wording.local("until 2026-99-99 15:15:57 UTC", "Asia/Kolkata", at) == "until 2026-99-99 15:15:57 UTC"
    )


def test_the_cards_show_times_in_local_time(monkeypatch):
    monkeypatch.setattr(common, "zone", lambda: "Asia/Kolkata")
    gone = alert("producer_gone", "p", NOW, seen="2026-11-21 15:15:57", client="shop", pending=3)
    drawn = text_of(alert_cards.card(gone, RULES["producer_gone"], None, NOW, {}))
    assert "20:45:57 IST (2026-11-21 15:15:57 UTC)" in drawn
