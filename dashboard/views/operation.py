"""One replay as it goes on: its progress, what may be done about it, and its outcome."""

from __future__ import annotations

import html
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard import actions, data, words
from dashboard.views import acted, common, dry_run, header, reading
from dashboard.words import replays as told
from producer_core.cli.selection import to_options
from producer_core.dlq import DeadLetterFilter
from producer_core.replay import Operation
from producer_core.store import Store


def show(path: Path, seen: data.Replay, now: float, *, full: bool = False) -> None:
    """How it stands and what may be done; `full` leaves out the link to the page where it is shown in full."""
    operation = seen.operation
    tone, text = told.standing(operation, owner=seen.owner, hands=seen.hands, now=now)
    if operation.state in ("checking", "ready"):
        dry_run.show(path, seen, tone, text)
    else:
        common.say(tone, text)
    acted.trouble(operation.operation_id)
    if operation.ended:
        _ended(path, operation, full=full)
        return
    if not seen.hands:
        _by_hand(path, seen)
    if operation.state not in ("checking", "ready"):
        _under_way(path, seen)
    if not full:
        st.html(f'<p class="pc-note">{link(operation, "All about this replay")}</p>')


def link(operation: Operation, text: str) -> str:
    """The address of a replay, as HTML."""
    return common.anchor(text, header.link("replays", operation=operation.operation_id))


def _under_way(path: Path, seen: data.Replay) -> None:
    operation = seen.operation
    share = (operation.total - operation.left) / max(operation.total, 1)
    st.progress(min(max(share, 0.0), 1.0), text=told.progress(operation, seen.pace))
    if first := told.canary(operation):
        common.note(first)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if operation.state == "paused":
            _resume(path, operation)
        elif operation.state in ("planned", "running"):
            _button(path, "Pause", "pause", ":material/pause:", operation, actions.pause_replay)
        if operation.state != "cancelled":
            left = words.plural(operation.left, "letter")
            _button(
                path, "Cancel", "cancel", ":material/close:", operation, actions.cancel_replay,
                more=f"Ends it for good. {left} that have no outcome yet stay dead letters.",
            )  # fmt: skip


def _resume(path: Path, operation: Operation) -> None:
    key = f"rate_{operation.operation_id}"
    st.number_input(
        "At most, a second", min_value=0.1, value=operation.rate, key=key, placeholder="no limit", width=150,
        help="The rate from now on. Left empty it stays as it is.",
    )  # fmt: skip
    allowed, why_not = actions.may_act()
    st.button(
        "Resume", key=f"resume_{operation.operation_id}", icon=":material/play_arrow:", type="primary",
        disabled=not allowed, help=why_not or None, on_click=_go_on, args=(path, operation.operation_id, key),
    )  # fmt: skip


def _go_on(path: Path, operation_id: str, key: str) -> None:
    acted.act(path, operation_id, partial(actions.resume_replay, rate=st.session_state.get(key)))


def _button(
    path: Path,
    label: str,
    name: str,
    icon: str,
    operation: Operation,
    what: Callable[[Store, str], actions.Done],
    *,
    more: str = "",
) -> None:
    allowed, why_not = actions.may_act()
    st.button(
        label, key=f"{name}_{operation.operation_id}", icon=icon, disabled=not allowed,
        help=why_not or more or None, on_click=acted.act,
        args=(path, operation.operation_id, what),
    )  # fmt: skip


def _by_hand(path: Path, seen: data.Replay) -> None:
    """What to do when no process can carry it out: the command that does, from here."""
    if seen.where is None:
        return
    common.note(
        "Start a producer on this store, and it is carried out at once. Or send from a shell that reaches the brokers:"
    )
    st.code(command(path, seen.where), language="shell", wrap_lines=True)


def command(path: Path, where: DeadLetterFilter) -> str:
    """What sends these letters from a shell; the same replay, where there is one of this selection."""
    options = [*to_options(where), f"--store={path}"]
    return f"producer-core dlq replay {shlex.join(options)} --bootstrap-servers HOST:PORT"


def _ended(path: Path, operation: Operation, *, full: bool) -> None:
    found = reading.doubtful(path, operation.operation_id)
    for sentence in told.afterwards(operation, len(found)):
        common.note(sentence)
    if found:
        with st.expander(f"{_number(found)} in doubt, by message id"):
            doubtful(found)
    if not full:
        st.html(f'<p class="pc-note">{link(operation, "All about this replay")}</p>')


def _number(found: Sequence[object]) -> str:
    return f"More than {data.RECORDS:,}" if len(found) > data.RECORDS else f"{len(found):,}"


def doubtful(found: Sequence[Mapping[str, Any]]) -> None:
    """Records of which nobody can say whether they are on their topic, by id."""
    rows = "".join(
        f"<tr><td>{common.anchor(row['message_id'], letter_address(row['message_id']))}</td>"
        f"<td>{html.escape(row['topic'])}</td><td>{html.escape(row['verdict'].replace('_', ' '))}</td></tr>"
        for row in found[: data.RECORDS]
    )
    head = "<tr><th>Message id</th><th>Topic</th><th>Verdict</th></tr>"
    st.html(f'<div class="pc-wide"><table class="pc-rows">{head}{rows}</table></div>')


def letter_address(message_id: str) -> str:
    """Where one letter is shown, in whatever state it is."""
    return records_address({"message_id": message_id, "state": "any", "letter": message_id})


def records_address(query: Mapping[str, str]) -> str:
    """The dead letters of a selection, without what else is looked at now."""
    nothing = dict.fromkeys(("range", "topic", "producer"), None)
    return header.link("dead-letters", **{**nothing, **query})
