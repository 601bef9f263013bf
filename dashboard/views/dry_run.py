"""The dry run: what a replay would do, the choices it leaves, and one confirmation."""

from __future__ import annotations

import html
import time
from functools import partial
from pathlib import Path

import streamlit as st

from producer_core.dashboard import actions, queries, wording
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.scroll_into_view import bring
from producer_core.dashboard.views import common, reads, replay_actions, replay_tables
from producer_core.dashboard.wording import dry_run as told
from producer_core.replay import Inconclusive, Newer, Operation
from producer_core.replay.dry_run import DryRun
from producer_core.replay.guard import CANARY, STOP_PERCENT


def show(path: Path, seen: queries.ReplayRow, tone: str, standing: str, *, comes_into_view: bool) -> None:
    """Frozen dead letters and nothing sent: all that is known before, then the choices and the buttons."""
    one = seen.operation
    run = reads.planned(path, one.operation_id, _newer(one), _inconclusive(one))
    if run is None:
        return
    with st.container(border=True):
        live_table.style()
        if comes_into_view:
            bring(key=f"bring_{one.operation_id}")
        common.heading(told.heading(run.total, run.bytes))
        planned = wording.stamp(one.created_at, common.zone(), time.time())
        common.note(told.frozen(run.total, planned.text, seen.later), more=planned.more)
        if one.state == "checking":
            common.say(tone, standing)
        else:
            common.note(standing)
        _sentences(run, looked=one.state != "checking")
        left, right = st.columns([3, 4], gap="medium")
        with left:
            replay_tables.verdicts(run, one.operation_id)
        with right:
            replay_tables.topics(run, one.operation_id)
        _choices(path, one, run)
        _buttons(path, one, run)


def _sentences(run: DryRun, *, looked: bool) -> None:
    """The worst first, and that one loud, once the topics were looked at."""
    others = list(run.sentences)
    if looked:
        common.say("good" if run.safe and not run.active else "warning", others.pop(0))
    rows = "".join(f"<li>{html.escape(text)}</li>" for text in others if text)
    if rows:
        st.html(f'<ul class="pc-note" style="padding-left: 1.1rem">{rows}</ul>')


def _choices(path: Path, one: Operation, run: DryRun) -> None:
    """What a person may still decide; each has a safe default."""
    key = one.operation_id
    if run.newer_keys:
        st.segmented_control(
            told.newer_question(run.newer_keys),
            [told.SKIP_NEWER, told.SEND_NEWER],
            default=told.SKIP_NEWER,
            key=f"newer_{key}",
            required=True,
            help="An old value sent now comes after the newer one; on a compacted topic it replaces it for good.",
        )
        common.note(told.newer_reason(run))
    if run.doubtful.count:
        st.segmented_control(
            told.inconclusive_question(run.doubtful.count),
            [told.KEEP_INCONCLUSIVE, told.SEND_INCONCLUSIVE],
            default=told.SEND_INCONCLUSIVE if one.sends_inconclusive else told.KEEP_INCONCLUSIVE,
            key=f"inconclusive_{key}",
            required=True,
            help="The audit keeps the choice.",
        )
        common.note(told.INCONCLUSIVE_REASON)
    if not one.by_spark and (run.quarantined or st.session_state.get(f"quarantined_{key}")):
        st.toggle(
            f"Send the {run.quarantined:,} quarantined too" if run.quarantined else "Quarantined ones go too",
            key=f"quarantined_{key}",
            on_change=_with_quarantined,
            args=(path, key),
            help="They failed again in several replays. Bulk replays leave them out unless somebody says otherwise.",
        )
    with st.grid(3, gap="small", min_column_width=150):
        st.number_input(
            "At most, a second", min_value=0.1, step=10.0, format="%g", value=one.rate, key=f"go_rate_{key}",
            placeholder="no limit",
            help="How many dead letters a second are sent at most.",
        )  # fmt: skip
        if run.total > CANARY:
            st.number_input(
                "Canary", min_value=0, max_value=run.total, value=one.canary or 0, key=f"canary_{key}",
                help="So many go first, alone; the rest only when they are acknowledged. 0: no canary.",
            )  # fmt: skip
            st.number_input(
                "Stop above, % failing", min_value=1.0, max_value=100.0, step=5.0, format="%.0f",
                value=one.stop_percent or STOP_PERCENT, key=f"stop_{key}",
                help=f"It stops itself when more of the canary, or of the last {one.stop_last or 50:,}, fail again.",
            )  # fmt: skip
    common.note(told.estimate(run.total - run.skipped_newer, st.session_state.get(f"go_rate_{key}")))


def _buttons(path: Path, one: Operation, run: DryRun) -> None:
    allowed, why_not = actions.may_act()
    sent = run.total - run.skipped_newer
    ready = one.state == "ready"
    if divided := told.split(run.total, run.skipped_newer):
        common.note(divided)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            f"Replay {sent:,} now", key="replay_sure", type="primary", icon=":material/replay:",
            disabled=not (allowed and ready and sent),
            help=why_not or (None if ready else "As soon as the topics were looked at."),
            on_click=_go, args=(path, one.operation_id),
        )  # fmt: skip
        st.button(
            "Leave them", key="replay_not", disabled=not allowed, help=why_not or None,
            on_click=_leave, args=(path, one.operation_id),
        )  # fmt: skip


def _newer(one: Operation) -> Newer:
    """What is chosen now; old values are left out unless somebody says otherwise."""
    return "send" if st.session_state.get(f"newer_{one.operation_id}") == told.SEND_NEWER else "skip"


def _inconclusive(one: Operation) -> Inconclusive:
    """The current choice; records that are not found stay dead letters unless the operator chooses otherwise."""
    chosen = st.session_state.get(f"inconclusive_{one.operation_id}")
    if chosen is None:
        return "send" if one.sends_inconclusive else "keep"
    return "send" if chosen == told.SEND_INCONCLUSIVE else "keep"


def _go(path: Path, operation_id: str) -> None:
    chosen = st.session_state
    said = chosen.get(f"newer_{operation_id}")
    newer: Newer | None = None if said is None else "send" if said == told.SEND_NEWER else "skip"
    go = partial(
        actions.go_replay,
        newer=newer,
        inconclusive=_chosen_inconclusive(operation_id),
        rate=chosen.get(f"go_rate_{operation_id}"),
        canary=chosen.get(f"canary_{operation_id}"),
        stop_percent=chosen.get(f"stop_{operation_id}"),
    )
    if replay_actions.act(path, operation_id, go).ok:
        chosen["letters_version"] = int(chosen.get("letters_version", 0)) + 1


def _chosen_inconclusive(operation_id: str) -> Inconclusive | None:
    chosen = st.session_state.get(f"inconclusive_{operation_id}")
    return None if chosen is None else "send" if chosen == told.SEND_INCONCLUSIVE else "keep"


def _leave(path: Path, operation_id: str) -> None:
    replay_actions.act(path, operation_id, actions.cancel_replay)
    if st.session_state.get("operation") == operation_id:
        st.session_state.pop("operation")


def _with_quarantined(path: Path, operation_id: str) -> None:
    yes = bool(st.session_state.get(f"quarantined_{operation_id}"))

    done = replay_actions.act(path, operation_id, partial(actions.with_quarantined, yes=yes))
    if done.ok and done.operation_id:
        st.session_state["operation"] = done.operation_id
        st.session_state[f"quarantined_{done.operation_id}"] = yes
        if st.query_params.get("operation") == operation_id:
            st.query_params["operation"] = done.operation_id
