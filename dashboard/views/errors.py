"""The errors page: what fails, by kind, code, topic and over time, against the same time before; groups and advice."""

from __future__ import annotations

import time
from pathlib import Path

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
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import adaptive_cache, common, error_group, header, tiles
from producer_core.dashboard.wording import errors as say

_MOST = 40
"""Rows of a table; who needs more narrows the page to a topic."""
_LONGEST = 240


def show(path: Path) -> None:
    view = header.view(path, "Errors")
    live_table.style()
    group = st.query_params.get("group")
    if group:
        st.fragment(error_group.show, run_every=header.every(view))(path, view, group)
    st.fragment(_live, run_every=header.every(view))(path, view, group)


def _live(path: Path, view: View, group: str | None) -> None:
    shown = adaptive_cache.read(path, "errors", view, lambda: reading(path, view))
    if shown is None:
        return
    now = time.time()
    common.stays(shown.seen_at, now)
    if not group:
        common.say(*say.failing(_failing(shown)))
    if shown.without_dead_letters:
        common.note(say.without_dead_letters(shown.without_dead_letters, shown.whole.dead))
    _tiles(shown)
    _charts(shown)
    _groups(shown, group)
    _codes(shown)
    left, right = st.columns([2, 3], gap="medium")
    with left:
        _kinds(shown)
    with right:
        _topics(shown)
    common.note(_compared(shown))


@st.cache_data(ttl=0.8, max_entries=16, show_spinner=False)  # type: ignore[untyped-decorator]  # streamlit is Any here
def reading(path: Path, view: View) -> ErrorsPage:
    """Once for all browsers that look at the same."""
    return errors(opened(path), view, time.time())


def _failing(shown: ErrorsPage) -> say.FailingSentence:
    worst = shown.codes[0] if shown.codes and shown.codes[0].dead else None
    return say.FailingSentence(
        during=wording.during(shown.window, shown.since, shown.now, common.zone()),
        settled=shown.whole.acknowledged + shown.whole.dead,
        attempts=shown.whole.attempts,
        saved=shown.whole.saved,
        dead=shown.whole.dead,
        worst=None
        if worst is None
        else (worst.code, "".join(worst.topics[:1]), worst.failure.meaning, worst.dead),
        new=tuple(line.code for line in shown.new_codes),
        replayed=shown.replayed,
        archived=shown.archived,
    )


def _tiles(shown: ErrorsPage) -> None:
    now, before, old = shown.whole, shown.whole_before, shown.compares
    success, success_before = shown.retry_success
    found = [
        ("Failed attempts", wording.compact(now.attempts), wording.change(now.attempts, before.attempts, wording.count, good=-1),
         "Delivery reports with an error that reached us; what librdkafka repeated inside is not among them."),
        ("Saved by retries", wording.compact(now.saved), wording.change(now.saved, before.saved, wording.count),
         "Messages that failed at least once and were acknowledged after a retry of ours."),
        ("Died", wording.compact(now.dead), wording.change(now.dead, before.dead, wording.count, good=-1),
         "Messages that became dead letters."),
        ("Error rate", wording.percent(now.error_rate), wording.change(now.error_rate, before.error_rate, wording.percent, good=-1),
         "Messages that died, of all that were settled."),
        ("Retry success", wording.percent(success), wording.change(success, success_before, wording.percent, good=1),
         wording.retries(now.saved, shown.given_up[0])),
        ("Dead letters", wording.compact(shown.waiting), None,
         "They wait for a decision now, whatever the range: replay or clear."),
    ]  # fmt: skip
    six = [
        charts.Tile(
            label,
            value,
            changed if changed is not None and old else wording.NumberChange("", "", ""),
            more=more,
        )
        for label, value, changed, more in found
    ]
    live_dom(tiles.tiles(six), key="errors-tiles")


def _charts(shown: ErrorsPage) -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        common.heading("Failed attempts by code")
        live_plotly(failed_attempts(shown), key="errors-attempts", alt=described(shown))
    with right:
        common.heading("What became of messages that failed")
        live_plotly(
            outcomes(shown),
            key="errors-fates",
            alt="Messages acknowledged after a retry, and messages that died, in time",
        )


# groups


def _groups(shown: ErrorsPage, chosen: str | None) -> None:
    common.heading("Groups of dead letters")
    if not shown.groups:
        common.note(
            "No message died in this range."
            if not shown.whole.dead
            else "The dead letters are not in this store."
        )
        return
    columns = (
        Column("Cause", wide=True),
        Column("In time"),
        Column("Died", number=True),
        Column("Wait now", number=True, more="They can be replayed or cleared."),
        Column("Topics"),
        Column("Last"),
    )
    rows = [_group(shown, line, line.group.fingerprint == chosen) for line in shown.groups]
    live_table.live_table(columns, rows, key="errors-groups", alt="Groups of dead letters, the largest first")


def _group(shown: ErrorsPage, line: GroupLine, chosen: bool) -> TableRow:
    group = line.group
    title: list[str | TablePart] = [
        TablePart(group.code, "strong", header.link("errors", group=group.fingerprint))
    ]
    if line.new:
        title.append(TablePart("new", "badge", more="No dead letter of this group died before the range."))
    text = mask_text(group.sample_text)
    trend = TablePart(bars=group.trend.counts, more=say.trend(group.trend.counts, _length(group.trend.width)))
    return TableRow(
        group.fingerprint,
        (
            (title, TablePart(wording.short(text, _LONGEST), more=text[:1000] if len(text) > _LONGEST else ""),
             TablePart(f"{group.meaning} {group.advice}".strip(), "small")),
            trend if group.trend.counts else "",
            _against(shown, group.count, line.before),
            _waiting(line.waiting, group=group.fingerprint),
            say.topics(group.topics),
            _last(group.last_seen, shown.now),
        ),
        chosen=chosen,
    )  # fmt: skip


def _length(seconds: float) -> str:
    return wording.age(seconds)


# codes, kinds, topics


def _codes(shown: ErrorsPage) -> None:
    common.heading("Error codes, with what they mean")
    if not shown.codes:
        common.note("No error code came back in this range.")
        return
    columns = (
        Column("Code", wide=True),
        Column("Kind"),
        Column("Failed attempts", number=True),
        Column("Died", number=True),
        Column("Wait now", number=True, more="Dead letters with this code that can be replayed or cleared."),
        Column("Topics"),
        Column("Last"),
    )
    rows = [_code(shown, line) for line in shown.codes[:_MOST]]
    live_table.live_table(columns, rows, key="errors-codes", alt="Error codes, the deadliest first")
    _more(len(shown.codes), "code")


def _code(shown: ErrorsPage, line: CodeLine) -> TableRow:
    failure = line.failure
    title: list[str | TablePart] = [TablePart(line.code, "strong")]
    if line.new:
        title.append(TablePart("new", "badge", more="This code never came back before the range."))
    about: list[Line] = [title, failure.meaning, TablePart(f"What to do: {failure.advice}", "small")]
    if failure.error_type != line.code:
        about.append([TablePart("error.type", "small"), TablePart(failure.error_type, "mono")])
    return TableRow(
        line.code,
        (
            about,
            TablePart(say.kind(failure.kind), more=say.KINDS.get(failure.kind, "")),
            _against(shown, line.attempts, line.attempts_before),
            _against(shown, line.dead, line.dead_before),
            _waiting(line.waiting, code=line.code),
            say.topics(line.topics),
            "" if line.last_seen is None else _last(float(line.last_seen), shown.now),
        ),
    )


def _kinds(shown: ErrorsPage) -> None:
    common.heading("By kind")
    if not shown.kinds:
        common.note("Nothing failed in this range.")
        return
    columns = (Column("Kind"), Column("Failed attempts", number=True), Column("Died", number=True))
    rows = [_kind(shown, line) for line in shown.kinds]
    live_table.live_table(columns, rows, key="errors-kinds", alt="Kinds of errors")


def _kind(shown: ErrorsPage, line: KindLine) -> TableRow:
    name = [TablePart(say.kind(line.kind), "strong"), TablePart(wording.plural(line.codes, "code"), "small")]
    return TableRow(
        line.kind,
        (
            (name, TablePart(say.KINDS.get(line.kind, ""), "small")),
            _against(shown, line.attempts, line.attempts_before),
            _against(shown, line.dead, line.dead_before),
        ),
    )


def _topics(shown: ErrorsPage) -> None:
    common.heading("By topic")
    if not shown.topics:
        common.note("Nothing failed in this range.")
        return
    columns = (
        Column("Topic"),
        Column("Failed attempts", number=True),
        Column("Saved by retries", number=True),
        Column("Died", number=True),
        Column("Error rate", number=True),
        Column("Codes"),
    )
    rows = [_topic(shown, line) for line in shown.topics[:_MOST]]
    live_table.live_table(columns, rows, key="errors-topics", alt="Topics, the one that loses most first")
    _more(len(shown.topics), "topic")


def _topic(shown: ErrorsPage, line: TopicLine) -> TableRow:
    return TableRow(
        line.topic,
        (
            TablePart(
                wording.short(line.topic, 48),
                "strong",
                header.link("errors", topic=line.topic),
                more=line.topic,
            ),
            _against(shown, line.now.attempts, line.before.attempts),
            wording.count(line.now.saved),
            _against(shown, line.now.dead, line.before.dead),
            wording.percent(line.now.error_rate),
            say.topics(line.codes, 2),
        ),
    )


# cells


def _against(shown: ErrorsPage, number: int, before: int) -> Cell:
    """A number, and below it how it was in the same time before."""
    earlier = say.before(before, number) if shown.compares else ""
    return (
        (wording.count(number), TablePart(earlier, "small"))
        if earlier and (number or before)
        else wording.count(number)
    )


def _waiting(number: int, **selection: str) -> Cell:
    """Leads to the dead letters, of whatever age, because all that wait are meant."""
    if not number:
        return TablePart("none", "small")
    return TablePart(wording.count(number), href=dead_letters_of(**selection), more="Open these dead letters")


def dead_letters_of(**selection: str) -> str:
    """The address of dead letters, on the topic and of the producer that are looked at."""
    looked_at: View = st.session_state.get("view", View())
    return header.link("dead-letters", range=None, producer=None, producer_id=looked_at.producer, **selection)


def _last(at: float, now: float) -> TablePart:
    text, more = wording.stamp(at, common.zone(), now)
    return TablePart(text, more=more)


def _more(number: int, noun: str) -> None:
    if number > _MOST:
        common.note(
            f"and {wording.plural(number - _MOST, noun)} more; choose a topic or a shorter range to see them"
        )


def _compared(shown: ErrorsPage) -> str:
    begins = None if shown.begins is None else wording.stamp(shown.begins, common.zone(), shown.now).text
    return say.compared(compares=shown.compares, begins=begins)
