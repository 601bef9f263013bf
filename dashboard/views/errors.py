"""Draw the errors page: failures by code, kind and topic, compared with the preceding time range, and their groups."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import charts, wording
from producer_core.dashboard.charts.errors import described, failed_attempts, outcomes
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_chart import live_plotly
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.components.live_table import Cell, Column, Line, TablePart, TableRow
from producer_core.dashboard.queries.error_groups import GroupLine
from producer_core.dashboard.queries.errors import CodeLine, ErrorsPage, KindLine, TopicLine, errors
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import adaptive_cache, common, error_group, event_reads, header, tiles
from producer_core.dashboard.wording import errors as error_wording

_MAX_ROWS = 40
_MAX_SAMPLE = 240


def show(path: Path) -> None:
    view = header.view(path, "Errors")
    live_table.load_style_sheet()
    group = st.query_params.get("group")
    if group:
        st.fragment(error_group.show, run_every=header.every(view))(path, view, group)
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
    _groups(page, group)
    _codes(page)
    left, right = st.columns([2, 3], gap="medium")
    with left:
        _kinds(page)
    with right:
        _topics(page)
    common.note(_comparison(page))


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


# groups


def _groups(page: ErrorsPage, selected: str | None) -> None:
    common.heading("Groups of dead letters")
    if not page.groups:
        common.note(
            "No message became a dead letter in this range."
            if not page.whole.dead
            else "The dead letters are not in this store."
        )
        return
    columns = (
        Column("Cause", wide=True),
        Column("Trend"),
        Column("Failed", number=True),
        Column("Pending", number=True, tooltip="Dead letters of this group that can be replayed or cleared."),
        Column("Topics"),
        Column("Last"),
    )
    rows = [_group(page, line, line.group.fingerprint == selected) for line in page.groups]
    live_table.live_table(columns, rows, key="errors-groups", alt="Groups of dead letters, largest first")


def _group(page: ErrorsPage, line: GroupLine, selected: bool) -> TableRow:
    group = line.group
    title: list[str | TablePart] = [
        TablePart(group.code, "strong", header.link("errors", group=group.fingerprint))
    ]
    if line.new:
        title.append(TablePart("new", "badge", tooltip="The group has no dead letters before this range."))
    text = mask_text(group.sample_text)
    sample = TablePart(
        wording.short(text, _MAX_SAMPLE), tooltip=text[:1000] if len(text) > _MAX_SAMPLE else ""
    )
    trend = error_wording.trend(group.trend.counts, wording.age(group.trend.width))
    return TableRow(
        group.fingerprint,
        (
            (title, sample, TablePart(f"{group.meaning} {group.advice}".strip(), "small")),
            TablePart(bars=group.trend.counts, tooltip=trend) if group.trend.counts else "",
            _with_previous(page, group.count, line.before),
            _pending(line.waiting, group=group.fingerprint),
            error_wording.topics(group.topics),
            _last(group.last_seen, page.now),
        ),
        selected=selected,
    )


# codes, kinds, topics


def _codes(page: ErrorsPage) -> None:
    common.heading("Error codes")
    if not page.codes:
        common.note("No errors were reported in this range.")
        return
    columns = (
        Column("Code", wide=True),
        Column("Kind"),
        Column("Failed attempts", number=True),
        Column("Failed", number=True, tooltip="Messages that became dead letters."),
        Column(
            "Pending", number=True, tooltip="Dead letters with this code that can be replayed or cleared."
        ),
        Column("Topics"),
        Column("Last"),
    )
    rows = [_code(page, line) for line in page.codes[:_MAX_ROWS]]
    live_table.live_table(columns, rows, key="errors-codes", alt="Error codes, most dead letters first")
    _more(len(page.codes), "code")


def _code(page: ErrorsPage, line: CodeLine) -> TableRow:
    failure = line.failure
    title: list[str | TablePart] = [TablePart(line.code, "strong")]
    if line.new:
        title.append(TablePart("new", "badge", tooltip="This code was not reported before the range."))
    about: list[Line] = [title, failure.meaning, TablePart(f"What to do: {failure.advice}", "small")]
    if failure.error_type != line.code:
        about.append([TablePart("error.type", "small"), TablePart(failure.error_type, "mono")])
    return TableRow(
        line.code,
        (
            about,
            TablePart(error_wording.kind(failure.kind), tooltip=error_wording.KINDS.get(failure.kind, "")),
            _with_previous(page, line.attempts, line.attempts_before),
            _with_previous(page, line.dead, line.dead_before),
            _pending(line.waiting, code=line.code),
            error_wording.topics(line.topics),
            "" if line.last_seen is None else _last(float(line.last_seen), page.now),
        ),
    )


def _kinds(page: ErrorsPage) -> None:
    common.heading("By kind")
    if not page.kinds:
        common.note("Nothing failed in this range.")
        return
    columns = (Column("Kind"), Column("Failed attempts", number=True), Column("Failed", number=True))
    rows = [_kind(page, line) for line in page.kinds]
    live_table.live_table(columns, rows, key="errors-kinds", alt="Kinds of errors")


def _kind(page: ErrorsPage, line: KindLine) -> TableRow:
    name = [
        TablePart(error_wording.kind(line.kind), "strong"),
        TablePart(wording.plural(line.codes, "code"), "small"),
    ]
    return TableRow(
        line.kind,
        (
            (name, TablePart(error_wording.KINDS.get(line.kind, ""), "small")),
            _with_previous(page, line.attempts, line.attempts_before),
            _with_previous(page, line.dead, line.dead_before),
        ),
    )


def _topics(page: ErrorsPage) -> None:
    common.heading("By topic")
    if not page.topics:
        common.note("Nothing failed in this range.")
        return
    columns = (
        Column("Topic"),
        Column("Failed attempts", number=True),
        Column("Saved by retries", number=True),
        Column("Failed", number=True),
        Column("Error rate", number=True),
        Column("Codes"),
    )
    rows = [_topic(page, line) for line in page.topics[:_MAX_ROWS]]
    live_table.live_table(columns, rows, key="errors-topics", alt="Topics, most dead letters first")
    _more(len(page.topics), "topic")


def _topic(page: ErrorsPage, line: TopicLine) -> TableRow:
    return TableRow(
        line.topic,
        (
            TablePart(
                wording.short(line.topic, 48),
                "strong",
                header.link("errors", topic=line.topic),
                tooltip=line.topic,
            ),
            _with_previous(page, line.now.attempts, line.before.attempts),
            wording.count(line.now.saved),
            _with_previous(page, line.now.dead, line.before.dead),
            wording.percent(line.now.error_rate),
            error_wording.topics(line.codes, 2),
        ),
    )


# cells


def _with_previous(page: ErrorsPage, number: int, before: int) -> Cell:
    """Return a number with the number of the preceding time range below it."""
    earlier = error_wording.before(before, number) if page.compares else ""
    return (
        (wording.count(number), TablePart(earlier, "small"))
        if earlier and (number or before)
        else wording.count(number)
    )


def _pending(number: int, **selection: str) -> Cell:
    """Return a link to the pending dead letters. It has no time range, because the number counts all of them."""
    if not number:
        return TablePart("none", "small")
    address = dead_letters_address(**selection)
    return TablePart(wording.count(number), href=address, tooltip="Open these dead letters")


def dead_letters_address(**selection: str) -> str:
    """Return the URL of dead letters for the topic and producer of the current view."""
    view: View = st.session_state.get("view", View())
    return header.link("dead-letters", range=None, producer=None, producer_id=view.producer, **selection)


def _last(at: float, now: float) -> TablePart:
    text, utc = wording.stamp(at, common.zone(), now)
    return TablePart(text, tooltip=utc)


def _more(number: int, noun: str) -> None:
    if number > _MAX_ROWS:
        common.note(
            f"{wording.plural(number - _MAX_ROWS, f'more {noun}')}. Select a topic or a shorter range to see all."
        )


def _comparison(page: ErrorsPage) -> str:
    begins = None if page.begins is None else wording.stamp(page.begins, common.zone(), page.now).text
    return error_wording.compared(compares=page.compares, begins=begins)
