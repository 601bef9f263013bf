"""Draw the form that edits one dead letter. The store keeps its texts, so that a reload or a cut connection loses nothing."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_or_hide
from producer_core.dashboard import actions
from producer_core.dashboard.actions import edits
from producer_core.dashboard.actions.action_code import ActionCode
from producer_core.dashboard.components.draft_form import Field, Typed, draft_form
from producer_core.dashboard.components.scroll_into_view import scroll_into_view
from producer_core.dashboard.queries import dead_letter_edit as edit_queries
from producer_core.dashboard.queries.dead_letter_edit import DraftPreview
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import action_menu, common, dead_letter_reads, reads
from producer_core.dashboard.wording import dead_letters as dead_letter_wording
from producer_core.dlq.revisions.drafts import Draft
from producer_core.dlq.revisions.edit_form import EditForm
from producer_core.errors import StoreError
from producer_core.events import DeadLetter

_FORM = "pc-dead-letter-edit"
_FIELDS, _RESULT, _CODE = "edit_fields", "edit_result", "edit_code"
_CHANGED = "The text has changed since. Check the differences, then save again."
_SESSION, _REPORTED, _STARTED = "edit_session", "edit_reported", "edit_started"
"""The record whose form this session has drawn, the last report of the browser that it has handled, and the record whose
Edit button was pressed last."""


def button(path: Path, dead_letter: DeadLetter) -> None:
    """Draw the button that starts a draft; a read-only user cannot press it."""
    if dead_letter.state != "dead":
        return
    allowed, reason = actions.may_act(path)
    st.button(
        "Edit", key=f"dead_letter_edit_{dead_letter.message_id}", icon=":material/edit:", disabled=not allowed,
        help=reason or "Changes the value or headers that a replay sends. The original is kept.",
        on_click=_start, args=(path, dead_letter.message_id),
    )  # fmt: skip


def show(path: Path, dead_letter: DeadLetter, stamp: tuple[str, float, int]) -> None:
    """Draw the result of the last edit, who else edits the record, and the form if the user has a draft."""
    message_id, store = dead_letter.message_id, open_store(path)
    _result(message_id)
    who = actions.user()
    draft = edit_queries.draft(store, who, message_id)
    for other, saved_at in edit_queries.other_drafts(store, who, message_id)[:3]:
        st.html(
            f'<p class="pc-note">{html.escape(dead_letter_wording.visible_line(other))} edits this record, '
            f"last change {common.time_element(saved_at)}.</p>"
        )
    if draft is None:
        return
    form = _form_texts(path, message_id, stamp, draft)
    if form is None:
        return
    with st.container(key=_FORM):
        scroll_into_view(
            key=f"edit_scroll_{message_id}", enabled=st.session_state.get(_STARTED) == message_id
        )
        common.heading("Edit")
        common.note("Message id, partition and time stay as they are. Drafts are saved while you type.")
        draft = _fields(path, dead_letter, form, draft)
        _review(path, message_id, draft, _preview(path, message_id, stamp, draft))


def _form_texts(path: Path, message_id: str, stamp: tuple[str, float, int], draft: Draft) -> EditForm | None:
    """Return the texts that the draft is compared with; read again only if the record or the draft's base changes."""
    place = (message_id, stamp, draft.base)
    known = st.session_state.get("edit_form")
    if known is None or known[0] != place:
        known = (place, edit_queries.form(open_store(path), message_id))
        st.session_state["edit_form"] = known
    form: EditForm | None = known[1]
    return form


# the fields


def _fields(path: Path, dead_letter: DeadLetter, form: EditForm, draft: Draft) -> Draft:
    """Draw the fields with the texts of the draft. Return the draft with what the browser reported."""
    message_id = dead_letter.message_id
    if not form.edits_value:
        common.note(mask_or_hide(form.problem) or "The value cannot be edited here.")
    elif form.problem:
        common.message("warning", "The value is not JSON. Correct it below.")
    if form.edits_key and dead_letter.source:
        source = dead_letter_wording.visible_line(mask_or_hide(dead_letter.source), 200)
        common.note(f"This is {source}.")
    fields = [
        *([Field("value", "Value (JSON)", draft.value, rows=_rows(form.value))] if form.edits_value else []),
        Field("headers", "Headers (JSON)", draft.headers, rows=min(_rows(form.headers), 4)),
        *([Field("key", "Key", draft.key, placeholder="none")] if form.edits_key else []),
        Field("reason", "Reason", draft.reason, placeholder="Why the record is changed"),
    ]
    typed = draft_form(
        message_id, fields, stamp=draft.saved_at, saved=(draft.client, draft.report), key=_FIELDS
    )
    if form.locked_headers:
        names = ", ".join(
            dead_letter_wording.visible_line(mask_or_hide(name), 80) for name in form.locked_headers
        )
        common.note(f"Headers that are not editable here: {names}.")
    return draft if typed is None else _save(path, message_id, draft, typed)


def _rows(text: str) -> int:
    """Return the height of the field for a text, so that the buttons below a short one are in view."""
    lines = sum(1 + len(line) // 60 for line in text.splitlines())
    return min(max(lines + 1, 3), 12)


def _save(path: Path, message_id: str, draft: Draft, typed: Typed) -> Draft:
    """Save what the browser reports, once. A session that only reconnected does not overwrite what was saved since."""
    reported = (typed.client, typed.number)
    session_knows = st.session_state.get(_SESSION) == message_id
    st.session_state[_SESSION] = message_id
    if typed.form != message_id or reported == st.session_state.get(_REPORTED):
        return draft
    st.session_state[_REPORTED] = reported
    if draft.client == typed.client and draft.report >= typed.number:
        return draft
    if not session_knows and draft.client != typed.client and draft.saved_at != typed.stamp:
        return draft
    texts = {name: getattr(draft, name) for name in ("value", "headers", "key", "reason")} | dict(typed.texts)
    new = Draft(draft.base, **texts, saved_at=draft.saved_at, client=typed.client, report=typed.number)
    done = edits.save_draft(open_store(path), message_id, new)
    if not done.ok:
        # The next run saves it, unless another page has saved since.
        del st.session_state[_REPORTED], st.session_state[_SESSION]
        common.message("bad", mask_or_hide(done.text))
        return new
    return edit_queries.draft(open_store(path), actions.user(), message_id) or new


# the differences, and the buttons


def _preview(path: Path, message_id: str, stamp: tuple[str, float, int], text: Draft) -> DraftPreview:
    """Return the differences; computed again only if a text or the record changes."""
    latest = edit_queries.lineage(open_store(path), message_id).revisions
    texts = (text.base, text.value, text.headers, text.key)
    place = (message_id, stamp, texts, [(one.number, one.undone_at) for one in latest])
    known = st.session_state.get("edit_preview")
    if known is None or known[0] != place:
        known = (place, edit_queries.preview(open_store(path), message_id, text))
        st.session_state["edit_preview"] = known
    preview: DraftPreview = known[1]
    return preview


def _review(path: Path, message_id: str, text: Draft, preview: DraftPreview) -> None:
    allowed, reason = actions.may_act(path)
    if preview.problem:
        common.message("bad", mask_or_hide(preview.problem))
    _differences(preview)
    ready = bool(allowed and preview.differences and not preview.problem)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            "Save edit", key=f"edit_save_{message_id}", type="primary", icon=":material/save:",
            disabled=not ready or not text.reason.strip(), on_click=_keep, args=(path, message_id, text),
            help=reason or ("" if text.reason.strip() else "Enter a reason first."),
        )  # fmt: skip
        if ready and text.reason.strip():
            action_menu.draw(
                path, {"Save edit": _code(path, message_id, text)}, key=f"edit_code_{message_id}"
            )
        if preview.conflict:
            st.button(
                "Apply to the latest edit", key=f"edit_rebase_{message_id}", disabled=not allowed,
                on_click=_rebase, args=(path, message_id, text),
                help="Compares the draft with what a replay would send now. Check the differences before saving.",
            )  # fmt: skip
        st.button(
            "Discard draft", key=f"edit_discard_{message_id}", type="tertiary", disabled=not allowed,
            on_click=_discard, args=(path, message_id), help=reason or "Deletes the draft. The record stays as it is.",
        )  # fmt: skip


def _code(path: Path, message_id: str, text: Draft) -> ActionCode:
    """Return the edit as code; computed again only if a text changes."""
    known = st.session_state.get(_CODE)
    if known is None or known[0] != (message_id, text):
        known = ((message_id, text), edits.code(open_store(path), message_id, text))
        st.session_state[_CODE] = known
    code: ActionCode = known[1]
    return code


def _differences(preview: DraftPreview) -> None:
    if not preview.differences:
        if not preview.problem:
            common.note("No changes yet.")
        return
    rows = "".join(
        f"<tr><th scope='row'>{_cell(one.path)}</th><td>{_cell(one.before)}</td><td>{_cell(one.after)}</td></tr>"
        for one in preview.differences[:50]
    )
    head = "<thead><tr><th>Field</th><th>Before</th><th>After</th></tr></thead>"
    st.html(f'<table class="pc-headers pc-differences">{head}<tbody>{rows}</tbody></table>')
    if len(preview.differences) > 50:
        common.note(f"and {len(preview.differences) - 50:,} more.")
    if preview.replaces:
        common.message(
            "warning",
            "The original may be on its topic. The edit becomes a new message with the header pc-replaces, and the "
            "original is archived.",
        )


def _cell(text: str | None) -> str:
    return (
        "<i>none</i>"
        if text is None
        else html.escape(dead_letter_wording.visible_line(mask_or_hide(text), 500))
    )


def _result(message_id: str) -> None:
    shown_id, done = st.session_state.get(_RESULT, ("", None))
    if done is not None and shown_id == message_id and done.text:
        common.message("good" if done.ok else "bad", mask_or_hide(f"{done.text} {done.note}".strip()))


# callbacks


def _start(path: Path, message_id: str) -> None:
    """Save a draft without a change; the form is shown as long as a draft exists."""
    st.session_state[_STARTED] = message_id
    try:
        store = open_store(path)
        if edit_queries.draft(store, actions.user(), message_id) is not None:
            return
        form = edit_queries.form(store, message_id)
        if form is not None:
            _done(message_id, edits.save_draft(store, message_id, form.draft))
    except StoreError as error:
        _done(message_id, actions.ActionResult(False, str(error)))


def _keep(path: Path, message_id: str, text: Draft) -> None:
    """Save the edit whose differences the button was drawn with, unless the user has typed since."""
    try:
        store = open_store(path)
        if edit_queries.draft(store, actions.user(), message_id) not in (None, text) or _typed_since(text):
            done = actions.ActionResult(False, _CHANGED)
        else:
            done = edits.save_edit(store, message_id, text)
    except StoreError as error:
        done = actions.ActionResult(False, str(error))
    _done(message_id, done)
    if done.ok:
        forget(message_id)


def _typed_since(text: Draft) -> bool:
    """Return whether the browser has reported other texts than those that the button was drawn with."""
    found = st.session_state.get(_FIELDS) or {}
    typed = found.get("typed") or {}
    texts = typed.get("texts") or {}
    return typed.get("client") == text.client and any(
        getattr(text, name) != one for name, one in texts.items()
    )


def _rebase(path: Path, message_id: str, text: Draft) -> None:
    """Compare the draft with the latest edit from now on."""
    try:
        store = open_store(path)
        form = edit_queries.form(store, message_id)
        if form is not None:
            _done(message_id, edits.save_draft(store, message_id, replace(text, base=form.base)))
    except StoreError as error:
        _done(message_id, actions.ActionResult(False, str(error)))


def _discard(path: Path, message_id: str) -> None:
    try:
        done = edits.discard_draft(open_store(path), message_id)
    except StoreError as error:
        done = actions.ActionResult(False, str(error))
    _done(message_id, done)
    if done.ok:
        forget(message_id)


def forget(message_id: str) -> None:
    """Forget the texts of the fields and everything that was read of the record before the change."""
    for name in ("edit_form", "edit_preview", _CODE):
        st.session_state.pop(name, None)
    dead_letter_reads.clear_records()
    reads.clear()
    dead_letter_reads.clear()


def _done(message_id: str, done: actions.ActionResult) -> None:
    st.session_state[_RESULT] = (message_id, done)
