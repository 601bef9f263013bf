"""The latency page: why it is slow, percentiles over time, where the time goes, by topic and by broker."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from producer_core.dashboard import charts, queries, wording
from producer_core.dashboard.components.live_chart import live_plotly
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.views import causes, common, header, reads, tiles
from producer_core.metrics.histogram import RELATIVE_ERROR


def show(path: Path) -> None:
    view = header.view(path, "Latency")
    st.fragment(_live, run_every=header.every(view))(path, view)


def _live(path: Path, view: queries.View) -> None:
    with common.panel(path):
        st.session_state["latency"] = view, reads.latency(path, view)
    seen, shown = st.session_state.get("latency", (None, None))
    if shown is not None and seen == view:
        _draw(shown, view)


def _draw(shown: queries.LatencyPage, view: queries.View) -> None:
    now = time.time()
    common.stays(shown.seen_at, now)
    causes.show(shown)
    if view.topic is not None and shown.has_client_stats:
        common.note(
            "What the client says of its queue, its batches and the brokers is of all topics together."
        )
    _tiles(shown)
    left, right = st.columns(2, gap="medium")
    with left:
        _chart("Percentiles", charts.percentiles(shown), "percentiles", _near())
        _chart(
            "Where the time goes, on average",
            charts.time_spent(shown),
            "spent",
            "Waiting in our queue is a mean over messages; sending and the round trip are means over requests.",
        )
    with right:
        _chart(
            "How latencies spread",
            charts.heat(shown),
            "heat",
            "The stronger the colour, the more of a moment's messages.",
        )
        _chart(
            "Round trip by broker, on average",
            charts.rtt_by_broker(shown),
            "rtt",
            "Network and broker together, as the client measures each request.",
        )
    _topics(shown)
    _brokers(shown)


def _near() -> str:
    return f"From merged histograms: each is right to {wording.percent(RELATIVE_ERROR)}."


def _tiles(shown: queries.LatencyPage) -> None:
    whole, near = shown.whole, _near()
    shares = ("half", "95 of 100", "99 of 100", "999 of 1,000")
    names = [f"p{100 * quantile:g}" for quantile in queries.LATENCY_QUANTILES]
    found = [
        (name, wording.milliseconds(value), f"In this time {share} of the messages are acknowledged. {near}")
        for name, value, share in zip(names, shown.found, shares, strict=True)
    ]
    heard = shown.has_client_stats
    found += [
        ("Round trip", wording.milliseconds(whole.rtt), "A request's way to the broker and back, on average."),
        ("Queue peak", wording.percent(whole.fill_highest) if heard else "–", "How full the client's queue was at most, of messages or of bytes."),
        ("Per batch", wording.compact(queries.per_batch(whole)), "Messages in a batch, on average; larger batches make fewer requests."),
        ("Sent again", wording.percent(queries.repeated(whole)), "Requests that the client had to send again, of all."),
    ]  # fmt: skip
    eight = [charts.Tile(label, value, more=more) for label, value, more in found]
    live_dom(tiles.tiles(eight, look="pc-eight"), key="latency-tiles")


def _chart(title: str, figure: object, key: str, note: str) -> None:
    common.heading(title)
    common.note(note)
    live_plotly(figure, key=f"latency-{key}", alt=title)


def _topics(shown: queries.LatencyPage) -> None:
    common.heading("By topic")
    if not shown.topics:
        common.note("No topic was written to in this range.")
        return
    names = [f"p{100 * quantile:g}" for quantile in queries.LATENCY_QUANTILES]
    rows = [
        (
            line.topic,
            wording.count(line.acknowledged),
            wording.milliseconds(line.mean),
            *(wording.milliseconds(value) for value in line.found),
        )
        for line in shown.topics
    ]
    st.html(_table("By topic", ("Topic", "Acknowledged", "Mean", *names), rows))


def _brokers(shown: queries.LatencyPage) -> None:
    common.heading("By broker")
    if not shown.brokers:
        common.note("No client statistics came in this range.")
        return
    common.note(
        "Means over the range; p99 is the highest that librdkafka gave for one second, as it cannot be merged."
    )
    head = (
        "Broker", "Connected", "Requests", "In our queue", "To the socket", "Round trip", "p99 of the worst second",
        "Throttled", "Repeated", "Timed out", "Disconnects",
    )  # fmt: skip
    rows = [
        (
            one.name,
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
        for one in shown.brokers
    ]
    st.html(_table("By broker", head, rows))


def _table(label: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A name and numbers; nothing in it is markup."""
    names = "".join(
        f"<th scope='col'{_side(place)}>{html.escape(name)}</th>" for place, name in enumerate(head)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{_side(place)}>{html.escape(cell)}</td>' for place, cell in enumerate(row))}</tr>"
        for row in rows
    )
    table = f"<table class='pc-rows pc-numbers'><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class='pc-wide' role='region' aria-label='{html.escape(label)}' tabindex='0'>{table}</div>"


def _side(place: int) -> str:
    return " class='pc-n'" if place else ""
