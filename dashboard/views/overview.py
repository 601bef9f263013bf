"""The overview: how delivery goes, what fails and why, who sends; everything that one may have to act on, in one look."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import charts, queries, wording
from producer_core.dashboard.components.live_chart import live_plotly
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.html import Node
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import common, empty_store, firing_alerts, header, producers, reads, tiles


def show(path: Path) -> None:
    view = header.view(path, "Overview")
    st.fragment(_live, run_every=header.every(view))(path, view)


def _live(path: Path, view: queries.View) -> None:
    """Everything that follows the store by itself; its charts keep their zoom, its links can be clicked at any moment.

    While the store cannot be read, what was seen last stays, and says of when it is. What comes and goes has a container
    of its own: else all that is below would be made anew, and a chart would lose its zoom.
    """
    lost = True
    with st.container(key="pc-trouble"), common.panel(path):
        st.session_state["overview"] = view, reads.overview(path, view)
        lost = False
    seen, shown = st.session_state.get("overview", (None, None))
    if shown is not None and seen == view:
        _draw(path, shown, view, lost=lost)


def _draw(path: Path, shown: queries.OverviewPage, view: queries.View, *, lost: bool) -> None:
    now = shown.read_at if lost else time.time()
    live_dom(tiles.headline(shown), _as_of(path, shown, view, lost=lost), key="headline")
    common.stays(shown.seen_at, time.time())
    with st.container(key="pc-alerts"), common.panel(path):
        firing_alerts.show(opened(path), shown, now)
    with st.container(key="pc-begin"):
        if shown.seen_at is None:
            empty_store.show(path)
    live_dom(tiles.tiles(charts.tiles(shown)), *tiles.topics(shown), key="figures")
    _charts(shown)
    live_dom(*producers.table(shown, now), key="producers")


def _as_of(path: Path, shown: queries.OverviewPage, view: queries.View, *, lost: bool) -> Node:
    at = wording.stamp(shown.read_at, common.zone(), shown.read_at)
    paused = header.every(view) is None
    said = wording.as_of(at.text, paused=paused, over=view.over(shown.read_at), lost=lost)
    zone = wording.zone_name(common.zone(), shown.read_at)
    age = "" if common.is_paused() else f" · {wording.data_age(shown.seen_at, shown.read_at)}"
    gaps, why = wording.gaps(*shown.missing)
    return tiles.small(f"{said} {zone}{age} · store {path.name}{gaps}", f"{at.more} · {path}{why}")


def _charts(shown: queries.OverviewPage) -> None:
    error_rate, throughput, latency = charts.overview_lines(charts.lines_of(shown))
    waiting = charts.waiting(shown.dead_by_code, "No dead letters wait.")
    left, right = st.columns(2, gap="medium")
    with left:
        _chart("Error rate by topic", error_rate, "error-rate")
        _chart("Latency: p50, p95, p99, p99.9", latency, "latency")
    with right:
        _chart("Throughput by topic", throughput, "throughput")
        _chart("Dead letters that wait, by error", waiting, "by-error")


def _chart(title: str, figure: object, key: str) -> None:
    common.heading(title)
    live_plotly(figure, key=key, alt=title)
