"""Test the audit of clicks that the page does not offer."""

from __future__ import annotations

import pytest

from producer_core.alerts import AlertLog
from tests.fixtures.sign_in import audited, fire, run, signed_in


def one_button():
    import streamlit as st

    from producer_core.dashboard import actions

    for number in (1, 2):
        allowed, _ = actions.may_act()
        st.button("Acknowledge", key=f"ack-{number}", disabled=not allowed)


@pytest.mark.slow
def test_a_forged_click_of_a_read_only_user_changes_nothing_and_is_audited(store, monkeypatch):
    signed_in(monkeypatch, "bob", read_only=("bob",))
    monkeypatch.setattr("sys.argv", ["page.py", str(store.path)])
    alert_id = fire(store)
    page = run(one_button)

    page.button(key="ack-1")._value = True  # a disabled button never sends it
    page.run()
    page.run()

    assert AlertLog(store).list(state="firing")[0].alert_id == alert_id
    ((who, action, outcome),) = audited(store)
    assert (who, action) == ("bob", "ack") and outcome.startswith("Refused: bob has read-only access")
    page.button(key="ack-1")._value = True
    page.run()
    assert len(audited(store)) == 2
