"""Draw the filters of the dead letters page: one control for each field of DeadLetterFilter, stored in the URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core.dashboard import queries, wording
from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery
from producer_core.dashboard.queries.view import NO_APPLICATION
from producer_core.dashboard.views import common, dead_letter_reads, dead_letter_url, reads
from producer_core.dashboard.wording import dead_letters as dead_letter_wording
from producer_core.dlq.filter import STATES

_ANY = "any"
_CUSTOM = wording.CUSTOM
_MORE = ("text", "body", "key", "message_id", "ids", "cluster_id", "application", "producer_id", "group")


def show(path: Path, query: DeadLetterQuery) -> None:
    where = query.where
    topics, codes = st.session_state["choices"] = dead_letter_reads.choices(path, where.state)
    with st.grid(6, gap="small", min_column_width=150):
        _select("Topic", "All topics", topics, "topic", where.topic)
        _select("Error", "All errors", codes, "code", where.code)
        _select("Verdict", "All verdicts", tuple(wording.VERDICTS), "verdict", where.verdict, _spaced)
        _state(where.state)
        _time_range(query)
        used = sum(getattr(where, name) not in (None, ()) for name in _MORE)
        with st.popover(
            "More filters",
            icon=":material/filter_alt:",
            width="stretch",
            type="primary" if used else "secondary",
        ):
            _more(path, query)
    if query.span is None and (where.since is not None or where.until is not None):
        _custom_range(where.since, where.until)
    _summary(query)


def _summary(query: DeadLetterQuery) -> None:
    """Describe the filters. The line always has the same height, so that nothing moves when a filter changes."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", height=40, border=False):
        common.note(
            dead_letter_wording.filtered(query.where, query.span, common.zone())
            if query.narrow
            else "Showing all pending dead letters."
        )
        if query.narrow:
            st.button(
                "Show all pending",
                key="dead_letters_all",
                type="tertiary",
                on_click=dead_letter_url.clear_filters,
            )


def _more(path: Path, query: DeadLetterQuery) -> None:
    where = query.where
    with st.grid(2, gap="small", min_column_width=190):
        _text("Error text contains", "text", where.text)
        _text(
            "Message contains", "body", where.body,
            "Searches value, key and headers incrementally. Enter bytes as 0x00ff.",
        )  # fmt: skip
        _text("Key is", "key", where.key, "Exact match. Enter bytes as 0x00ff; 0x is the empty key.")
        _text("Message id is", "message_id", where.message_id)
        _select(
            "Cluster", "All clusters", dead_letter_reads.clusters(path), "cluster_id", where.cluster_id
        )  # fmt: skip
        _select(
            "Application", "All applications", dead_letter_reads.applications(path), "application", where.application,
            lambda one: one or NO_APPLICATION,
        )  # fmt: skip
        names = reads.producers(path)
        _select(
            "Producer", "All producers", tuple(names), "producer_id", where.producer_id, lambda one: names.get(one, one)
        )  # fmt: skip
        _text("Group (fingerprint)", "group", where.group)
        _ids(where.ids)


def _select(
    label: str,
    every: str,
    options: Sequence[str],
    name: str,
    value: str | None,
    format_option: Callable[[str], str] = str,
) -> None:
    """Draw a filter. The selected option remains available after its last dead letter has disappeared."""
    known = (*options, value) if value is not None and value not in options else options
    _set(name, value)
    st.selectbox(
        label, known, index=None, placeholder=every, key=_key(name), on_change=_changed, args=(name,),
        format_func=format_option, label_visibility="visible" if name in _MORE else "collapsed",
    )  # fmt: skip


def _state(value: str | None) -> None:
    _set("state", value or _ANY)
    st.selectbox(
        "State", (*STATES, _ANY), key=_key("state"), on_change=_changed, args=("state",),
        format_func=lambda state: f"State: {'pending' if state == 'dead' else state}", label_visibility="collapsed",
    )  # fmt: skip


def _time_range(query: DeadLetterQuery) -> None:
    custom = query.where.since is not None or query.where.until is not None
    _set("span", _CUSTOM if custom and query.span is None else query.span)
    st.selectbox(
        "Failed in the last", (*queries.RANGES, _CUSTOM), index=None, placeholder="Failed at any time", key=_key("span"),
        on_change=_span_changed, format_func=lambda span: span if span == _CUSTOM else f"Last {span}",
        label_visibility="collapsed",
    )  # fmt: skip


def _custom_range(since: float | None, until: float | None) -> None:
    """Draw the fields for start and end in the browser's time zone; either can be empty."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        for name, label, at in (("since", "Failed at or after", since), ("until", "Failed before", until)):
            _set(name, _whole_minute(at))
            st.datetime_input(
                label, value=None, key=_key(name), format="YYYY-MM-DD", step=timedelta(minutes=1), width=230,
                on_change=_range_changed, args=(since, until, name),
            )  # fmt: skip


def _text(label: str, name: str, value: str | None, help_text: str | None = None) -> None:
    _set(name, value or "")
    st.text_input(label, key=_key(name), on_change=_changed, args=(name,), help=help_text)


def _ids(ids: tuple[str, ...]) -> None:
    _set("ids", "\n".join(ids))
    st.text_area(
        "Message ids", key=_key("ids"), height=68, on_change=_changed, args=("ids",),
        help="One id per line. “Show only these” fills in the selection.",
    )  # fmt: skip


# Callbacks of the controls: they change the URL, from which the page is then drawn.


def _changed(name: str) -> None:
    dead_letter_url.narrow(**{name: _filter_value(name, st.session_state[_key(name)])})


def _filter_value(name: str, given: Any) -> Any:
    """Convert the value of a control to the value of the filter's field."""
    if name == "ids":
        return tuple(dict.fromkeys(filter(None, (one.strip() for one in re.split(r"[\n,]", given or "")))))
    return None if given in (None, "", _ANY) else given


def _span_changed() -> None:
    span = st.session_state[_key("span")]
    if span == _CUSTOM:
        dead_letter_url.start_custom_range()
    else:
        dead_letter_url.set_span(span)


def _whole_minute(at: float | None) -> datetime | None:
    """Return the time without seconds: the control does not support them and would report a changed time."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, wording.zone_of(common.zone())).replace(
        second=0, microsecond=0, tzinfo=None
    )


def _range_changed(since: float | None, until: float | None, name: str) -> None:
    given = st.session_state[_key(name)]
    if given == _whole_minute({"since": since, "until": until}[name]):
        return  # unchanged, so the URL keeps its seconds
    at = None if given is None else given.replace(tzinfo=wording.zone_of(common.zone())).timestamp()
    ends = {"since": since, "until": until, name: at}
    dead_letter_url.set_range(ends["since"], ends["until"])


def _key(name: str) -> str:
    return f"dead_letters_{name}"


def _set(name: str, value: Any) -> None:
    """Set the control to the value from the URL on every run; a popover recreates its controls when it opens."""
    st.session_state[_key(name)] = value


def _spaced(verdict: str) -> str:
    return verdict.replace("_", " ")
