"""Test the form that changes the retention."""

from __future__ import annotations

import pytest

from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.views import settings_reads
from tests.fixtures.pages import opened, rows_of, text_of

DAY = 86_400.0


def fill_in(page, name, number, unit):
    page.number_input(key=f"retention-number-{name}").set_value(number)
    page.selectbox(key=f"retention-unit-{name}").set_value(unit)


@pytest.mark.slow
def test_a_shorter_retention_is_changed_after_a_confirmation_that_says_what_is_lost(path, store, monkeypatch):
    page = opened("settings", path, monkeypatch)
    page.button(key="retention-edit").click().run()
    assert page.number_input(key="retention-number-keep_hours").value == 90.0
    fill_in(page, "keep_hours", 36.0, "hours")
    page.button(key="retention-review").click().run()

    text = text_of(page)
    assert "keep_hours: 90 days → 36 hours." in text and "This cannot be undone." in text
    assert "Nothing is deleted by this click." in text and "once a minute" in text
    assert store.settings() == {}

    page.button(key="retention-apply").click().run()
    assert not page.exception
    assert store.settings() == {"keep_hours": 36 * 3600.0}
    assert "Retention changed: keep_hours is 36 hours." in text_of(page)
    retention = {row[0]: row[2] for row in rows_of(page, "Retention")}
    assert retention["keep_hours"] == "36 hours set" and retention["keep_settled"] == "30 days"
    (entry,) = store.rows("audit_latest")
    assert (entry["action"], entry["who"], entry["origin"]) == ("set", access.user(), "dashboard")


@pytest.mark.slow
def test_a_change_can_be_cancelled_before_and_at_the_confirmation(path, store, monkeypatch):
    page = opened("settings", path, monkeypatch)
    page.button(key="retention-edit").click().run()
    fill_in(page, "keep_minutes", 1.0, "days")
    page.button(key="retention-review").click().run()
    assert "aggregated to hours" in text_of(page)
    page.button(key="retention-cancel").click().run()
    page.button(key="retention-edit").click().run()
    assert page.number_input(key="retention-number-keep_minutes").value == 3.0
    page.button(key="retention-cancel").click().run()

    assert not page.exception and page.button(key="retention-edit")
    assert store.settings() == {} and store.rows("audit_latest") == []


@pytest.mark.slow
def test_without_a_different_value_there_is_nothing_to_confirm(path, store, monkeypatch):
    page = opened("settings", path, monkeypatch)
    page.button(key="retention-edit").click().run()
    fill_in(page, "keep_settled", 720.0, "hours")
    page.button(key="retention-review").click().run()

    assert "No value differs from the current one." in text_of(page)
    assert page.button(key="retention-review")


@pytest.mark.slow
def test_a_change_by_another_operator_in_the_meantime_is_kept(path, store, monkeypatch):
    page = opened("settings", path, monkeypatch)
    page.button(key="retention-edit").click().run()
    fill_in(page, "keep_hours", 30.0, "days")
    page.button(key="retention-review").click().run()
    store.change_settings({"keep_hours": 7 * DAY}, who="bea", origin="cli")
    page.button(key="retention-apply").click().run()

    assert "keep_hours changed in the meantime." in text_of(page)
    assert store.settings() == {"keep_hours": 7 * DAY}


@pytest.mark.slow
def test_read_only_users_see_the_values_and_cannot_edit_them(path, store, monkeypatch):
    monkeypatch.setattr(access, "_guards", [access.AccessGuard(AccessRules(read_only=("*",)))])
    page = opened("settings", path, monkeypatch)
    assert page.button(key="retention-edit").disabled
    assert len(rows_of(page, "Retention")) == 5

    page.session_state["retention-step"] = "edit"
    page.run()
    assert not [one for one in page.number_input if one.key.startswith("retention")]


@pytest.mark.slow
def test_the_result_of_a_change_is_shown_while_the_store_cannot_be_read(path, store, monkeypatch):
    page = opened("settings", path, monkeypatch)
    monkeypatch.setattr(settings_reads, "read", lambda _: None)
    page.session_state["retention-said"] = ("good", "Retention changed: keep_hours is 7 days.")
    page.run()

    assert not page.exception and "Retention changed: keep_hours is 7 days." in text_of(page)
