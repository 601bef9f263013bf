"""The buttons over the dead letters, and how what they did went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import streamlit as st

from dashboard import actions, data, words
from dashboard.stores import opened
from dashboard.views import common, reading
from producer_core.dlq import DeadLetterFilter
from producer_core.errors import StoreError
from producer_core.masking import mask_text
from producer_core.store import Store


def version() -> int:
    """Rises with each act, so that the list drops a selection whose letters are about to go."""
    return int(st.session_state.get("letters_version", 0))


def bar(path: Path, page: data.DeadLetterPage, scope: data.Scope) -> None:
    """Replay and Clear, with the number of letters they mean; then the last act in words.

    Acts are callbacks: they run before the page is drawn again, so a click is never lost to a refresh that
    begins at the same moment, and it means what was on the button when it was pressed.
    """
    why_not = words.why_no_replay(page.where.state, scope.count, page.runners)
    with st.container(horizontal=True, vertical_alignment="center"):
        label = words.act("Replay", scope.count if why_not is None else 0)
        st.button(
            label, key="replay", type="primary", icon=":material/replay:", disabled=why_not is not None,
            on_click=_replay, args=(path, scope),
        )  # fmt: skip
        _clear_button(path, page, scope)
        if why_not is not None and scope.count:
            st.text(why_not)
    asked: Asked | None = st.session_state.get("asked")
    if asked is not None and asked.selection == _selection(scope) and why_not is None:
        _ask(path, asked.scope)
    _result(path)


class Asked(NamedTuple):
    """What a person was asked about: the selection as it is on the page, and its letters as they were shown."""

    selection: DeadLetterFilter
    scope: data.Scope


def _selection(scope: data.Scope) -> DeadLetterFilter:
    """What is chosen, whenever it was looked at."""
    return replace(scope.about, until=None)


def _replay(path: Path, scope: data.Scope) -> None:
    """At once where every verdict is safe and there are few; else what will be done is shown first, frozen."""
    if scope.safe and scope.count <= actions.AT_ONCE:
        _do(path, lambda store: actions.start_replay(store, scope.about))
    else:
        st.session_state["asked"] = Asked(_selection(scope), scope)


def _clear_button(path: Path, page: data.DeadLetterPage, scope: data.Scope) -> None:
    if page.where.state == "archived":
        st.button(
            words.act("Restore", scope.count), key="restore", disabled=not scope.count,
            on_click=_restore, args=(path, scope.about),
        )  # fmt: skip
        return
    dead = page.where.state == "dead"
    st.button(
        words.act("Clear", scope.count if dead else 0), key="clear", icon=":material/archive:",
        disabled=not dead or not scope.count, on_click=_clear, args=(path, scope.about),
        help="Puts them into the archive. Nothing is deleted; Undo brings them back.",
    )  # fmt: skip


def _ask(path: Path, scope: data.Scope) -> None:
    """What will be done, before it is done: where a resend might write a second copy, or there are many."""
    with st.container(border=True):
        st.text(f"Before {words.plural(scope.count, 'letter')} are sent again:")
        for verdict, count in scope.verdicts.items():
            common.note(f"{count:,} {verdict.replace('_', ' ')}: {words.VERDICTS.get(verdict, '')}")
        with st.container(horizontal=True):
            st.button(
                f"Replay {scope.count:,} now", key="replay_sure", type="primary",
                on_click=_replay_asked, args=(path, scope.about),
            )  # fmt: skip
            st.button("Leave them", key="replay_not", on_click=_leave)


def _replay_asked(path: Path, about: DeadLetterFilter) -> None:
    _do(path, lambda store: actions.start_replay(store, about))


def _leave() -> None:
    st.session_state.pop("asked", None)


def _clear(path: Path, about: DeadLetterFilter) -> None:
    _do(path, lambda store: actions.clear(store, about))


def _restore(path: Path, about: DeadLetterFilter) -> None:
    _do(path, lambda store: actions.restore(store, about))


def _undo(path: Path, undo: tuple[DeadLetterFilter, float]) -> None:
    _do(path, lambda store: actions.undo_clear(store, undo))


def _cancel(path: Path, operation_id: str) -> None:
    cancelled = actions.cancel_replay(opened(path), operation_id)
    st.session_state["done"] = replace(cancelled, operation_id=operation_id)


def _do(path: Path, act: Callable[[Store], actions.Done]) -> None:
    """Act, remember how it went, and drop the selection."""
    try:
        done = act(opened(path))
    except StoreError as error:
        done = actions.Done(False, str(error))
    reading.again()
    st.session_state["done"] = done
    st.session_state.pop("asked", None)
    st.session_state["letters_version"] = version() + 1


def _result(path: Path) -> None:
    """The last act in words; a replay as it goes on."""
    done: actions.Done | None = st.session_state.get("done")
    if done is None:
        _others(path)
        return
    if done.operation_id is not None and done.ok:
        _follow(path, done.operation_id)
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        common.say("good" if done.ok else "bad", mask_text(done.text))
        if done.undo is not None:
            st.button("Undo", key="undo", icon=":material/undo:", on_click=_undo, args=(path, done.undo))


def _others(path: Path) -> None:
    """A replay that goes on, begun before this page was opened, or by somebody else."""
    for operation in data.operations(opened(path), limit=1):
        if not operation.ended:
            st.session_state["done"] = actions.Done(True, "", operation.operation_id)
            _follow(path, operation.operation_id)


def _follow(path: Path, operation_id: str) -> None:
    operation = actions.follow(opened(path), operation_id)
    if operation.ended:
        good = not operation.failed_again and not operation.skipped
        common.say("good" if good else "warning", mask_text(operation.message or "Done."))
        return
    settled = operation.total - operation.left
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(settled / max(operation.total, 1), text=f"Replaying: {settled:,} of {operation.total:,}")
        st.button("Cancel", key="cancel_replay", on_click=_cancel, args=(path, operation_id))
