"""Read the data of the alerts page once a second for all browsers that show the same view."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import queries
from producer_core.dashboard.queries import alerts as alert_queries
from producer_core.dashboard.queries.alert_metric import AlertMetric, alert_metric
from producer_core.dashboard.server.stores import open_store
from producer_core.dlq import DeadLetterFilter, DeadLetters, Group
from producer_core.replay import Operation

_cached = st.cache_data(ttl=0.8, max_entries=16, show_spinner=False)
_cached_longer = st.cache_data(ttl=15, max_entries=16, show_spinner=False)


@_cached  # type: ignore[untyped-decorator]  # streamlit is Any here
def alerts(path: Path, view: queries.View) -> alert_queries.AlertsPage:
    return alert_queries.alerts(open_store(path), view, time.time())


@_cached  # type: ignore[untyped-decorator]
def detail(path: Path, alert_id: str) -> alert_queries.AlertDetail | None:
    return alert_queries.alert_detail(open_store(path), alert_id, time.time())


@st.cache_data(ttl=5, max_entries=16, show_spinner=False)  # type: ignore[untyped-decorator]
def metric(path: Path, alert_id: str) -> AlertMetric | None:
    """Return the metric of an alert over time, which takes longer to read than the rest of its page."""
    store, now = open_store(path), time.time()
    found = alert_queries.alert_detail(store, alert_id, now)
    return None if found is None else alert_metric(store, found.alert, found.rule, now)


@_cached_longer  # type: ignore[untyped-decorator]
def causes(path: Path, topic: str, since: int, until: int) -> tuple[Group, ...]:
    """Return the groups of a topic's dead letters in a time range, the largest first."""
    where = DeadLetterFilter(topic=topic, since=since, until=until, state=None)
    return tuple(DeadLetters(open_store(path)).groups(where, limit=3))


@_cached_longer  # type: ignore[untyped-decorator]
def replays(path: Path, topic: str | None, since: float) -> tuple[Operation, ...]:
    """Return the replays of a topic since a time, the latest first."""
    return alert_queries.replays_since(open_store(path), topic, since)


def clear() -> None:
    """Discard the cached alerts after an action has changed them."""
    alerts.clear()
    detail.clear()
