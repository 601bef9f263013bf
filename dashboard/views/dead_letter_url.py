"""Keep the state of the dead letters page in its URL, so that it can be shared and the back button works."""

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

_PREVIOUS_PAGES = "dead_letters_previous_pages"
_CURRENT, _LEFT = "dead_letters_address", "dead_letters_addresses_left"
_MAX_REMEMBERED = 50


def parsed() -> tuple[DeadLetterQuery, str | None]:
    """Return what the URL requests, and what is wrong with the URL, if anything."""
    _correct_late_request()
    return dead_letter_query(st.query_params.to_dict())


def current() -> DeadLetterQuery:
    return parsed()[0]


def shows(drawn: DeadLetterQuery) -> bool:
    """Return whether the browser's own URL still requests the filter that was drawn."""
    return dead_letter_query(st.query_params.to_dict())[0].filter == drawn.filter


def go(to: DeadLetterQuery) -> None:
    """Change the URL; the browser's back button returns to the previous one."""
    query, problem = parsed()
    if to == query and problem is None:
        return
    before = st.query_params.to_dict()
    after = {name: text for name, text in before.items() if name not in FILTER_PARAMETERS} | to.to_query()
    left = [one for one in (*st.session_state.get(_LEFT, ()), before) if one != after]
    st.session_state[_CURRENT], st.session_state[_LEFT] = after, left[-_MAX_REMEMBERED:]
    st.query_params.from_dict(after)


def reset() -> None:
    """Accept the browser's next URL unchecked, because the user enters the page again."""
    st.session_state.pop(_CURRENT, None)
    st.session_state.pop(_LEFT, None)


def _correct_late_request() -> None:
    """Restore the URL that `go` wrote if this request left the browser before that URL reached it.

    Each request carries the browser's URL, and a live page sends one every two seconds. Only the back and forward
    buttons really return to an earlier address, and the browser marks those requests.
    """
    current, received = st.session_state.get(_CURRENT), st.query_params.to_dict()
    if current is None or received == current:
        return
    if received in st.session_state[_LEFT] and not _is_history_navigation():
        st.query_params.from_dict(current)
    else:
        reset()


def _is_history_navigation() -> bool:
    context = get_script_run_ctx()
    return bool(getattr(context, "is_history_navigation", False))


def narrow(**changes: object) -> None:
    """Change fields of the filter, and return to the first page of the list."""
    st.session_state[_PREVIOUS_PAGES] = []
    go(current().narrowed(**changes))


def set_span(span: str | None) -> None:
    """Filter by a time range that ends now; None removes the range."""
    go(replace(current().narrowed(since=None, until=None), span=span))


def set_range(since: float | None, until: float | None) -> None:
    """Filter by a fixed start and end; either can be open."""
    go(replace(current().narrowed(since=since, until=until), span=None))


def start_custom_range() -> None:
    """Start a custom range with the last hour."""
    set_range(float(int(time.time()) // 60 * 60 - 3600), None)


def clear_filters() -> None:
    go(DeadLetterQuery(dead_letter=current().dead_letter))


def show_only(ids: tuple[str, ...]) -> None:
    """Show exactly these dead letters, in any state."""
    st.session_state[_PREVIOUS_PAGES] = []
    go(DeadLetterQuery(DeadLetterFilter(ids=ids, state=None), dead_letter=current().dead_letter))


def select_group(fingerprint: str | None) -> None:
    narrow(group=fingerprint)


def open(message_id: str | None) -> None:
    go(replace(current(), dead_letter=message_id))


def older(cursor: PageCursor) -> None:
    here = current()
    st.session_state[_PREVIOUS_PAGES] = [*st.session_state.get(_PREVIOUS_PAGES, []), here.after]
    go(replace(here, after=cursor))


def newer() -> None:
    """Return to the page from which this session came, or else to the first page."""
    previous = st.session_state.get(_PREVIOUS_PAGES) or [None]
    st.session_state[_PREVIOUS_PAGES] = previous[:-1]
    go(replace(current(), after=previous[-1]))


def newest() -> None:
    st.session_state[_PREVIOUS_PAGES] = []
    go(replace(current(), after=None))
