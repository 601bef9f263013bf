"""The header of every page: what is looked at (time range, topic, producer), and whether it follows by itself."""

from __future__ import annotations

import contextlib
import html
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

from producer_core.dashboard import queries, wording
from producer_core.dashboard.views import common, reads
from producer_core.errors import StoreError

ALL_TOPICS = "All topics"
ALL_PRODUCERS = "All producers"
FIRST = "overview"
"""The page that opens; its address is that of the app."""

_EVER = datetime(1970, 1, 1), datetime(2106, 1, 1)
_RANGE = frozenset(("range", "since", "until"))


def title(text: str = "producer_core") -> None:
    st.html(f'<h1 class="pc-title">{html.escape(text)}</h1>')


def view(path: Path, name: str) -> queries.View:
    """Draws the header; what was chosen, which also stands in the address."""
    now = time.time()
    asked = _take_from_address(now)
    kept = _from_the_last_page(name)
    with st.container(key="pc-header", horizontal=True, vertical_alignment="center", gap="small"):
        title(name)
        st.toggle(
            "Live",
            value=True,
            key="live",
            persist_state="session",
            help="Off: the page stands still until you switch it on again.",
        )
        window = st.segmented_control(
            "Time range",
            [*queries.RANGES, wording.CUSTOM],
            default=None if kept else wording.CUSTOM if asked else queries.DEFAULT,
            key="range",
            bind="query-params",
            required=True,
            label_visibility="collapsed",
            on_change=_window_chosen,
        )
        topics, producers = _known(reads.topics, path), _known(_producers, path)
        topic = _one_of("Topic", ALL_TOPICS, topics, "topic")
        producer = _producer(path)
    _say_unknown("topic", topic, topics)
    _say_unknown("producer", producer, producers)
    start, end = _custom(now) if window == wording.CUSTOM else (None, None)
    found = queries.View(window, topic, producer, start, end)
    st.session_state["view"], st.session_state["page"] = found, name
    return found


def _from_the_last_page(name: str) -> bool:
    """What was looked at on the page before, where the address of this one says nothing of it; whether the range is."""
    if st.session_state.get("page", name) == name:
        return False
    looked_at: queries.View = st.session_state["view"]
    before = {"range": looked_at.window, "topic": looked_at.topic, "producer": looked_at.producer}
    taken = {key: value for key, value in before.items() if value is not None and key not in st.query_params}
    for key, value in taken.items():
        st.session_state[key] = value
    return "range" in taken


def every(view: queries.View) -> float | None:
    """Seconds between two drawings of what follows by itself; None while it is paused."""
    return queries.refresh(view, time.time()) if st.session_state.get("live", True) else None


def link(page: str, **query: str | float | None) -> str:
    """The address of a page, with the time range, topic and producer that are looked at now.

    What is given comes on top: a name takes the place of what is looked at, None leaves it out, and `since`, `until`
    (seconds since 1970) or `range` that of the time range. Relative, so that it holds behind a proxy; not HTML yet.
    """
    looked_at: queries.View = st.session_state.get("view", queries.View())
    kept = {
        name: value
        for name, value in looked_at.query.items()
        if not (name in _RANGE and _RANGE & query.keys())
    }
    asked = {**kept, **{name: _plain(value) for name, value in query.items() if value is not None}}
    asked = {name: value for name, value in asked.items() if query.get(name, value) is not None}
    address = "./" if page == FIRST else page
    return f"{address}?{urlencode(asked)}" if asked else address


def _plain(value: str | float) -> str:
    return value if isinstance(value, str) else f"{int(value)}"


def _producer(path: Path) -> str | None:
    """Shown by its name; its id stands in the address, which Streamlit would fill with the name."""
    names: Mapping[str, str] = {}
    with contextlib.suppress(StoreError):
        names = reads.producers(path)
    if "producer" not in st.session_state:
        st.session_state["producer"] = st.query_params.get("producer", ALL_PRODUCERS)
    kept = st.session_state["producer"]
    known = tuple(names) if kept == ALL_PRODUCERS or kept in names else (*names, kept)
    chosen: str = st.selectbox(
        "Producer", (ALL_PRODUCERS, *known), key="producer", format_func=lambda one: names.get(one, one),
        label_visibility="collapsed", width=170,
    )  # fmt: skip
    if chosen == ALL_PRODUCERS:
        st.query_params.pop("producer", None)
        return None
    if st.query_params.get("producer") != chosen:
        st.query_params["producer"] = chosen
    return chosen


def _producers(path: Path) -> tuple[str, ...]:
    return tuple(reads.producers(path))


def _say_unknown(kind: str, chosen: str | None, known: tuple[str, ...]) -> None:
    """A link may be older than the store, or mistyped: what follows is true of a name that nothing has."""
    if chosen is not None and known and chosen not in known:
        common.say("warning", f"This store has no {kind} {chosen}. Choose another one above, or all of them.")


def _known(read: Callable[[Path], tuple[str, ...]], path: Path) -> tuple[str, ...]:
    """None while the store cannot be read: the panels below say why."""
    with contextlib.suppress(StoreError):
        return read(path)
    return ()


def _one_of(label: str, everything: str, options: tuple[str, ...], key: str) -> str | None:
    """All, or one; one that was chosen stays on offer when it is gone from the store."""
    kept = st.session_state.get(key) or st.query_params.get(key)
    known = options if kept in (None, everything) or kept in options else (*options, kept)
    chosen = st.selectbox(
        label, (everything, *known), key=key, bind="query-params", label_visibility="collapsed", width=170
    )
    return None if chosen == everything else chosen


# a range of one's own: seconds since 1970 in the address, the viewer's own time in the fields


def _take_from_address(now: float) -> bool:
    """Since and until of the address, which are then the range that the page opens with."""
    asked = queries.chosen(st.query_params.get("since"), st.query_params.get("until"), now)
    if asked is not None:
        st.session_state["custom"] = asked
    return asked is not None


def _window_chosen() -> None:
    """A range of one's own begins with what is looked at; any other takes it out of the address."""
    if st.session_state["range"] == wording.CUSTOM:
        now, looked_at = time.time(), st.session_state.get("view", queries.View())
        _remember(looked_at.since(now) // 60 * 60, -(-int(now) // 60) * 60)
    else:
        st.session_state.pop("custom", None)
        for name in ("since", "until"):
            st.query_params.pop(name, None)


def _remember(start: int, end: int) -> None:
    st.session_state["custom"] = start, end
    st.query_params.update({"since": str(start), "until": str(end)})


def _custom(now: float) -> tuple[int, int]:
    if "custom" not in st.session_state:
        _window_chosen()
    start, end = st.session_state["custom"]
    if st.query_params.get("since") != str(start) or st.query_params.get("until") != str(end):
        _remember(start, end)
    zone = wording.zone_of(common.zone())
    for name, at in (("from", start), ("to", end)):
        st.session_state[name] = datetime.fromtimestamp(at, zone).replace(tzinfo=None)
    with st.container(key="pc-custom", horizontal=True, vertical_alignment="center", gap="small"):
        for name, label in (("from", "From"), ("to", "To")):
            st.datetime_input(
                label,
                min_value=_EVER[0],
                max_value=_EVER[1],
                key=name,
                format="YYYY-MM-DD",
                step=timedelta(minutes=1),
                on_change=_moved,
                args=(name,),
                width=210,
            )
        common.note(
            f"{wording.zone_name(common.zone(), now)}, the time of your browser", more=common.zone() or "UTC"
        )
    return start, end


def _moved(name: str) -> None:
    """One end was moved; the other moves along where it would be passed."""
    moved: datetime | None = st.session_state[name]
    if moved is None or "custom" not in st.session_state:
        return  # it was emptied, or another range was chosen in the same moment
    start, end = st.session_state["custom"]
    at = int(moved.replace(tzinfo=wording.zone_of(common.zone())).timestamp())
    length = end - start
    start, end = (
        (at, end if end > at else at + length)
        if name == "from"
        else (start if start < at else at - length, at)
    )
    _remember(start, end)
