"""Test the cards of alerts."""

from __future__ import annotations

from producer_core.alerts import RULES, alert
from producer_core.alerts.alert_groups import AlertGroup
from producer_core.dashboard.html import text_of
from producer_core.dashboard.views import alert_cards, common
from tests.fixtures.alert_pages import NOW, changed, lost


def test_the_firing_time_is_not_the_time_since_the_acknowledgement():
    item = changed(lost(NOW - 22 * 60), acknowledged_by="ada", acknowledged_at=NOW - 1)

    drawn = text_of(
        alert_cards.card(AlertGroup(item, (item.alert_id,)), RULES["connection_lost"], None, NOW, {})
    )

    assert "firing for 22 min, acknowledged · connection_lost" in drawn
    assert "acknowledged for" not in drawn


def test_the_cards_show_times_in_local_time(monkeypatch):
    monkeypatch.setattr(common, "zone", lambda: "Asia/Kolkata")
    gone = alert("producer_gone", "p", NOW, seen="2026-11-21 15:15:57", client="shop", pending=3)
    drawn = text_of(
        alert_cards.card(AlertGroup(gone, (gone.alert_id,)), RULES["producer_gone"], None, NOW, {})
    )
    assert "20:45:57 IST (2026-11-21 15:15:57 UTC)" in drawn
