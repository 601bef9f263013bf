"""Run the dashboard as a Streamlit app: the pages of one store, each with its own URL."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import rules
from producer_core.dashboard.server.command import install_plotly
from producer_core.dashboard.server.stores import open_store, store_problem
from producer_core.dashboard.views import (
    alerts,
    common,
    dead_letter_url,
    dead_letters,
    errors,
    fleet,
    header,
    incident,
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
"""Title, URL and drawing function of each page; the first is the start page."""


def main() -> None:
    """Draw the page. Streamlit calls it for each session and each full rerun."""
    st.set_page_config(page_title="producer_core", layout="wide")
    common.load_style_sheet()
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(default_path())
    if not sign_in.show(path):
        return
    page = st.navigation([_page(path, *one) for one in PAGES], position="top")
    if _is_ready(path):
        page.run()


def _page(path: Path, title: str, address: str, show: Callable[[Path], None]) -> object:
    def run() -> None:
        if st.session_state.get("address") != address:
            st.session_state["address"] = address
            dead_letter_url.reset()
        header.tab(title)
        incident.show(path)
        show(path)

    return st.Page(run, title=title, url_path=address, default=title == PAGES[0][0])


def _is_ready(path: Path) -> bool:
    """Return whether the store opens and the masking rules are valid; if not, show why and retry every two seconds."""
    try:
        rules()
        open_store(path)
    except ProducerError as error:
        header.title()
        common.message(*store_problem(path, error))
        st.fragment(_retry, run_every=2)(path)
        return False
    return True


def _retry(path: Path) -> None:
    try:
        rules()
        open_store(path)
    except ProducerError:
        return
    st.rerun()


if __name__ == "__main__":  # started with `streamlit run dashboard/app.py`
    install_plotly(Path(__file__).parent / "static")
    main()
