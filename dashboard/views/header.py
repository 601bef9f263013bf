"""Draw the header of every page: the Live switch and the filters for time range, topic, producer, application and cluster."""

from __future__ import annotations

import contextlib
import html
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

from producer_core.dashboard import queries, wording
from producer_core.dashboard.views import application_filter, common, filter_menu, reads
from producer_core.errors import StoreError

ALL_TOPICS = "All topics"
ALL_PRODUCERS = "All producers"
FIRST_PAGE = "overview"
"""The start page, at the root URL."""

_FILTERS = frozenset(("range", "since", "until", "topic", "producer", "application", "cluster"))
_TIME_LIMITS = datetime(1970, 1, 1), datetime(2106, 1, 1)
_RANGE_NAMES = frozenset(("range", "since", "until"))


def title(text: str = "producer_core") -> None:
    st.html(f'<h1 class="pc-title">{html.escape(text)}</h1>')


def view(path: Path, name: str) -> queries.View:
    """Draw the header and return the selected view. The URL of the page contains the selection as well."""
    now = time.time()
    from_address = _read_custom_range(now)
    inherited = _inherit_from_last_page(name)
    with st.container(key="pc-header", horizontal=True, vertical_alignment="center", gap="small"):
        title(name)
        common.live_toggle()
        _fold()
        window = st.segmented_control(
            "Time range",
            [*queries.RANGES, wording.CUSTOM],
            default=None if inherited else wording.CUSTOM if from_address else queries.DEFAULT,
            key="range",
            bind="query-params",
            required=True,
            label_visibility="collapsed",
            on_change=_range_changed,
        )
        topics, producers = filter_menu.options(reads.topics, path), filter_menu.options(_producers, path)
        topic = filter_menu.select("Topic", ALL_TOPICS, topics, "topic")
        producer = _select_producer(path)
        application, cluster = application_filter.select(path)
    filter_menu.warn_if_unknown("topic", topic, topics)
    filter_menu.warn_if_unknown("producer", producer, producers)
    start, end = _custom_range(now) if window == wording.CUSTOM else (None, None)
    selected = queries.View(window, topic, producer, start, end, application, cluster)
    st.session_state["view"], st.session_state["page"] = selected, name
    return selected


def origin(path: Path, name: str) -> tuple[str | None, str | None]:
    """Draw only the filters for application and cluster, on a page without a time range; return the selection.

    The links of the page keep the other filters of the last page.
    """
    last: queries.View = st.session_state.get("view", queries.View())
    if st.session_state.get("page", name) != name:
        for key, value in application_filter.inherited(last).items():
            if value is not None and key not in st.query_params:
                st.session_state[key] = value
    application, cluster = application_filter.select(path)
    st.session_state["view"] = replace(last, application=application, cluster=cluster)
    st.session_state["page"] = name
    return application, cluster


def tab(name: str, state: str = "") -> None:
    """Set the title of the browser's tab: the state of delivery, where the page knows it, and the page."""
    st.set_page_config(page_title=f"{state} · {name}" if state else f"{name} · producer_core")


def _fold() -> None:
    """Draw the switch that shows the filters on a phone, where they are folded until one of them is set."""
    st.toggle("Filters", value=bool(_FILTERS & set(st.query_params)), key="pc-fold")


def _inherit_from_last_page(name: str) -> bool:
    """Apply the previous page's filters where this page's URL has none; return whether the range is inherited."""
    if st.session_state.get("page", name) == name:
        return False
    last: queries.View = st.session_state["view"]
    filters = {"range": last.window, "topic": last.topic, "producer": last.producer}
    filters |= application_filter.inherited(last)
    inherited = {
        key: value for key, value in filters.items() if value is not None and key not in st.query_params
    }
    for key, value in inherited.items():
        st.session_state[key] = value
    return "range" in inherited


def every(view: queries.View) -> float | None:
    """Return the seconds between two updates of the page; None while the page is paused."""
    return queries.refresh(view, time.time()) if st.session_state.get("live", True) else None


def selected_view() -> queries.View:
    """Return the view of the last page that had a header."""
    view: queries.View = st.session_state.get("view", queries.View())
    return view


def link(page: str, **query: str | float | None) -> str:
    """Return the URL of a page with the current time range and filters.

    Keywords override these filters, and None removes one. `since`, `until` (seconds since 1970) or `range` override the
    whole time range. The URL is relative, so that it works behind a proxy, and is not escaped for HTML.
    """
    filters = {
        name: value
        for name, value in selected_view().query.items()
        if not (name in _RANGE_NAMES and _RANGE_NAMES & query.keys())
    }
    merged = {**filters, **{name: _text(value) for name, value in query.items() if value is not None}}
    merged = {name: value for name, value in merged.items() if query.get(name, value) is not None}
    address = "./" if page == FIRST_PAGE else page
    return f"{address}?{urlencode(merged)}" if merged else address


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{int(value)}"


def _select_producer(path: Path) -> str | None:
    """Draw the filter with producer names. The URL holds the id, so the widget is not bound to it by Streamlit."""
    names: Mapping[str, str] = {}
    with contextlib.suppress(StoreError):
        names = reads.producers(path)
    if "producer" not in st.session_state:
        st.session_state["producer"] = st.query_params.get("producer", ALL_PRODUCERS)
    current = st.session_state["producer"]
    options = tuple(names) if current == ALL_PRODUCERS or current in names else (*names, current)
    selected: str = st.selectbox(
        "Producer", (ALL_PRODUCERS, *options), key="producer", format_func=lambda one: names.get(one, one),
        label_visibility="collapsed", width=170,
    )  # fmt: skip
    if selected == ALL_PRODUCERS:
        st.query_params.pop("producer", None)
        return None
    if st.query_params.get("producer") != selected:
        st.query_params["producer"] = selected
    return selected


def _producers(path: Path) -> tuple[str, ...]:
    return tuple(reads.producers(path))


# a custom range: seconds since 1970 in the URL, the browser's local time in the fields


def _read_custom_range(now: float) -> bool:
    """Read `since` and `until` from the URL; return whether they form a range."""
    custom = queries.chosen(st.query_params.get("since"), st.query_params.get("until"), now)
    if custom is not None:
        st.session_state["custom"] = custom
    return custom is not None


def _range_changed() -> None:
    """Start a custom range with the range shown so far, or remove the custom range from the URL."""
    if st.session_state["range"] == wording.CUSTOM:
        now, last = time.time(), st.session_state.get("view", queries.View())
        _set_custom_range(last.since(now) // 60 * 60, -(-int(now) // 60) * 60)
    else:
        st.session_state.pop("custom", None)
        for name in ("since", "until"):
            st.query_params.pop(name, None)


def _set_custom_range(start: int, end: int) -> None:
    st.session_state["custom"] = start, end
    st.query_params.update({"since": str(start), "until": str(end)})


def _custom_range(now: float) -> tuple[int, int]:
    """Draw the fields of the custom range and return it."""
    if "custom" not in st.session_state:
        _range_changed()
    start, end = st.session_state["custom"]
    if st.query_params.get("since") != str(start) or st.query_params.get("until") != str(end):
        _set_custom_range(start, end)
    zone = wording.zone_of(common.zone())
    for name, at in (("from", start), ("to", end)):
        st.session_state[name] = datetime.fromtimestamp(at, zone).replace(tzinfo=None)
    with st.container(key="pc-custom", horizontal=True, vertical_alignment="center", gap="small"):
        for name, label in (("from", "From"), ("to", "To")):
            st.datetime_input(
                label,
                min_value=_TIME_LIMITS[0],
                max_value=_TIME_LIMITS[1],
                key=name,
                format="YYYY-MM-DD",
                step=timedelta(minutes=1),
                on_change=_custom_range_changed,
                args=(name,),
                width=210,
            )
        common.note(f"Times in {wording.zone_name(common.zone(), now)}", tooltip=common.zone() or "UTC")
    return start, end


def _custom_range_changed(name: str) -> None:
    """Apply a new start or end; shift the other end by the range's length where the start would pass the end."""
    changed: datetime | None = st.session_state[name]
    if changed is None or "custom" not in st.session_state:
        return  # the user emptied the field, or selected another range at the same time
    start, end = st.session_state["custom"]
    at = int(changed.replace(tzinfo=wording.zone_of(common.zone())).timestamp())
    length = end - start
    start, end = (
        (at, end if end > at else at + length)
        if name == "from"
        else (start if start < at else at - length, at)
    )
    _set_custom_range(start, end)
