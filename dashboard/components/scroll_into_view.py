"""What a click has opened is brought into view once; later refreshes leave the page where it is."""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

_JS = """
export default function ({ data, parentElement }) {
  const mark = parentElement.querySelector('.pc-bring')
  if (mark.pcDone) return
  mark.pcDone = true
  const { top } = mark.getBoundingClientRect()
  if (!data.go || data.hidden && top >= 0 && top < innerHeight - data.room) return
  const calm = matchMedia('(prefers-reduced-motion: reduce)').matches
  setTimeout(() => mark.scrollIntoView({ behavior: calm ? 'auto' : 'smooth', block: 'start' }), 150)
}
"""
_HTML = "<div class='pc-bring' aria-hidden='true' style='height: 0; scroll-margin-top: 5.5rem'></div>"


_ROOM = 200
"""Pixels below a place that have to be seen with it."""


def bring(*, key: str, go: bool = True, hidden: bool = False) -> None:
    """Scroll to this place when it first appears under this key, if `go`; with `hidden` only where it cannot be seen."""
    _component()(key=key, height="content", data={"go": go, "hidden": hidden, "room": _ROOM})


@cache
def _component() -> Any:
    return st.components.v2.component("bring", html=_HTML, js=_JS, isolate_styles=False)
