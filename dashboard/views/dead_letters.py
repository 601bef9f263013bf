"""The dead letters: find them, look inside one, replay or clear them."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard import actions, data, words
from dashboard.stores import opened
from dashboard.views import letter
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.filter import STATES

_ANY = "any"


def show(path: Path) -> None:
    st.subheader("Dead letters", anchor="dead-letters")
    where = _filters(path)
    st.fragment(_live, run_every=2 if st.session_state.get("live", True) else None)(path, where)


def _filters(path: Path) -> DeadLetterFilter:
    state = st.session_state.get("state", "dead")
    choices = data.dead_letters(opened(path), DeadLetterFilter(state=state), time.time())
    with st.grid(5, gap="small", min_column_width=150):
        topic = _choice("Topic", choices.topics, "topic")
        code = _choice("Error", choices.codes, "code")
        verdict = _choice("Verdict", tuple(words.VERDICTS), "verdict")
        state = st.selectbox("State", STATES, key="state", bind="query-params")
        text = st.text_input("Error text contains", key="text", bind="query-params")
    return DeadLetterFilter(topic=topic, code=code, verdict=verdict, state=state, text=text or None)


def _choice(label: str, options: tuple[str, ...], key: str) -> str | None:
    kept = st.session_state.get(key)
    known = options if kept in (None, _ANY) or kept in options else (*options, kept)
    chosen = st.selectbox(label, (_ANY, *known), key=key, bind="query-params")
    return None if chosen == _ANY else chosen


def _live(path: Path, where: DeadLetterFilter) -> None:
    store = opened(path)
    page = data.dead_letters(store, where, time.time())
    table = _frozen(page, where)
    ids = _table(table)
    about = actions.selected(where, ids)
    number = len(ids) or page.total
    _buttons(path, page, about, number)
    _progress(path)
    _groups(page)
    if len(ids) == 1:
        letter.show(store, ids[0])


def _frozen(page: data.DeadLetterPage, where: DeadLetterFilter) -> data.DeadLetterPage:
    """While rows are selected the list stands still, so that a row stays the letter it was when it was chosen."""
    kept: data.DeadLetterPage | None = st.session_state.get("letters_page")
    rows = st.session_state.get(_table_key(where), {}).get("selection", {}).get("rows", [])
    if rows and kept is not None and kept.where == where:
        newer = page.total - kept.total
        if newer:
            st.caption(f"The list stands still while rows are selected; {newer:+,} since then.")
        return kept
    st.session_state["letters_page"] = page
    return page


def _table_key(where: DeadLetterFilter) -> str:
    return f"letters-{st.session_state.get('letters_version', 0)}-{hash(where)}"


def _table(page: data.DeadLetterPage) -> tuple[str, ...]:
    """The listing; the ids of the rows that are selected."""
    if not page.letters:
        st.info(
            f"No {page.where.state or ''} letters match. What cannot be delivered appears here within seconds."
        )
        return ()
    event = st.dataframe(
        [_row(item) for item in page.letters],
        key=_table_key(page.where),
        on_select="rerun",
        selection_mode="multi-row",
        hide_index=True,
        height=min(36 * (len(page.letters) + 1) + 2, 330),
        column_config={"failed": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss")},
        alt="Dead letters, the latest first",
    )
    if page.total > len(page.letters):
        st.caption(
            f"The latest {len(page.letters):,} of {page.total:,}. Acts without a selection are about all of them."
        )
    return tuple(page.letters[row].message_id for row in event.selection.rows if row < len(page.letters))


def _row(item: Any) -> dict[str, Any]:
    return {
        "failed": datetime.fromtimestamp(item.failed_at, UTC),
        "topic": item.topic,
        "error": item.code,
        "verdict": item.verdict,
        "replays": item.replay_count,
        "text": item.error_text,
        "id": item.message_id,
    }


def _buttons(path: Path, page: data.DeadLetterPage, about: DeadLetterFilter, number: int) -> None:
    store, dead = opened(path), page.where.state == "dead"
    why_not = _why_not(page, number)
    with st.container(horizontal=True):
        replay = st.button(
            words.act("Replay", number if dead else 0), key="replay", type="primary", icon=":material/replay:",
            disabled=why_not is not None, help=why_not,
        )  # fmt: skip
        clear = st.button(
            words.act("Clear", number if dead else 0), key="clear", icon=":material/archive:",
            disabled=not dead or not number, help="Put aside; nothing is deleted and Undo brings it back.",
        )  # fmt: skip
        back = page.where.state == "archived" and st.button(
            words.act("Restore", number), key="restore", icon=":material/unarchive:", disabled=not number
        )
    if clear:
        _finish(actions.clear(store, about))
    if back:
        _finish(actions.restore(store, about))
    if replay and page.safe and number <= actions.AT_ONCE:
        _finish(actions.start_replay(store, about))
    elif replay:
        st.session_state["asked"] = about
    if st.session_state.get("asked") == about:
        _ask(path, page, about, number)


def _why_not(page: data.DeadLetterPage, number: int) -> str | None:
    if page.where.state != "dead":
        return "Only letters in the state dead can be replayed."
    if not number:
        return "Nothing matches."
    if not page.runners:
        return "No process that could send them is alive: start a producer on this store."
    return None


def _ask(path: Path, page: data.DeadLetterPage, about: DeadLetterFilter, number: int) -> None:
    """What will be done, before it is done: where a resend might write a second copy, or there are many."""
    with st.container(border=True):
        st.markdown(f"**Before {number:,} letters are replayed**")
        for verdict, count in page.verdicts.items():
            st.text(f"{count:,} {verdict}: {words.VERDICTS.get(verdict, '')}")
        with st.container(horizontal=True):
            if st.button(f"Replay {number:,} now", key="replay_sure", type="primary"):
                _finish(actions.start_replay(opened(path), about))
            if st.button("Leave them", key="replay_not"):
                st.session_state.pop("asked", None)
                st.rerun(scope="fragment")


def _finish(done: actions.Done) -> None:
    """Remember how it went, drop the selection (its rows are about to go), and draw again."""
    st.session_state["done"] = done
    st.session_state.pop("asked", None)
    st.session_state["letters_version"] = st.session_state.get("letters_version", 0) + 1
    st.rerun(scope="fragment")


def _progress(path: Path) -> None:
    """The last act in words; a replay as it goes on."""
    done: actions.Done | None = st.session_state.get("done")
    if done is None:
        return
    if done.operation_id is not None and done.ok:
        _follow(path, done.operation_id)
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        (st.success if done.ok else st.error)(words.escaped(done.text), width="stretch")
        if done.undo is not None and st.button("Undo", key="undo", icon=":material/undo:"):
            _finish(actions.undo_clear(opened(path), done.undo))


def _follow(path: Path, operation_id: str) -> None:
    operation = actions.follow(opened(path), operation_id)
    if operation.ended:
        good = not operation.failed_again and not operation.skipped
        (st.success if good else st.warning)(words.escaped(operation.message or "Done."))
        return
    settled = operation.total - operation.left
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(settled / max(operation.total, 1), text=f"Replaying: {settled:,} of {operation.total:,}")
        if st.button("Cancel", key="cancel_replay"):
            st.session_state["done"] = replace(
                actions.cancel_replay(opened(path), operation_id), operation_id=operation_id
            )


def _groups(page: data.DeadLetterPage) -> None:
    if not page.groups:
        return
    with st.expander(f"Causes: {len(page.groups)}", expanded=False):
        for group in page.groups:
            seen = words.age(page_now() - group.last_seen)
            st.text(f"{group.count:,} x {group.code} on {', '.join(group.topics)}, last {seen} ago")
            st.caption(words.escaped(f"{group.meaning} {group.advice}"))


def page_now() -> float:
    return time.time()
