"""The buttons over the dead letters, and how what they did went."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import streamlit as st

from dashboard import actions, data, words
from dashboard.stores import opened
from dashboard.views import common, reading


def version() -> int:
    """Rises with each act, so that the list drops a selection whose letters are about to go."""
    return int(st.session_state.get("letters_version", 0))


def bar(path: Path, page: data.DeadLetterPage, scope: data.Scope) -> None:
    """Replay and Clear, with the number of letters they mean; then the last act in words."""
    why_not = words.why_no_replay(page.where.state, scope.count, page.runners)
    with st.container(horizontal=True, vertical_alignment="center"):
        _replay(path, scope, why_not)
        _clear(path, page, scope)
        if why_not is not None and scope.count:
            st.text(why_not)
    if st.session_state.get("asked") == scope.about and why_not is None:
        _ask(path, scope)
    _result(path)


def _replay(path: Path, scope: data.Scope, why_not: str | None) -> None:
    label = words.act("Replay", scope.count if why_not is None else 0)
    if not st.button(
        label, key="replay", type="primary", icon=":material/replay:", disabled=why_not is not None
    ):
        return
    if scope.safe and scope.count <= actions.AT_ONCE:
        _finish(actions.start_replay(opened(path), scope.about))
    st.session_state["asked"] = scope.about


def _clear(path: Path, page: data.DeadLetterPage, scope: data.Scope) -> None:
    if page.where.state == "archived":
        if st.button(words.act("Restore", scope.count), key="restore", disabled=not scope.count):
            _finish(actions.restore(opened(path), scope.about))
        return
    dead = page.where.state == "dead"
    label = words.act("Clear", scope.count if dead else 0)
    if st.button(
        label, key="clear", icon=":material/archive:", disabled=not dead or not scope.count,
        help="Puts them into the archive. Nothing is deleted; Undo brings them back.",
    ):  # fmt: skip
        _finish(actions.clear(opened(path), scope.about))


def _ask(path: Path, scope: data.Scope) -> None:
    """What will be done, before it is done: where a resend might write a second copy, or there are many."""
    with st.container(border=True):
        st.text(f"Before {words.plural(scope.count, 'letter')} are sent again:")
        for verdict, count in scope.verdicts.items():
            common.note(f"{count:,} {verdict.replace('_', ' ')}: {words.VERDICTS.get(verdict, '')}")
        with st.container(horizontal=True):
            if st.button(f"Replay {scope.count:,} now", key="replay_sure", type="primary"):
                _finish(actions.start_replay(opened(path), scope.about))
            if st.button("Leave them", key="replay_not"):
                st.session_state.pop("asked", None)
                st.rerun(scope="fragment")


def _finish(done: actions.Done) -> None:
    """Remember how it went, drop the selection, and draw again."""
    reading.again()
    st.session_state["done"] = done
    st.session_state.pop("asked", None)
    st.session_state["letters_version"] = version() + 1
    st.rerun(scope="fragment")


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
        common.say("good" if done.ok else "bad", done.text)
        if done.undo is not None and st.button("Undo", key="undo", icon=":material/undo:"):
            _finish(actions.undo_clear(opened(path), done.undo))


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
        common.say("good" if good else "warning", operation.message or "Done.")
        return
    settled = operation.total - operation.left
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(settled / max(operation.total, 1), text=f"Replaying: {settled:,} of {operation.total:,}")
        if st.button("Cancel", key="cancel_replay"):
            cancelled = actions.cancel_replay(opened(path), operation_id)
            st.session_state["done"] = replace(cancelled, operation_id=operation_id)
