"""The replays page: every replay, its progress and its outcome; one of them from all sides."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import queries
from producer_core.dashboard.components import live_table
from producer_core.dashboard.views import (
    common,
    dead_letter_reads,
    header,
    reads,
    replay_detail,
    replay_tables,
)
from producer_core.dashboard.wording import replays as told
from producer_core.errors import ReplayError
from producer_core.replay import Operation
from producer_core.replay.broker_check import BrokerCheck

_REFRESH = 1.0
_STILL = 5.0
"""Seconds between two looks while a replay is under way, and while none is."""
_FEW, _MANY = 20, 200


def show(path: Path) -> None:
    live_table.style()
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
        page = reads.replays(path, _MANY if st.session_state.get("replays_more") else _FEW)
        if not page.under_way and not page.ended:
            common.say("quiet", "No replay yet. Each stays here with its progress and its outcome.")
            chosen = common.anchor("Choose dead letters", header.link("dead-letters"))
            st.html(f'<p class="pc-note">{chosen} and press Replay to begin one.</p>')
            return
        common.say(*told.replays_summary([seen.operation for seen in page.under_way]))
        for seen in page.under_way:
            with st.container(border=True, key=f"pc-replay-{seen.operation.operation_id}"):
                _headline(seen)
                replay_detail.show(path, seen, page.now, listed=True)
        _ended(page)
        _acts(page.acts, "What people did with replays")
        _as_of(path)
        _pace(bool(page.under_way))


def _as_of(path: Path) -> None:
    heard, now = dead_letter_reads.heard(path), time.time()
    common.stays(heard, now)


def _headline(seen: queries.ReplayRow) -> None:
    one = seen.operation
    st.html(
        f'<p class="pc-fact"><span>{html.escape(told.about(one, seen.where))}</span><br>{_asked(one)}</p>'
    )


def _asked(one: Operation) -> str:
    """Who asked for it, from where and when, as HTML."""
    why = f" «{html.escape(mask_text(one.reason))}»" if one.reason else ""
    return f"Asked for by {html.escape(one.who)} ({html.escape(one.origin)}), {common.moment(one.created_at)}.{why}"


def _ended(page: queries.ReplaysPage) -> None:
    if not page.ended:
        return
    common.heading("Ended")
    replay_tables.ended(page.ended)
    if page.more and not st.session_state.get("replays_more"):
        st.button("Show more", key="more_replays", on_click=_show_more)


def _show_more() -> None:
    st.session_state["replays_more"] = True


def _acts(acts: Sequence[Mapping[str, Any]], title: str, *, of_one: bool = False) -> None:
    if acts:
        common.heading(title)
        replay_tables.acts(acts, of_one=of_one)


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
            found = reads.replay_detail(path, operation_id)
        except ReplayError:
            common.say(
                "warning",
                f"There is no replay {operation_id} in this store: it is older than what is kept, or of another store.",
            )
            return
        one = found.replay.operation
        _headline(found.replay)
        replay_detail.show(path, found.replay, found.now, full=True)
        left, right = st.columns(2, gap="medium")
        with left:
            _outcomes(found)
            _records(found)
        with right:
            _facts(found)
        _looked_ahead(one)
        _acts(found.acts, "Its life", of_one=True)
        _as_of(path)
        _pace(not one.ended)


def _outcomes(found: queries.ReplayDetail) -> None:
    rows = "".join(
        f"<tr><td class='pc-n'>{html.escape(number)}</td><td>{html.escape(name)}</td></tr>"
        for number, name in told.counts(found.replay.operation)
    )
    if rows:
        common.heading("Outcome")
        st.html(f'<table class="pc-rows" style="min-width: 0">{rows}</table>')
    if found.reasons:
        common.heading("Why not all")
        replay_tables.reasons(found.reasons[: queries.RECORDS])


def _records(found: queries.ReplayDetail) -> None:
    """Back to the dead letters: those that are dead still, and the same selection as it is now."""
    links = []
    for state, (number, ids) in found.dead.items():
        query = {"ids": ",".join(ids)}
        links.append(
            common.anchor(told.still_dead(state, number, len(ids)), replay_tables.records_address(query))
        )
    if found.replay.where is not None:
        now = common.anchor(
            "The same selection now", replay_tables.records_address(found.replay.where.to_query())
        )
        links.append(now)
    if links:
        common.heading("Its dead letters")
        st.html("".join(f'<p class="pc-note">{link}</p>' for link in links))


def _facts(found: queries.ReplayDetail) -> None:
    common.heading("As it was asked for")
    for name, text in told.facts(found.replay.operation):
        common.fact(name, text)
    if took := told.took(found.replay.operation):
        common.fact("Took", took)


def _looked_ahead(one: Operation) -> None:
    if one.checked is None or one.state in ("checking", "ready"):
        return
    topics = BrokerCheck.from_json(one.checked).topics
    if topics:
        common.heading("What the look ahead found")
        for topic in topics[: queries.RECORDS]:
            common.fact(topic.topic, topic.text)
