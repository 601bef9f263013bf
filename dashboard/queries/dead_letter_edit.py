"""Read what the page shows of edits of one dead letter: its revisions, the form, and the differences of a draft."""

from __future__ import annotations

from typing import NamedTuple

from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.revisions.drafts import Draft, Drafts
from producer_core.dlq.revisions.edit_form import EditForm, change_of, edit_form
from producer_core.dlq.revisions.editor import Editor
from producer_core.dlq.revisions.preview import Difference, EditPreview
from producer_core.dlq.revisions.refusal import NotEdited
from producer_core.dlq.revisions.revision import Lineage
from producer_core.errors import ConfigError
from producer_core.store import Store

CHANGED = "Someone saved another edit of this record after this draft was started."
_GONE = "This dead letter is no longer in the store."


class DraftPreview(NamedTuple):
    """The differences that a draft makes, and why it cannot be saved, if so. `conflict`: another edit was saved since.

    `replaces`: the original may be on its topic, so the edit becomes a message with its own id.
    """

    differences: tuple[Difference, ...] = ()
    problem: str = ""
    conflict: bool = False
    replaces: bool = False


def lineage(store: Store, message_id: str) -> Lineage:
    """Return the revisions of a dead letter, the oldest first."""
    return Editor(store).lineage(message_id)


def form(store: Store, message_id: str) -> EditForm | None:
    """Return the texts of the form, or None for an unknown id."""
    found = Editor(store).decoded(message_id)
    return None if found is None else edit_form(found)


def draft(store: Store, who: str, message_id: str) -> Draft | None:
    """Return the user's draft, or None."""
    return Drafts(store, who).find(message_id)


def other_drafts(store: Store, who: str, message_id: str) -> list[tuple[str, float]]:
    """Return who else edits this dead letter, and when they changed their draft."""
    return Drafts(store, who).others(message_id)


def preview(store: Store, message_id: str, text: Draft) -> DraftPreview:
    """Return what saving the draft would change. A value that cannot be read is a problem only once it is edited."""
    try:
        found = planned(Editor(store), message_id, text)
    except NotEdited as refusal:
        return DraftPreview(problem=refusal.reason, conflict=refusal.reason == CHANGED)
    except ConfigError as error:
        return DraftPreview(problem=str(error))
    refused = found.refusals[0] if found.refusals else None
    if refused is not None and refused.kind == "unreadable" and _still_unreadable(store, text, message_id):
        refused = None
    problem = "" if refused is None else refused.reason
    differences = found.samples[0].differences if found.samples else ()
    return DraftPreview(differences, problem, replaces=found.replacements > 0)


def _still_unreadable(store: Store, text: Draft, message_id: str) -> bool:
    """Return whether the draft has the value of malformed input, above which the form asks for the correction."""
    shown = form(store, message_id)
    return shown is not None and shown.edits_value and text.value == shown.value


def planned(editor: Editor, message_id: str, text: Draft) -> EditPreview:
    """Return the preview of a draft. Raise NotEdited or ConfigError if it cannot be saved."""
    edited = editor.decoded(message_id)
    if edited is None:
        raise NotEdited("state", _GONE)
    if edit_form(edited).base != text.base:
        raise NotEdited("state", CHANGED)
    return editor.preview(DeadLetterFilter(ids=(message_id,), state=None), change_of(edited, text))
