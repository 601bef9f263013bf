"""Draw the dead letters page: groups by cause, the list, the details of one dead letter, and the actions."""

from __future__ import annotations

import contextlib
import html
import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import actions, queries, wording
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_table import Column, TablePart, TableRow
from producer_core.dashboard.components.selectable_table import Checkboxes, Selection, selectable_table
from producer_core.dashboard.components.shortcuts import KEYS, shortcuts
from producer_core.dashboard.queries import dead_letter_list as dead_letter_queries
from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.theme import style_sheet
from producer_core.dashboard.views import (
    common,
    dead_letter,
    dead_letter_actions,
    dead_letter_export,
    dead_letter_filters,
    dead_letter_reads,
    dead_letter_search,
    dead_letter_url,
    decisions,
    header,
)
from producer_core.dashboard.wording import dead_letters as dead_letter_wording
from producer_core.dashboard.wording import resolutions
from producer_core.dlq import DeadLetterFilter, Group
from producer_core.errors import StoreError
from producer_core.events import DeadLetter
from producer_core.store.resolved_causes import CauseStatus

_REFRESH = 2.0
_COLUMNS = tuple(map(Column, ("Failed", "Topic", "Key", "Error", "Verdict", "Text")))
_GROUP_COLUMNS = (Column("Count", number=True), Column("Trend"), Column("Cause", wide=True), Column("Seen"))
_CLUSTER_LINKS = 3
_COLLAPSED = 4
"""Number of groups that are shown at first; a button shows the others."""
_DRAWN_FILTER = "dead_letters_drawn_filter"


def show(path: Path) -> None:
    live_table.load_style_sheet()
    st.html(f"<style>{style_sheet('dead_letters')}</style>")
    query, problem = dead_letter_url.parsed()
    every = _REFRESH if st.session_state.get("live", True) else None
    with st.container(key="pc-dead-letters-head", horizontal=True, vertical_alignment="center", gap="small"):
        header.title("Dead letters")
        st.fragment(_totals, run_every=every)(path)
        common.live_toggle()
    st.fragment(_exceeded_limits, run_every=every)(path)
    st.fragment(decisions.late, run_every=every)(path)
    st.fragment(_removed_clusters, run_every=every)(path)
    if problem is not None:
        common.message("warning", f"The URL is invalid, so all pending dead letters are shown. {problem}")
    with common.panel(path):
        dead_letter_filters.show(path, query)
    if query.filter != st.session_state.get(_DRAWN_FILTER):
        st.session_state[_DRAWN_FILTER] = query.filter
        dead_letter_actions.filter_changed()
    st.fragment(_live, run_every=every)(path)
    st.fragment(decisions.table, run_every=every)(path)


def _totals(path: Path) -> None:
    """Show the number and size of the pending dead letters with their limits, and the number of archived ones."""
    with common.panel(path):
        counts = _counts(path)
        text = dead_letter_wording.waiting(counts.load, counts.bounds, time.time())
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            common.note(text, tooltip=dead_letter_wording.OVER_LIMIT)
            if counts.archived and dead_letter_url.current().where.state != "archived":
                st.button(
                    f"{counts.archived:,} archived", key="dead_letters_archived", type="tertiary",
                    icon=":material/inventory_2:", help="Show archived dead letters, which can be restored.",
                    on_click=_show_archived,
                )  # fmt: skip


def _counts(path: Path) -> dead_letter_queries.PendingCounts:
    """Return the counts, if possible from the same read as the list, so that both match."""
    query = dead_letter_url.current()
    if query.where.body is not None:
        return dead_letter_reads.pending(path)
    return dead_letter_reads.snapshot(path, query.at(time.time()), query.after).waiting


def _exceeded_limits(path: Path) -> None:
    """Show the limits that the pending dead letters exceed, and what to do."""
    with contextlib.suppress(StoreError):  # the totals already show the error
        if excess := _counts(path).excess:
            common.message("warning", dead_letter_wording.over(excess))


def _removed_clusters(path: Path) -> None:
    """Show the pending dead letters of clusters that no longer exist, with a link to those of each cluster."""
    with contextlib.suppress(StoreError):
        counts = _counts(path)
        if not counts.load.removed:
            return
        common.message("quiet", dead_letter_wording.of_removed_clusters(counts.load.removed))
        if dead_letter_url.current().where.cluster_id in counts.removed:
            return
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            pending = [cluster for cluster, number in counts.removed.items() if number]
            for cluster in pending[:_CLUSTER_LINKS]:
                st.button(
                    f"{counts.removed[cluster]:,} of {dead_letter_wording.visible_line(cluster, 60)}",
                    key=f"dead_letters_cluster_{cluster}", type="tertiary", icon=":material/filter_alt:",
                    on_click=_show_cluster, args=(cluster,),
                )  # fmt: skip


def _show_cluster(cluster: str) -> None:
    dead_letter_url.narrow(cluster_id=cluster, state="dead")


def _show_archived() -> None:
    dead_letter_url.narrow(state="archived")


# groups and dead letters


def _live(path: Path) -> None:
    """Draw groups and list from one read. The groups are drawn second, because a search in bodies determines them."""
    with common.panel(path):
        query = dead_letter_url.current()
        if query.filter != st.session_state[_DRAWN_FILTER]:
            st.rerun()  # a group was selected, so the filters above change as well
        above = st.container()
        common.heading("Dead letters")
        page, causes = _read(path, query)
        with above:
            _causes(causes, query.where.group)
        _draw(path, query, page)
        common.data_age(dead_letter_reads.data_time(path), time.time())
        if dead_letter_reads.choices(path, query.where.state) != st.session_state.get("choices"):
            st.rerun()  # last, because it interrupts the drawing


def _read(
    path: Path, query: DeadLetterQuery
) -> tuple[queries.DeadLetterPage, dead_letter_queries.CauseGroups | None]:
    if query.where.body is None:
        snapshot = dead_letter_reads.snapshot(path, query.at(time.time()), query.after)
        return snapshot.page, snapshot.causes
    page = dead_letter_search.page(path, query)
    found = dead_letter_search.result_filter(query)
    return page, dead_letter_reads.causes(path, found) if found else None


def _causes(causes: dead_letter_queries.CauseGroups | None, selected: str | None) -> None:
    """Draw the groups with count, times, meaning and advice; a click filters by one of them."""
    common.heading("Causes")
    if causes is None:
        common.note("Groups appear when the search is complete and has found dead letters.")
        return
    if not causes.total:
        common.note("Nothing to group.")
    rows = _group_rows(causes, selected)
    selection = Selection(
        selected, dead_letter_url.select_group, scrolls=False, collapsed=_COLLAPSED,
        expand=f"Show all {len(rows)} causes",
    )  # fmt: skip
    selectable_table(
        _GROUP_COLUMNS, rows, selection, look="pc-groups", key="causes", alt="Causes, largest first"
    )
    if causes.others:
        common.note(
            f"Not shown: {wording.plural(causes.others, 'dead letter of a smaller group', 'dead letters of smaller groups')}. Narrow the filters to see more groups."
        )


def _group_rows(causes: dead_letter_queries.CauseGroups, selected: str | None) -> list[TableRow]:
    groups = causes.groups
    if causes.one is not None and causes.one not in groups:
        groups = (causes.one, *groups)
    return [
        _group_row(group, causes.statuses.get(group.fingerprint), selected=group.fingerprint == selected)
        for group in groups
    ]


def _group_row(group: Group, status: CauseStatus | None = None, *, selected: bool) -> TableRow:
    topics = [dead_letter_wording.visible_line(topic, 60) for topic in group.topics]
    shown = topics if selected else topics[:3]
    more = f" and {len(topics) - len(shown)} more" if len(topics) > len(shown) else ""
    count, verdicts = wording.count(group.count), dead_letter_wording.verdicts(group.verdicts)
    title = f"{dead_letter_wording.visible_line(group.code, 80)} on {', '.join(shown)}{more}"
    meaning = f"{group.meaning} {group.advice}".strip() or "This error code has no description."
    sample = dead_letter_wording.visible_line(dead_letter.masked(group.sample_text))
    trend = dead_letter_wording.trend(group.trend.counts, group.trend.width)
    resolution = (
        "" if status is None else dead_letter.masked(resolutions.state(status, common.zone(), time.time()))
    )
    cause = (
        TablePart(title, button="pressed", tooltip="Show only this group"),
        TablePart(resolution, "bad" if status is not None and status.is_back else "plain")
        if resolution
        else "",
        TablePart(meaning, tooltip=meaning),
        TablePart(sample, "mono", tooltip=sample),
        f"{wording.plural(group.count, 'dead letter')}: {verdicts}. Group {group.fingerprint}."
        if selected
        else "",
    )
    seen = (("first", TablePart(at=group.first_seen)), ("last", TablePart(at=group.last_seen)))
    number = wording.compact(group.count) if group.count >= 1_000_000 else count
    return TableRow(
        group.fingerprint, (number, TablePart(bars=group.trend.counts, tooltip=trend), cause, seen)
    )


def _draw(path: Path, query: DeadLetterQuery, page: queries.DeadLetterPage) -> None:
    """Draw the list and the actions. The actions are above the list, but are drawn once the selection is known."""
    above, removed = st.container(), _counts(path).removed
    left, right = st.columns([3, 2])
    with left:
        ids = selectable_table(
            _COLUMNS,
            [_row(item, removed=item.cluster_id in removed) for item in page.dead_letters],
            Selection(
                query.dead_letter, dead_letter_url.open, details=".st-key-pc-dead-letter:has(.pc-facts)"
            ),
            Checkboxes(version=dead_letter_actions.version(), page=str(query.after or "")),
            look="pc-dead-letters",
            key="dead_letters",
            alt="Dead letters, latest first",
        )
        _pages(query, page)
    with right:
        if query.dead_letter is None:
            st.html('<i class="pc-closed"></i>')
        else:
            dead_letter.show(path, query.dead_letter, page.dead_letters)
    with above:
        offered = DeadLetterFilter(state=page.where.state) if ids else page.seen
        selection = actions.selected(offered, ids)  # a manual selection ignores the filters
        count = queries.scope(open_store(path), selection).count if ids else page.total
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            # The inner container keeps the position of Export; if it changed, both would be visible during a rerun.
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                _selection(path, query, page, ids)
            dead_letter_export.show(path, selection, count)
            _keys()
        dead_letter_actions.bar(path, offered, ids, query)
    shortcuts(len(ids), query.dead_letter)


def _keys() -> None:
    """Draw the list of the keys."""
    with st.popover("Keys", icon=":material/keyboard:", key="dead_letters_keys", type="tertiary"):
        rows = "".join(
            f"<dt><kbd>{html.escape(key)}</kbd></dt><dd>{html.escape(what)}</dd>" for key, what in KEYS
        )
        st.html(f'<dl class="pc-facts pc-keys">{rows}</dl>')


def _selection(
    path: Path, query: DeadLetterQuery, page: queries.DeadLetterPage, ids: tuple[str, ...]
) -> None:
    """Describe the dead letters to which the buttons below apply."""
    if ids:
        listed = {one.message_id for one in page.dead_letters}
        states = dead_letter_queries.states(open_store(path), ids)
        elsewhere = sum(one not in listed for one in ids)
        common.note(dead_letter_wording.chosen(len(ids), states, elsewhere, page.where.state))
        st.button(
            "Clear selection",
            key="dead_letters_none",
            type="tertiary",
            icon=":material/close:",
            on_click=_select_none,
        )
        st.button(
            "Show only these", key="dead_letters_only", type="tertiary", icon=":material/filter_alt:",
            on_click=dead_letter_url.show_only, args=(ids,), help="Puts their ids into the URL for sharing.",
        )  # fmt: skip
    elif page.total:
        first, found = query.after is None, query.where.body is not None
        text = dead_letter_wording.about(page.total, len(page.dead_letters), first=first, found=found)
        common.note(f"{text} Select some, or act on all." if page.total > 1 else text)


def _select_none() -> None:
    st.session_state["dead_letters_version"] = dead_letter_actions.version() + 1


def _pages(query: DeadLetterQuery, page: queries.DeadLetterPage) -> None:
    if not page.total:
        common.note(dead_letter_wording.none_match(page.where.state))
    if query.after is None and page.next is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        first = query.after is None
        st.button("Newest", key="dead_letters_newest", disabled=first, on_click=dead_letter_url.newest)
        st.button("Newer", key="dead_letters_newer", disabled=first, on_click=dead_letter_url.newer)
        st.button(
            "Older", key="dead_letters_older", disabled=page.next is None, on_click=dead_letter_url.older,
            args=(page.next,),
        )  # fmt: skip


def _row(item: DeadLetter, *, removed: bool) -> TableRow:
    replays = f" ({wording.plural(item.replay_count, 'replay')})" if item.replay_count else ""
    texts = (
        dead_letter_wording.visible_line(item.topic, 80),
        dead_letter_wording.key_cell(item.key),
        dead_letter_wording.visible_line(item.code, 60),
        item.verdict.replace("_", " ") + replays + (", cluster no longer exists" if removed else ""),
        dead_letter_wording.visible_line(dead_letter.masked(item.error_text)),
    )
    failed = TablePart(at=item.failed_at, button="expanded", tooltip="Show details")
    return TableRow(item.message_id, (failed, *(TablePart(text, tooltip=text) for text in texts)))
