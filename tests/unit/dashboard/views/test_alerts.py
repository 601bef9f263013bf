"""Test the alerts page."""

from __future__ import annotations

import time

import pytest

from producer_core.alerts import AlertLog, alert
from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.auth.sessions import LoginSessions
from tests.fixtures.alert_pages import audited, fire, lost, run, texts

HOSTILE = "<img src=x onerror=alert(1)> **bold** [x](javascript:alert(1))"


def test_the_page_shows_firing_alerts_with_their_advice(store):
    fire(store, lost(time.time() - 60))

    text = texts(run(store.path))

    assert "No connection to the brokers: refused" in text
    assert "Check the address, the network" in text


@pytest.mark.slow
def test_a_click_acknowledges_the_alert_and_the_page_shows_it(store):
    item = lost(time.time() - 60)
    fire(store, item)
    app = run(store.path)

    app.button(key=f"ack-{item.alert_id}").click().run()

    assert not app.exception
    assert AlertLog(store).list(state="firing")[0].acknowledged_by == access.user()
    assert f"Acknowledged by {access.user()}" in texts(app)
    assert f"ack-{item.alert_id}" not in [button.key for button in app.button]


@pytest.mark.slow
def test_alerts_of_many_topics_are_one_card_whose_button_acknowledges_all(store):
    text = "On {} a message was acknowledged before an earlier one with the same key was retried."
    items = [
        alert("order_break", topic, time.time() - 60, text=text.format(topic))
        for topic in ("orders", "refunds")
    ]
    fire(store, *items)
    app = run(store.path)
    assert "On 2 topics a message was acknowledged" in texts(app)
    (key,) = [button.key for button in app.button if str(button.key).startswith("ack-")]

    app.button(key=key).click().run()

    assert not app.exception and "2 alerts acknowledged." in texts(app)
    assert all(one.acknowledged_by for one in AlertLog(store).list(state="firing"))


@pytest.mark.slow
def test_the_result_of_an_action_appears_in_its_section_only(store):
    item = lost(time.time() - 60)
    fire(store, item)
    app = run(store.path)
    app.button(key=f"ack-{item.alert_id}").click().run()
    assert "Acknowledged." in texts(app)

    app.segmented_control(key="show").set_value("Rules").run()

    assert not app.exception
    assert "Acknowledged." not in texts(app)


@pytest.mark.slow
def test_opening_an_address_never_changes_an_alert(store):
    item = lost(time.time() - 60)
    fire(store, item)

    run(store.path, alert=item.alert_id, ack=item.alert_id, acknowledge="1", silence="connection_lost")

    assert AlertLog(store).list(state="firing")[0].acknowledged_by is None
    assert AlertLog(store).silences() == [] and audited(store) == []


@pytest.mark.slow
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


def test_disabled_buttons_explain_the_reason_to_read_only_users(store):
    item = lost(time.time() - 60)
    fire(store, item)
    access.set_guard(access.AccessGuard(AccessRules(read_only=("*",)), LoginSessions(1.0)))

    button = run(store.path).button(key=f"ack-{item.alert_id}")

    assert button.disabled and "read-only access" in button.help


@pytest.mark.slow
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
