"""Draw one group of dead letters: its cause, the advice, its trend, and the states of its dead letters."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import wording
from producer_core.dashboard.charts.errors import group_trend
from producer_core.dashboard.components.live_chart import live_plotly
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.html import Node, link, node
from producer_core.dashboard.queries.error_groups import GroupPage, error_group
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import adaptive_cache, common, event_reads, header
from producer_core.dashboard.wording import errors as error_wording
from producer_core.kafka.classify import advice_for, failure_of

_MAX_SAMPLE = 2000


def show(path: Path, view: View, fingerprint: str) -> None:
    """Draw the group that the URL names, above the rest of the page."""
    key = f"group-{fingerprint}"
    request = (view, fingerprint)
    read = adaptive_cache.read(
        path, key, request, lambda: (error_group(open_store(path), fingerprint, view, time.time()),)
    )
    with st.container(border=True, key="pc-group"):
        if read is None:
            return
        (page,) = read
        if page is None:
            common.message("quiet", error_wording.group_unknown(fingerprint[:40]))
            live_dom(_close_link(), key="group-back")
            return
        left, right = st.columns([3, 2], gap="medium")
        with left:
            live_dom(*_description(page, time.time()), key="group-description")
        with right:
            common.heading("Failures over time" if page.inside else "Failures outside this range")
            live_plotly(
                group_trend(page),
                key="group-trend",
                alt="Failures of this group over time",
                marks=event_reads.chart_marks(path, view),
            )


def _description(page: GroupPage, now: float) -> list[Node]:
    group = page.ever
    failure = failure_of(group.code)
    title = [node("strong", group.code)]
    if page.new:
        title.append(
            node("span", "new", class_="pc-badge", title="The group has no dead letters before this range.")
        )
    sample = mask_text(group.sample_text[:_MAX_SAMPLE])
    inside = page.inside.count if page.inside else 0
    facts = [
        ("Meaning", failure.meaning),
        ("What to do", advice_for(failure, group.verdicts)),
        (
            "In this range",
            f"{wording.plural(inside, 'dead letter')}, {error_wording.before(page.before, inside) or 'none before'}",
        ),
        ("Total", wording.plural(group.count, "dead letter")),
        ("First and last", _between(group.first_seen, group.last_seen, now)),
        ("Topics", error_wording.topics(group.topics, 8)),
        ("Current states", error_wording.states(page.states)),
        ("Kind", f"{error_wording.kind(failure.kind)}. {error_wording.KINDS.get(failure.kind, '')}"),
        ("error.type", failure.error_type),
    ]
    return [
        node("p", *title, class_="pc-group-title"),
        node("p", sample or "The error has no text.", class_="pc-group-text"),
        node(
            "dl",
            *(part for name, text in facts for part in (node("dt", name), node("dd", text))),
            class_="pc-facts",
        ),
        _links(page),
    ]


def _links(page: GroupPage) -> Node:
    fingerprint, pending = page.ever.fingerprint, page.states.get("dead", 0)
    cleared = {"range": None, "topic": None, "producer": None}
    if pending:
        text = f"Open {wording.plural(pending, 'pending dead letter')}"
        dead_letters = link(text, header.link("dead-letters", group=fingerprint, **cleared))
    else:
        address = header.link("dead-letters", group=fingerprint, state="any", **cleared)
        dead_letters = link("Open its dead letters", address)
    return node(
        "p",
        dead_letters,
        node("span", " "),
        link("Close the group", header.link("errors", group=None)),
        class_="pc-links",
    )


def _close_link() -> Node:
    return node("p", link("Close the group", header.link("errors", group=None)), class_="pc-links")


def _between(first: float, last: float, now: float) -> str:
    zone = common.zone()
    start, end = wording.stamp(first, zone, now).text, wording.stamp(last, zone, now).text
    return start if start == end else f"{start} to {end}"
