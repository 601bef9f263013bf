"""The dead letters: find them, look inside one, choose some."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from dashboard import actions, data, words
from dashboard.letter_list import Row, letter_list
from dashboard.stores import opened
from dashboard.views import acting, common, header, letter, reading
from producer_core.dlq import DeadLetterFilter, Group
from producer_core.dlq.filter import STATES
from producer_core.events import DeadLetter

_ANY = "any"
_REFRESH = 2.0
_COLUMNS = ("Failed, UTC", "Topic", "Key", "Error", "Verdict", "Replays", "Text")


def show(path: Path) -> None:
    header.title("Dead letters")
    where = _filters(path)
    st.fragment(_live, run_every=_REFRESH)(path, where)


def _filters(path: Path) -> DeadLetterFilter:
    state = st.session_state.get("state", STATES[0])
    topics, codes = st.session_state["choices"] = reading.choices(path, state)
    with st.grid(5, gap="small", min_column_width=150):
        topic = _choice("Topic", topics, "topic")
        code = _choice("Error", codes, "code")
        verdict = _choice("Verdict", tuple(words.VERDICTS), "verdict")
        state = st.selectbox("State", STATES, key="state", bind="query-params")
        text = st.text_input("Error text contains", key="text", bind="query-params")
    return DeadLetterFilter(topic=topic, code=code, verdict=verdict, state=state, text=text or None)


def _choice(label: str, options: tuple[str, ...], key: str) -> str | None:
    """Any, or one of the options; one that was chosen stays on offer when its last letter is gone."""
    kept = st.session_state.get(key) or st.query_params.get(key)
    known = options if kept in (None, _ANY) or kept in options else (*options, kept)
    chosen = st.selectbox(label, (_ANY, *known), key=key, bind="query-params")
    return None if chosen == _ANY else chosen


def _live(path: Path, where: DeadLetterFilter) -> None:
    with common.panel(path):
        _draw(path, reading.dead_letters(path, where))
        if reading.choices(path, where.state or STATES[0]) != st.session_state["choices"]:
            st.rerun()  # last, because what it interrupts is not drawn


def _draw(path: Path, page: data.DeadLetterPage) -> None:
    """The buttons stand above the list, so they are filled when the list has said what is chosen in it."""
    buttons = st.container()
    chosen = letter_list(
        _COLUMNS,
        [_row(item) for item in page.letters],
        key="letters",
        version=acting.version(),
        alt="Dead letters, the latest first",
    )
    _below(page)
    with buttons:
        acting.bar(path, page, data.scope(opened(path), actions.selected(page.seen, chosen.ids)))
    if chosen.open is not None:
        letter.show(opened(path), chosen.open)
    _groups(page.groups, time.time())


def _below(page: data.DeadLetterPage) -> None:
    if not page.total:
        common.note(words.none_match(page.where.state))
    elif page.total > len(page.letters):
        common.note(
            f"The latest {len(page.letters):,} of {page.total:,}. Without a selection the buttons mean all {page.total:,}."
        )


def _row(item: DeadLetter) -> Row:
    key = letter.key_of(item.key) if item.key is not None else ""
    cells = (
        words.moment(item.failed_at),
        item.topic,
        key,
        item.code,
        item.verdict.replace("_", " "),
        str(item.replay_count or ""),
        letter.masked(item.error_text),
    )
    return Row(item.message_id, cells)


def _groups(groups: tuple[Group, ...], now: float) -> None:
    """By cause: what it means and what to do, once for all letters that share it."""
    if not groups:
        return
    common.heading("Causes")
    for group in groups:
        seen = words.age(now - group.last_seen)
        common.fact(
            f"{group.count:,} × {group.code} on {', '.join(group.topics)}, last {seen} ago",
            f"{group.meaning} {group.advice}".strip() or letter.masked(group.sample_text),
        )
