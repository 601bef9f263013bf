"""Read the data of the pages once a second for all browsers that show the same view; actions clear the cache."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core.dashboard import queries
from producer_core.dashboard.actions import approvals
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import dead_letter_reads
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.approvals.requests import get_request
from producer_core.replay import Inconclusive, Newer, Operation, live
from producer_core.replay import get as get_replay
from producer_core.replay.dry_run import DryRun
from producer_core.replay.schema_versions import SchemaVersions, schema_versions

_cached = st.cache_data(ttl=0.8, max_entries=32, show_spinner=False)


@_cached  # type: ignore[untyped-decorator]  # streamlit is Any here
def overview(path: Path, view: queries.View) -> queries.OverviewPage:
    return queries.overview(open_store(path), view, time.time(), _earlier(path, view))


@st.cache_data(ttl=15, max_entries=32, show_spinner=False)  # type: ignore[untyped-decorator]
def _earlier(path: Path, view: queries.View) -> queries.WindowTotals:
    """Return the totals of the preceding time range, which hardly change and are read every 15 seconds."""
    return queries.earlier(open_store(path), view, time.time())


@_cached  # type: ignore[untyped-decorator]
def latency(path: Path, view: queries.View) -> queries.LatencyPage:
    return queries.latency(open_store(path), view, time.time())


@_cached  # type: ignore[untyped-decorator]
def topics(path: Path) -> tuple[str, ...]:
    """Return the names of all topics of the store."""
    return tuple(row["topic"] for row in open_store(path).rows("topics"))


@_cached  # type: ignore[untyped-decorator]
def producers(path: Path) -> dict[str, str]:
    """Return the names of the last thirty days' producers by their ids, sorted by name."""
    rows = open_store(path).rows("producers", since=time.time() - 30 * 86_400)
    names = {
        row["producer_id"]: f"{row['client_id'] or 'producer'} (process {row['pid']} on {row['host']})"
        for row in rows
    }
    uses = Counter(names.values())
    return {
        producer_id: name if uses[name] == 1 else f"{name} {producer_id[-6:]}"
        for producer_id, name in sorted(names.items(), key=lambda item: (item[1], item[0]))
    }


@_cached  # type: ignore[untyped-decorator]
def offer(path: Path, where: DeadLetterFilter) -> queries.ReplayOffer:
    return queries.offer(open_store(path), where, time.time())


@_cached  # type: ignore[untyped-decorator]
def replay(path: Path, operation_id: str) -> queries.ReplayRow:
    return queries.one_replay(open_store(path), operation_id, time.time())


@_cached  # type: ignore[untyped-decorator]
def live_replays(path: Path) -> list[Operation]:
    return live(open_store(path))


@_cached  # type: ignore[untyped-decorator]
def replays(
    path: Path, limit: int, application: str | None = None, cluster: str | None = None
) -> queries.ReplaysPage:
    store = open_store(path)
    return queries.replays(store, time.time(), limit=limit, application=application, cluster=cluster)


@_cached  # type: ignore[untyped-decorator]
def replay_detail(path: Path, operation_id: str) -> queries.ReplayDetail:
    return queries.detail(open_store(path), operation_id, time.time())


@_cached  # type: ignore[untyped-decorator]
def planned(
    path: Path, operation_id: str, newer: Newer | None, inconclusive: Inconclusive | None = None
) -> DryRun | None:
    store = open_store(path)
    schemas = _schema_versions(path, operation_id)
    return queries.planned(store, get_replay(store, operation_id), newer, inconclusive, schemas)


@st.cache_data(ttl=30, max_entries=32, show_spinner=False)  # type: ignore[untyped-decorator]
def _schema_versions(path: Path, operation_id: str) -> SchemaVersions:
    store = open_store(path)
    return schema_versions(store, DeadLetterFilter(), get_replay(store, operation_id))


@_cached  # type: ignore[untyped-decorator]
def approval_rule(path: Path, operation_id: str, who: str) -> str:
    """Return why the start of a replay by this user would need an approval; an empty text if it would not."""
    return approvals.rule(open_store(path), operation_id)


@_cached  # type: ignore[untyped-decorator]
def replay_of_request(path: Path, request_id: str) -> str:
    """Return the replay that a request is for; raise ReplayError where it does not exist."""
    return get_request(open_store(path), request_id).operation_id


@_cached  # type: ignore[untyped-decorator]
def doubtful(path: Path, operation_id: str) -> tuple[Mapping[str, Any], ...]:
    store = open_store(path)
    return queries.doubtful(store, get_replay(store, operation_id))


def clear() -> None:
    """Discard the cached dead letters and replays after an action has changed them."""
    dead_letter_reads.clear()
    for cached in (offer, replay, live_replays, replays, replay_detail, planned, approval_rule, doubtful):
        cached.clear()
