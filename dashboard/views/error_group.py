"""One group of dead letters: its cause, what to do, how it grew, and what became of its letters."""

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
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import adaptive_cache, common, header
from producer_core.dashboard.wording import errors as say
from producer_core.kafka.classify import failure_of

_LONGEST = 2000


def show(path: Path, view: View, fingerprint: str) -> None:
    """The group that the address names, above the rest of the page."""
    key = f"group-{fingerprint}"
    asked = (view, fingerprint)
    found = adaptive_cache.read(
        path, key, asked, lambda: (error_group(opened(path), fingerprint, view, time.time()),)
    )
    with st.container(border=True, key="pc-group"):
        if found is None:
            return
        (page,) = found
        if page is None:
            common.say("quiet", say.group_unknown(fingerprint[:40]))
            live_dom(_back(), key="group-back")
            return
        left, right = st.columns([3, 2], gap="medium")
        with left:
            live_dom(*_story(page, time.time()), key="group-story")
        with right:
            common.heading("Deaths in time" if page.inside else "Deaths in time, outside the range")
            live_plotly(group_trend(page), key="group-trend", alt="Deaths of this group in time")


def _story(page: GroupPage, now: float) -> list[Node]:
    group = page.ever
    failure = failure_of(group.code)
    title = [node("strong", group.code)]
    if page.new:
        title.append(
            node(
                "span", "new", class_="pc-badge", title="No dead letter of this group died before the range."
            )
        )
    said = mask_text(group.sample_text[:_LONGEST])
    inside = page.inside.count if page.inside else 0
    facts = [
        ("Means", failure.meaning),
        ("What to do", failure.advice),
        (
            "In this range",
            f"{wording.plural(inside, 'death')}, {say.before(page.before, inside) or 'none before'}",
        ),
        ("In all", wording.plural(group.count, "dead letter")),
        ("First and last", _between(group.first_seen, group.last_seen, now)),
        ("Topics", say.topics(group.topics, 8)),
        ("Now", say.states(page.states)),
        ("Kind", f"{say.kind(failure.kind)}. {say.KINDS.get(failure.kind, '')}"),
        ("error.type", failure.error_type),
    ]
    return [
        node("p", *title, class_="pc-group-title"),
        node("p", said or "It came without a text.", class_="pc-group-text"),
        node(
            "dl",
            *(part for name, text in facts for part in (node("dt", name), node("dd", text))),
            class_="pc-facts",
        ),
        _links(page),
    ]


def _links(page: GroupPage) -> Node:
    mark, waiting = page.ever.fingerprint, page.states.get("dead", 0)
    kept = {"range": None, "topic": None, "producer": None}
    dead_letters = (
        link(f"Open the {wording.plural(waiting, 'dead letter')} that wait" if waiting != 1 else "Open the dead letter that waits",
             header.link("dead-letters", group=mark, **kept))
        if waiting
        else link("Look at its dead letters", header.link("dead-letters", group=mark, state="any", **kept))
    )  # fmt: skip
    return node(
        "p",
        dead_letters,
        node("span", " "),
        link("Close the group", header.link("errors", group=None)),
        class_="pc-links",
    )


def _back() -> Node:
    return node("p", link("Close the group", header.link("errors", group=None)), class_="pc-links")


def _between(first: float, last: float, now: float) -> str:
    zone = common.zone()
    begin, end = wording.stamp(first, zone, now).text, wording.stamp(last, zone, now).text
    return begin if begin == end else f"{begin} to {end}"
