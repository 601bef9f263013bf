"""Test who the user is, with passwords and with OIDC, and what the user may do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from producer_core.dashboard import actions
from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from tests.fixtures.sign_in import fire, signed_in


def oidc(monkeypatch, **claims):
    monkeypatch.setattr(access, "_claims", lambda: {"is_logged_in": True, "iat": 1000.0, **claims})
    monkeypatch.setattr(access.time, "time", lambda: 1000.0 + 3600)
    access.set_guard(access.AccessGuard(AccessRules(oidc=True, may_see=("*@example.com",)), started=True))


def test_actions_fail_after_the_session_has_ended(store, monkeypatch):
    guard, token = signed_in(monkeypatch, "ada")
    alert_id = fire(store)
    guard.sessions.end(token)

    assert actions.may_act(store.path) == (False, "Your session has ended. Sign in again.")
    assert not actions.acknowledge(store, alert_id).ok


def test_sign_out_ends_the_session_in_every_tab(monkeypatch):
    guard, token = signed_in(monkeypatch, "ada")

    access.sign_out()

    assert guard.sessions.name(token) is None and access.user() == ""


def test_with_oidc_the_email_address_is_the_user_name(monkeypatch):
    oidc(monkeypatch, email="ada@example.com", sub="7")

    assert access.user() == "ada@example.com" and access.access_denied() is None


@pytest.mark.parametrize(
    "claims", [{"email": "eve@elsewhere.org"}, {"email": "ada@example.com", "email_verified": False, "sub": "7"}, {"sub": "7"}]
)  # fmt: skip
def test_with_oidc_only_users_in_may_see_get_access(monkeypatch, claims):
    oidc(monkeypatch, **claims)

    assert access.user() == "" and "has no access" in access.access_denied()


def test_with_oidc_an_old_session_at_the_provider_is_accepted(monkeypatch):
    oidc(monkeypatch, email="ada@example.com", auth_time=1000.0 - 5 * 86400)

    assert access.user() == "ada@example.com"


def test_with_oidc_sign_out_invalidates_copies_of_the_cookie(monkeypatch):
    oidc(monkeypatch, email="ada@example.com", sub="7", nonce="a")
    monkeypatch.setattr(access, "_streamlit", lambda: SimpleNamespace(logout=lambda: None))

    access.sign_out()

    assert access.user() == "" and access.access_denied() is None
    monkeypatch.setattr(
        access,
        "_claims",
        lambda: {"is_logged_in": True, "iat": 1000.0, "email": "ada@example.com", "sub": "7", "nonce": "b"},
    )
    assert access.user() == "ada@example.com"


@pytest.mark.parametrize("when", [{"iat": 1000.0 - 13 * 3600}, {"iat": None}])
def test_with_oidc_a_session_expires(monkeypatch, when):
    oidc(monkeypatch, email="ada@example.com", **when)

    assert access.user() == ""
