"""Test the audit of clicks that the page does not offer."""

from __future__ import annotations

import pytest

from producer_core.alerts import AlertLog
from producer_core.dashboard import actions
from producer_core.roles.adopted_policy import adopt_policy
from tests.fixtures.approvals import write_policy
from tests.fixtures.sign_in import audited, fire, run, signed_in


def one_button():
    import os
    from pathlib import Path

    import streamlit as st

    from producer_core.dashboard import actions

    for number in (1, 2):
        allowed, _ = actions.may_act(Path(os.environ["STORE_OF_THE_TEST"]))
        st.button("Acknowledge", key=f"ack-{number}", disabled=not allowed)


@pytest.mark.slow
def test_a_forged_click_of_a_read_only_user_changes_nothing_and_is_audited(store, monkeypatch):
    signed_in(monkeypatch, "bob", read_only=("bob",))
    monkeypatch.setenv("STORE_OF_THE_TEST", str(store.path))
    monkeypatch.setattr("sys.argv", ["page.py", str(store.path.with_name("another.duckdb"))])
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


def test_the_role_is_that_of_the_store_of_the_page(store, monkeypatch, tmp_path):
    signed_in(monkeypatch, "bob")
    write_policy(monkeypatch, tmp_path, '[roles]\nviewer = ["bob"]\n')
    with store.borrow(write=True):
        adopt_policy(store, who="ada", origin="cli", now=5000.0)
    monkeypatch.setenv("PRODUCER_CORE_POLICY", "")

    allowed, reason = actions.may_act(store.path)

    assert (allowed, reason) == (False, "bob is a viewer. The approval policy requires the role operator.")
    assert actions.may_act(tmp_path / "another.duckdb") == (True, "")
