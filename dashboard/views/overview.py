"""The overview: one sentence, the numbers behind it, and how they moved."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard import actions, data, figures, words
from dashboard.live_plotly import live_plotly
from dashboard.stores import opened

_TONES: Mapping[str, Any] = {"good": st.success, "warning": st.warning, "bad": st.error, "quiet": st.info}
_ICONS = {
    "good": ":material/check_circle:",
    "warning": ":material/warning:",
    "bad": ":material/error:",
    "quiet": ":material/info:",
}


@st.cache_data(ttl=1, max_entries=32, show_spinner=False)  # type: ignore[untyped-decorator]  # streamlit is Any here
def _read(path: Path, window: str) -> data.Overview:
    """One look a second, however many browsers ask."""
    return data.overview(opened(path), window, time.time())


def show(path: Path) -> None:
    left, right = st.columns([4, 1], vertical_alignment="center")
    with left:
        window = st.segmented_control(
            "Time range", list(data.RANGES), default="15 min", key="range", bind="query-params", required=True,
            label_visibility="collapsed",
        )  # fmt: skip
    with right:
        live = st.toggle("Live", value=True, key="live", help="Refresh by itself.")
    every = None if not live else 1 if data.RANGES[window] <= 3600 else 5
    st.fragment(_live, run_every=every)(path, window)


def _live(path: Path, window: str) -> None:
    page = _read(path, window)
    tone, sentence = words.sentence(page.situation)
    _TONES[tone](words.escaped(sentence), icon=_ICONS[tone])
    _alerts(path, page)
    _tiles(page)
    _charts(page)
    _producers(page)


def _tiles(page: data.Overview) -> None:
    p50, p95, p99 = page.latency
    connected = f"{page.situation.connected} of {page.situation.producers}"
    with st.grid(8, gap="small", min_column_width=136):
        _tile("Failed", words.percent(page.error_rate), f"of the messages settled in the last {page.window}")
        _tile("Throughput", words.rate(page.throughput), "acknowledged a second, over the last minute")
        _tile("Latency p50", words.milliseconds(p50), "half of the acknowledgements came within this time")
        _tile("p95", words.milliseconds(p95), "95 of 100 came within this time")
        _tile("p99", words.milliseconds(p99), "99 of 100 came within this time")
        _tile(
            "Pending",
            words.count(page.pending),
            f"accepted and not settled; {page.waiting:,} wait for a retry",
        )
        _tile("Dead letters", words.count(page.dead_total), "wait for a decision, whatever the time range")
        _tile("Connected", connected if page.situation.producers else "–", "running producers with a broker")


def _tile(label: str, value: str, explained: str) -> None:
    st.metric(label, value, border=True, height="stretch", help=explained)


def _charts(page: data.Overview) -> None:
    with st.grid(2, gap="small", min_column_width=330):
        _chart(
            "Error rate by topic",
            figures.error_rate(page),
            "error_rate",
            "Share of messages that died, by topic",
        )
        _chart(
            "Throughput by topic",
            figures.throughput(page),
            "throughput",
            "Messages acknowledged a second, by topic",
        )
        _chart("Latency", figures.latency(page), "latency", "Latency percentiles over time")
        with st.container(border=True):
            empty = "No dead letters wait."
            for title, counts in (("topic", page.dead_by_topic), ("error", page.dead_by_code)):
                st.markdown(f"**Dead letters by {title}**")
                live_plotly(
                    figures.waiting(counts, empty), key=f"dead_{title}", alt=f"Dead letters by {title}"
                )


def _chart(title: str, figure: Any, key: str, alt: str) -> None:
    with st.container(border=True):
        st.markdown(f"**{title}**")
        live_plotly(figure, key=key, alt=alt)


def _alerts(path: Path, page: data.Overview) -> None:
    for alert in page.alerts:
        say = st.error if alert["severity"] == "critical" else st.warning
        since = words.age(page.now - alert["started_at"])
        seen = f" {alert['acknowledged_by']} looks after it." if alert["acknowledged_by"] else ""
        text = f"{alert['text']} Since {since}. {alert['advice']}{seen}"
        with st.container(horizontal=True, vertical_alignment="center"):
            say(words.escaped(text), icon=":material/notifications:", width="stretch")
            if not alert["acknowledged_by"] and st.button("Acknowledge", key=f"ack-{alert['alert_id']}"):
                st.toast(actions.acknowledge(opened(path), alert["alert_id"]).text)


def _producers(page: data.Overview) -> None:
    age = words.data_age(page.seen_at, page.now)
    running = [row for row in page.producers if row["closed_at"] is None]
    st.caption(words.escaped(f"{words.plural(len(running), 'producer')} running; {age}."))
    for row in running:
        silent = page.now - row["seen_at"]
        if silent > data.GONE:
            name = f"{row['client_id']} on {row['host']} (process {row['pid']})"
            st.warning(words.escaped(f"{name} has not been seen for {words.age(silent)}."))
