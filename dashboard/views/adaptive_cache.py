"""Read expensive pages less often, so that reading takes at most a tenth of the time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

import streamlit as st

from producer_core.dashboard.views import common

T = TypeVar("T")

SHARE = 10.0
"""A read that takes one second is reused for ten seconds, up to `_MAX_AGE`."""
_MAX_AGE = 30.0


@dataclass(frozen=True)
class CachedRead:
    """Hold the value of a read, the request it answers, its time and its duration in seconds."""

    request: Hashable
    value: object
    at: float
    took: float


def is_due(last: CachedRead | None, request: Hashable, now: float) -> bool:
    """Return whether to read again: the request differs, or the last read is older than its reuse time."""
    return last is None or last.request != request or now - last.at >= min(_MAX_AGE, SHARE * last.took)


def read(path: Path, key: str, request: Hashable, fetch: Callable[[], T]) -> T | None:
    """Return the value of `fetch`, possibly from an earlier read.

    A store error appears on the page, and the earlier value stays.
    """
    last = cast("CachedRead | None", st.session_state.get(key))
    if is_due(last, request, time.monotonic()):
        with common.panel(path):
            began = time.monotonic()
            value = fetch()
            now = time.monotonic()
            last = st.session_state[key] = CachedRead(request, value, now, now - began)
    return cast("T", last.value) if last is not None and last.request == request else None


def expire(key: str) -> None:
    """Read again at the next call, after an action; the earlier value stays where the store cannot be read."""
    last = cast("CachedRead | None", st.session_state.get(key))
    if last is not None:
        st.session_state[key] = replace(last, at=-math.inf)
