"""Draw the revisions of one dead letter, and the button that undoes the latest one."""

from __future__ import annotations

import html
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_or_hide
from producer_core.dashboard import actions, wording
from producer_core.dashboard.actions import action_code, edits
from producer_core.dashboard.queries import dead_letter_edit as edit_queries
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import action_menu, common, dead_letter_edit, dead_letter_url
from producer_core.dashboard.wording import dead_letters as dead_letter_wording
from producer_core.dlq.revisions.revision import Revision
from producer_core.dlq.revisions.revision_text import change_lines
from producer_core.errors import StoreError
from producer_core.events import DeadLetter


def show(path: Path, dead_letter: DeadLetter) -> None:
    """Draw what a replay sends instead of the original, and the edits with their author, time and reason."""
    lineage = edit_queries.lineage(open_store(path), dead_letter.message_id)
    if lineage.replaced_by is not None:
        common.message("quiet", "An edit replaces this record. It has its own message id.")
        st.button(
            "Open the edit", key="dead_letter_replacement", type="tertiary", icon=":material/arrow_forward:",
            on_click=dead_letter_url.open, args=(lineage.replaced_by,),
        )  # fmt: skip
    if not lineage.revisions:
        return
    common.heading("Edits")
    current = [one for one in lineage.revisions if one.undone_at is None]
    if current:
        number = current[-1].number
        if dead_letter.state == "replayed":
            common.message("quiet", f"Revision {number} was sent, not the value below.")
        else:
            common.message("warning", f"A replay sends revision {number}, not the value below.")
    st.html(f'<ol class="pc-timeline">{"".join(map(_line, reversed(lineage.revisions)))}</ol>')
    if current and dead_letter.state == "dead":
        allowed, reason = actions.may_act(path)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.button(
                "Undo edit", key=f"edit_undo_{dead_letter.message_id}", icon=":material/undo:", disabled=not allowed,
                on_click=_undo, args=(path, dead_letter.message_id),
                help=reason or "The edit before it then applies, or the original.",
            )  # fmt: skip
            code = action_code.undo_edit(path, dead_letter.message_id)
            action_menu.draw(path, {"Undo edit": code}, key=f"edit_undo_code_{dead_letter.message_id}")


def _line(one: Revision) -> str:
    undone = (
        ""
        if one.undone_at is None
        else f" Undone {common.time_element(one.undone_at)} by {_text(one.undone_by or '')}."
    )
    lines = change_lines(one.patch)
    more = f" and {wording.plural(len(lines) - 5, 'more change')}" if len(lines) > 5 else ""
    changes = _text(", ".join(lines[:5])) + more
    return (
        f'<li class="pc-l-quiet">{common.time_element(one.made_at)}<b>revision {one.number}</b> by {_text(one.who)}'
        f"<span>{_text(one.reason)}. {changes}{undone}</span></li>"
    )


def _text(text: str) -> str:
    return html.escape(dead_letter_wording.visible_line(mask_or_hide(text), 1_000))


def _undo(path: Path, message_id: str) -> None:
    try:
        done = edits.undo_edit(open_store(path), message_id)
    except StoreError as error:
        done = actions.ActionResult(False, str(error))
    st.session_state["edit_result"] = (message_id, done)
    dead_letter_edit.forget(message_id)
