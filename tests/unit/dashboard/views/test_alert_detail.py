"""Test the page of one alert."""

from __future__ import annotations

import time

import pytest

from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.alerts.alert_state import resolved
from tests.fixtures.alert_pages import burning, fire, lost, run, texts
from tests.fixtures.alerts import write


@pytest.mark.slow
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


def test_the_page_of_an_alert_shows_its_metric_with_the_threshold(store):
    now = time.time()
    write(store, now - 200, topic="payments", good=80, bad=20)
    item = burning(now - 100)
    fire(store, item)

    text = texts(run(store.path, alert=item.alert_id))

    assert "Error rate: payments" in text
    assert "threshold: above 1.44%" in text


def test_the_page_of_an_alert_links_to_its_other_times(store):
    now = time.time()
    earlier, item = lost(now - 900), lost(now - 60)
    fire(store, earlier)
    AlertLog(store).record([AlertChange("resolved", resolved(earlier, now - 800))])
    fire(store, item)

    text = texts(run(store.path, alert=item.alert_id))

    assert "Other times" in text and f"alert={earlier.alert_id}" in text


def test_the_last_value_is_shown_where_the_store_has_no_history_of_the_metric(store):
    item = alert(
        "memory_near_limit", "p-1", time.time() - 60, value=0.97, threshold=0.95, client="shop", says="x"
    )
    fire(store, item)

    text = texts(run(store.path, alert=item.alert_id))

    assert "Last memory usage: 97%; the threshold is 95%. The store keeps no history of it." in text


def test_the_alert_of_a_loss_links_to_the_place_of_the_audits(store):
    write(store, time.time() - 200, topic="orders", good=8, bad=0)
    item = alert("acknowledged_lost", "orders/0", time.time() - 60, text="5 are missing")
    fire(store, item)

    text = texts(run(store.path, alert=item.alert_id))

    assert "fleet?" in text and "topic=orders&amp;to=audits" in text
