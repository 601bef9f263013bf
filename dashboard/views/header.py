"""The header of every page: what is looked at (time range, topic, producer), and whether it follows by itself."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard import data
from dashboard.views import reading

ALL_TOPICS = "All topics"
ALL_PRODUCERS = "All producers"


def title(text: str = "producer_core") -> None:
    st.html(f'<h1 class="pc-title">{text}</h1>')


def view(path: Path, name: str) -> data.View:
    """Draws the header; what was chosen, which also stands in the address."""
    left, right = st.columns([2, 5], vertical_alignment="center")
    with left:
        title(name)
    with right, st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        window = st.segmented_control(
            "Time range",
            list(data.RANGES),
            default=data.DEFAULT,
            key="range",
            bind="query-params",
            required=True,
            label_visibility="collapsed",
        )
        topic = _one_of("Topic", ALL_TOPICS, reading.topics(path), "topic")
        producer = _one_of("Producer", ALL_PRODUCERS, reading.producers(path), "producer")
        st.toggle(
            "Live", value=True, key="live", help="Off: the page stands still until you switch it on again."
        )
    return data.View(window, topic, producer)


def every(view: data.View) -> float | None:
    """Seconds between two drawings of what follows by itself; None while it is paused."""
    return data.refresh(view.window) if st.session_state.get("live", True) else None


def _one_of(label: str, everything: str, options: tuple[str, ...], key: str) -> str | None:
    """All, or one; one that was chosen stays on offer when it is gone from the store."""
    kept = st.session_state.get(key) or st.query_params.get(key)
    known = options if kept in (None, everything) or kept in options else (*options, kept)
    chosen = st.selectbox(
        label, (everything, *known), key=key, bind="query-params", label_visibility="collapsed", width=170
    )
    return None if chosen == everything else chosen
