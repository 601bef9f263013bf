"""The pace: a page that costs much to read is read less often, so that no more than a tenth of the time goes into it."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import streamlit as st

from producer_core.dashboard.views import common

T = TypeVar("T")

SHARE = 10.0
"""A reading that took a second is good for ten …"""
_LONGEST = 30.0
"""… and none for longer than so many."""


@dataclass(frozen=True)
class CachedRead:
    """What was read, for what, when, and how long it took."""

    asked: Hashable
    value: object
    at: float
    took: float


def rested(last: CachedRead | None, asked: Hashable, now: float) -> bool:
    """Whether it is time to read: something else is asked for, or the last reading has rested long enough."""
    return last is None or last.asked != asked or now - last.at >= min(_LONGEST, SHARE * last.took)


def read(path: Path, key: str, asked: Hashable, fetch: Callable[[], T]) -> T | None:
    """What `fetch` gives, or what it gave a moment ago; what goes wrong is said, and what was there stays."""
    last = cast("CachedRead | None", st.session_state.get(key))
    if rested(last, asked, time.monotonic()):
        with common.panel(path):
            began = time.monotonic()
            value = fetch()
            now = time.monotonic()
            last = st.session_state[key] = CachedRead(asked, value, now, now - began)
    return cast("T", last.value) if last is not None and last.asked == asked else None
