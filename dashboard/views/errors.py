"""Draw the errors page: the summary, the key figures, the charts and the list of issues."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core.dashboard import charts, wording
from producer_core.dashboard.charts.errors import described, failed_attempts, outcomes
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_chart import live_plotly
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.queries.errors import ErrorsPage, errors
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import (
    adaptive_cache,
    cause_resolution,
    common,
    error_group,
    error_list,
    event_reads,
    header,
    incident_export,
    tiles,
)
from producer_core.dashboard.wording import errors as error_wording


def show(path: Path) -> None:
    view = header.view(path, "Errors")
    live_table.load_style_sheet()
    group = st.query_params.get("group")
    if group:
        st.fragment(error_group.show, run_every=header.every(view))(path, view, group)
        cause_resolution.show(path, group)
    st.fragment(_export, run_every=header.every(view))(path, view)
    st.fragment(_live, run_every=header.every(view))(path, view, group)


def _live(path: Path, view: View, group: str | None) -> None:
    page = adaptive_cache.read(path, "errors", view, lambda: read_errors(path, view))
    if page is None:
        return
    now = time.time()
    common.data_age(page.seen_at, now)
    if not group:
        common.message(*error_wording.failing(_failing(page)))
    if page.without_dead_letters:
        common.note(error_wording.without_dead_letters(page.without_dead_letters, page.whole.dead))
    _tiles(page)
    _charts(page, event_reads.chart_marks(path, view))
    error_list.show(page, group)
    common.note(_comparison(page))


def _export(path: Path, view: View) -> None:
    now = time.time()
    with st.container(horizontal=True, horizontal_alignment="right"):
        incident_export.show(path, view.since(now), view.at(now))


@st.cache_data(ttl=0.8, max_entries=16, show_spinner=False)  # type: ignore[untyped-decorator]  # streamlit is Any here
def read_errors(path: Path, view: View) -> ErrorsPage:
    """Read the page once for all browsers that show the same view."""
    return errors(open_store(path), view, time.time())


def _failing(page: ErrorsPage) -> error_wording.FailingSentence:
    worst = page.codes[0] if page.codes and page.codes[0].dead else None
    return error_wording.FailingSentence(
        during=wording.during(page.window, page.since, page.now, common.zone()),
        settled=page.whole.acknowledged + page.whole.dead,
        attempts=page.whole.attempts,
        saved=page.whole.saved,
        dead=page.whole.dead,
        worst=None
        if worst is None
        else (worst.code, "".join(worst.topics[:1]), worst.failure.meaning, worst.dead),
        new=tuple(line.code for line in page.new_codes),
        replayed=page.replayed,
        archived=page.archived,
    )


def _tiles(page: ErrorsPage) -> None:
    now, before = page.whole, page.whole_before
    success, success_before = page.retry_success
    values = [
        ("Failed attempts", wording.compact(now.attempts), wording.change(now.attempts, before.attempts, wording.count, good=-1),
         "Delivery reports with an error, excluding librdkafka's internal retries."),
        ("Saved by retries", wording.compact(now.saved), wording.change(now.saved, before.saved, wording.count),
         "Messages acknowledged after one or more failed attempts."),
        ("Failed", wording.compact(now.dead), wording.change(now.dead, before.dead, wording.count, good=-1),
         "Messages that became dead letters."),
        ("Error rate", wording.percent(now.error_rate), wording.change(now.error_rate, before.error_rate, wording.percent, good=-1),
         "Share of settled messages that became dead letters."),
        ("Retry success", wording.percent(success), wording.change(success, success_before, wording.percent, good=1),
         wording.retries(now.saved, page.given_up[0])),
        ("Dead letters", wording.compact(page.waiting), None,
         "Dead letters pending now, of any age."),
    ]  # fmt: skip
    figures = [
        charts.Tile(
            label,
            value,
            change if change is not None and page.compares else wording.NumberChange("", "", ""),
            more=more,
        )
        for label, value, change, more in values
    ]
    live_dom(tiles.tiles(figures), key="errors-tiles")


def _charts(page: ErrorsPage, marks: Sequence[dict[str, Any]]) -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        common.heading("Failed attempts by code")
        live_plotly(failed_attempts(page), key="errors-attempts", alt=described(page), marks=marks)
    with right:
        common.heading("Outcome of failed messages")
        live_plotly(
            outcomes(page),
            key="errors-outcomes",
            alt="Messages acknowledged after a retry and messages that became dead letters, over time",
            marks=marks,
        )


def _comparison(page: ErrorsPage) -> str:
    begins = None if page.begins is None else wording.stamp(page.begins, common.zone(), page.now).text
    return error_wording.compared(compares=page.compares, begins=begins)
