"""The search in bodies on the page: one look of a few seconds at a time, and what it found until somebody looks again."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import queries, wording
from producer_core.dashboard.queries import dead_letter_list as of_dead_letters
from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import common
from producer_core.dashboard.wording import dead_letters as said
from producer_core.dlq import DeadLetterFilter

_KEPT = "letters_search"


def kept(asked: DeadLetterQuery) -> of_dead_letters.BodySearch | None:
    """What this session found for this filter; None when it has not looked yet."""
    found: tuple[object, of_dead_letters.BodySearch] | None = st.session_state.get(_KEPT)
    return found[1] if found is not None and found[0] == asked.filter else None


def frozen(asked: DeadLetterQuery) -> DeadLetterFilter | None:
    """Exactly what it found, once it has looked into everything."""
    search = kept(asked)
    return search.frozen if search else None


def page(path: Path, asked: DeadLetterQuery) -> queries.DeadLetterPage:
    """What was found; looks where nobody has looked yet, or where one asked to go on."""
    search = kept(asked)
    if search is None or st.session_state.pop("letters_further", False):
        with st.spinner("Looking into the bodies …"):
            search = of_dead_letters.search_bodies(opened(path), asked.at(time.time()), time.time(), search)
            st.session_state[_KEPT] = asked.filter, search  # before anything can interrupt this run
    _said(search)
    return of_dead_letters.found_page(opened(path), search)


def _said(search: of_dead_letters.BodySearch) -> None:
    back = wording.moment(search.next.failed_at, common.zone()) if search.next else None
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        common.say(
            "good" if search.complete else "quiet",
            said.searched(
                search.looked_at, search.of, len(search.dead_letters), complete=search.complete, back_to=back
            ),
        )
        if not search.complete:
            st.button("Look further back", key="letters_further_button", on_click=_further)
        st.button("Look again", key="letters_again", type="tertiary", on_click=_again)
    began = wording.stamp(search.began, common.zone(), time.time())
    common.note(
        f"As of {began.text}; dead letters that died later are not in it. Acts are about what was found.",
        more=began.more,
    )


def _further() -> None:
    st.session_state["letters_further"] = True


def _again() -> None:
    st.session_state.pop(_KEPT, None)
