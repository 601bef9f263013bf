"""Edit one dead letter: keep a draft, save it as a revision, undo the latest revision."""

from __future__ import annotations

from producer_core.dashboard.actions import action_code
from producer_core.dashboard.actions.action_code import ActionCode
from producer_core.dashboard.actions.result import ORIGIN, ActionResult, attempt
from producer_core.dashboard.auth.access import actor
from producer_core.dashboard.queries.dead_letter_edit import planned
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.revisions.drafts import Draft, Drafts
from producer_core.dlq.revisions.edit_form import change_of
from producer_core.dlq.revisions.editor import Editor
from producer_core.dlq.revisions.refusal import NotEdited
from producer_core.errors import ConfigError, ProducerError
from producer_core.store import Store


def save_draft(store: Store, message_id: str, draft: Draft) -> ActionResult:
    """Keep the texts of the form in the store, so that a reload or another browser shows them again."""
    try:
        Drafts(store, actor()).save(message_id, draft)
    except ProducerError as error:
        return ActionResult(False, f"The draft was not saved. {error}")
    return ActionResult(True, "")


def discard_draft(store: Store, message_id: str) -> ActionResult:
    """Delete the user's draft; the dead letter stays as it is."""
    try:
        Drafts(store, actor()).discard(message_id)
    except ProducerError as error:
        return ActionResult(False, str(error))
    return ActionResult(True, "")


def save_edit(
    store: Store, message_id: str, draft: Draft, *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """Save a draft as a revision, and delete the draft. If the record changed since, the draft stays and nothing is saved."""

    def act(name: str) -> ActionResult:
        editor = Editor(store)
        try:
            preview = planned(editor, message_id, draft)
        except NotEdited as refusal:
            raise ConfigError(refusal.reason) from refusal
        if preview.refusals:
            raise ConfigError(preview.refusals[0].reason)
        with store.borrow(write=True):
            result = editor.keep(preview, who=name, origin=origin, reason=draft.reason)
            if not result.count:
                raise ConfigError("The record has changed, so the edit was not saved. The draft is kept.")
            Drafts(store, name).discard(message_id)
        new = next(iter(result.replacements.values()), None)
        return ActionResult(True, result.text, note=f"The edit is {new}." if new else "")

    return attempt(store, "edit", {"ids": message_id}, act, who=who, origin=origin)


def code(store: Store, message_id: str, draft: Draft) -> ActionCode:
    """Return the edit of a draft as code; none for a draft that cannot be saved."""
    edited = Editor(store).decoded(message_id)
    try:
        change = None if edited is None else change_of(edited, draft)
    except NotEdited:
        change = None
    if edited is None or change is None:
        return action_code.NONE
    return action_code.edit(store.path, message_id, edited, change, draft.reason)


def undo_edit(store: Store, message_id: str, *, who: str | None = None, origin: str = ORIGIN) -> ActionResult:
    """Undo the latest revision of a dead letter that was not sent."""

    def act(name: str) -> ActionResult:
        where = DeadLetterFilter(ids=(message_id,), state=None)
        result = Editor(store).undo(where, who=name, origin=origin)
        return ActionResult(result.count > 0, result.text)

    return attempt(store, "undo_edit", {"ids": message_id}, act, who=who, origin=origin)
