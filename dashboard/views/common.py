"""Provide the elements that every view uses: messages, headings, notes, and a panel that fails on its own."""

from __future__ import annotations

import contextlib
import html
import time
from collections.abc import Iterator
from pathlib import Path

import streamlit as st

from producer_core.dashboard import wording
from producer_core.dashboard.server.stores import store_problem
from producer_core.dashboard.theme import style_sheet
from producer_core.errors import StoreError


@contextlib.contextmanager
def panel(path: Path) -> Iterator[None]:
    """Show a store error in place of the panel, so that the other panels of the page still work."""
    try:
        yield
    except StoreError as error:
        message(*store_problem(path, error))


def message(tone: str, text: str) -> None:
    """Show a sentence in the color of its tone, with the text escaped."""
    st.html(f'<p class="pc-message pc-{tone}" role="status">{html.escape(text)}</p>')


def heading(text: str, *, anchor: str = "") -> None:
    name = f' id="{html.escape(anchor)}"' if anchor else ""
    st.html(f'<h2 class="pc-h"{name}>{html.escape(text)}</h2>')


def fact(name: str, text: str) -> None:
    """Show a name with its value below it, both escaped."""
    st.html(f'<p class="pc-fact"><span>{html.escape(name)}</span><br>{html.escape(text)}</p>')


def sentence(text: str) -> None:
    """Show a sentence of the page's normal size, escaped."""
    st.html(f'<p class="pc-fact">{html.escape(text)}</p>')


def note(text: str, *, tooltip: str = "") -> None:
    """Show small print with a tooltip, both escaped."""
    st.html(f'<p class="pc-note" title="{html.escape(tooltip)}">{html.escape(text)}</p>')


def zone() -> str | None:
    """Return the browser's time zone; None if the browser did not report one."""
    name: object = st.context.timezone
    return name if isinstance(name, str) else None


def time_element(at: float, *, milliseconds: bool = False) -> str:
    """Return a time as HTML: in the browser's zone, today without the date, with UTC as its tooltip."""
    text, more = wording.stamp(at, zone(), time.time(), milliseconds=milliseconds)
    return f'<time title="{html.escape(more)}">{html.escape(text)}</time>'


def link_element(text: str, address: str) -> str:
    """Return a link as HTML; `address` comes from `header.link`."""
    return f'<a class="pc-link" href="{html.escape(address)}">{html.escape(text)}</a>'


def is_paused() -> bool:
    """Return whether the user switched Live off, which stops all updates of the page."""
    return not st.session_state.get("live", True)


def data_age(seen_at: float | None, now: float) -> None:
    """Show the age of the newest data in the corner of the page, with a hollow ring if the data is not live."""
    text, live = wording.data_age(seen_at, now).capitalize(), wording.live(seen_at, now)
    if is_paused():
        text, live = "Paused", False
    st.html(f'<p class="pc-data-age{"" if live else " pc-old"}">{html.escape(text)}</p>')


def live_toggle() -> None:
    """Draw the switch that pauses the updates of the page."""
    st.toggle("Live", value=True, key="live", persist_state="session", help="Off: the page stops updating.")


def load_style_sheet() -> None:
    st.html(f"<style>{style_sheet('style')}</style>")
