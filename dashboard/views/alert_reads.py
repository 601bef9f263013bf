"""What the alerts page reads, once a second for all browsers that look at the same."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import queries
from producer_core.dashboard.queries import alerts as of
from producer_core.dashboard.server.stores import opened
from producer_core.dlq import DeadLetterFilter, DeadLetters, Group
from producer_core.replay import Operation

_remembered = st.cache_data(ttl=0.8, max_entries=16, show_spinner=False)
_seldom = st.cache_data(ttl=15, max_entries=16, show_spinner=False)


@_remembered  # type: ignore[untyped-decorator]  # streamlit is Any here
def alerts(path: Path, view: queries.View) -> of.AlertsPage:
    return of.alerts(opened(path), view, time.time())


@_remembered  # type: ignore[untyped-decorator]
def detail(path: Path, alert_id: str) -> of.AlertDetail | None:
    return of.alert_detail(opened(path), alert_id, time.time())


@_seldom  # type: ignore[untyped-decorator]
def causes(path: Path, topic: str, since: int, until: int) -> tuple[Group, ...]:
    """The causes of the dead letters of a topic in that time, most first."""
    where = DeadLetterFilter(topic=topic, since=since, until=until, state=None)
    return tuple(DeadLetters(opened(path)).groups(where, limit=3))


@_seldom  # type: ignore[untyped-decorator]
def replays(path: Path, topic: str | None, since: float) -> tuple[Operation, ...]:
    """What was replayed of a topic since a moment, the latest first."""
    return of.replays_since(opened(path), topic, since)


def again() -> None:
    """Forget them, because an act has changed them."""
    alerts.clear()
    detail.clear()
