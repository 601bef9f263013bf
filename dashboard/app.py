"""The Streamlit app: one live page over one store."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from dashboard import words
from dashboard.stores import opened, trouble
from dashboard.views import dead_letters, overview
from producer_core.errors import ProducerError, StoreError
from producer_core.store import default_path

logger = logging.getLogger(__name__)


def main() -> None:
    """Draw the page; called by Streamlit for each session and each full rerun."""
    st.set_page_config(page_title="producer_core", layout="wide")
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(default_path())
    if not _ready(path):
        return
    _panel(lambda: overview.show(path))
    _panel(lambda: dead_letters.show(path))
    st.caption(words.escaped(f"Store {path}"))


def _ready(path: Path) -> bool:
    """Whether the store can be read; else the page says why and looks again every two seconds."""
    try:
        opened(path)
    except StoreError as error:
        text = trouble(path, error)
    else:
        return True
    st.title("producer_core")
    st.info(words.escaped(text), icon=":material/hourglass_empty:")
    st.fragment(_look_again, run_every=2)(path)
    return False


def _look_again(path: Path) -> None:
    try:
        opened(path)
    except StoreError:
        return
    st.rerun()


def _panel(draw: Callable[[], None]) -> None:
    """One panel's trouble leaves the rest of the page alive."""
    try:
        draw()
    except ProducerError as error:
        st.error(words.escaped(str(error)))


if __name__ == "__main__":
    main()
