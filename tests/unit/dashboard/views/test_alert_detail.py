"""Test the page of one alert."""

from __future__ import annotations

import time

import pytest

from producer_core.alerts import AlertLog
from tests.fixtures.alert_pages import fire, lost, run, texts


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
