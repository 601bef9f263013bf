"""What the page reads, once a second for all browsers that look at the same; an act makes it read again at once."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from dashboard import data
from dashboard.stores import opened
from producer_core.dlq import DeadLetterFilter

_remembered = st.cache_data(ttl=0.8, max_entries=32, show_spinner=False)


@_remembered  # type: ignore[untyped-decorator]  # streamlit is Any here
def overview(path: Path, view: data.View) -> data.Overview:
    return data.overview(opened(path), view, time.time())


@_remembered  # type: ignore[untyped-decorator]
def latency(path: Path, view: data.View) -> data.Latency:
    return data.latency(opened(path), view, time.time())


@_remembered  # type: ignore[untyped-decorator]
def topics(path: Path) -> tuple[str, ...]:
    """Every topic of the store, by name."""
    return tuple(row["topic"] for row in opened(path).rows("topics"))


@_remembered  # type: ignore[untyped-decorator]
def producers(path: Path) -> tuple[str, ...]:
    """The ids of the producers of the last thirty days, by name."""
    return tuple(
        sorted(row["producer_id"] for row in opened(path).rows("producers", since=time.time() - 30 * 86_400))
    )


@_remembered  # type: ignore[untyped-decorator]
def dead_letters(path: Path, where: DeadLetterFilter) -> data.DeadLetterPage:
    return data.dead_letters(opened(path), where, time.time())


@_remembered  # type: ignore[untyped-decorator]
def choices(path: Path, state: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return data.choices(opened(path), state)


def again() -> None:
    """Forget the letters, because an act has changed them."""
    dead_letters.clear()
    choices.clear()
