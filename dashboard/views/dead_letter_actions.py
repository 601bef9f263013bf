"""The buttons over the dead letters, and how what they did went."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import actions, queries, wording
from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import common, dead_letter_url, reads, replay_detail
from producer_core.dashboard.wording import replays as told
from producer_core.dlq import DeadLetterFilter
from producer_core.errors import ReplayError, StoreError
from producer_core.store import Store

_OTHERS = 3
"""So many replays of others are named under the buttons."""


def version() -> int:
    """Rises with each act that moves dead letters, so that the list drops a selection that is about to go."""
    return int(st.session_state.get("letters_version", 0))


class PressedButton(NamedTuple):
    """One press of a button: its number, and the filter that was drawn with it."""

    number: int
    drawn: DeadLetterQuery | None = None


def other_filter() -> None:
    """Give the buttons other keys: a press of one that was drawn for another filter finds no button, and does nothing."""
    st.session_state["filters"] = st.session_state.get("filters", -1) + 1


def bar(
    path: Path, where: DeadLetterFilter, ids: tuple[str, ...], drawn: DeadLetterQuery | None = None
) -> None:
    """Replay and Clear with the number of dead letters they mean (Restore, of archived ones); then the last act in words.

    Acts are callbacks: they run before the page is drawn again, so a click is never lost to a refresh that
    begins at the same moment, and it means what was on the button when it was pressed. An act is refused where the
    browser's address asks for another filter than the one that was `drawn`.
    """
    offer = reads.offer(path, actions.selected(where, ids))
    followed, press = _followed(path), PressedButton(_presses(), drawn)
    if where.state == "archived":
        with st.container(horizontal=True, vertical_alignment="center"):
            _restore_button(path, offer, press)
    else:
        with st.container(horizontal=True, vertical_alignment="center"):
            _replay_button(path, offer, press, busy=followed is not None and not followed.operation.ended)
            _clear_button(path, offer, press)
            _hint(where, offer, followed)
        if offer.count and offer.active:
            common.say("warning", mask_text(offer.active))
        if offer.count and offer.refused:
            _nobody(path, offer)
    _result(path, followed)


def _followed(path: Path) -> queries.ReplayRow | None:
    """The replay that this session began last."""
    known: str | None = st.session_state.get("operation")
    if known is None:
        return None
    try:
        found: queries.ReplayRow = reads.replay(path, known)
        return found
    except ReplayError:  # the store is another one now
        st.session_state.pop("operation")
        return None


# the buttons


def _replay_button(path: Path, offer: queries.ReplayOffer, press: PressedButton, *, busy: bool) -> None:
    """Where a question is open, or a replay goes on, its own buttons are the first to press."""
    allowed, why_not = actions.may_act()
    possible = allowed and offer.count and not offer.refused
    st.button(
        told.replay_label(offer.count, at_once=offer.at_once), key=_key("replay"), type="secondary" if busy else "primary",
        icon=":material/replay:", disabled=not possible, help=why_not or told.CLICK,
        on_click=_replay, args=(path, offer, press),
    )  # fmt: skip


def _clear_button(path: Path, offer: queries.ReplayOffer, press: PressedButton) -> None:
    allowed, why_not = actions.may_act()
    st.button(
        wording.button_label("Clear", offer.count), key=_key("clear"), icon=":material/archive:",
        disabled=not (allowed and offer.count), on_click=_clear, args=(path, offer.about, press),
        help=why_not or "Puts them into the archive. Nothing is deleted; Undo brings them back.",
    )  # fmt: skip


def _restore_button(path: Path, offer: queries.ReplayOffer, press: PressedButton) -> None:
    allowed, why_not = actions.may_act()
    st.button(
        wording.button_label("Restore", offer.count), key=_key("restore"), icon=":material/unarchive:",
        disabled=not (allowed and offer.count), on_click=_restore, args=(path, offer.about, press),
        help=why_not or "Makes them dead letters again, as they were.",
    )  # fmt: skip


def _hint(where: DeadLetterFilter, offer: queries.ReplayOffer, followed: queries.ReplayRow | None) -> None:
    """Why the click does not send at once, or cannot be pressed."""
    if where.state not in ("dead", None):
        common.note("Only dead letters in the state dead can be replayed or cleared.")
    elif offer.count and not offer.refused:
        own = followed.operation.operation_id if followed else ""
        if any(one.operation_id == own for one, _ in offer.held):
            return  # it is drawn below
        common.note(
            told.why_dry_run(offer.count, queries.AT_ONCE, offer.doubtful, offer.left_out, offer.elsewhere)
        )


def _nobody(path: Path, offer: queries.ReplayOffer) -> None:
    common.say("warning", f"Nobody can replay these now. {mask_text(offer.refused)}")
    common.note(told.REMEDIES[offer.remedy])
    st.code(
        replay_detail.command(path, offer.about, other=offer.remedy == "cluster"),
        language=None,
        wrap_lines=True,
    )


def _key(name: str) -> str:
    filters = st.session_state.get("filters", 0)
    return f"{name}-{filters}" if filters else name


# the clicks


def _presses() -> int:
    """Rises with each act of this session: a second click of a double click carries the number of the first."""
    return int(st.session_state.get("presses", 0))


def _replay(path: Path, offer: queries.ReplayOffer, press: PressedButton) -> None:
    """At once where one click may send; else what would be done is shown first, frozen."""
    begin = actions.start_replay if offer.at_once else actions.look_ahead

    def act(store: Store) -> actions.ActionResult:
        return begin(store, offer.about, shown=offer.count)

    _do(path, act, press, moves=offer.at_once)


def _clear(path: Path, about: DeadLetterFilter, press: PressedButton) -> None:
    _do(path, lambda store: actions.clear(store, about), press)


def _restore(path: Path, about: DeadLetterFilter, press: PressedButton) -> None:
    _do(path, lambda store: actions.restore(store, about), press)


def _undo(path: Path, undo: tuple[DeadLetterFilter, float], press: PressedButton) -> None:
    _do(path, lambda store: actions.undo_clear(store, undo), press)


def _do(
    path: Path, act: Callable[[Store], actions.ActionResult], press: PressedButton, *, moves: bool = True
) -> None:
    """Act once for each press, remember how it went, and drop a selection whose dead letters go."""
    if press.number != _presses():
        return
    st.session_state["presses"] = press.number + 1
    if press.drawn is not None and not dead_letter_url.shows(press.drawn):
        done = actions.ActionResult(False, told.OTHER_FILTER)
    else:
        try:
            done = act(opened(path))
        except StoreError as error:
            done = actions.ActionResult(False, str(error))
    reads.again()
    st.session_state["done"] = done
    st.session_state.pop("operation", None)
    if done.operation_id is not None:
        st.session_state["operation"] = done.operation_id
    if moves and done.ok:
        st.session_state["letters_version"] = version() + 1


# how it went


def _result(path: Path, followed: queries.ReplayRow | None) -> None:
    """The last act in words; a replay as it goes on; then the replays of others."""
    done: actions.ActionResult | None = st.session_state.get("done")
    if done is not None:
        _said(path, done, follows=followed is not None)
    if followed is not None:
        replay_detail.show(path, followed, time.time())
    _others(path, followed.operation.operation_id if followed else "")


def _said(path: Path, done: actions.ActionResult, *, follows: bool) -> None:
    if done.ok and follows:
        if done.note:
            common.note(mask_text(done.note))
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        common.say("good" if done.ok else "bad", mask_text(f"{done.text} {done.note}".strip()))
        if done.undo is not None:
            st.button(
                "Undo",
                key="undo",
                icon=":material/undo:",
                on_click=_undo,
                args=(path, done.undo, PressedButton(_presses())),
            )


def _others(path: Path, followed: str) -> None:
    """Replays under way that this session does not follow: somebody else's, or begun before the page was loaded."""
    others = [one for one in reads.live_replays(path) if one.operation_id != followed]
    for one in others[-_OTHERS:]:
        st.html(
            f'<p class="pc-note">{html.escape(told.other_replay(one))} {replay_detail.link(one, "Look at it")}</p>'
        )
    if len(others) > _OTHERS:
        common.note(f"{len(others) - _OTHERS:,} more are under way; see Replays.")
