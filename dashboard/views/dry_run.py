"""Draw the dry run of a replay: what it would do, the remaining choices, and the confirmation."""

from __future__ import annotations

import html
import time
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core.dashboard import actions, queries, wording
from producer_core.dashboard.actions import action_code
from producer_core.dashboard.actions.action_code import ActionCode
from producer_core.dashboard.components.scroll_into_view import scroll_into_view
from producer_core.dashboard.views import (
    action_menu,
    approvals,
    common,
    reads,
    replay_tables,
    run_replay_action,
)
from producer_core.dashboard.wording import approvals as approval_wording
from producer_core.dashboard.wording import dry_run as dry_run_wording
from producer_core.replay import Inconclusive, Newer, Operation
from producer_core.replay.dry_run import DryRun
from producer_core.replay.guard import CANARY, STOP_PERCENT


def show(path: Path, row: queries.ReplayRow, tone: str, state: str, *, scroll: bool) -> None:
    """Draw the dry run. Nothing has been sent yet; `scroll` brings it into view once."""
    operation = row.operation
    run = reads.planned(path, operation.operation_id, _newer(operation), _inconclusive(operation))
    if run is None:
        return
    with st.container(border=True, key="pc-dry-run", gap="small"):
        if scroll:
            scroll_into_view(key=f"scroll_{operation.operation_id}")
        common.heading(dry_run_wording.heading(run.total, run.bytes))
        if row.request is not None and row.request.is_open:
            approvals.show(path, row.request)
        elif tone == "bad":
            common.message(tone, state)
        else:
            common.note(state)
        _numbers(run)
        if warning := dry_run_wording.warning(run):
            common.message("warning", warning)
        if row.request is not None and not row.request.is_open:
            approvals.show(path, row.request)
        _choices(path, operation, run)
        _buttons(path, row, run)
        with st.expander("Reasons"):
            _reasons(row, run)
        with st.expander("Rate, canary and automatic stop"):
            _options(operation, run)


def _numbers(run: DryRun) -> None:
    """Draw how many records are sent, skipped and in doubt."""
    tiles = "".join(
        f'<div class="pc-tile"><span class="pc-label">{html.escape(name)}</span>'
        f'<span class="pc-value">{number}</span><span class="pc-change">{html.escape(meaning)}</span></div>'
        for name, number, meaning in dry_run_wording.numbers(run)
    )
    st.html(f'<div class="pc-tiles pc-three">{tiles}</div>')


def _reasons(row: queries.ReplayRow, run: DryRun) -> None:
    """Draw the findings, the most serious first, the reasons for the default choices, and the records by topic."""
    operation = row.operation
    texts = [text for text in run.sentences if text]
    texts += [dry_run_wording.newer_reason(run)] if run.newer_keys else []
    texts += [dry_run_wording.INCONCLUSIVE_REASON] if run.doubtful.count else []
    rows = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
    st.html(f'<ul class="pc-note" style="padding-left: 1.1rem">{rows}</ul>')
    left, right = st.columns([3, 4], gap="medium")
    with left:
        replay_tables.verdicts(run, operation.operation_id)
    with right:
        replay_tables.topics(run, operation.operation_id)
    planned = wording.stamp(operation.created_at, common.zone(), time.time())
    common.note(dry_run_wording.frozen(run.total, planned.text, row.later), tooltip=planned.more)


def _choices(path: Path, operation: Operation, run: DryRun) -> None:
    """Draw the choices that the user can still make; each has a safe default."""
    key = operation.operation_id
    with st.container(horizontal=True, gap="medium"):
        if run.newer_keys:
            st.segmented_control(
                dry_run_wording.newer_question(run.newer_keys),
                [dry_run_wording.SKIP_NEWER, dry_run_wording.SEND_NEWER],
                default=dry_run_wording.SEND_NEWER
                if operation.newer == "send"
                else dry_run_wording.SKIP_NEWER,
                key=f"newer_{key}",
                required=True,
                help="On a compacted topic, an old value replaces the newer one.",
            )
        if run.doubtful.count:
            st.segmented_control(
                dry_run_wording.inconclusive_question(run.doubtful.count),
                [dry_run_wording.KEEP_INCONCLUSIVE, dry_run_wording.SEND_INCONCLUSIVE],
                default=dry_run_wording.SEND_INCONCLUSIVE
                if operation.sends_inconclusive
                else dry_run_wording.KEEP_INCONCLUSIVE,
                key=f"inconclusive_{key}",
                required=True,
                help="The audit log records this choice.",
            )
    if not operation.by_spark and (run.quarantined or st.session_state.get(f"quarantined_{key}")):
        st.toggle(
            f"Include {run.quarantined:,} quarantined" if run.quarantined else "Include quarantined records",
            key=f"quarantined_{key}",
            on_change=_include_quarantined,
            args=(path, key),
            help="Records that failed in several replays. Bulk replays skip them.",
        )


def _options(operation: Operation, run: DryRun) -> None:
    """Draw the limits of the replay."""
    key = operation.operation_id
    with st.grid(3, gap="small", min_column_width=150):
        st.number_input(
            "Records per second", min_value=0.1, step=10.0, format="%g", value=operation.rate, key=f"go_rate_{key}",
            placeholder="no limit", help="Maximum rate of the replay.",
        )  # fmt: skip
        if run.total > CANARY:
            st.number_input(
                "Canary", min_value=0, max_value=run.total, value=operation.canary or 0, key=f"canary_{key}",
                help="Records to send first. The rest follow once these are acknowledged.",
            )  # fmt: skip
            st.number_input(
                "Stop above failure rate (%)", min_value=1.0, max_value=100.0, step=5.0, format="%.0f",
                value=operation.stop_percent or STOP_PERCENT, key=f"stop_{key}",
                help=f"Applies to the canary and the last {wording.plural(operation.stop_last or 50, 'record')}.",
            )  # fmt: skip
    common.note(dry_run_wording.estimate(run.to_send + run.in_doubt, st.session_state.get(f"go_rate_{key}")))


def _buttons(path: Path, row: queries.ReplayRow, run: DryRun) -> None:
    operation = row.operation
    allowed, reason = actions.may_act(path)
    sent = run.total - run.skipped_newer
    ready = operation.state == "ready"
    label, asked = f"Replay {sent:,} now", False
    if not _is_approved(row) and (rule := reads.approval_rule(path, operation.operation_id, actions.user())):
        asked = row.request is not None and row.request.is_open
        label = approval_wording.ASK_AGAIN if asked else approval_wording.ask_label(sent)
        if not asked:
            common.note(approval_wording.ASKS.format(rule=rule))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            label, key="replay_confirm", type="secondary" if asked else "primary", icon=":material/replay:",
            disabled=not (allowed and ready and sent),
            help=reason or (None if ready else "Available when the preflight is complete."),
            on_click=_confirm, args=(path, operation.operation_id),
        )  # fmt: skip
        st.button(
            "Discard replay", key="replay_discard", disabled=not allowed, help=reason or None,
            on_click=_discard, args=(path, operation.operation_id),
        )  # fmt: skip
        cancel = action_code.cancel(path, operation.operation_id)
        start = {label: _code(path, operation)} if ready and sent else {}
        action_menu.draw(path, {**start, "Discard replay": cancel}, key=f"go_code_{operation.operation_id}")


def _code(path: Path, operation: Operation) -> ActionCode:
    """Return the start with the choices of the page. A limit that is as planned is left out, which Python cannot set."""
    chosen = _chosen(operation.operation_id)
    planned = {"canary": operation.canary or 0, "stop_percent": operation.stop_percent or STOP_PERCENT}
    as_planned = [name for name, value in planned.items() if chosen[name] == value]
    changed = {name: value for name, value in chosen.items() if name not in as_planned}
    return action_code.go(path, operation.operation_id, **changed)


def _chosen(operation_id: str) -> dict[str, Any]:
    """Return the choices that the user made; None for one that was not offered."""
    state = st.session_state
    selected = state.get(f"newer_{operation_id}")
    newer: Newer | None = (
        None if selected is None else "send" if selected == dry_run_wording.SEND_NEWER else "skip"
    )
    return {
        "newer": newer,
        "inconclusive": _selected_inconclusive(operation_id),
        "rate": state.get(f"go_rate_{operation_id}"),
        "canary": state.get(f"canary_{operation_id}"),
        "stop_percent": state.get(f"stop_{operation_id}"),
    }


def _is_approved(row: queries.ReplayRow) -> bool:
    return (
        row.request is not None and row.request.state == "approved" and not row.request.expired(time.time())
    )


def _newer(operation: Operation) -> Newer:
    """Return the current choice; by default values with a newer record are skipped."""
    selected = st.session_state.get(f"newer_{operation.operation_id}")
    if selected is None:
        return "send" if operation.newer == "send" else "skip"
    return "send" if selected == dry_run_wording.SEND_NEWER else "skip"


def _inconclusive(operation: Operation) -> Inconclusive:
    """Return the current choice; by default records with an inconclusive verdict remain dead letters."""
    selected = _selected_inconclusive(operation.operation_id)
    return selected or ("send" if operation.sends_inconclusive else "keep")


def _confirm(path: Path, operation_id: str) -> None:
    confirm = partial(actions.confirm_replay, **_chosen(operation_id))
    if run_replay_action.act(path, operation_id, confirm).ok:
        state = st.session_state
        state["dead_letters_version"] = int(state.get("dead_letters_version", 0)) + 1


def _selected_inconclusive(operation_id: str) -> Inconclusive | None:
    selected = st.session_state.get(f"inconclusive_{operation_id}")
    return None if selected is None else "send" if selected == dry_run_wording.SEND_INCONCLUSIVE else "keep"


def _discard(path: Path, operation_id: str) -> None:
    run_replay_action.act(path, operation_id, actions.cancel_replay)
    if st.session_state.get("operation") == operation_id:
        st.session_state.pop("operation")


def _include_quarantined(path: Path, operation_id: str) -> None:
    include = bool(st.session_state.get(f"quarantined_{operation_id}"))
    done = run_replay_action.act(path, operation_id, partial(actions.include_quarantined, include=include))
    if done.ok and done.operation_id:
        st.session_state["operation"] = done.operation_id
        st.session_state[f"quarantined_{done.operation_id}"] = include
        if st.query_params.get("operation") == operation_id:
            st.query_params["operation"] = done.operation_id
