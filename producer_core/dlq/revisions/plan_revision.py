"""Make the revision of one dead letter from a change, and check it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from producer_core._internal.id_header import ID_HEADER
from producer_core.dlq.revisions import masked_fields
from producer_core.dlq.revisions.changes import UNCHANGED, Changed, EditableRecord
from producer_core.dlq.revisions.json_patch import Operation, diff
from producer_core.dlq.revisions.patch import Headers, Patch, header_changes
from producer_core.dlq.revisions.refusal import NotEdited
from producer_core.dlq.revisions.revision import Revision
from producer_core.dlq.revisions.value_codec import DecodedFields, ValueCodec
from producer_core.errors import InvalidMessage
from producer_core.events import SAFE_VERDICTS, DeadLetter
from producer_core.messages import ORIGINAL_TIMESTAMP, REPLACES, REVISION, encode_headers

LOCKED_HEADERS = (
    *(ID_HEADER, ORIGINAL_TIMESTAMP, REVISION, REPLACES),
    *("__value_schema_id", "__key_schema_id"),
)
"""Headers that no edit changes: those of producer_core, and schema ids, which an edit writes itself."""


@dataclass(frozen=True, slots=True)
class PlannedRevision:
    """A checked revision that is not kept yet.

    `base` is the number of the current revision that it is made from, 0 for the original. With `replaces`, the original may
    be on its topic, so the edit becomes a message of its own.
    """

    message_id: str
    topic: str
    base: int
    replaces: bool
    patch: Patch
    key: bytes | None
    value: bytes | None
    headers: Headers
    makes_replayable: bool

    @property
    def size(self) -> int:
        """The size of key and value in bytes."""
        return len(self.value or b"") + len(self.key or b"")


@dataclass(frozen=True, slots=True)
class EditedDeadLetter:
    """A dead letter with its current revision, decoded: the original, and what a replay would send now."""

    dead_letter: DeadLetter
    revision: Revision | None
    original: DecodedFields
    now: DecodedFields

    @property
    def headers(self) -> Headers:
        return self.dead_letter.headers if self.revision is None else self.revision.headers

    @property
    def key(self) -> bytes | None:
        return self.dead_letter.key if self.revision is None else self.revision.key

    @property
    def value(self) -> bytes | None:
        return self.dead_letter.value if self.revision is None else self.revision.value

    @property
    def patch(self) -> Patch:
        return Patch() if self.revision is None else self.revision.patch

    @property
    def was_malformed(self) -> bool:
        return self.dead_letter.never_a_message or (
            self.revision is not None and self.revision.made_replayable
        )

    @property
    def record(self) -> EditableRecord:
        return EditableRecord(
            self.dead_letter.message_id,
            self.dead_letter.topic,
            self.key,
            self.now.view,
            self.now.has_fields,
            self.now.problem,
            self.headers,
        )


def decoded(dead_letter: DeadLetter, revision: Revision | None, codec: ValueCodec) -> EditedDeadLetter:
    """Return the dead letter with its original and its current value decoded."""
    original = codec.read(dead_letter.value, dead_letter.headers, dead_letter.topic)
    now = original if revision is None else codec.read(revision.value, revision.headers, dead_letter.topic)
    return EditedDeadLetter(dead_letter, revision, original, now)


def plan_revision(
    edited: EditedDeadLetter, changed: Changed, codec: ValueCodec, schema_id: int | None
) -> tuple[PlannedRevision, Any] | None:
    """Return the revision that a change makes, and the new decoded value; None if it changes nothing.

    Raise NotEdited if the change concerns something masked or locked, or if the new value does not fit its schema.
    """
    dead_letter = edited.dead_letter
    headers = _new_headers(edited, changed)
    key = _new_key(edited, changed)
    written_with = edited.original.schema_id
    target = schema_id or edited.patch.schema_id or written_with
    operations, view = _operations(edited, changed)
    value = edited.value
    if operations != edited.patch.value or target != (edited.patch.schema_id or written_with):
        document = codec.changed(edited.original, operations) if edited.original.has_fields else view
        value = codec.write(
            document, topic=dead_letter.topic, headers=headers, written_with=written_with, schema_id=target
        )
    set_headers, unset_headers = header_changes(dead_letter.headers, headers)
    patch = Patch(
        operations, set_headers, unset_headers, key if key != dead_letter.key else None,
        target if value != dead_letter.value else written_with,
    )  # fmt: skip
    if (value, headers, key) == (edited.value, edited.headers, edited.key):
        return None
    planned = PlannedRevision(
        dead_letter.message_id,
        dead_letter.topic,
        0 if edited.revision is None else edited.revision.number,
        dead_letter.verdict not in SAFE_VERDICTS,
        patch,
        key,
        value,
        headers,
        not dead_letter.replayable,
    )
    return planned, view


def _operations(edited: EditedDeadLetter, changed: Changed) -> tuple[tuple[Operation, ...], Any]:
    """Return the difference from the original value after the change, and the new decoded value."""
    if changed.value is UNCHANGED:
        if not edited.dead_letter.replayable and not edited.now.has_fields:
            raise NotEdited("unreadable", edited.now.problem)
        return edited.patch.value, edited.now.view
    if edited.original.kind == "tombstone":
        raise NotEdited("unreadable", edited.original.problem)
    if not edited.original.has_fields:
        if edited.original.schema_id is not None and edited.dead_letter.replayable:
            raise NotEdited("unreadable", edited.original.problem)
        masked_fields.check_whole_value(edited.dead_letter.value, changed.value)
        return ({"op": "replace", "path": "", "value": changed.value},), changed.value
    masked_fields.check_value(edited.original.view, changed.value)
    return tuple(diff(edited.original.view, changed.value)), changed.value


def _new_headers(edited: EditedDeadLetter, changed: Changed) -> Headers:
    for name in (*dict(changed.set_headers), *changed.unset_headers):
        if name in LOCKED_HEADERS:
            raise NotEdited("invalid", f"The header {name} is locked.")
    try:
        encode_headers(changed.set_headers)
    except InvalidMessage as error:
        raise NotEdited("invalid", str(error)) from error
    step = Patch(set_headers=changed.set_headers, unset_headers=changed.unset_headers)
    headers = step.headers_of(edited.headers)
    masked_fields.check_headers(edited.dead_letter.headers, headers)
    return headers


def _new_key(edited: EditedDeadLetter, changed: Changed) -> bytes | None:
    if changed.key is None or changed.key == edited.key:
        return edited.key
    if not edited.was_malformed:
        raise NotEdited("invalid", "The key is locked: it decides the partition and the order.")
    masked_fields.check_key(changed.key)
    return changed.key
