"""Draw the buttons that replay, clear and restore dead letters, and the results of these actions."""

from __future__ import annotations

import html
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import actions, queries, wording
from producer_core.dashboard.actions import action_code
from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import action_menu, common, dead_letter_url, reads, replay_detail
from producer_core.dashboard.wording import dry_run as dry_run_wording
from producer_core.dashboard.wording import replays as replay_wording
from producer_core.dlq import DeadLetterFilter
from producer_core.errors import ReplayError, StoreError
from producer_core.store import Store

_SHOWN_OTHERS = 3
"""Number of other users' replays that are shown under the buttons."""


def version() -> int:
    """Return the version of the selection; each action that moves dead letters raises it, which clears the selection."""
    return int(st.session_state.get("dead_letters_version", 0))


class PressedButton(NamedTuple):
    """Identify one press of a button by its number, with the filter for which the button was drawn."""

    number: int
    drawn: DeadLetterQuery | None = None


def filter_changed() -> None:
    """Give the buttons new keys, so that a press of a button drawn for the previous filter does nothing."""
    st.session_state["filters"] = st.session_state.get("filters", -1) + 1


def bar(
    path: Path, where: DeadLetterFilter, ids: tuple[str, ...], drawn: DeadLetterQuery | None = None
) -> None:
    """Draw Replay and Clear, or Restore for archived dead letters, and the result of the last action.

    Actions are callbacks, which run before the page is redrawn. A refresh at the same time therefore does not lose the
    click, and the click applies to what the button showed. An action is refused if the browser's URL now requests
    a different filter from `drawn`.
    """
    offer = reads.offer(path, actions.selected(where, ids))
    followed, press = _followed(path), PressedButton(_presses(), drawn)
    if where.state == "archived":
        with st.container(horizontal=True, vertical_alignment="center"):
            _restore_button(path, offer, press)
            _menu(path, offer, "actions_code")
    else:
        with st.container(key="pc-dead-letters-bar", horizontal=True, vertical_alignment="center"):
            _replay_button(path, offer, press, busy=followed is not None and not followed.operation.ended)
            _clear_button(path, offer, press)
            _menu(path, offer, "actions_code")
            _hint(where, offer, followed)
    if followed is not None and followed.operation.ended:
        _result(path, followed)
        _warnings(path, where, offer)  # they apply to the remaining dead letters
    else:
        _warnings(path, where, offer)
        _result(path, followed)


def _followed(path: Path) -> queries.ReplayRow | None:
    """Return the replay that this session started last."""
    operation_id: str | None = st.session_state.get("operation")
    if operation_id is None:
        return None
    try:
        row: queries.ReplayRow = reads.replay(path, operation_id)
        return row
    except ReplayError:  # the store was replaced
        st.session_state.pop("operation")
        return None


# buttons


def _replay_button(path: Path, offer: queries.ReplayOffer, press: PressedButton, *, busy: bool) -> None:
    """Draw Replay; it is not the primary button while a replay is open, which has buttons of its own."""
    allowed, reason = actions.may_act(path)
    possible = allowed and offer.count and not offer.refused
    st.button(
        replay_wording.replay_label(offer.count, at_once=offer.at_once), key=_key("replay"), type="secondary" if busy else "primary",
        icon=":material/replay:", disabled=not possible, help=reason or replay_wording.CLICK,
        on_click=_replay, args=(path, offer, press),
    )  # fmt: skip


def _clear_button(path: Path, offer: queries.ReplayOffer, press: PressedButton) -> None:
    allowed, reason = actions.may_act(path)
    them = wording.them(offer.count)
    st.button(
        wording.button_label("Clear", offer.count), key=_key("clear"), icon=":material/archive:",
        disabled=not (allowed and offer.count), on_click=_clear, args=(path, offer.about, press),
        help=reason or f"Archives {them} without deleting anything. Undo restores {them}.",
    )  # fmt: skip


def _restore_button(path: Path, offer: queries.ReplayOffer, press: PressedButton) -> None:
    allowed, reason = actions.may_act(path)
    st.button(
        wording.button_label("Restore", offer.count), key=_key("restore"), icon=":material/unarchive:",
        disabled=not (allowed and offer.count), on_click=_restore, args=(path, offer.about, press),
        help=reason or f"Makes {wording.them(offer.count)} pending again, unchanged.",
    )  # fmt: skip


def _menu(path: Path, offer: queries.ReplayOffer, key: str) -> None:
    """Draw the menu that copies the actions on a selection as code, as far as their buttons are enabled."""
    if not offer.count:
        return
    about = _of_now(offer.about)
    if about.state == "archived":
        action_menu.draw(path, {"Restore": action_code.restore(path, about)}, key=key)
        return
    replays = {"Replay": action_code.replay(path, about, at_once=offer.at_once)} if not offer.refused else {}
    action_menu.draw(path, {**replays, "Clear": action_code.clear(path, about)}, key=key)


def _of_now(about: DeadLetterFilter) -> DeadLetterFilter:
    """Return the selection without dead letters that fail after now, because its code may run much later."""
    if about.ids:
        return about
    return replace(about, until=min(about.until or math.inf, round(time.time(), 3)))


def record_buttons(path: Path, message_id: str, state: str) -> None:
    """Draw Replay and Clear, or Restore, for one dead letter. The result is shown above the list.

    The keys contain the id, so that a press of a button drawn for another record does nothing.
    """
    if state not in ("dead", "archived"):
        return
    offer = reads.offer(path, DeadLetterFilter(ids=(message_id,), state=state))
    press = PressedButton(_presses())
    allowed, reason = actions.may_act(path)
    enabled = bool(allowed and offer.count)
    if state == "archived":
        st.button(
            "Restore", key=f"dead_letter_restore_{message_id}", icon=":material/unarchive:", disabled=not enabled,
            help=reason or "Makes it pending again, unchanged.", on_click=_restore, args=(path, offer.about, press),
        )  # fmt: skip
        return
    st.button(
        "Replay" if offer.at_once else "Replay …", key=f"dead_letter_replay_{message_id}", icon=":material/replay:",
        disabled=not enabled or bool(offer.refused), on_click=_replay, args=(path, offer, press),
        help=reason or mask_text(offer.refused) or _why_dry_run(offer) or replay_wording.CLICK,
    )  # fmt: skip
    st.button(
        "Clear", key=f"dead_letter_clear_{message_id}", icon=":material/archive:", disabled=not enabled,
        help=reason or "Archives it without deleting anything. Undo restores it.",
        on_click=_clear, args=(path, offer.about, press),
    )  # fmt: skip


def record_menu(path: Path, message_id: str, state: str) -> None:
    """Draw the menu that copies the actions of `record_buttons` as code."""
    if state in ("dead", "archived"):
        offer = reads.offer(path, DeadLetterFilter(ids=(message_id,), state=state))
        _menu(path, offer, f"dead_letter_code_{message_id}")


def _why_dry_run(offer: queries.ReplayOffer) -> str:
    return replay_wording.why_dry_run(
        offer.count,
        queries.AT_ONCE,
        offer.doubtful,
        offer.left_out,
        offer.elsewhere,
        skipped=dry_run_wording.skipped(offer.run) if offer.run else "",
    )


def _hint(where: DeadLetterFilter, offer: queries.ReplayOffer, followed: queries.ReplayRow | None) -> None:
    """Show why Replay does not send at once, or is disabled."""
    if where.state not in ("dead", None):
        common.note("Only pending dead letters can be replayed or cleared.")
    elif offer.count and not offer.refused:
        own = followed.operation.operation_id if followed else ""
        if any(one.operation_id == own for one, _ in offer.held):
            return  # the replay is drawn below
        common.note(_why_dry_run(offer))


def _warnings(path: Path, where: DeadLetterFilter, offer: queries.ReplayOffer) -> None:
    """Show why a replay of the selected dead letters may fail, or cannot start."""
    if where.state == "archived" or not offer.count:
        return
    if offer.active:
        common.message("warning", mask_text(offer.active))
    if offer.refused:
        _cannot_replay(path, offer)


def _cannot_replay(path: Path, offer: queries.ReplayOffer) -> None:
    these = "This dead letter" if offer.count == 1 else "These dead letters"
    common.message("warning", f"{these} cannot be replayed now. {mask_text(offer.refused)}")
    common.note(replay_wording.REMEDIES[offer.remedy])
    st.code(
        replay_detail.command(path, offer.about, other_cluster=offer.remedy == "cluster"),
        language=None,
        wrap_lines=True,
    )


def _key(name: str) -> str:
    filters = st.session_state.get("filters", 0)
    return f"{name}-{filters}" if filters else name


# callbacks


def _presses() -> int:
    """Return the number of actions of this session. The second click of a double click carries the same number."""
    return int(st.session_state.get("presses", 0))


def _replay(path: Path, offer: queries.ReplayOffer, press: PressedButton) -> None:
    """Start the replay if one click may send; otherwise plan it as a dry run."""
    start = actions.start_replay if offer.at_once else actions.plan_replay

    def act(store: Store) -> actions.ActionResult:
        return start(store, offer.about, shown=offer.count)

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
    """Act once for each press, store the result, and clear the selection if the action `moves` its dead letters."""
    if press.number != _presses():
        return
    st.session_state["presses"] = press.number + 1
    if press.drawn is not None and not dead_letter_url.shows(press.drawn):
        done = actions.ActionResult(False, replay_wording.OTHER_FILTER)
    else:
        try:
            done = act(open_store(path))
        except StoreError as error:
            done = actions.ActionResult(False, str(error))
    reads.clear()
    st.session_state["done"] = done
    st.session_state.pop("operation", None)
    if done.operation_id is not None:
        st.session_state["operation"] = done.operation_id
    if moves and done.ok:
        st.session_state["dead_letters_version"] = version() + 1


# results


def _result(path: Path, followed: queries.ReplayRow | None) -> None:
    """Show the result of the last action, the progress of this session's replay, and other replays."""
    done: actions.ActionResult | None = st.session_state.get("done")
    if done is not None:
        _message(path, done, follows=followed is not None)
    if followed is not None:
        replay_detail.show(path, followed, time.time())
    _other_replays(path, followed.operation.operation_id if followed else "")


def _message(path: Path, done: actions.ActionResult, *, follows: bool) -> None:
    if done.ok and follows:
        if done.note:
            common.note(mask_text(done.note))
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        common.message("good" if done.ok else "bad", mask_text(f"{done.text} {done.note}".strip()))
        if done.undo is not None:
            st.button(
                "Undo",
                key="undo",
                icon=":material/undo:",
                on_click=_undo,
                args=(path, done.undo, PressedButton(_presses())),
            )
            action_menu.draw(path, {"Undo": action_code.undo_clear(path, done.undo)}, key="undo_code")


def _other_replays(path: Path, followed: str) -> None:
    """List the running replays of other users, and those started before the page was loaded."""
    others = [one for one in reads.live_replays(path) if one.operation_id != followed]
    for one in others[-_SHOWN_OTHERS:]:
        st.html(
            f'<p class="pc-note">{html.escape(replay_wording.other_replay(one))} {replay_detail.link(one, "Show details")}</p>'
        )
    if len(others) > _SHOWN_OTHERS:
        common.note(replay_wording.more_in_progress(len(others) - _SHOWN_OTHERS))
