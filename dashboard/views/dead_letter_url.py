"""The address of the dead letters page: it alone says what is looked at, so that it can be shared, and gone back to."""

from __future__ import annotations

import time
from dataclasses import replace

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from producer_core.dashboard.queries.dead_letter_filter import (
    FILTER_PARAMETERS,
    DeadLetterQuery,
    dead_letter_query,
)
from producer_core.dlq import DeadLetterFilter, PageCursor

_BEFORE = "letters_before"
_CURRENT, _LEFT = "letters_address", "letters_addresses_left"
_REMEMBERED = 50


def asked() -> tuple[DeadLetterQuery, str | None]:
    """What the address asks for; and what is wrong with it."""
    _correct_late_request()
    return dead_letter_query(st.query_params.to_dict())


def now() -> DeadLetterQuery:
    return asked()[0]


def shows(drawn: DeadLetterQuery) -> bool:
    """Return whether the browser's own address still asks for the filter that was drawn."""
    return dead_letter_query(st.query_params.to_dict())[0].filter == drawn.filter


def go(to: DeadLetterQuery) -> None:
    """Another address, which the browser's back button leaves again."""
    if to == now() and asked()[1] is None:
        return
    before = st.query_params.to_dict()
    after = {name: text for name, text in before.items() if name not in FILTER_PARAMETERS} | to.to_query()
    left = [one for one in (*st.session_state.get(_LEFT, ()), before) if one != after]
    st.session_state[_CURRENT], st.session_state[_LEFT] = after, left[-_REMEMBERED:]
    st.query_params.from_dict(after)


def forget() -> None:
    """Believe the browser's next address: the page is entered anew."""
    st.session_state.pop(_CURRENT, None)
    st.session_state.pop(_LEFT, None)


def _correct_late_request() -> None:
    """Restore the address that `go` wrote where this request left the browser before that reached it.

    Each request carries the browser's address, and a page that refreshes sends one every two seconds. Only the back and
    forward buttons really return to an address that was left, and the browser marks those requests.
    """
    current, said = st.session_state.get(_CURRENT), st.query_params.to_dict()
    if current is None or said == current:
        return
    if said in st.session_state[_LEFT] and not _went_back():
        st.query_params.from_dict(current)
    else:
        forget()


def _went_back() -> bool:
    context = get_script_run_ctx()
    return bool(getattr(context, "is_history_navigation", False))


def narrow(**changes: object) -> None:
    """Other fields of the filter; from the first page on."""
    st.session_state[_BEFORE] = []
    go(now().narrowed(**changes))


def during(span: str | None) -> None:
    """A time range that follows the clock, or none."""
    go(replace(now().narrowed(since=None, until=None), span=span))


def between(since: float | None, until: float | None) -> None:
    """A beginning and an end."""
    go(replace(now().narrowed(since=since, until=until), span=None))


def custom() -> None:
    """A range of one's own begins with the last hour."""
    between(float(int(time.time()) // 60 * 60 - 3600), None)


def everything() -> None:
    go(DeadLetterQuery(dead_letter=now().dead_letter))


def only(ids: tuple[str, ...]) -> None:
    """These dead letters and no others, in whatever state they are by now."""
    st.session_state[_BEFORE] = []
    go(DeadLetterQuery(DeadLetterFilter(ids=ids, state=None), dead_letter=now().dead_letter))


def group(fingerprint: str | None) -> None:
    narrow(group=fingerprint)


def open(message_id: str | None) -> None:
    go(replace(now(), dead_letter=message_id))


def older(cursor: PageCursor) -> None:
    here = now()
    st.session_state[_BEFORE] = [*st.session_state.get(_BEFORE, []), here.after]
    go(replace(here, after=cursor))


def newer() -> None:
    """The page before, where this session came from it; else the first."""
    before = st.session_state.get(_BEFORE) or [None]
    st.session_state[_BEFORE] = before[:-1]
    go(replace(now(), after=before[-1]))


def newest() -> None:
    st.session_state[_BEFORE] = []
    go(replace(now(), after=None))
