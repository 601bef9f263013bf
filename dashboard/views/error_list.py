"""Draw the failures of the errors page as one list: issues, or folded by group, code, kind or topic."""

from __future__ import annotations

import time
from typing import cast

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import wording
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_table import Cell, Column, Line, TablePart, TableRow, TextStyle
from producer_core.dashboard.queries.error_groups import GroupLine
from producer_core.dashboard.queries.errors import CodeLine, ErrorsPage, KindLine, TopicLine
from producer_core.dashboard.queries.issues import Issue
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.views import common, header
from producer_core.dashboard.wording import errors as error_wording
from producer_core.dashboard.wording import resolutions
from producer_core.store.resolved_causes import CauseStatus

FOLDS = ("Issues", "Groups", "Codes", "Kinds", "Topics")
_MAX_ROWS = 40
_MAX_SAMPLE = 240


def show(page: ErrorsPage, selected: str | None) -> None:
    """Draw the list; `selected` is the group that the page shows above it."""
    common.heading("Issues")
    fold = st.segmented_control(
        "Fold by", FOLDS, default=FOLDS[0], key="fold", bind="query-params", required=True, label_visibility="collapsed",
    )  # fmt: skip
    if fold == "Groups":
        _groups(page, selected)
    elif fold == "Codes":
        _codes(page)
    elif fold == "Kinds":
        _kinds(page)
    elif fold == "Topics":
        _topics(page)
    else:
        _issues(page, selected)


# issues


def _issues(page: ErrorsPage, selected: str | None) -> None:
    if not page.issues:
        common.note("Nothing failed in this range.")
        return
    columns = (
        Column("Issue", wide=True),
        Column("Trend"),
        Column("Failed attempts", number=True),
        Column("Failed", number=True, tooltip="Messages that became dead letters."),
        Column("Last and first seen", tooltip="The first time is as far back as the store goes."),
        Column("State"),
        Column("Actions"),
    )
    rows = [
        _issue(page, one, bool(selected) and one.fingerprint == selected) for one in page.issues[:_MAX_ROWS]
    ]
    live_table.live_table(
        columns, rows, key="errors-issues", alt="Issues, a code on a topic, most dead letters first"
    )
    _more(len(page.issues), "issue")


def _issue(page: ErrorsPage, one: Issue, selected: bool) -> TableRow:
    failure = one.failure
    title: list[str | TablePart] = [TablePart(one.code, "strong")]
    if one.new:
        title.append(TablePart("new", "badge", tooltip="First seen in this range."))
    title += _resolution(one.status)
    topic = TablePart(
        wording.short(one.topic, 48), href=header.link("errors", topic=one.topic), tooltip=one.topic
    )
    trend = error_wording.issue_trend(one.trend)
    return TableRow(
        f"{one.topic} {one.code}",
        (
            (title, topic, failure.meaning, TablePart(f"What to do: {failure.advice}", "small")),
            TablePart(bars=one.trend.counts, tooltip=trend) if any(one.trend.counts) else "",
            _with_previous(page, one.attempts, one.attempts_before),
            _with_previous(page, one.dead, one.dead_before),
            _seen(one, page.now),
            _state(one),
            _actions(one),
        ),
        selected=selected,
    )


def _resolution(status: CauseStatus | None) -> list[str | TablePart]:
    """Return a badge for a cause that is resolved or back, with its state as the tooltip."""
    if status is None or status.present is None:
        return []
    text = mask_text(resolutions.state(status, common.zone(), time.time()))
    return [TablePart(mask_text(resolutions.badge(status)) or "resolved", "badge", tooltip=text)]


def _seen(one: Issue, now: float) -> Cell:
    lines: list[Line] = [] if one.last_seen is None else [_last(one.last_seen, now)]
    if one.first_seen is not None:
        text, utc = wording.stamp(one.first_seen, common.zone(), now)
        lines.append(TablePart(f"first {text}", "small", tooltip=utc))
    return lines


def _state(one: Issue) -> Cell:
    text, style, tooltip = error_wording.ISSUE_STATES[one.state]
    lines: list[Line] = [TablePart(text, cast("TextStyle", style), tooltip=tooltip)]
    if detail := error_wording.issue_counts(one.waiting, one.handled):
        lines.append(TablePart(detail, "small"))
    return lines


def _actions(one: Issue) -> Cell:
    """Return the links of an issue: to its pending dead letters, where they are replayed or cleared, and to its group."""
    lines: list[Line] = []
    if one.waiting:
        address = dead_letters_address(topic=one.topic, code=one.code)
        lines.append(
            TablePart(
                "Replay or clear".replace(" ", "\u00a0"),
                href=address,
                tooltip="Open its pending dead letters",
            )
        )
    if one.fingerprint:
        lines.append(
            TablePart(
                "Details", href=header.link("errors", group=one.fingerprint), tooltip="Show its latest group"
            )
        )
    return lines or TablePart("none", "small")


# groups


def _groups(page: ErrorsPage, selected: str | None) -> None:
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
        TablePart(group.code, "strong", header.link("errors", group=group.fingerprint, fold="Groups"))
    ]
    if line.new:
        title.append(TablePart("new", "badge", tooltip="The group has no dead letters before this range."))
    title += _resolution(line.status)
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
