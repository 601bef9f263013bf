"""Draw the replays page: all replays with progress and outcome, or one replay in full."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import queries
from producer_core.dashboard.charts import replays as replay_charts
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_chart import live_plotly
from producer_core.dashboard.views import (
    approvals,
    common,
    dead_letter_reads,
    header,
    reads,
    replay_detail,
    replay_tables,
)
from producer_core.dashboard.wording import replays as replay_wording
from producer_core.errors import ReplayError
from producer_core.replay import Operation
from producer_core.replay.broker_check import BrokerCheck

_REFRESH = 1.0
_IDLE_REFRESH = 5.0
"""Seconds between two updates while a replay is running, and while none is."""
_INITIAL, _EXTENDED = 20, 200
"""Number of ended replays that the page lists at first, and after Show more."""


def show(path: Path) -> None:
    live_table.load_style_sheet()
    if request_id := st.query_params.get("request"):
        approvals.open_requested(path, request_id)
    operation_id = st.query_params.get("operation")
    application: str | None = None
    cluster: str | None = None
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        header.title("Replays")
        common.live_toggle()
        if not operation_id:
            application, cluster = header.origin(path, "Replays")
    live = st.session_state.get("live", True)
    every = _REFRESH if st.session_state.get("replays_live", True) else _IDLE_REFRESH
    if operation_id:
        st.fragment(_one, run_every=every if live else None)(path, operation_id)
    else:
        st.fragment(_all, run_every=every if live else None)(path, application, cluster)


# all replays


def _all(path: Path, application: str | None, cluster: str | None) -> None:
    with common.panel(path):
        limit = _EXTENDED if st.session_state.get("replays_more") else _INITIAL
        page = reads.replays(path, limit, application, cluster)
        filtered = application is not None or cluster is not None
        if not page.under_way and not page.ended:
            _none(filtered=filtered)
            return
        common.message(*replay_wording.replays_summary([row.operation for row in page.under_way]))
        now = time.time()
        pending = [one for one in page.requests if one.can_be_decided(now)]
        approvals.waiting(path, pending)
        shown_above = {one.operation_id for one in pending}
        for row in page.under_way:
            if row.operation.operation_id in shown_above:
                continue
            with st.container(border=True, key=f"pc-replay-{row.operation.operation_id}"):
                _title(row, page.now)
                replay_detail.show(path, row, page.now, listed=True)
                _course(row)
        _ended(page)
        approvals.decided(page.requests)
        _audit(page.acts, "Audit of all applications and clusters" if filtered else "Audit")
        _data_age(path)
        _set_refresh(bool(page.under_way))


def _none(*, filtered: bool) -> None:
    if filtered:
        common.message("quiet", "No replay of this application or cluster. Select another one, or all.")
        return
    common.message("quiet", "No replays yet. This page lists each replay with its progress and outcome.")
    dead_letters = common.link_element("dead letters", header.link("dead-letters"))
    st.html(f'<p class="pc-note">To start one, select {dead_letters} and click Replay.</p>')


def _course(row: queries.ReplayRow) -> None:
    """Draw the records that succeeded and failed over time; nothing before the replay sends."""
    if row.course is not None:
        key = row.operation.operation_id
        live_plotly(
            replay_charts.course(row.course, key),
            key=f"replay-course-{key}",
            alt=replay_charts.described(row.course),
        )


def _data_age(path: Path) -> None:
    common.data_age(dead_letter_reads.data_time(path), time.time())


def _title(row: queries.ReplayRow, now: float) -> None:
    """Draw the state in one or two words, the selection, and who requested the replay."""
    operation = row.operation
    tone, words = replay_tables.state(row, now)
    mark = f'<b class="pc-mark pc-{tone}">{html.escape(words)}</b>'
    about = html.escape(replay_wording.about(operation, row.where))
    st.html(f'<p class="pc-fact">{mark} · <span>{about}</span><br>{_requested(operation)}</p>')


def _requested(operation: Operation) -> str:
    """Return the user, the origin, the time and the reason of the replay as HTML."""
    reason = f" Reason: {html.escape(mask_text(operation.reason))}" if operation.reason else ""
    user = f"{html.escape(operation.who)} ({html.escape(operation.origin)})"
    return f"Requested by {user}, {common.time_element(operation.created_at)}.{reason}"


def _ended(page: queries.ReplaysPage) -> None:
    if not page.ended:
        return
    common.heading("Finished")
    replay_tables.ended(page.ended, page.now)
    if page.more and not st.session_state.get("replays_more"):
        st.button("Show more", key="more_replays", on_click=_show_more)


def _show_more() -> None:
    st.session_state["replays_more"] = True


def _audit(entries: Sequence[Mapping[str, Any]], title: str, *, of_one: bool = False) -> None:
    if entries:
        common.heading(title)
        replay_tables.audit(entries, of_one=of_one)


def _set_refresh(running: bool) -> None:
    """Update more often while a replay is running. The timer belongs to the page, so changing it redraws the page."""
    if st.session_state.get("replays_live", True) != running:
        st.session_state["replays_live"] = running
        st.rerun()  # last, because it interrupts the drawing


# one replay


def _one(path: Path, operation_id: str) -> None:
    if st.query_params.get("operation") != operation_id:
        st.rerun()  # the dry run was planned again, or the user went back
    with common.panel(path):
        st.html(
            f'<p class="pc-note">{common.link_element("All replays", header.link("replays", operation=None))}</p>'
        )
        try:
            detail = reads.replay_detail(path, operation_id)
        except ReplayError:
            common.message(
                "warning",
                f"This store has no replay {operation_id}. It may have expired or belong to another store.",
            )
            return
        operation = detail.replay.operation
        _title(detail.replay, detail.now)
        replay_detail.show(path, detail.replay, detail.now, full=True)
        _course(detail.replay)
        left, right = st.columns(2, gap="medium")
        with left:
            _outcomes(detail)
            _dead_letters(detail)
        with right:
            _request(detail)
        _preflight(operation)
        _audit(detail.acts, "Audit", of_one=True)
        _data_age(path)
        _set_refresh(not operation.ended)


def _outcomes(detail: queries.ReplayDetail) -> None:
    rows = "".join(
        f"<tr><td class='pc-n'>{html.escape(number)}</td><td>{html.escape(name)}</td></tr>"
        for number, name in replay_wording.counts(detail.replay.operation)
    )
    if rows:
        common.heading("Outcome")
        st.html(f'<table class="pc-rows" style="min-width: 0">{rows}</table>')
    if detail.reasons:
        common.heading("Records not delivered")
        replay_tables.reasons(detail.reasons[: queries.RECORDS])


def _dead_letters(detail: queries.ReplayDetail) -> None:
    """Draw links to the records that are still dead letters, and to the current result of the selection."""
    links = []
    for state, (number, ids) in detail.dead.items():
        address = replay_tables.dead_letters_address({"ids": ",".join(ids)})
        links.append(common.link_element(replay_wording.still_dead(state, number, len(ids)), address))
    if detail.replay.where is not None:
        address = replay_tables.dead_letters_address(detail.replay.where.to_query())
        links.append(common.link_element("Current result of the selection", address))
    if links:
        common.heading("Dead letters")
        st.html("".join(f'<p class="pc-note">{link}</p>' for link in links))


def _request(detail: queries.ReplayDetail) -> None:
    common.heading("Request")
    for name, text in replay_wording.facts(detail.replay.operation):
        common.fact(name, text)
    if duration := replay_wording.took(detail.replay.operation):
        common.fact("Duration", duration)


def _preflight(operation: Operation) -> None:
    if operation.checked is None or operation.state in ("checking", "ready"):
        return
    topics = BrokerCheck.from_json(operation.checked).topics
    if topics:
        common.heading("Preflight result")
        for topic in topics[: queries.RECORDS]:
            common.fact(topic.topic, topic.text)
