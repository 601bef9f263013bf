"""What the page reads, once a second for all browsers that look at the same; an act makes it read again at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core.dashboard import queries
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import dead_letter_reads
from producer_core.dlq import DeadLetterFilter
from producer_core.replay import Inconclusive, Newer, Operation, live
from producer_core.replay import get as one
from producer_core.replay.dry_run import DryRun

_remembered = st.cache_data(ttl=0.8, max_entries=32, show_spinner=False)


@_remembered  # type: ignore[untyped-decorator]  # streamlit is Any here
def overview(path: Path, view: queries.View) -> queries.OverviewPage:
    return queries.overview(opened(path), view, time.time(), _earlier(path, view))


@st.cache_data(ttl=15, max_entries=32, show_spinner=False)  # type: ignore[untyped-decorator]
def _earlier(path: Path, view: queries.View) -> queries.WindowTotals:
    """The same time before hardly changes: it is read now and then."""
    return queries.earlier(opened(path), view, time.time())


@_remembered  # type: ignore[untyped-decorator]
def latency(path: Path, view: queries.View) -> queries.LatencyPage:
    return queries.latency(opened(path), view, time.time())


@_remembered  # type: ignore[untyped-decorator]
def topics(path: Path) -> tuple[str, ...]:
    """Every topic of the store, by name."""
    return tuple(row["topic"] for row in opened(path).rows("topics"))


@_remembered  # type: ignore[untyped-decorator]
def producers(path: Path) -> dict[str, str]:
    """The producers of the last thirty days: their names by their ids, in the order of the names."""
    rows = opened(path).rows("producers", since=time.time() - 30 * 86_400)
    named = {
        row["producer_id"]: f"{row['client_id'] or 'producer'} (process {row['pid']} on {row['host']})"
        for row in rows
    }
    often = Counter(named.values())
    return {
        one: name if often[name] == 1 else f"{name} {one[-6:]}"
        for one, name in sorted(named.items(), key=lambda item: (item[1], item[0]))
    }


@_remembered  # type: ignore[untyped-decorator]
def offer(path: Path, about: DeadLetterFilter) -> queries.ReplayOffer:
    return queries.offer(opened(path), about, time.time())


@_remembered  # type: ignore[untyped-decorator]
def replay(path: Path, operation_id: str) -> queries.ReplayRow:
    return queries.one_replay(opened(path), operation_id, time.time())


@_remembered  # type: ignore[untyped-decorator]
def live_replays(path: Path) -> list[Operation]:
    return live(opened(path))


@_remembered  # type: ignore[untyped-decorator]
def replays(path: Path, limit: int) -> queries.ReplaysPage:
    return queries.replays(opened(path), time.time(), limit=limit)


@_remembered  # type: ignore[untyped-decorator]
def replay_detail(path: Path, operation_id: str) -> queries.ReplayDetail:
    return queries.detail(opened(path), operation_id, time.time())


@_remembered  # type: ignore[untyped-decorator]
def planned(
    path: Path, operation_id: str, newer: Newer | None, inconclusive: Inconclusive | None = None
) -> DryRun | None:
    store = opened(path)
    return queries.planned(store, one(store, operation_id), newer, inconclusive)


@_remembered  # type: ignore[untyped-decorator]
def doubtful(path: Path, operation_id: str) -> tuple[Mapping[str, Any], ...]:
    store = opened(path)
    return queries.doubtful(store, one(store, operation_id))


def again() -> None:
    """Forget the dead letters and the replays, because an act has changed them."""
    dead_letter_reads.again()
    for remembered in (offer, replay, live_replays, replays, replay_detail, planned, doubtful):
        remembered.clear()
