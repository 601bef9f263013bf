"""The filters over the dead letters: one control for every field of a DeadLetterFilter, each written into the address."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core.dashboard import queries, wording
from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery
from producer_core.dashboard.views import common, dead_letter_reads, dead_letter_url, reads
from producer_core.dashboard.wording import dead_letters as said
from producer_core.dlq.filter import STATES

_ANY = "any"
_CUSTOM = wording.CUSTOM
_MORE = ("text", "body", "key", "message_id", "ids", "cluster_id", "producer_id", "group")


def show(path: Path, asked: DeadLetterQuery) -> None:
    where = asked.where
    topics, codes = st.session_state["choices"] = dead_letter_reads.choices(path, where.state)
    with st.grid(6, gap="small", min_column_width=150):
        _choice("Topic", "All topics", topics, "topic", where.topic)
        _choice("Error", "All errors", codes, "code", where.code)
        _choice("Verdict", "All verdicts", tuple(wording.VERDICTS), "verdict", where.verdict, _plain)
        _state(where.state)
        _died(asked)
        used = sum(getattr(where, name) not in (None, ()) for name in _MORE)
        with st.popover(
            "More filters",
            icon=":material/filter_alt:",
            width="stretch",
            type="primary" if used else "secondary",
        ):
            _more(path, asked)
    if asked.span is None and (where.since is not None or where.until is not None):
        _between(where.since, where.until)
    _in_words(asked)


def _in_words(asked: DeadLetterQuery) -> None:
    """Always there, so that nothing moves when a filter is chosen."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", height=40, border=False):
        common.note(
            said.filtered(asked.where, asked.span, common.zone())
            if asked.narrow
            else "Everything that waits for a decision."
        )
        if asked.narrow:
            st.button(
                "Show all that wait", key="letters_all", type="tertiary", on_click=dead_letter_url.everything
            )


def _more(path: Path, asked: DeadLetterQuery) -> None:
    where = asked.where
    with st.grid(2, gap="small", min_column_width=190):
        _text("Error text contains", "text", where.text)
        _text(
            "Value, key or headers contain", "body", where.body,
            "A bounded search without an index: it says how far it looked. Bytes as 0x00ff.",
        )  # fmt: skip
        _text("Key is", "key", where.key, "Compared whole; bytes as 0x00ff, 0x is the empty key.")
        _text("Message id is", "message_id", where.message_id)
        _choice(
            "Cluster", "All clusters", dead_letter_reads.clusters(path), "cluster_id", where.cluster_id
        )  # fmt: skip
        names = reads.producers(path)
        _choice(
            "Producer", "All producers", tuple(names), "producer_id", where.producer_id, lambda one: names.get(one, one)
        )  # fmt: skip
        _text("Cause is (its fingerprint)", "group", where.group)
        _ids(where.ids)


def _choice(
    label: str,
    every: str,
    options: Sequence[str],
    name: str,
    value: str | None,
    shown: Callable[[str], str] = str,
) -> None:
    """One that was chosen stays on offer when its last dead letter is gone."""
    known = (*options, value) if value is not None and value not in options else options
    _set(name, value)
    st.selectbox(
        label, known, index=None, placeholder=every, key=_key(name), on_change=_chosen, args=(name,), format_func=shown,
        label_visibility="visible" if name in _MORE else "collapsed",
    )  # fmt: skip


def _state(value: str | None) -> None:
    _set("state", value or _ANY)
    st.selectbox(
        "State", (*STATES, _ANY), key=_key("state"), on_change=_chosen, args=("state",),
        format_func=lambda state: f"State: {state}", label_visibility="collapsed",
    )  # fmt: skip


def _died(asked: DeadLetterQuery) -> None:
    own = asked.where.since is not None or asked.where.until is not None
    _set("span", _CUSTOM if own and asked.span is None else asked.span)
    st.selectbox(
        "Died in the last", (*queries.RANGES, _CUSTOM), index=None, placeholder="Died at any time", key=_key("span"),
        on_change=_span_chosen, format_func=lambda span: span if span == _CUSTOM else f"Last {span}", label_visibility="collapsed",
    )  # fmt: skip


def _between(since: float | None, until: float | None) -> None:
    """A beginning and an end, in the viewer's time; either may be open."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        for name, label, at in (("since", "Died at or after", since), ("until", "Died before", until)):
            _set(name, _minute(at))
            st.datetime_input(
                label, value=None, key=_key(name), format="YYYY-MM-DD", step=timedelta(minutes=1), width=230,
                on_change=_moved, args=(since, until, name),
            )  # fmt: skip


def _text(label: str, name: str, value: str | None, more: str | None = None) -> None:
    _set(name, value or "")
    st.text_input(label, key=_key(name), on_change=_chosen, args=(name,), help=more)


def _ids(ids: tuple[str, ...]) -> None:
    _set("ids", "\n".join(ids))
    st.text_area(
        "Message ids, one a line", key=_key("ids"), height=68, on_change=_chosen, args=("ids",),
        help="«Show only these» under a selection writes them here, so that it can be shared.",
    )  # fmt: skip


# what a control does: the callback runs first, and the page is drawn from the address


def _chosen(name: str) -> None:
    dead_letter_url.narrow(**{name: _meant(name, st.session_state[_key(name)])})


def _meant(name: str, given: Any) -> Any:
    """What a control's value means in the filter."""
    if name == "ids":
        return tuple(dict.fromkeys(filter(None, (one.strip() for one in re.split(r"[\n,]", given or "")))))
    return None if given in (None, "", _ANY) else given


def _span_chosen() -> None:
    span = st.session_state[_key("span")]
    if span == _CUSTOM:
        dead_letter_url.custom()
    else:
        dead_letter_url.during(span)


def _minute(at: float | None) -> datetime | None:
    """As the control has it: it knows no seconds, and reports a time that has some as another one."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, wording.zone_of(common.zone())).replace(
        second=0, microsecond=0, tzinfo=None
    )


def _moved(since: float | None, until: float | None, name: str) -> None:
    given = st.session_state[_key(name)]
    if given == _minute({"since": since, "until": until}[name]):
        return  # the seconds that the address has stay
    at = None if given is None else given.replace(tzinfo=wording.zone_of(common.zone())).timestamp()
    ends = {"since": since, "until": until, name: at}
    dead_letter_url.between(ends["since"], ends["until"])


def _key(name: str) -> str:
    return f"letters_{name}"


def _set(name: str, value: Any) -> None:
    """What the address says goes into the control, each time: one in a popover is made anew when that opens."""
    st.session_state[_key(name)] = value


def _plain(verdict: str) -> str:
    return verdict.replace("_", " ")
