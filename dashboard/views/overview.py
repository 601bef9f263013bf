"""The overview: how delivery goes, what fails and why, who sends; everything that one may have to act on, in one look."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from dashboard import actions, data, figures, words
from dashboard.live_dom import live_dom
from dashboard.live_plotly import live_plotly
from dashboard.stores import opened
from dashboard.views import beginning, common, firing, header, producers, reading, tiles


def show(path: Path) -> None:
    view = header.view(path, "Overview")
    st.fragment(_live, run_every=header.every(view))(path, view)


def _live(path: Path, view: data.View) -> None:
    """Everything that follows the store by itself; its charts keep their zoom, its links can be clicked at any moment."""
    now = time.time()
    with common.panel(path):
        actions.watch(opened(path), now)
        st.session_state["overview"] = view, reading.overview(path, view)
    seen, shown = st.session_state.get("overview", (None, None))
    if shown is not None and seen == view:
        _draw(path, shown, view, now)


def _draw(path: Path, shown: data.Overview, view: data.View, now: float) -> None:
    live_dom(tiles.headline(shown), _as_of(path, shown, view), key="headline")
    common.stays(words.data_age(shown.seen_at, now).capitalize(), live=words.live(shown.seen_at, now))
    with common.panel(path):
        firing.show(opened(path), shown, now)
    if shown.seen_at is None:
        beginning.show(path)
    live_dom(tiles.tiles(shown), *tiles.topics(shown), key="figures")
    _charts(shown)
    live_dom(*producers.table(shown, now), key="producers")


def _as_of(path: Path, shown: data.Overview, view: data.View) -> tiles.Node:
    at = words.stamp(shown.read_at, common.zone(), shown.read_at)
    text = words.as_of(at.text, paused=header.every(view) is None, over=view.over(shown.read_at))
    zone = words.zone_name(common.zone(), shown.read_at)
    return tiles.small(
        f"{text} {zone} · {words.data_age(shown.seen_at, shown.read_at)} · store {path.name}",
        f"{at.more} · {path}",
    )


def _charts(shown: data.Overview) -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        _chart("Error rate by topic", figures.error_rate(shown), "error-rate")
        _chart("Latency: p50, p95, p99, p99.9", figures.latency(shown), "latency")
    with right:
        _chart("Throughput by topic", figures.throughput(shown), "throughput")
        _chart(
            "Dead letters that wait, by error",
            figures.waiting(shown.dead_by_code, "No dead letters wait."),
            "by-error",
        )


def _chart(title: str, figure: object, key: str) -> None:
    common.heading(title)
    live_plotly(figure, key=key, alt=title)
