"""The address of the dead letters page: it alone says what is looked at, so that it can be shared, and gone back to."""

from __future__ import annotations

import time
from dataclasses import replace

import streamlit as st

from dashboard.data.looking import OURS, Looking, looking
from producer_core.dlq import Cursor, DeadLetterFilter

_BEFORE = "letters_before"


def asked() -> tuple[Looking, str | None]:
    """What the address asks for; and what is wrong with it."""
    return looking(st.query_params.to_dict())


def now() -> Looking:
    return asked()[0]


def go(to: Looking) -> None:
    """Another address, which the browser's back button leaves again."""
    others = {name: text for name, text in st.query_params.to_dict().items() if name not in OURS}
    if to != now() or asked()[1] is not None:
        st.query_params.from_dict(others | to.to_query())


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
    go(Looking(letter=now().letter))


def only(ids: tuple[str, ...]) -> None:
    """These letters and no others, in whatever state they are by now."""
    st.session_state[_BEFORE] = []
    go(Looking(DeadLetterFilter(ids=ids, state=None), letter=now().letter))


def group(fingerprint: str | None) -> None:
    narrow(group=fingerprint)


def open(message_id: str | None) -> None:
    go(replace(now(), letter=message_id))


def older(cursor: Cursor) -> None:
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
