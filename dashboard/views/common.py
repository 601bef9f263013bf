"""The parts that every view uses: sentences, headings, and the panel that fails alone."""

from __future__ import annotations

import contextlib
import html
import time
from collections.abc import Iterator
from pathlib import Path

import streamlit as st

from producer_core.dashboard import wording
from producer_core.dashboard.server.stores import trouble
from producer_core.dashboard.theme import style_sheet
from producer_core.errors import StoreError


@contextlib.contextmanager
def panel(path: Path) -> Iterator[None]:
    """What goes wrong with the store inside is said in its place; the panels beside it go on."""
    try:
        yield
    except StoreError as error:
        say(*trouble(path, error))


def say(tone: str, text: str) -> None:
    """A sentence with its tone; nothing in it is markup."""
    st.html(f'<p class="pc-say pc-{tone}" role="status">{html.escape(text)}</p>')


def heading(text: str, *, anchor: str = "") -> None:
    name = f' id="{html.escape(anchor)}"' if anchor else ""
    st.html(f'<h2 class="pc-h"{name}>{html.escape(text)}</h2>')


def fact(name: str, text: str) -> None:
    """A name and what is known of it; nothing in it is markup."""
    st.html(f'<p class="pc-fact"><span>{html.escape(name)}</span><br>{html.escape(text)}</p>')


def note(text: str, *, more: str = "") -> None:
    """Small print, with `more` under the pointer; nothing in it is markup."""
    st.html(f'<p class="pc-note" title="{html.escape(more)}">{html.escape(text)}</p>')


def zone() -> str | None:
    """The viewer's time zone, as the browser names it; None where nobody said so."""
    name: object = st.context.timezone
    return name if isinstance(name, str) else None


def moment(at: float) -> str:
    """A moment as HTML: in the viewer's time, today without its date, with UTC under the pointer."""
    text, more = wording.stamp(at, zone(), time.time())
    return f'<time title="{html.escape(more)}">{html.escape(text)}</time>'


def anchor(text: str, address: str) -> str:
    """A link as HTML, to an address that `header.link` made."""
    return f'<a class="pc-link" href="{html.escape(address)}">{html.escape(text)}</a>'


def is_paused() -> bool:
    """Whether the viewer switched Live off, so that the page stands still."""
    return not st.session_state.get("live", True)


def stays(seen_at: float | None, now: float) -> None:
    """How old the newest data is, in the corner while the page is scrolled; a hollow ring where it is not live."""
    text, live = wording.data_age(seen_at, now).capitalize(), wording.live(seen_at, now)
    if is_paused():
        text, live = "Paused", False
    st.html(f'<p class="pc-stays{"" if live else " pc-old"}">{html.escape(text)}</p>')


def style() -> None:
    st.html(f"<style>{style_sheet('style')}</style>")
