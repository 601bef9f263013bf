"""Draw one replay: its state, progress, buttons and outcome."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from producer_core.dashboard import actions, queries
from producer_core.dashboard.actions import action_code
from producer_core.dashboard.actions.action_code import ActionCode
from producer_core.dashboard.components.scroll_into_view import scroll_into_view
from producer_core.dashboard.views import (
    action_menu,
    approvals,
    common,
    dry_run,
    reads,
    replay_tables,
    run_replay_action,
)
from producer_core.dashboard.wording import approvals as approval_wording
from producer_core.dashboard.wording import replays as replay_wording
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.filter import command_options
from producer_core.replay import Operation
from producer_core.store import Store

_SCROLL_WITHIN = 15.0
"""Seconds after its start in which a replay may be scrolled into view."""


def show(path: Path, row: queries.ReplayRow, now: float, *, full: bool = False, listed: bool = False) -> None:
    """Draw the replay. `full` omits the link to its page, for that page; `listed` omits the dry run, for lists."""
    operation = row.operation
    tone, text = replay_wording.replay_status(
        operation, owner=row.owner, runners=row.runners, now=now, blocked_by=row.blocked_by
    )
    needs_decision = operation.state == "ready" or (
        operation.state == "checking" and not operation.go_at_once
    )
    requested = row.request is not None and row.request.is_open
    if row.request is not None and requested and listed:
        tone, text = approval_wording.status(row.request, now)
    if not (needs_decision or full or listed):
        started = operation.started_at or operation.created_at
        recent = now - started < _SCROLL_WITHIN
        scroll_into_view(key=f"follow_{operation.operation_id}", enabled=recent, only_hidden=True)
    if needs_decision and not listed:
        dry_run.show(path, row, tone, text, scroll=not full)
    elif tone == "good" and not operation.ended:
        common.note(text)  # small, because the progress bar below shows the same
    else:
        common.message(tone, text)
    if row.request is not None and requested and operation.state == "paused" and not listed:
        approvals.show(path, row.request)
    run_replay_action.show_error(operation.operation_id)
    if operation.ended:
        _ended(path, operation, full=full)
        return
    if not row.runners:
        _command(path, row)
    if not needs_decision:
        _controls(path, row)
    if not full:
        text = "Review and decide" if needs_decision and listed else "Replay details"
        st.html(f'<p class="pc-note">{link(operation, text)}</p>')


def link(operation: Operation, text: str) -> str:
    """Return a link to the replay's page as HTML."""
    return common.link_element(text, replay_tables.address(operation.operation_id))


def _controls(path: Path, row: queries.ReplayRow) -> None:
    operation = row.operation
    _progress(row)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if operation.state == "paused":
            _resume(path, operation)
        elif operation.state in ("planned", "running"):
            _button(path, "Pause", "pause", ":material/pause:", operation, actions.pause_replay)
        if operation.state != "cancelled":
            _button(
                path, "Cancel", "cancel", ":material/close:", operation, actions.cancel_replay,
                help_text=f"Ends the replay permanently; unsent records remain dead letters ({operation.left:,} left).",
            )  # fmt: skip
        action_menu.draw(path, _codes(path, operation), key=f"replay_code_{operation.operation_id}")


def _codes(path: Path, operation: Operation) -> dict[str, ActionCode]:
    """Return the actions of the buttons as code."""
    one, codes = operation.operation_id, dict[str, ActionCode]()
    if operation.state == "paused":
        codes["Resume"] = action_code.resume(path, one, rate=st.session_state.get(f"rate_{one}"))
    elif operation.state in ("planned", "running"):
        codes["Pause"] = action_code.pause(path, one)
    return codes if operation.state == "cancelled" else {**codes, "Cancel": action_code.cancel(path, one)}


def _progress(row: queries.ReplayRow) -> None:
    operation = row.operation
    share = (operation.total - operation.left) / max(operation.total, 1)
    st.progress(min(max(share, 0.0), 1.0), text=replay_wording.progress(operation, row.pace))
    if canary := replay_wording.canary(operation):
        common.note(canary)


def _resume(path: Path, operation: Operation) -> None:
    key = f"rate_{operation.operation_id}"
    st.number_input(
        "Records per second", min_value=0.1, step=10.0, format="%g", value=operation.rate, key=key,
        placeholder="no limit", width=180,
        help="New maximum rate; leave empty to keep the current one.",
    )  # fmt: skip
    allowed, reason = actions.may_act(path)
    st.button(
        "Resume", key=f"resume_{operation.operation_id}", icon=":material/play_arrow:", type="primary",
        disabled=not allowed, help=reason or None, on_click=_resume_clicked,
        args=(path, operation.operation_id, key),
    )  # fmt: skip


def _resume_clicked(path: Path, operation_id: str, key: str) -> None:
    run_replay_action.act(path, operation_id, partial(actions.resume_replay, rate=st.session_state.get(key)))


def _button(
    path: Path,
    label: str,
    name: str,
    icon: str,
    operation: Operation,
    what: Callable[[Store, str], actions.ActionResult],
    *,
    help_text: str = "",
) -> None:
    allowed, reason = actions.may_act(path)
    st.button(
        label, key=f"{name}_{operation.operation_id}", icon=icon, disabled=not allowed,
        help=reason or help_text or None, on_click=run_replay_action.act,
        args=(path, operation.operation_id, what),
    )  # fmt: skip


def _command(path: Path, row: queries.ReplayRow) -> None:
    """Show the command that runs the replay, because no process on this store can run it."""
    if row.where is None:
        return
    common.note(replay_wording.REMEDIES["no_runner"])
    st.code(command(path, row.where), language=None, wrap_lines=True)


def command(path: Path, where: DeadLetterFilter, *, other_cluster: bool = False) -> str:
    """Return the shell command that replays these dead letters; it joins an existing replay of the same selection.

    With `other_cluster` it sends to a different cluster from the one they come from.
    """
    options = [*command_options(where), f"--store={path}"]
    to = " --to CLUSTER" if other_cluster else ""
    return f"producer-core dlq replay {shlex.join(options)}{to} --bootstrap-servers HOST:PORT"


def _ended(path: Path, operation: Operation, *, full: bool) -> None:
    uncertain = reads.doubtful(path, operation.operation_id)
    for sentence in replay_wording.follow_up(operation, len(uncertain), listed=queries.RECORDS):
        common.note(sentence)
    if uncertain:
        with st.expander(f"{_count(uncertain)} with unknown outcome, by message id"):
            replay_tables.uncertain(uncertain[: queries.RECORDS])
    if not full:
        st.html(f'<p class="pc-note">{link(operation, "Replay details")}</p>')


def _count(rows: Sequence[object]) -> str:
    return f"More than {queries.RECORDS:,}" if len(rows) > queries.RECORDS else f"{len(rows):,}"
