"""Show how to start when no producer has written to the store yet."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from producer_core.dashboard import wording
from producer_core.dashboard.views import common


def show(path: Path) -> None:
    """Show a command and a Python example to copy; the page updates itself once a producer writes."""
    common.heading("Getting started")
    shell, python = wording.getting_started(str(path))
    common.note("Send a file of messages from a shell:")
    st.code(shell, language=None, wrap_lines=True)
    common.note("Or send from Python:")
    st.code(python, language=None, wrap_lines=True)
