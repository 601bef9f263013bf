"""Draw the overview page: the state of delivery, firing alerts, key figures, topics and producers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core.dashboard import charts, queries, wording
from producer_core.dashboard.components.live_chart import live_plotly
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.html import Node
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import (
    common,
    empty_store,
    event_reads,
    firing_alerts,
    header,
    producers,
    reads,
    tiles,
)


def show(path: Path) -> None:
    view = header.view(path, "Overview")
    st.fragment(_live, run_every=header.every(view))(path, view)


def _live(path: Path, view: queries.View) -> None:
    """Draw everything that updates with the store.

    If the store cannot be read, the last data stays on the page with its time. Elements that appear and disappear have
    containers of their own; otherwise Streamlit would recreate everything below them, and charts would lose their zoom.
    """
    stale = True
    with st.container(key="pc-problem"), common.panel(path):
        st.session_state["overview"] = view, reads.overview(path, view)
        stale = False
    last_view, page = st.session_state.get("overview", (None, None))
    if page is not None and last_view == view:
        _draw(path, page, view, stale=stale)


def _draw(path: Path, page: queries.OverviewPage, view: queries.View, *, stale: bool) -> None:
    now = page.read_at if stale else time.time()
    live_dom(tiles.headline(page), _as_of(path, page, view, stale=stale), key="headline")
    common.data_age(page.seen_at, time.time())
    header.tab("Overview", wording.tab_state(page.situation))
    with st.container(key="pc-alerts"), common.panel(path):
        firing_alerts.show(open_store(path), page, now)
    with st.container(key="pc-empty-store"):
        if page.seen_at is None:
            empty_store.show(path)
    live_dom(tiles.tiles(charts.key_tiles(page), css_class="pc-five"), key="figures")
    _charts(page, event_reads.chart_marks(path, view))
    live_dom(*tiles.topics(page), key="topics")
    live_dom(*tiles.more_figures(charts.other_tiles(page)), key="more-figures")
    live_dom(*producers.table(page, now), key="producers")


def _as_of(path: Path, page: queries.OverviewPage, view: queries.View, *, stale: bool) -> Node:
    at = wording.stamp(page.read_at, common.zone(), page.read_at)
    paused = header.every(view) is None
    as_of = wording.as_of(at.text, paused=paused, over=view.over(page.read_at), lost=stale)
    zone = wording.zone_name(common.zone(), page.read_at)
    gaps, reason = wording.gaps(*page.missing)
    return tiles.note(f"{as_of} {zone} · store {path.name}{gaps}", f"{at.more} · {path}{reason}")


def _charts(page: queries.OverviewPage, marks: list[dict[str, Any]]) -> None:
    error_rate, throughput, latency = charts.overview_lines(charts.lines_of(page))
    pending = charts.waiting(page.dead_by_code, "No pending dead letters.")
    left, right = st.columns(2, gap="medium")
    with left:
        _chart("Error rate by topic", error_rate, "error-rate", marks)
        _chart("Latency: p50, p95, p99, p99.9", latency, "latency", marks)
    with right:
        _chart("Throughput by topic", throughput, "throughput", marks)
        _chart("Pending dead letters by error", pending, "by-error")


def _chart(title: str, figure: object, key: str, marks: Sequence[dict[str, Any]] = ()) -> None:
    common.heading(title)
    live_plotly(figure, key=key, alt=title, marks=marks)
