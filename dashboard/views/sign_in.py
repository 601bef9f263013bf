"""The entrance of every page: who has to sign in does so first, and who is signed in can be seen and can go."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import streamlit as st

from producer_core.dashboard import wording
from producer_core.dashboard.auth import access, access_rules
from producer_core.dashboard.views import common

_LOOK_EVERY = 10

_STYLE = """<style>
.st-key-pc-who { position: fixed; top: 0.55rem; right: 3.4rem; z-index: 1000000; width: auto; }
.st-key-pc-who button { min-height: 2rem; padding: 0.1rem 0.7rem; }
</style>"""


def show() -> bool:
    """Whether the page may be drawn; else what stands in the way has been drawn."""
    if (problem := _unsafe()) is not None:
        common.say("bad", problem)
        return False
    if not access.guard().admission.needs_sign_in:
        return True
    if not access.user():
        _ask()
        return False
    _who()
    st.fragment(_still, run_every=_LOOK_EVERY)()
    return True


def _unsafe() -> str | None:
    """Started by hand there is no door, so nobody but this machine may ask."""
    if access.guard().started:
        return None
    admitted = access_rules.read()
    address = st.get_option("server.address") or "every address"
    problem = access_rules.refusal(address, (), admitted)
    if admitted.needs_sign_in:
        problem = "People have to sign in here, and only the command asks them to."
    return f"{problem} Start it with: producer-core dashboard" if problem else None


def _ask() -> None:
    reason = access.turned_away()
    if reason is not None:
        common.say("bad", reason)
        st.button("Sign out", on_click=access.sign_out)
    elif access.guard().admission.oidc:
        common.say("quiet", "Sign in to see this dashboard.")
        st.button("Sign in", type="primary", on_click=st.login, args=(access.guard().admission.provider,))
    else:
        common.say("quiet", "You are signed out, or your session has ended.")
        st.html(f"<p>{common.anchor('Sign in again', _back_here())}</p>")


def _back_here() -> str:
    """The sign-in, that leads to this page again."""
    here = urlsplit(st.context.url or "")
    path = f"{here.path or '/'}?{here.query}" if here.query else here.path or "/"
    return f"sign-in?next={quote(path, safe='')}"


def _who() -> None:
    allowed, reason = access.may_act()
    st.html(_STYLE)
    with st.container(key="pc-who"), st.popover(wording.short(access.user(), 20), icon=":material/person:"):
        st.text(f"Signed in as {access.user()}.")
        st.text("May look and act." if allowed else reason)
        st.button("Sign out", key="sign_out", on_click=access.sign_out, width="stretch")


def _still() -> None:
    """A page that is left open ends with its session."""
    if not access.user():
        st.rerun()
