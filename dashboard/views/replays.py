"""The replays page: every replay, its progress and its outcome; one of them from all sides."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard import data
from dashboard.views import common, header, operation, reading
from dashboard.words import replays as told
from producer_core.errors import ReplayError
from producer_core.masking import mask_text
from producer_core.replay.check import Check

_REFRESH = 1.0
_STILL = 5.0
"""Seconds between two looks while a replay is under way, and while none is."""
_FEW, _MANY = 20, 200


def show(path: Path) -> None:
    asked = st.query_params.get("operation")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        header.title("Replays")
        st.toggle(
            "Live", value=True, key="live", persist_state="session",
            help="Off: the page stands still until you switch it on again.",
        )  # fmt: skip
    live = st.session_state.get("live", True)
    every = _REFRESH if st.session_state.get("replays_live", True) else _STILL
    if asked:
        st.fragment(_one, run_every=every if live else None)(path, asked)
    else:
        st.fragment(_all, run_every=every if live else None)(path)


# all of them


def _all(path: Path) -> None:
    with common.panel(path):
        page = reading.replays(path, _MANY if st.session_state.get("replays_more") else _FEW)
        if not page.under_way and not page.ended:
            common.say(
                "quiet",
                "No replay yet. Choose dead letters and press Replay: each replay stays here with its outcome.",
            )
            return
        common.say(*told.in_all([seen.operation for seen in page.under_way]))
        for seen in page.under_way:
            with st.container(border=True, key=f"pc-replay-{seen.operation.operation_id}"):
                _headline(seen)
                operation.show(path, seen, page.now)
        _ended(page)
        _acts(page.acts, page.now, "What people did with replays")
        _pace(bool(page.under_way))


def _headline(seen: data.Replay) -> None:
    one = seen.operation
    st.html(
        f'<p class="pc-fact"><span>{html.escape(told.about(one, seen.where))}</span><br>{_asked(one)}</p>'
    )


def _asked(one: operation.Operation) -> str:
    """Who asked for it, from where and when, as HTML."""
    why = f" «{html.escape(mask_text(one.reason))}»" if one.reason else ""
    return f"Asked for by {html.escape(one.who)} ({html.escape(one.origin)}), {common.moment(one.created_at)}.{why}"


def _ended(page: data.Replays) -> None:
    if not page.ended:
        return
    common.heading("Ended")
    rows = ""
    for seen in page.ended:
        one = seen.operation
        _, text = told.outcome(one)
        rows += (
            f"<tr><td>{_when(one)}</td><td>{html.escape(one.who)}</td>"
            f"<td>{html.escape(told.selection(seen.where))}</td><td class='pc-n'>{one.total:,}</td>"
            f"<td>{html.escape(text)}</td><td class='pc-n'>{html.escape(told.took(one))}</td></tr>"
        )
    head = "<tr><th>Ended</th><th>By</th><th>What</th><th class='pc-n'>Letters</th><th>Outcome</th><th class='pc-n'>Took</th></tr>"
    st.html(f'<div class="pc-wide"><table class="pc-rows">{head}{rows}</table></div>')
    if page.more and not st.session_state.get("replays_more"):
        st.button("Show more", key="more_replays", on_click=_show_more)


def _when(one: operation.Operation) -> str:
    address = html.escape(header.link("replays", operation=one.operation_id))
    return f'<a class="pc-link" href="{address}">{common.moment(one.finished_at or one.created_at)}</a>'


def _show_more() -> None:
    st.session_state["replays_more"] = True


def _acts(acts: Iterable[Mapping[str, Any]], now: float, title: str) -> None:
    """The audit: who did what, and when."""
    rows = "".join(
        f"<tr><td>{common.moment(row['acted_at'])}</td><td>{html.escape(row['who'])}</td>"
        f"<td>{html.escape(told.ACTS.get(row['action'], row['action']))}</td><td class='pc-n'>{row['count']:,}</td>"
        f"<td>{html.escape(mask_text(row['outcome']))}</td></tr>"
        for row in acts
    )
    if not rows:
        return
    common.heading(title)
    head = "<tr><th>When</th><th>Who</th><th>Did what</th><th class='pc-n'>Letters</th><th>What came of it</th></tr>"
    st.html(f'<div class="pc-wide"><table class="pc-rows">{head}{rows}</table></div>')


def _pace(under_way: bool) -> None:
    """Look more often while something goes on; the timer belongs to the whole page, which is drawn again once."""
    if st.session_state.get("replays_live", True) != under_way:
        st.session_state["replays_live"] = under_way
        st.rerun()  # last, because what it interrupts is not drawn


# one of them


def _one(path: Path, operation_id: str) -> None:
    if st.query_params.get("operation") != operation_id:
        st.rerun()  # its dry run was made anew, or somebody went back
    with common.panel(path):
        st.html(
            f'<p class="pc-note">{common.anchor("All replays", header.link("replays", operation=None))}</p>'
        )
        try:
            found = reading.replay_detail(path, operation_id)
        except ReplayError:
            common.say(
                "warning",
                f"There is no replay {operation_id} in this store: it is older than what is kept, or of another store.",
            )
            return
        one = found.replay.operation
        _headline(found.replay)
        operation.show(path, found.replay, found.now, full=True)
        left, right = st.columns(2, gap="medium")
        with left:
            _outcomes(found)
            _records(found)
        with right:
            _facts(found)
        _looked_ahead(one)
        _acts(found.acts, found.now, "Its life")
        _pace(not one.ended)


def _outcomes(found: data.Detail) -> None:
    rows = "".join(
        f"<tr><td class='pc-n'>{html.escape(number)}</td><td>{html.escape(name)}</td></tr>"
        for number, name in told.counts(found.replay.operation)
    )
    if rows:
        common.heading("Outcome")
        st.html(f'<table class="pc-rows" style="min-width: 0">{rows}</table>')
    if found.reasons:
        common.heading("Why not")
        why = "".join(
            f"<tr><td class='pc-n'>{row['count']:,}</td><td>{html.escape(told.REASONS[row['state']])}</td>"
            f"<td>{html.escape(mask_text(row['text'] or 'no reason given'))}</td></tr>"
            for row in found.reasons[: data.RECORDS]
        )
        st.html(f'<div class="pc-wide"><table class="pc-rows" style="min-width: 0">{why}</table></div>')


def _records(found: data.Detail) -> None:
    """Back to the letters: those that are dead still, and the same selection as it is now."""
    links = []
    for state, (number, ids) in found.dead.items():
        query = {"ids": ",".join(ids)}
        links.append(
            common.anchor(told.still_dead(state, number, len(ids)), operation.records_address(query))
        )
    if found.replay.where is not None:
        now = common.anchor(
            "The same selection now", operation.records_address(found.replay.where.to_query())
        )
        links.append(now)
    if links:
        common.heading("Its letters")
        st.html("".join(f'<p class="pc-note">{link}</p>' for link in links))


def _facts(found: data.Detail) -> None:
    common.heading("As it was asked for")
    for name, text in told.facts(found.replay.operation):
        common.fact(name, text)
    if took := told.took(found.replay.operation):
        common.fact("Took", took)


def _looked_ahead(one: operation.Operation) -> None:
    if one.checked is None or one.state in ("checking", "ready"):
        return
    topics = Check.from_json(one.checked).topics
    if topics:
        common.heading("What the look ahead found")
        for topic in topics[: data.RECORDS]:
            common.fact(topic.topic, topic.text)
