"""Search the bodies of dead letters in steps of a few seconds, and keep the result until the user searches again."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import queries, wording
from producer_core.dashboard.queries import dead_letter_list as dead_letter_queries
from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import common
from producer_core.dashboard.wording import dead_letters as dead_letter_wording
from producer_core.dlq import DeadLetterFilter

_SEARCH = "dead_letters_search"
_CONTINUE = "dead_letters_search_continues"


def _last_search(query: DeadLetterQuery) -> dead_letter_queries.BodySearch | None:
    """Return this session's search for the filter; None if it has not searched yet."""
    found: tuple[object, dead_letter_queries.BodySearch] | None = st.session_state.get(_SEARCH)
    return found[1] if found is not None and found[0] == query.filter else None


def result_filter(query: DeadLetterQuery) -> DeadLetterFilter | None:
    """Return the filter for exactly the dead letters found; None until the search is complete."""
    search = _last_search(query)
    return search.frozen if search else None


def page(path: Path, query: DeadLetterQuery) -> queries.DeadLetterPage:
    """Return the dead letters found; start the search, or continue it if the user asked for that."""
    search = _last_search(query)
    if search is None or st.session_state.pop(_CONTINUE, False):
        with st.spinner("Searching message contents …"):
            search = dead_letter_queries.search_bodies(
                open_store(path), query.at(time.time()), time.time(), search
            )
            st.session_state[_SEARCH] = query.filter, search  # stored before anything can interrupt this run
    _progress(search)
    return dead_letter_queries.found_page(open_store(path), search)


def _progress(search: dead_letter_queries.BodySearch) -> None:
    back = wording.moment(search.next.failed_at, common.zone()) if search.next else None
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        common.message(
            "good" if search.complete else "quiet",
            dead_letter_wording.searched(
                search.looked_at, search.of, len(search.dead_letters), complete=search.complete, back_to=back
            ),
        )
        if not search.complete:
            st.button("Search further back", key="dead_letters_search_further", on_click=_search_further)
        st.button("Search again", key="dead_letters_search_again", type="tertiary", on_click=_search_again)
    began = wording.stamp(search.began, common.zone(), time.time())
    common.note(
        f"Result as of {began.text}; later dead letters are not included. Actions apply to the dead letters found.",
        tooltip=began.more,
    )


def _search_further() -> None:
    st.session_state[_CONTINUE] = True


def _search_again() -> None:
    st.session_state.pop(_SEARCH, None)
