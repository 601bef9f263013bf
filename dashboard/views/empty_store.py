"""How to begin: what to do when no producer has written to this store yet."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from producer_core.dashboard import wording
from producer_core.dashboard.views import common


def show(path: Path) -> None:
    """Two ways, ready to copy; the page comes to life by itself."""
    common.heading("How to begin")
    shell, python = wording.getting_started(str(path))
    common.note("From a shell, with a file of messages:")
    st.code(shell, language=None, wrap_lines=True)
    common.note("From Python:")
    st.code(python, language=None, wrap_lines=True)
