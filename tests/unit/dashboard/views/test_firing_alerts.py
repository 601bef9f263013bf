"""Test the firing alerts of the overview."""

from __future__ import annotations

import time

import pytest

from producer_core.alerts import AlertChange, AlertLog, alert
from tests.fixtures import overview as overview_fixtures
from tests.fixtures.overview import opened, shop

drawn = overview_fixtures.drawn


NOW = 0.0


@pytest.mark.slow
def test_a_firing_alert_is_a_link_and_can_be_acknowledged(path, store, monkeypatch, drawn):
    shop(store, seen_at=time.time() + 60)
    AlertLog(store).record(
        [AlertChange("fired", alert("high_error_rate", "p", NOW, value=0.3, threshold=0.05))]
    )
    page = opened(path, monkeypatch)
    acknowledge = next(button for button in page.button if button.label == "Acknowledge")
    assert any(key.startswith("alert-") for key in drawn)
    acknowledge.click().run()
    assert not page.exception
    assert "Acknowledge" not in [button.label for button in page.button]
