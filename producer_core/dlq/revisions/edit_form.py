"""The form of a page that edits one dead letter: the texts that it shows, and the change that the edited texts mean."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from producer_core._internal import json_document
from producer_core._internal.json_document import NotJson
from producer_core._internal.masking import is_hidden, mask, mask_headers, mask_text
from producer_core.dlq.revisions.changes import UNCHANGED, FieldChange
from producer_core.dlq.revisions.drafts import MAX_TEXT, Draft
from producer_core.dlq.revisions.field_path import set_field, unset_field
from producer_core.dlq.revisions.json_patch import apply, diff, equal, steps_of
from producer_core.dlq.revisions.patch import Headers
from producer_core.dlq.revisions.plan_revision import LOCKED_HEADERS, EditedDeadLetter
from producer_core.dlq.revisions.refusal import NotEdited


@dataclass(frozen=True, slots=True)
class EditForm:
    """The texts of a form, masked. `problem` says why the value has no field to edit; `locked_headers` are not in `headers`.

    `edits_key` is set for malformed input, which has no key that decides its order yet.
    """

    base: int
    value: str
    headers: str
    key: str
    problem: str
    edits_value: bool
    edits_key: bool
    locked_headers: tuple[str, ...]

    @property
    def draft(self) -> Draft:
        """A draft without a change."""
        return Draft(self.base, self.value, self.headers, self.key)


def edit_form(edited: EditedDeadLetter) -> EditForm:
    """Return the form of a dead letter with what a replay would send now."""
    editable = _editable_headers(edited.headers)
    names = dict.fromkeys(name for name, _ in edited.headers)
    return EditForm(
        base=0 if edited.revision is None else edited.revision.number,
        value=_value_text(edited) if _edits_value(edited) else "",
        headers=_pretty(editable),
        key=_key_text(edited.key),
        problem=edited.now.problem,
        edits_value=_edits_value(edited),
        edits_key=edited.was_malformed,
        locked_headers=tuple(name for name in names if name not in editable),
    )


def change_of(edited: EditedDeadLetter, draft: Draft) -> FieldChange:
    """Return the change that a draft means. Raise NotEdited for texts that are not JSON, with the line of the error.

    Only differences from the shown texts are changes, so a masked field that the user leaves as it is keeps its content.
    """
    form = edit_form(edited)
    set_headers, unset_headers = _header_change(form.headers, draft.headers)
    key = draft.key.encode() if form.edits_key and draft.key != form.key else None
    return FieldChange(
        value=_new_value(edited, form, draft.value) if form.edits_value else UNCHANGED,
        set_headers=set_headers,
        unset_headers=unset_headers,
        key=key,
    )


def named_change(edited: EditedDeadLetter, change: FieldChange) -> FieldChange | None:
    """Return the change of a draft as changes of single fields, as a command names them.

    None if the change would show a masked value, or cannot be named.
    """
    if (
        is_hidden("values")
        or not _shows_headers(change)
        or (change.key is not None and not _shows_key(change.key))
    ):
        return None
    if change.value is UNCHANGED:
        return change
    if not edited.now.has_fields:
        return change if mask(change.value) == change.value else None
    before, after = mask(edited.now.view), mask(change.value)
    operations = diff(edited.now.view, change.value)
    if diff(before, after) != operations:
        return None  # a changed field is masked
    if any(one["path"] == "" for one in operations):
        return change if after == change.value else None
    sets = tuple((steps_of(one["path"]), one["value"]) for one in operations if one["op"] != "remove")
    unsets = tuple(steps_of(one["path"]) for one in operations if one["op"] == "remove")
    named = replace(change, value=UNCHANGED, set=sets, unset=unsets)
    return named if _makes(named, edited.now.view, change.value) else None


def _makes(change: FieldChange, before: Any, after: Any) -> bool:
    value = copy.deepcopy(before)
    try:
        for path, item in change.set:
            value = set_field(value, path, copy.deepcopy(item))
        for path in change.unset:
            value = unset_field(value, path)
    except NotEdited:
        return False
    return equal(value, after)


def _shows_headers(change: FieldChange) -> bool:
    return mask_headers(change.set_headers) == mask_headers(change.set_headers, reveal=True)


def _shows_key(key: bytes) -> bool:
    return not is_hidden("keys") and _key_text(key) == key.decode(errors="replace")


def _edits_value(edited: EditedDeadLetter) -> bool:
    if is_hidden("values") or edited.now.kind == "tombstone" or len(edited.value or b"") > MAX_TEXT:
        return False
    return edited.now.has_fields or edited.was_malformed or edited.now.schema_id is None


def _value_text(edited: EditedDeadLetter) -> str:
    if edited.now.has_fields:
        return _pretty(mask(edited.now.view))
    return mask_text((edited.value or b"").decode(errors="replace"))


def _key_text(key: bytes | None) -> str:
    return "" if key is None else mask_text(key.decode(errors="replace"))


def _new_value(edited: EditedDeadLetter, form: EditForm, text: str) -> Any:
    if text == form.value:
        return UNCHANGED
    new = _parsed(text, "The value")
    if not edited.now.has_fields:
        return new
    try:
        operations = diff(mask(edited.now.view), new)
        return apply(edited.now.view, operations) if operations else UNCHANGED
    except (ValueError, KeyError, TypeError):
        raise NotEdited("masked", "The change concerns a field whose name is masked.") from None


def _header_change(shown: str, text: str) -> tuple[Headers, tuple[str, ...]]:
    before, after = json.loads(shown), _parsed(text or "{}", "The headers")
    if not isinstance(after, dict) or not all(isinstance(item, str | None) for item in after.values()):
        raise NotEdited("invalid", "The headers are not a JSON object with a text or null for each name.")
    changed = {name: item for name, item in after.items() if name not in before or before[name] != item}
    new = tuple((name, None if item is None else _encoded(item)) for name, item in changed.items())
    return new, tuple(name for name in before if name not in after)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NotEdited("invalid", "A header has half of a surrogate pair.") from None


def _parsed(text: str, what: str) -> Any:
    try:
        return json_document.natural(json_document.parse(text.encode(errors="surrogatepass")))
    except NotJson as error:
        raise NotEdited("invalid", f"{what} cannot be saved: {error}{_place(text)}.") from None


def _place(text: str) -> str:
    """Return where a text stops to be JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f" (line {error.lineno}, column {error.colno}: {error.msg})"
    except (RecursionError, ValueError):
        return ""
    return ""


def _editable_headers(headers: Headers) -> Mapping[str, str | None]:
    """Return the headers that the form shows: those with one value, which is text, not masked and not locked."""
    if is_hidden("headers"):
        return {}
    names = [name for name, _ in headers]
    masked, plain = mask_headers(headers), mask_headers(headers, reveal=True)
    found: dict[str, str | None] = {}
    for number, (name, value) in enumerate(headers):
        if names.count(name) > 1 or name in LOCKED_HEADERS or masked[number] != plain[number]:
            continue
        try:
            found[name] = None if value is None else value.decode()
        except UnicodeDecodeError:
            continue
    return found


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
