"""The app: pages over one store, each with its own address."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import rules
from producer_core.dashboard.server.command import put_plotly
from producer_core.dashboard.server.stores import opened, trouble
from producer_core.dashboard.views import (
    alerts,
    common,
    dead_letter_url,
    dead_letters,
    errors,
    fleet,
    header,
    latency,
    overview,
    replays,
    settings,
    sign_in,
)
from producer_core.errors import ProducerError
from producer_core.store import default_path

PAGES: tuple[tuple[str, str, Callable[[Path], None]], ...] = (
    ("Overview", "overview", overview.show),
    ("Latency", "latency", latency.show),
    ("Errors", "errors", errors.show),
    ("Dead letters", "dead-letters", dead_letters.show),
    ("Replays", "replays", replays.show),
    ("Alerts", "alerts", alerts.show),
    ("Fleet", "fleet", fleet.show),
    ("Settings", "settings", settings.show),
)
"""Title, address and the view that draws it; the first is the one that opens."""


def main() -> None:
    """Draw the page; called by Streamlit for each session and each full rerun."""
    st.set_page_config(page_title="producer_core", layout="wide")
    common.style()
    if not sign_in.show():
        return
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(default_path())
    page = st.navigation([_page(path, *one) for one in PAGES], position="top")
    if _ready(path):
        page.run()


def _page(path: Path, title: str, address: str, show: Callable[[Path], None]) -> object:
    def run() -> None:
        if st.session_state.get("address") != address:
            st.session_state["address"] = address
            dead_letter_url.forget()
        show(path)

    return st.Page(run, title=title, url_path=address, default=title == PAGES[0][0])


def _ready(path: Path) -> bool:
    """Whether the store can be read and the masking rules are right; else the page says why and looks again every two
    seconds.
    """
    try:
        rules()
        opened(path)
    except ProducerError as error:
        header.title()
        common.say(*trouble(path, error))
        st.fragment(_look_again, run_every=2)(path)
        return False
    return True


def _look_again(path: Path) -> None:
    try:
        rules()
        opened(path)
    except ProducerError:
        return
    st.rerun()


if __name__ == "__main__":  # `streamlit run dashboard/app.py` by hand
    put_plotly(Path(__file__).parent / "static")
    main()
