"""Test the sign-in on a page."""

from __future__ import annotations

from producer_core.dashboard.auth import access_rules
from producer_core.dashboard.auth.access_rules import AccessRules
from tests.fixtures import sign_in as sign_in_fixtures
from tests.fixtures.sign_in import run, signed_in

stored = sign_in_fixtures.stored


def page_behind_sign_in():
    from pathlib import Path

    import streamlit as st

    from producer_core.dashboard.views import sign_in

    if sign_in.show(Path("none.duckdb")):
        st.text("the page")


def texts(app):
    return " ".join(item.proto.body for item in app.get("html")) + " ".join(item.value for item in app.text)


def test_without_a_sign_in_the_page_is_drawn_at_once():
    assert "the page" in texts(run(page_behind_sign_in))


def test_the_page_shows_the_signed_in_user_and_signs_out_on_click(monkeypatch):
    signed_in(monkeypatch, "ada")
    app = run(page_behind_sign_in)
    assert "the page" in texts(app) and "Signed in as ada." in texts(app)

    app.button(key="sign_out").click().run()

    assert "the page" not in texts(app) and "sign-in?next=" in texts(app)


def test_a_server_without_the_sign_in_middleware_refuses_the_page(monkeypatch, stored):
    monkeypatch.setattr(access_rules, "read", lambda: AccessRules(passwords={"ada": stored}))

    assert "the page" not in texts(run(page_behind_sign_in))
