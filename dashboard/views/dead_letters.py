"""The dead letters: their causes first, then the dead letters; choose some, look inside one, act."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import actions, queries, wording
from producer_core.dashboard.components.dead_letter_list import DeadLetterRow, letter_list
from producer_core.dashboard.components.group_list import GroupItem, group_list
from producer_core.dashboard.queries import dead_letter_list as of_dead_letters
from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery
from producer_core.dashboard.server.stores import opened
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
    header,
)
from producer_core.dashboard.wording import dead_letters as said
from producer_core.dlq import DeadLetterFilter, Group
from producer_core.errors import StoreError
from producer_core.events import DeadLetter

_REFRESH = 2.0
_COLUMNS = ("Died", "Topic", "Key", "Error", "Verdict", "Text")
_DRAWN = "letters_drawn"


def show(path: Path) -> None:
    st.html(f"<style>{style_sheet('dead_letters')}</style>")
    asked, wrong = dead_letter_url.asked()
    every = _REFRESH if st.session_state.get("live", True) else None
    with st.container(key="pc-letters-head", horizontal=True, vertical_alignment="center", gap="small"):
        header.title("Dead letters")
        st.fragment(_waiting, run_every=every)(path)
        st.toggle(
            "Live", value=True, key="live", persist_state="session",
            help="Off: the page stands still until you switch it on again.",
        )  # fmt: skip
    st.fragment(_over, run_every=every)(path)
    if wrong is not None:
        common.say("warning", f"The address asks for what is not there, so all that wait are shown. {wrong}")
    with common.panel(path):
        dead_letter_filters.show(path, asked)
    if asked.filter != st.session_state.get(_DRAWN):
        st.session_state[_DRAWN] = asked.filter
        dead_letter_actions.other_filter()
    st.fragment(_live, run_every=every)(path)


def _waiting(path: Path) -> None:
    """What waits, against its bounds."""
    with common.panel(path):
        found = _loaded(path)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            common.note(said.waiting(found.load, found.bounds, time.time()), more=said.OVER_LIMIT)
            if found.archived and dead_letter_url.now().where.state != "archived":
                st.button(
                    f"{found.archived:,} archived", key="letters_archived", type="tertiary", icon=":material/inventory_2:",
                    help="Put aside. Restore brings them back.", on_click=_look_at_archived,
                )  # fmt: skip


def _loaded(path: Path) -> of_dead_letters.PendingCounts:
    """As of the moment that the list is of, where one visit to the store reads both."""
    asked = dead_letter_url.now()
    if asked.where.body is not None:
        return dead_letter_reads.waiting(path)
    return dead_letter_reads.seen(path, asked.at(time.time()), asked.after).waiting


def _over(path: Path) -> None:
    """The bounds that are passed, and what to do."""
    with contextlib.suppress(StoreError):  # said above already
        if excess := _loaded(path).excess:
            common.say("warning", said.over(excess))


def _look_at_archived() -> None:
    dead_letter_url.narrow(state="archived")


# causes and dead letters


def _live(path: Path) -> None:
    """Both of one moment. The causes stand first, and are drawn second: a search in bodies says which they are."""
    with common.panel(path):
        asked = dead_letter_url.now()
        if asked.filter != st.session_state[_DRAWN]:
            st.rerun()  # a cause was chosen: the filters above say so too
        above = st.container()
        common.heading("Letters")
        page, causes = _read(path, asked)
        with above:
            _causes(causes, asked.where.group)
        _draw(path, asked, page)
        heard, now = dead_letter_reads.heard(path), time.time()
        common.stays(heard, now)
        if dead_letter_reads.choices(path, asked.where.state) != st.session_state.get("choices"):
            st.rerun()  # last, because what it interrupts is not drawn


def _read(
    path: Path, asked: DeadLetterQuery
) -> tuple[queries.DeadLetterPage, of_dead_letters.CauseGroups | None]:
    if asked.where.body is None:
        seen = dead_letter_reads.seen(path, asked.at(time.time()), asked.after)
        return seen.page, seen.causes
    page = dead_letter_search.page(path, asked)
    found = dead_letter_search.frozen(asked)
    return page, dead_letter_reads.causes(path, found) if found else None


def _causes(found: of_dead_letters.CauseGroups | None, chosen: str | None) -> None:
    """By cause: how many, since when, what it means and what to do; a click looks at one of them only."""
    common.heading("Causes")
    if found is None:
        common.note(
            "Causes are counted once a search in bodies has found some and has looked into everything."
        )
        return
    if not found.total:
        common.note("Nothing to group.")
    group_list(_items(found, chosen), key="causes", on_pick=dead_letter_url.group)
    if found.others:
        common.note(
            f"{wording.plural(found.others, 'dead letter')} in smaller groups: narrow the filters to see those."
        )


def _items(found: of_dead_letters.CauseGroups, chosen: str | None) -> list[GroupItem]:
    groups = found.groups
    if found.one is not None and found.one not in groups:
        groups = (found.one, *groups)
    return [_item(group, on=group.fingerprint == chosen) for group in groups]


def _item(group: Group, *, on: bool) -> GroupItem:
    topics = [said.visible_line(topic, 60) for topic in group.topics]
    shown = topics if on else topics[:3]
    more = f" and {len(topics) - len(shown)} more" if len(topics) > len(shown) else ""
    return GroupItem(
        id=group.fingerprint,
        count=wording.compact(group.count) if group.count >= 1_000_000 else wording.count(group.count),
        title=f"{said.visible_line(group.code, 80)} on {', '.join(shown)}{more}",
        means=f"{group.meaning} {group.advice}".strip() or "Nobody has described this code yet.",
        sample=said.visible_line(dead_letter.masked(group.sample_text)),
        kinds=f"{wording.count(group.count)} dead letters: {said.verdicts(group.verdicts)}. Group {group.fingerprint}.",
        first=group.first_seen,
        last=group.last_seen,
        trend=group.trend.counts,
        trend_text=said.trend(group.trend.counts, group.trend.width),
        on=on,
    )


def _draw(path: Path, asked: DeadLetterQuery, page: queries.DeadLetterPage) -> None:
    """What acts are about stands above the list, so it is filled when the list has said what is chosen in it."""
    above = st.container()
    left, right = st.columns([3, 2])
    with left:
        ids = letter_list(
            _COLUMNS,
            [_row(item) for item in page.dead_letters],
            key="letters",
            version=dead_letter_actions.version(),
            page=str(asked.after or ""),
            open=asked.dead_letter,
            on_look=dead_letter_url.open,
            alt="Dead letters, the latest first",
        )
        _pages(asked, page)
    with right:
        if asked.dead_letter is None:
            st.html('<i class="pc-closed"></i>')
        else:
            dead_letter.show(path, asked.dead_letter)
    with above:
        offered = DeadLetterFilter(state=page.where.state) if ids else page.seen
        about = actions.selected(offered, ids)  # by hand is by id, whatever the filters say by now
        number = queries.scope(opened(path), about).count if ids else page.total
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            # One place, however much is said in it: else Export moves, and stands there twice until the page is drawn.
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                _about(path, asked, page, ids)
            dead_letter_export.show(path, about, number)
        dead_letter_actions.bar(path, offered, ids, asked)


def _about(path: Path, asked: DeadLetterQuery, page: queries.DeadLetterPage, ids: tuple[str, ...]) -> None:
    """What a click on a button below would be about."""
    if ids:
        listed = {one.message_id for one in page.dead_letters}
        states = of_dead_letters.states(opened(path), ids)
        elsewhere = sum(one not in listed for one in ids)
        common.note(said.chosen(len(ids), states, elsewhere, page.where.state))
        st.button(
            "Choose none", key="letters_none", type="tertiary", icon=":material/close:", on_click=_choose_none
        )
        st.button(
            "Show only these", key="letters_only", type="tertiary", icon=":material/filter_alt:", on_click=dead_letter_url.only, args=(ids,),
            help="Writes their ids into the address, which can be shared.",
        )  # fmt: skip
    elif page.total:
        first, found = asked.after is None, asked.where.body is not None
        text = said.about(page.total, len(page.dead_letters), first=first, found=found)
        common.note(f"{text} Choose some, or act on all of them." if page.total > 1 else text)


def _choose_none() -> None:
    st.session_state["letters_version"] = dead_letter_actions.version() + 1


def _pages(asked: DeadLetterQuery, page: queries.DeadLetterPage) -> None:
    if not page.total:
        common.note(said.none_match(page.where.state))
    if asked.after is None and page.next is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        first = asked.after is None
        st.button("Newest", key="letters_newest", disabled=first, on_click=dead_letter_url.newest)
        st.button("Newer", key="letters_newer", disabled=first, on_click=dead_letter_url.newer)
        st.button(
            "Older", key="letters_older", disabled=page.next is None, on_click=dead_letter_url.older, args=(page.next,)
        )  # fmt: skip


def _row(item: DeadLetter) -> DeadLetterRow:
    again = f" ({wording.plural(item.replay_count, 'replay')})" if item.replay_count else ""
    cells = (
        said.visible_line(item.topic, 80),
        said.key_cell(item.key),
        said.visible_line(item.code, 60),
        item.verdict.replace("_", " ") + again,
        said.visible_line(dead_letter.masked(item.error_text)),
    )
    return DeadLetterRow(item.message_id, item.failed_at, cells)
