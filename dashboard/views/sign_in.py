"""Require a sign-in before a page is drawn, and show the signed-in user with a sign-out button."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlsplit

import streamlit as st

from producer_core.dashboard import actions, wording
from producer_core.dashboard.auth import access, access_rules
from producer_core.dashboard.views import common

_CHECK_EVERY = 10


def show(path: Path) -> bool:
    """Return whether the page may be drawn; if not, draw the sign-in or the reason."""
    if (problem := _configuration_problem()) is not None:
        common.message("bad", problem)
        return False
    if not access.guard().rules.needs_sign_in:
        return True
    if not access.user():
        _sign_in()
        return False
    _user_menu(path)
    st.fragment(_check_session, run_every=_CHECK_EVERY)()
    return True


def _configuration_problem() -> str | None:
    """Return why the page must not be served by `streamlit run`, which has no sign-in middleware."""
    if access.guard().started:
        return None
    rules = access_rules.read()
    address = st.get_option("server.address") or "all addresses"
    problem = access_rules.refusal(address, (), rules)
    if rules.needs_sign_in:
        problem = "Sign-in is required, but this server has no sign-in page."
    return f"{problem} Start it with: producer-core dashboard" if problem else None


def _sign_in() -> None:
    reason = access.access_denied()
    if reason is not None:
        common.message("bad", reason)
        st.button("Sign out", on_click=access.sign_out)
    elif access.guard().rules.oidc:
        common.message("quiet", "Sign in to see this dashboard.")
        st.button("Sign in", type="primary", on_click=st.login, args=(access.guard().rules.provider,))
    else:
        common.message("quiet", "You are signed out, or your session has ended.")
        st.html(f"<p>{common.link_element('Sign in again', _sign_in_address())}</p>")


def _sign_in_address() -> str:
    """Return the URL of the sign-in form with this page as its destination."""
    here = urlsplit(st.context.url or "")
    path = f"{here.path or '/'}?{here.query}" if here.query else here.path or "/"
    return f"sign-in?next={quote(path, safe='')}"


def _user_menu(path: Path) -> None:
    allowed, reason = actions.may_act(path)
    with st.container(key="pc-user"), st.popover(wording.short(access.user(), 20), icon=":material/person:"):
        st.text(f"Signed in as {access.user()}.")
        st.text("You can make changes." if allowed else reason)
        st.button("Sign out", key="sign_out", on_click=access.sign_out, width="stretch")


def _check_session() -> None:
    """Draw the sign-in in place of an open page whose session has ended."""
    if not access.user():
        st.rerun()
