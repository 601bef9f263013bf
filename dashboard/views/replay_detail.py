"""One replay as it goes on: its progress, what may be done about it, and its outcome."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from producer_core.dashboard import actions, queries, wording
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.scroll_into_view import bring
from producer_core.dashboard.views import common, dry_run, reads, replay_actions, replay_tables
from producer_core.dashboard.wording import replays as told
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.filter import command_options
from producer_core.replay import Operation
from producer_core.store import Store

_JUST_BEGUN = 15.0
"""Seconds after a click in which what it began may be brought into view."""


def show(
    path: Path, seen: queries.ReplayRow, now: float, *, full: bool = False, listed: bool = False
) -> None:
    """How it stands and what may be done. `full` leaves out the link to the page where all of it is shown, `listed` the
    dry run, which is one click away there."""
    operation = seen.operation
    tone, text = told.replay_status(
        operation, owner=seen.owner, runners=seen.runners, now=now, blocked_by=seen.blocked_by
    )
    asks = operation.state == "ready" or (operation.state == "checking" and not operation.go_at_once)
    if not (asks or full or listed):
        begun = operation.started_at or operation.created_at
        bring(key=f"follow_{operation.operation_id}", go=now - begun < _JUST_BEGUN, hidden=True)
    if asks and not listed:
        dry_run.show(path, seen, tone, text, comes_into_view=not full)
    elif tone == "good" and not operation.ended:
        common.note(text)  # the bar below says it louder
    else:
        common.say(tone, text)
    replay_actions.trouble(operation.operation_id)
    if operation.ended:
        _ended(path, operation, full=full)
        return
    if not seen.runners:
        _by_hand(path, seen)
    if not asks:
        _under_way(path, seen)
    if not full:
        more = "See what it would do, and decide" if asks and listed else "All about this replay"
        st.html(f'<p class="pc-note">{link(operation, more)}</p>')


def link(operation: Operation, text: str) -> str:
    """The address of a replay, as HTML."""
    return common.anchor(text, replay_tables.address(operation.operation_id))


def _under_way(path: Path, seen: queries.ReplayRow) -> None:
    operation = seen.operation
    if operation.state != "checking":
        _progress(seen)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if operation.state == "paused":
            _resume(path, operation)
        elif operation.state in ("planned", "running"):
            _button(path, "Pause", "pause", ":material/pause:", operation, actions.pause_replay)
        if operation.state != "cancelled":
            left = wording.plural(operation.left, "dead letter")
            _button(
                path, "Cancel", "cancel", ":material/close:", operation, actions.cancel_replay,
                more=f"Ends it for good. {left} that have no outcome yet stay dead letters.",
            )  # fmt: skip


def _progress(seen: queries.ReplayRow) -> None:
    operation = seen.operation
    share = (operation.total - operation.left) / max(operation.total, 1)
    st.progress(min(max(share, 0.0), 1.0), text=told.progress(operation, seen.pace))
    if first := told.canary(operation):
        common.note(first)


def _resume(path: Path, operation: Operation) -> None:
    key = f"rate_{operation.operation_id}"
    st.number_input(
        "At most, a second", min_value=0.1, step=10.0, format="%g", value=operation.rate, key=key,
        placeholder="no limit", width=180,
        help="The rate from now on. Left empty it stays as it is.",
    )  # fmt: skip
    allowed, why_not = actions.may_act()
    st.button(
        "Resume", key=f"resume_{operation.operation_id}", icon=":material/play_arrow:", type="primary",
        disabled=not allowed, help=why_not or None, on_click=_go_on, args=(path, operation.operation_id, key),
    )  # fmt: skip


def _go_on(path: Path, operation_id: str, key: str) -> None:
    replay_actions.act(path, operation_id, partial(actions.resume_replay, rate=st.session_state.get(key)))


def _button(
    path: Path,
    label: str,
    name: str,
    icon: str,
    operation: Operation,
    what: Callable[[Store, str], actions.ActionResult],
    *,
    more: str = "",
) -> None:
    allowed, why_not = actions.may_act()
    st.button(
        label, key=f"{name}_{operation.operation_id}", icon=icon, disabled=not allowed,
        help=why_not or more or None, on_click=replay_actions.act,
        args=(path, operation.operation_id, what),
    )  # fmt: skip


def _by_hand(path: Path, seen: queries.ReplayRow) -> None:
    """What to do when no process can carry it out: the command that does, from here."""
    if seen.where is None:
        return
    common.note(told.REMEDIES["no_runner"])
    st.code(command(path, seen.where), language=None, wrap_lines=True)


def command(path: Path, where: DeadLetterFilter, *, other: bool = False) -> str:
    """What sends these dead letters from a shell; the same replay, where there is one of this selection. `other`: to another
    cluster than theirs."""
    options = [*command_options(where), f"--store={path}"]
    to = " --to CLUSTER" if other else ""
    return f"producer-core dlq replay {shlex.join(options)}{to} --bootstrap-servers HOST:PORT"


def _ended(path: Path, operation: Operation, *, full: bool) -> None:
    found = reads.doubtful(path, operation.operation_id)
    for sentence in told.follow_up(operation, len(found)):
        common.note(sentence)
    if found:
        with st.expander(f"{_number(found)} in doubt, by message id"):
            live_table.style()
            replay_tables.doubtful(found[: queries.RECORDS])
    if not full:
        st.html(f'<p class="pc-note">{link(operation, "All about this replay")}</p>')


def _number(found: Sequence[object]) -> str:
    return f"More than {queries.RECORDS:,}" if len(found) > queries.RECORDS else f"{len(found):,}"
