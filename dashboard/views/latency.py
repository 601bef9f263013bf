"""The latency page: why it is slow, percentiles over time, where the time goes, by topic and by broker."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from dashboard import data, figures, words
from dashboard.live_dom import live_dom
from dashboard.live_plotly import live_plotly
from dashboard.views import common, header, reading, tiles, why
from producer_core.metrics.histogram import RELATIVE_ERROR


def show(path: Path) -> None:
    view = header.view(path, "Latency")
    st.fragment(_live, run_every=header.every(view))(path, view)


def _live(path: Path, view: data.View) -> None:
    with common.panel(path):
        st.session_state["latency"] = view, reading.latency(path, view)
    seen, shown = st.session_state.get("latency", (None, None))
    if shown is not None and seen == view:
        _draw(shown, view)


def _draw(shown: data.Latency, view: data.View) -> None:
    now = time.time()
    common.stays(shown.seen_at, now)
    why.show(shown)
    if view.topic is not None and shown.heard:
        common.note(
            "What the client says of its queue, its batches and the brokers is of all topics together."
        )
    _tiles(shown)
    left, right = st.columns(2, gap="medium")
    with left:
        _chart("Percentiles", figures.percentiles(shown), "percentiles", _near())
        _chart(
            "Where the time goes, on average",
            figures.spent(shown),
            "spent",
            "Waiting in our queue is a mean over messages; sending and the round trip are means over requests.",
        )
    with right:
        _chart(
            "How latencies spread",
            figures.heat(shown),
            "heat",
            "The stronger the colour, the more of a moment's messages.",
        )
        _chart(
            "Round trip by broker, on average",
            figures.rtt_by_broker(shown),
            "rtt",
            "Network and broker together, as the client measures each request.",
        )
    _topics(shown)
    _brokers(shown)


def _near() -> str:
    return f"From merged histograms: each is right to {words.percent(RELATIVE_ERROR)}."


def _tiles(shown: data.Latency) -> None:
    whole, near = shown.whole, _near()
    shares = ("half", "95 of 100", "99 of 100", "999 of 1,000")
    names = [f"p{100 * quantile:g}" for quantile in data.LATENCY_QUANTILES]
    found = [
        (name, words.milliseconds(value), f"In this time {share} of the messages are acknowledged. {near}")
        for name, value, share in zip(names, shown.found, shares, strict=True)
    ]
    heard = shown.heard
    found += [
        ("Round trip", words.milliseconds(whole.rtt), "A request's way to the broker and back, on average."),
        ("Queue peak", words.percent(whole.fill_highest) if heard else "–", "How full the client's queue was at most, of messages or of bytes."),
        ("Per batch", words.compact(data.per_batch(whole)), "Messages in a batch, on average; larger batches make fewer requests."),
        ("Sent again", words.percent(data.repeated(whole)), "Requests that the client had to send again, of all."),
    ]  # fmt: skip
    eight = [figures.Tile(label, value, more=more) for label, value, more in found]
    live_dom(tiles.tiles(eight, look="pc-eight"), key="latency-tiles")


def _chart(title: str, figure: object, key: str, note: str) -> None:
    common.heading(title)
    common.note(note)
    live_plotly(figure, key=f"latency-{key}", alt=title)


def _topics(shown: data.Latency) -> None:
    common.heading("By topic")
    if not shown.topics:
        common.note("No topic was written to in this range.")
        return
    names = [f"p{100 * quantile:g}" for quantile in data.LATENCY_QUANTILES]
    rows = [
        (
            line.topic,
            words.count(line.acknowledged),
            words.milliseconds(line.mean),
            *(words.milliseconds(value) for value in line.found),
        )
        for line in shown.topics
    ]
    st.html(_table("By topic", ("Topic", "Acknowledged", "Mean", *names), rows))


def _brokers(shown: data.Latency) -> None:
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
            words.percent(data.connected(one)),
            words.count(one.requests),
            words.milliseconds(one.queue),
            words.milliseconds(one.outbuf),
            words.milliseconds(one.rtt),
            words.milliseconds(one.rtt_p99) if one.rtt_count else "–",
            words.milliseconds(one.throttle) if one.throttle_sum else "none",
            words.count(one.retries),
            words.count(one.timeouts),
            words.count(one.disconnects),
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
