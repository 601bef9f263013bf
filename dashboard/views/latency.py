"""Draw the latency page: causes, percentiles over time, and where the time is spent, by topic and by broker."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core.dashboard import charts, queries, wording
from producer_core.dashboard.components.live_chart import live_plotly
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.views import causes, common, event_reads, header, reads, tiles
from producer_core.metrics.histogram import RELATIVE_ERROR

_LIVE_S = 60.0
"""Seconds after the end of a range until which its end counts as now."""


def show(path: Path) -> None:
    view = header.view(path, "Latency")
    st.fragment(_live, run_every=header.every(view))(path, view)


def _live(path: Path, view: queries.View) -> None:
    with common.panel(path):
        st.session_state["latency"] = view, reads.latency(path, view)
    last_view, page = st.session_state.get("latency", (None, None))
    if page is not None and last_view == view:
        _draw(path, page, view)


def _draw(path: Path, page: queries.LatencyPage, view: queries.View) -> None:
    now, marks = time.time(), event_reads.chart_marks(path, view)
    common.data_age(page.seen_at, now)
    causes.show(page)
    if view.topic is not None and page.has_client_stats:
        common.note("Statistics of the client's queue, batches and brokers cover all topics.")
    _tiles(page)
    left, right = st.columns(2, gap="medium")
    with left:
        _chart("Percentiles", charts.percentiles(page), "percentiles", _accuracy(), marks)
        _chart(
            "Average time by stage",
            charts.time_spent(page),
            "spent",
            "Queue time is a mean over messages; sending and round trip are means over requests.",
            marks,
        )
    with right:
        _chart(
            "Latency distribution",
            charts.heat(page),
            "heat",
            "A stronger color means a larger share of the messages at that time.",
            marks,
        )
        _chart(
            "Average round trip by broker",
            charts.rtt_by_broker(page),
            "rtt",
            "Network and broker time together, as measured by the client for each request.",
            marks,
        )
    _topics(page)
    _brokers(page)
    _compression(page)


def _accuracy() -> str:
    return f"From merged histograms; the relative error is at most {wording.percent(RELATIVE_ERROR)}."


def _tiles(page: queries.LatencyPage) -> None:
    whole = page.whole
    shares = ("half", "95%", "99%", "99.9%")
    names = [f"p{100 * quantile:g}" for quantile in queries.LATENCY_QUANTILES]
    accuracy = f"Relative error: {wording.percent(RELATIVE_ERROR)}."
    values = [
        (
            name,
            wording.milliseconds(value),
            f"Time within which {share} of all messages are acknowledged. {accuracy}",
        )
        for name, value, share in zip(names, page.found, shares, strict=True)
    ]
    values += [
        ("Round trip", wording.milliseconds(whole.rtt), "Average time from request to response."),
        ("Queue peak", wording.percent(whole.fill_highest) if page.has_client_stats else "–", "Highest fill level of the client's queue, by messages or bytes."),
        ("Per batch", wording.compact(queries.per_batch(whole)), "Average messages per batch; larger batches need fewer requests."),
        ("Retried", wording.percent(queries.repeated(whole)), "Share of requests that the client retried."),
    ]  # fmt: skip
    figures = [charts.Tile(label, value, more=more) for label, value, more in values]
    live_dom(tiles.tiles(figures, css_class="pc-eight"), key="latency-tiles")


def _chart(title: str, figure: object, key: str, note: str, marks: Sequence[dict[str, Any]]) -> None:
    common.heading(title)
    common.note(note)
    live_plotly(figure, key=f"latency-{key}", alt=title, marks=marks)


def _topics(page: queries.LatencyPage) -> None:
    common.heading("By topic")
    if not page.topics:
        common.note("No messages were sent in this range.")
        return
    names = [f"p{100 * quantile:g}" for quantile in queries.LATENCY_QUANTILES]
    rows = [
        (
            line.topic,
            wording.count(line.acknowledged),
            wording.milliseconds(line.mean),
            *(wording.milliseconds(value) for value in line.found),
        )
        for line in page.topics
    ]
    st.html(_table("By topic", ("Topic", "Acknowledged", "Mean", *names), rows))


def _brokers(page: queries.LatencyPage) -> None:
    common.heading("By broker")
    if not page.brokers:
        common.note("No client statistics were reported in this range.")
        return
    now = "Now" if _is_live(page) else "At the end"
    common.note(
        f"{now}: the connection in the latest samples. Other columns are sums and means over the range. librdkafka's p99 "
        "values cannot be merged, so p99 is the highest value in any one second."
    )
    clusters = len({one.cluster_id for one in page.brokers}) > 1
    head = (
        "Broker", *(("Cluster",) if clusters else ()), now, "Connected", "Requests", "Queue time", "Socket wait", "Round trip", "Highest p99",
        "Throttled", "Retries", "Timed out", "Disconnects",
    )  # fmt: skip
    rows = [
        (
            one.name,
            *((one.cluster_id or "unknown",) if clusters else ()),
            page.connections[one.key],
            wording.percent(queries.connected(one)),
            wording.count(one.requests),
            wording.milliseconds(one.queue),
            wording.milliseconds(one.outbuf),
            wording.milliseconds(one.rtt),
            wording.milliseconds(one.rtt_p99) if one.rtt_count else "–",
            wording.milliseconds(one.throttle) if one.throttle_sum else "none",
            wording.count(one.retries),
            wording.count(one.timeouts),
            wording.count(one.disconnects),
        )
        for one in page.brokers
    ]
    st.html(_table("By broker", head, rows))


def _is_live(page: queries.LatencyPage) -> bool:
    return time.time() - page.now < _LIVE_S


def _compression(page: queries.LatencyPage) -> None:
    """Draw what each codec saves. Nothing is shown until producers have taken samples."""
    if not page.compression:
        return
    common.heading("Compression by topic")
    common.note(
        "From samples of the messages in flight. A producer has one codec for all its topics; "
        "compression_type='auto' chooses it at each start."
    )
    head = ("Topic", "In use", "Sampled", "lz4 leaves", "zstd leaves", "lz4 time", "zstd time", "Suggestion")
    rows = [
        (
            one.topic,
            one.codec,
            wording.size(one.compression.sample.bytes),
            wording.percent(one.compression.share("lz4")),
            wording.percent(one.compression.share("zstd")),
            _time_per_mebibyte(one.compression.sample.lz4_seconds, one.compression.sample.bytes),
            _time_per_mebibyte(one.compression.sample.zstd_seconds, one.compression.sample.bytes),
            one.suggestion,
        )
        for one in page.compression
    ]
    st.html(_table("Compression by topic", head, rows))


def _time_per_mebibyte(seconds: float, measured: int) -> str:
    return f"{wording.milliseconds(seconds / measured * (1 << 20))}/MiB"


def _table(label: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of names and numbers as HTML, with all texts escaped."""
    names = "".join(
        f"<th scope='col'{_alignment(column)}>{html.escape(name)}</th>" for column, name in enumerate(head)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{_alignment(column)}>{html.escape(cell)}</td>' for column, cell in enumerate(row))}</tr>"
        for row in rows
    )
    table = f"<table class='pc-rows pc-numbers'><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class='pc-wide' role='region' aria-label='{html.escape(label)}' tabindex='0'>{table}</div>"


def _alignment(column: int) -> str:
    return " class='pc-n'" if column else ""
