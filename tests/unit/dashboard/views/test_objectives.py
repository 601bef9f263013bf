"""Test the form that changes the decision objectives."""

from __future__ import annotations

import pytest

from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dlq.objectives import DecisionObjective, objectives
from tests.fixtures.pages import opened, rows_of, text_of

TABLE = "Decision objectives"


@pytest.mark.slow
def test_an_objective_is_set_shown_and_removed(path, store, monkeypatch):
    page = opened("settings", path, monkeypatch)
    assert "No objective is set" in text_of(page)
    page.button(key="objectives-edit").click().run()
    page.text_input(key="objectives-topic").set_value("payments")
    page.number_input(key="objectives-percent").set_value(99.5)
    page.number_input(key="objectives-number").set_value(90.0)
    page.selectbox(key="objectives-unit").set_value("minutes")
    page.button(key="objectives-set").click().run()

    assert not page.exception
    assert objectives(store) == {"payments": DecisionObjective(99.5, 5400.0)}
    assert rows_of(page, TABLE) == [["payments", "99.5% within 90 min"]]
    assert "Objective of payments: 99.5% within 90 min." in text_of(page)
    (entry,) = store.rows("audit_latest")
    assert (entry["action"], entry["who"], entry["origin"]) == ("set", access.user(), "dashboard")

    page.button(key="objectives-remove").click().run()
    assert objectives(store) == {} and "Removed the objective of payments." in text_of(page)


@pytest.mark.slow
def test_an_invalid_topic_is_refused_and_the_refusal_is_audited(path, store, monkeypatch):
    page = opened("settings", path, monkeypatch)
    page.button(key="objectives-edit").click().run()
    page.button(key="objectives-set").click().run()

    assert "&#x27;&#x27; is not a topic name." in text_of(page)
    assert store.settings() == {}
    assert [row["count"] for row in store.rows("audit_latest")] == [0]


@pytest.mark.slow
def test_read_only_users_cannot_edit_objectives(path, store, monkeypatch):
    monkeypatch.setattr(access, "_guards", [access.AccessGuard(AccessRules(read_only=("*",)))])

    page = opened("settings", path, monkeypatch)

    assert page.button(key="objectives-edit").disabled
