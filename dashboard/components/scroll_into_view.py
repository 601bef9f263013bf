"""Scroll the page once to what a click has opened; later refreshes keep the scroll position."""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

from producer_core.dashboard.theme import asset

_HTML = "<div class='pc-scroll-target' aria-hidden='true' style='height: 0; scroll-margin-top: 5.5rem'></div>"

_MARGIN = 200
"""Pixels below the place that must be visible together with it."""


def scroll_into_view(*, key: str, enabled: bool = True, only_hidden: bool = False) -> None:
    """Scroll to this place when it first appears under this key; with `only_hidden` only if it is not visible."""
    data = {"enabled": enabled, "only_hidden": only_hidden, "margin": _MARGIN}
    _component()(key=key, height="content", data=data)


@cache
def _component() -> Any:
    return st.components.v2.component(
        "scroll_into_view", html=_HTML, js=asset("components/scroll_into_view.js"), isolate_styles=False
    )
