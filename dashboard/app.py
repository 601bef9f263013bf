"""The app: one live page over one store."""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

from dashboard.serve import put_plotly
from dashboard.stores import opened, trouble
from dashboard.views import common, dead_letters, overview
from producer_core.errors import ProducerError
from producer_core.masking import rules
from producer_core.store import default_path


def main() -> None:
    """Draw the page; called by Streamlit for each session and each full rerun."""
    st.set_page_config(page_title="producer_core", layout="wide")
    common.style()
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(default_path())
    if not _ready(path):
        return
    overview.page(path)
    with common.panel(path):
        dead_letters.show(path)
    overview.who_sends(path)


def _ready(path: Path) -> bool:
    """Whether the store can be read and the masking rules are right; else the page says why and looks again every two
    seconds.
    """
    try:
        rules()
        opened(path)
    except ProducerError as error:
        common.title()
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
