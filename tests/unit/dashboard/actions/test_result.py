"""Test that actions are audited with the user's name, and refused for read-only users."""

from __future__ import annotations

from producer_core.alerts import AlertLog
from producer_core.dashboard import actions
from tests.fixtures.sign_in import audited, fire, signed_in


def test_an_action_is_audited_with_the_signed_in_name(store, monkeypatch):
    signed_in(monkeypatch, "ada")

    assert actions.user() == "ada" and actions.may_act(store.path) == (True, "")
    assert actions.acknowledge(store, fire(store)).ok
    assert audited(store) == [("ada", "acknowledge", "acknowledged")]


def test_an_action_of_a_read_only_user_is_refused_and_audited(store, monkeypatch):
    signed_in(monkeypatch, "bob", read_only=("bob",))
    alert_id = fire(store)

    allowed, reason = actions.may_act(store.path)
    assert not allowed and reason.startswith("bob has read-only access")
    assert not actions.acknowledge(store, alert_id).ok
    assert AlertLog(store).list(state="firing")[0].acknowledged_by is None
    ((who, action, outcome),) = audited(store)
    assert (who, action) == ("bob", "acknowledge") and outcome.startswith("Refused: bob has read-only access")
