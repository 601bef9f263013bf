"""The overview: how delivery goes, what fails, who sends, and the dead letters that wait."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from dashboard import actions, data, figures, words
from dashboard.live_plotly import live_plotly
from dashboard.stores import opened
from dashboard.views import common, firing, header, producers, reading
from producer_core.histogram import RELATIVE_ERROR

REFRESH = 2.0


def show(path: Path) -> None:
    view = header.view(path, "Overview")
    st.fragment(_live, run_every=header.every(view))(path, view)
    who_sends(path)


def _live(path: Path, view: data.View) -> None:
    """Everything that follows the store by itself; its charts keep their zoom."""
    now = time.time()
    with common.panel(path):
        actions.watch(opened(path), now)
        st.session_state["overview"] = view, reading.overview(path, view)
    seen, shown = st.session_state.get("overview", (None, None))
    if shown is not None and seen == view:
        _draw(path, shown, now)


def _draw(path: Path, shown: data.Overview, now: float) -> None:
    common.say(*words.sentence(shown.situation))
    common.note(f"Times are UTC · store {path.name}", more=str(path))
    common.stays(words.data_age(shown.seen_at, now).capitalize(), live=words.live(shown.seen_at, now))
    with common.panel(path):
        firing.show(opened(path), shown, now)
    _tiles(shown)
    _charts(shown)


def who_sends(path: Path) -> None:
    """The producers, below everything that one may have to act on."""
    st.fragment(_producers, run_every=REFRESH)(path)


def _producers(path: Path) -> None:
    _, shown = st.session_state.get("overview", (None, None))
    if shown is not None:
        producers.table(shown, time.time())


def _tiles(shown: data.Overview) -> None:
    near = f" (to {words.percent(RELATIVE_ERROR)}, from merged histograms)."
    p50, p95, p99 = (words.milliseconds(value) for value in shown.latency)
    tiles = [
        ("Error rate", words.percent(shown.error_rate), "Messages that died, of all that were settled in the range."),
        ("Throughput", words.rate(shown.throughput), "Acknowledged messages a second, over the last minute."),
        ("Latency p50", p50, f"Half of the messages are acknowledged within this time{near}"),
        ("Latency p95", p95, f"95 of 100 messages are acknowledged within this time{near}"),
        ("Latency p99", p99, f"99 of 100 messages are acknowledged within this time{near}"),
        ("Pending", words.compact(shown.pending), "Accepted, and neither acknowledged nor dead yet."),
        ("Connection", words.connection(shown.situation), "Producers that reach a broker, of those that run."),
        ("Dead letters", words.compact(shown.dead_total), "They wait for a decision: replay or clear."),
    ]  # fmt: skip
    with st.grid(8, gap="small", min_column_width=132):
        for label, value, explained in tiles:
            st.metric(label, value, help=explained, border=True)


def _charts(shown: data.Overview) -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        _chart("Error rate by topic", figures.error_rate(shown), "error-rate")
        _chart("Latency: p50, p95, p99", figures.latency(shown), "latency")
    with right:
        _chart("Throughput by topic", figures.throughput(shown), "throughput")
        topics, codes, empty = shown.dead_by_topic, shown.dead_by_code, "No dead letters wait."
        _chart("Dead letters by topic", figures.waiting(topics, empty, beside=codes), "by-topic")
        _chart("Dead letters by error", figures.waiting(codes, empty, beside=topics), "by-error")


def _chart(title: str, figure: object, key: str) -> None:
    common.heading(title)
    live_plotly(figure, key=key, alt=title)
