"""The alerts page: its words, what it reads, what one can do there, and the server's watch over the store."""

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
from producer_core.dashboard.queries import alerts as of
from producer_core.dashboard.server import alert_worker
from producer_core.dashboard.views import alert_cards, common
from producer_core.dashboard.wording import alerts as said
from producer_core.store import Store
from tests.support import eventually
from tests.unit.alerting import receiver, write

NOW = 1_700_000_000.0
HOSTILE = "<img src=x onerror=alert(1)> **bold** [x](javascript:alert(1))"


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path, monkeypatch):
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
    return of.alerts(store, View("1 hour", **view), NOW)


# words


def sentence(*firing, pending=0, elsewhere=0, judged=True):
    return said.alerts_sentence(firing, pending, elsewhere, judged, 34)


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
def test_how_things_stand_in_a_sentence(firing, more, tone, text):
    assert sentence(*firing, **more) == (tone, text)


def test_an_alert_whose_condition_is_over_says_so_and_not_what_to_do():
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


def test_without_a_judge_that_comes_first():
    tone, text = sentence(judged=False)

    assert tone == "bad" and text.startswith("Alert evaluation is not running; data may be stale.")


def test_what_has_to_happen_next_is_said():
    rule = RULES["slow_delivery"]
    pending = changed(burning(), state="pending", since=NOW - 60)

    assert said.next_transition(pending, rule, NOW) == "Fires in 4 min if the condition persists."
    assert said.next_transition(changed(pending, state="firing"), rule, NOW) == (
        "Condition cleared; resolves in 9 min."
    )
    assert said.next_transition(
        alert("acknowledged_lost", "t", NOW, text="x"), RULES["acknowledged_lost"], NOW
    ) == ("Fires until acknowledged.")


def test_a_route_says_since_when_nobody_is_told_and_why():
    assert said.route_state(True, "3 min ago", 2, 0, "HTTP 500") == (
        "bad", "Delivery began failing 3 min ago: HTTP 500. 2 notifications queued.",
    )  # fmt: skip
    assert said.route_state(True, "", 0, 0, "")[0] == "good"
    assert said.route_state(False, "", 0, 0, "")[0] == "quiet"


# what it reads


def test_an_empty_store_shows_every_rule_and_that_nobody_is_told(store):
    found = page(store)

    assert (found.firing, found.pending, found.ended, found.routes, found.evaluator) == ((), (), (), (), None)
    assert {one.name for one in found.rules} == set(RULES)


def test_what_needs_somebody_comes_first(store):
    fire(store, alert("dedup_degraded", "p-1", NOW - 10, reason="x"), lost(), burning(), lost(subject="p-2"))
    log = AlertLog(store, clock=lambda: NOW)
    log.acknowledge(lost().alert_id, who="ada", origin="cli")
    log.silence("error_budget_fast", "payments", until=NOW + 60, who="ada", why="", origin="cli")

    order = [(item.rule, item.subject) for item in page(store).firing]

    assert order == [
        ("connection_lost", "p-2"), ("dedup_degraded", "p-1"), ("connection_lost", "p-1"), ("error_budget_fast", "payments"),
    ]  # fmt: skip
    assert page(store).silence_of(burning()).who == "ada"


def test_the_topic_that_is_chosen_narrows_the_alerts_and_says_what_fires_elsewhere(store):
    fire(store, burning(), burning(subject="payments/3"), burning(subject="payments2"), lost())

    found = page(store, topic="payments")

    assert {item.subject for item in found.firing} == {"payments", "payments/3"}
    assert found.elsewhere == 2


def test_the_history_is_that_of_the_time_range(store):
    old, new = lost(NOW - 50_000), lost(NOW - 900)
    for item, ended in ((old, NOW - 40_000), (new, NOW - 60)):
        fire(store, item)
        AlertLog(store).record([AlertChange("resolved", resolved(item, ended))])

    assert [item.alert_id for item in page(store).ended] == [new.alert_id]
    assert of.alerts(store, View("24 hours"), NOW).ended_total == 2


def test_a_rule_says_how_often_it_fired_and_what_keeps_it_quiet(store):
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


def test_mistakes_in_the_file_are_lines_and_the_built_in_rules_hold(store):
    file = store.path.with_name("alerts.toml")
    file.write_text('[rules.slow_delivery]\nabove = "soon"\n[rules.mine]\nkind = "threshhold"\n')

    found = page(store)

    assert found.file.path == file
    assert "2 mistakes" in found.file.problem[0] and "line 2" in found.file.problem[1]
    assert "line 4" in found.file.problem[2]
    assert {one.name for one in found.rules} == set(RULES)


def test_a_route_is_shown_with_what_could_not_be_told_and_never_its_address(store, monkeypatch):
    with receiver() as hook:
        monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", hook.url)
        hook.status = 500
        fire(store, burning())
        _judged(store)
        from producer_core.alerts.routes import routes_of

        (route,) = routes_of(of.rule_set_of(store))
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


def test_a_route_of_another_process_is_shown_and_cannot_be_tried_here(store):
    RouteSender(store, Callback("pager", print), owner="elsewhere").run_once()

    (shown,) = page(store).routes

    assert (shown.name, shown.kind, shown.here) == ("pager", "callback", False)


def _judged(store):
    """Decided that people are told."""
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE alerts SET telling = 'begin'")


def test_one_alert_names_its_topic_its_time_and_whom_it_was_told(store):
    write(store, NOW - 200, topic="payments", good=1)
    alert_id = fire(store, burning())
    _judged(store)
    RouteSender(store, Callback("mine", lambda payload: None), owner="me", clock=lambda: NOW).run_once()

    found = of.alert_detail(store, alert_id, NOW)

    assert (found.topic, found.until) == ("payments", NOW + 30)
    assert found.since == burning().started_at - 3600
    assert [(row["route"], row["status"], row["outcome"]) for row in found.notifications] == [
        ("mine", "firing", "told")
    ]
    assert of.alert_detail(store, "nothing", NOW) is None


def test_an_alert_of_a_producer_names_the_producer(store):
    write(store, NOW - 5, good=1)
    alert_id = fire(store, lost())

    assert page(store).names == {"p-1": "shop (process 4711 on host-7)"}

    assert of.alert_detail(store, alert_id, NOW).producer == "p-1"


# what one can do


def audited(store):
    return [(row["action"], row["outcome"]) for row in store.rows("audit_latest")]


def test_silencing_and_ending_it_are_acts_with_a_name(store):
    done = actions_alerts.silence(store, "error_budget_fast", "payments", 3600, " upgrade ")
    assert done.ok and "quiet for payments" in done.text
    (quiet,) = AlertLog(store).silences()
    assert (quiet.subject, quiet.why, quiet.who) == ("payments", "upgrade", access.user())

    assert actions_alerts.unsilence(store, "error_budget_fast", "payments").ok
    assert not actions_alerts.unsilence(store, "error_budget_fast", "payments").ok
    assert [action for action, _ in audited(store)] == ["unsilence", "unsilence", "silence"]


def test_who_may_only_look_silences_nothing_and_tests_nothing(store):
    access.keep(access.AccessGuard(AccessRules(read_only=("*",)), LoginSessions(1.0)))

    assert not actions_alerts.silence(store, "error_budget_fast", "", 60, "").ok
    assert not actions_alerts.try_route(store, "webhook").ok
    assert AlertLog(store).silences() == []
    assert all(outcome.startswith("Refused") for _, outcome in audited(store))


def test_a_test_alert_goes_out_beside_the_page_and_its_answer_is_kept(store, monkeypatch):
    with receiver() as hook:
        monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", hook.url)
        hook.hanging = True
        assert actions_alerts.try_route(store, "webhook").ok  # returns while the receiver still hangs
        assert actions_alerts.route_tests().result(store, "webhook") == (True, None)
        assert not actions_alerts.try_route(store, "webhook").ok
        hook.hang.set()
        _, first = eventually(
            lambda: (found := actions_alerts.route_tests().result(store, "webhook"))[1] and found
        )
        assert not first.ok and first.text.startswith("NOT taken")

        hook.hanging = False
        actions_alerts.try_route(store, "webhook")
        eventually(lambda: (tried := actions_alerts.route_tests().result(store, "webhook")[1]) and tried.ok)
    assert hook.received == [
        ("TestAlert", "producer_core", "firing"),
        ("TestAlert", "producer_core", "resolved"),
    ]
    assert audited(store)[0] == ("test_route", "sent a test")


# the page itself


def shown_page(path):
    from pathlib import Path

    from producer_core.dashboard.views import alerts

    alerts.show(Path(path))


def run(path, **query):
    from streamlit.testing.v1 import AppTest

    app = AppTest.from_function(shown_page, args=(str(path),), default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def texts(app):
    """Everything of the page that is not a widget, as one text."""
    html = " ".join(item.proto.body for item in app.get("html"))
    parts = [str(item.proto) for item in app.get("bidi_component")]
    return " ".join([html, *parts, *(item.value for item in app.text)])


def test_the_page_shows_what_fires_and_what_to_do(store):
    fire(store, lost(time.time() - 60))

    said_ = texts(run(store.path))

    assert "No connection to the brokers: refused" in said_
    assert "Check the address, the network" in said_


def test_a_click_acknowledges_and_the_page_says_so(store):
    item = lost(time.time() - 60)
    fire(store, item)
    app = run(store.path)

    app.button(key=f"ack-{item.alert_id}").click().run()

    assert not app.exception
    assert AlertLog(store).list(state="firing")[0].acknowledged_by == access.user()
    assert "looks after it" in texts(app)
    assert f"ack-{item.alert_id}" not in [button.key for button in app.button]


def test_what_was_done_is_said_where_it_was_done_and_does_not_follow_to_other_tabs(store):
    item = lost(time.time() - 60)
    fire(store, item)
    app = run(store.path)
    app.button(key=f"ack-{item.alert_id}").click().run()
    assert "Acknowledged." in texts(app)

    app.segmented_control(key="show").set_value("Rules").run()

    assert not app.exception
    assert "Acknowledged." not in texts(app)


def test_an_alert_that_was_acknowledged_a_second_ago_is_not_acknowledged_for_22_minutes():
    item = changed(lost(NOW - 22 * 60), acknowledged_by="ada", acknowledged_at=NOW - 1)

    drawn = text_of(alert_cards.card(item, RULES["connection_lost"], None, NOW, {}))

    assert "firing for 22 min, acknowledged · connection_lost" in drawn
    assert "acknowledged for" not in drawn


def test_an_address_changes_nothing(store):
    item = lost(time.time() - 60)
    fire(store, item)

    run(store.path, alert=item.alert_id, ack=item.alert_id, acknowledge="1", silence="connection_lost")

    assert AlertLog(store).list(state="firing")[0].acknowledged_by is None
    assert AlertLog(store).silences() == [] and audited(store) == []


def test_one_alert_is_silenced_from_its_own_page_and_loud_again(store):
    item = lost(time.time() - 60)
    fire(store, item)
    app = run(store.path, alert=item.alert_id)
    app.button(key=f"quiet-{item.alert_id}").click().run()
    app.selectbox(key=f"length-of-{item.alert_id}").select("4 hours")
    app.text_input(key=f"why-of-{item.alert_id}").input("broker upgrade")
    next(button for button in app.button if button.label == "Silence").click().run()

    (quiet,) = AlertLog(store).silences()
    assert (quiet.rule, quiet.subject, quiet.why) == ("connection_lost", "p-1", "broker upgrade")
    assert 3.9 * 3600 < quiet.until - time.time() < 4 * 3600
    assert "broker upgrade" in texts(app)

    app.button(key=f"loud-{item.alert_id}").click().run()
    assert AlertLog(store).silences() == []


def test_an_alert_that_is_gone_is_a_sentence(store):
    assert "There is no alert of this id here" in texts(run(store.path, alert="0123456789ab"))


@pytest.mark.parametrize("section", ["Now", "History", "Rules", "Notifications", "Silences"])
def test_every_section_has_its_address(store, section):
    fire(store, lost(time.time() - 60))

    app = run(store.path, show=section)

    expected = {
        "Now": "No connection to the brokers",
        "History": "No alert was resolved in the last 15 min.", "Rules": "The built-in rules hold",
        "Notifications": "Nobody is told of alerts: there is no route", "Silences": "Nothing is silenced",
    }  # fmt: skip
    assert expected[section] in texts(app)


def test_for_who_may_only_look_the_buttons_say_why_they_cannot_be_pressed(store):
    item = lost(time.time() - 60)
    fire(store, item)
    access.keep(access.AccessGuard(AccessRules(read_only=("*",)), LoginSessions(1.0)))

    button = run(store.path).button(key=f"ack-{item.alert_id}")

    assert button.disabled and "may look, not act" in button.help


def test_nothing_of_an_alert_or_a_silence_is_markup(store):
    item = alert("connection_lost", HOSTILE, time.time() - 60, reason=HOSTILE)
    fire(store, item)
    AlertLog(store).silence(
        "connection_lost", HOSTILE, until=time.time() + 60, who=HOSTILE, why=HOSTILE, origin="cli"
    )

    for query in ({}, {"alert": item.alert_id}, {"show": "Silences"}, {"show": "Rules"}):
        app = run(store.path, **query)
        assert "<img src=x" not in " ".join(item.proto.body for item in app.get("html"))
        assert not [item for item in app.markdown if "bold" in item.value]


# the watch of the server


@pytest.fixture
def watched():
    yield alert_worker
    alert_worker.stop()


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("alerts")]


def test_the_server_judges_once_for_all_sessions_and_stops_cleanly(store, watched):
    before = sorted(threads())
    for _ in range(5):
        watched.watch(store.path)
    judge = eventually(lambda: page(store).evaluator)

    assert judge.here
    assert threads().count("alerts-of-the-dashboard") == 1 and threads().count("alerts") <= 1 + before.count(
        "alerts"
    )
    watched.stop()
    assert sorted(threads()) == before
    assert store.rows("lease_holder", name="alerts") == []


def test_a_store_that_comes_later_is_watched_then(tmp_path, watched, monkeypatch):
    monkeypatch.setattr(alert_worker, "_LOOK_EVERY", 0.05)
    path = tmp_path / "later.duckdb"
    watched.watch(path)
    assert not path.exists()

    store = Store.open(path)
    eventually(lambda: page(store).evaluator)
    watched.stop()
    store.close()


def test_a_silence_of_the_whole_rule_says_so():
    assert (
        said.silence_subject(Silence("high_latency", "", NOW, "ada", "", NOW)) == "high_latency, all subjects"
    )


def test_follow_is_what_producers_use(store):
    """A page over what producers tell: the same alert twice is one."""
    AlertLog(store).record(follow({}, [lost()], NOW), told_by="p-1")
    AlertLog(store).record(follow({}, [lost()], NOW), told_by="p-2")

    assert len(page(store).firing) == 1


def test_the_replays_since_an_alert_are_those_of_its_topic(store):
    from producer_core import replay
    from producer_core.dlq import DeadLetterFilter

    for topic in ("payments", "orders", None):
        replay.plan(store, DeadLetterFilter(topic=topic), who="ada", origin="cli", can_run=True)

    found = of.replays_since(store, "payments", time.time() - 60)

    assert len(found) == 2 and of.replays_since(store, "payments", time.time() + 60) == ()


def test_what_every_producer_of_a_store_says_is_one_alert_on_the_pages(store):
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


def test_a_moment_in_an_alert_stands_in_the_viewers_zone_beside_utc():
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


def test_the_cards_show_the_moment_in_the_viewers_zone(monkeypatch):
    monkeypatch.setattr(common, "zone", lambda: "Asia/Kolkata")
    gone = alert("producer_gone", "p", NOW, seen="2026-11-21 15:15:57", client="shop", pending=3)
    drawn = text_of(alert_cards.card(gone, RULES["producer_gone"], None, NOW, {}))
    assert "20:45:57 IST (2026-11-21 15:15:57 UTC)" in drawn
