"""Edit the dead letters of a store: preview, keep, undo. Each change is one audited transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.plural import plural
from producer_core.dlq.dead_letters import DeadLetters
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.dlq.revisions import keep_revisions, undo_revisions
from producer_core.dlq.revisions.changes import Change
from producer_core.dlq.revisions.plan_revision import EditedDeadLetter, decoded, plan_revision
from producer_core.dlq.revisions.preview import EditPreview
from producer_core.dlq.revisions.refusal import NotEdited
from producer_core.dlq.revisions.revision import Lineage, all_of, current, ids_with_revision, replacement_of
from producer_core.dlq.revisions.value_codec import ValueCodec, codec_for
from producer_core.errors import ConfigError
from producer_core.roles.role_check import check_operator

if TYPE_CHECKING:
    from producer_core.store import Store

MAX_EDITED = 10_000
"""Dead letters of one edit, which is one transaction."""
MAX_BYTES = 64 << 20
"""Bytes of all new values of one edit, which are in memory."""
_SLICE = 500


@dataclass(frozen=True)
class EditResult:
    """The number of dead letters that changed, with a sentence for the operator.

    `left` were changed by others since the preview, and stay as they are. `replacements` has the new message id of each
    original that may be on its topic.
    """

    count: int
    left: int
    text: str
    replacements: Mapping[str, str]


class Editor:
    """Edits the dead letters of one store. Use one for each command or request; it may be used in one thread.

    The original of a dead letter is never changed. An edit is a revision with its author, reason and time. A replay sends
    the latest revision, under the same message id if the verdict says that the original is not on its topic. Otherwise the
    edit is a dead letter of its own with a new id and the header `pc-replaces`, and the original is archived. An original
    and its edit are therefore never both sent.

    `registry` has settings such as `schema.registry.url`, for values with a schema id.
    """

    def __init__(
        self,
        store: Store,
        *,
        registry: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._clock = clock
        self._dead = DeadLetters(store, clock=clock)
        self._codec: ValueCodec = codec_for(lambda: store.get_setting("schema_registry"), registry)

    def preview(self, where: DeadLetterFilter, change: Change) -> EditPreview:
        """Return what a change of the matching dead letters would do. Nothing is kept.

        Raise ConfigError for an invalid change, and for more than MAX_EDITED dead letters or MAX_BYTES bytes.
        """
        ids = self._dead.ids(where, limit=MAX_EDITED + 1)
        if len(ids) > MAX_EDITED:
            raise ConfigError(
                f"The selection has more than {MAX_EDITED:,} dead letters, the most that one edit changes.",
                fix="Select fewer, for example by topic, group or time.",
            )
        preview, size = EditPreview(matched=len(ids), selection=where.to_query()), 0
        for edited in self._slices(ids):
            size += self._plan(edited, change, preview)
            if size > MAX_BYTES:
                raise ConfigError(
                    f"The new values have more than {MAX_BYTES >> 20} MiB in all, the most that one edit keeps.",
                    fix="Select fewer dead letters.",
                )
        return preview

    def keep(self, preview: EditPreview, *, who: str, origin: str, reason: str) -> EditResult:
        """Keep a preview as revisions. Dead letters that have changed since the preview stay as they are.

        Raise ConfigError without a reason, and NotPermitted if the approval policy lets this person only view.
        """
        reason = reason.strip()
        if not reason:
            raise ConfigError("An edit needs a reason.", fix="Say why the records are changed.")
        with self._store.borrow(write=True) as connection:
            check_operator(self._store, who=who, origin=origin, now=self._clock())
            kept = keep_revisions.keep(
                connection, preview.planned, now=self._clock(), who=who, origin=origin, reason=reason
            )
            result = _result(kept, preview)
            self._audit("edit", who, origin, preview.selection, result.count, f"{result.text} {reason}")
        return result

    def undo(self, where: DeadLetterFilter, *, who: str, origin: str) -> EditResult:
        """Undo the current revision of each matching dead letter that has one and was not sent since.

        The previous revision then applies, or the original. The id of an original selects its edit, if that is a dead
        letter of its own. Raise NotPermitted if the approval policy lets this person only view.
        """
        only_ids = bool(where.ids) and where == DeadLetterFilter(ids=where.ids, state=where.state)
        ids = where.ids if only_ids else self._edited(where)
        with self._store.borrow(write=True) as connection:
            check_operator(self._store, who=who, origin=origin, now=self._clock())
            named = (replacement_of(connection, message_id) or message_id for message_id in ids)
            ids = list(dict.fromkeys(named))  # an original and its edit are one
            undone = undo_revisions.undo(connection, ids, now=self._clock(), who=who, origin=origin)
            text = " ".join(
                [f"Undid {plural(len(undone.ids), 'edit')}.", *undone.reasons, *_paused(undone.paused)]
            )
            self._audit("undo_edit", who, origin, where.to_query(), len(undone.ids), text)
        return EditResult(len(undone.ids), undone.left, text, {})

    def lineage(self, message_id: str) -> Lineage:
        """Return the revisions of a dead letter, also undone ones, and the id that its edit has if it has another one."""
        with self._store.borrow() as connection:
            found = all_of(connection, [message_id]).get(message_id, [])
            return Lineage(tuple(found), replacement_of(connection, message_id))

    def decoded(self, message_id: str) -> EditedDeadLetter | None:
        """Return a dead letter decoded, with its current revision; None for an unknown id."""
        return next(iter(self._decoded([message_id])), None)

    def edited(self, where: DeadLetterFilter) -> int:
        """Return how many of the matching dead letters have a revision that is not undone."""
        return len(self._edited(where))

    def _edited(self, where: DeadLetterFilter) -> Sequence[str]:
        condition, parameters = self._dead.frozen(where).where()
        with self._store.borrow() as connection:
            return ids_with_revision(connection, condition, parameters)

    def _slices(self, ids: Sequence[str]) -> Iterator[list[EditedDeadLetter]]:
        for first in range(0, len(ids), _SLICE):
            yield self._decoded(ids[first : first + _SLICE])

    def _decoded(self, ids: Sequence[str]) -> list[EditedDeadLetter]:
        with self._store.borrow() as connection:
            dead_letters, revisions = self._dead.bodies(ids), current(connection, ids)
        return [decoded(one, revisions.get(one.message_id), self._codec) for one in dead_letters]

    def _plan(self, edited: Sequence[EditedDeadLetter], change: Change, preview: EditPreview) -> int:
        """Add these dead letters to the preview. Return the bytes of their new values."""
        size = 0
        pending = [one for one in edited if not _problem(one)]
        for one in edited:
            if problem := _problem(one):
                preview.add_refusal(one.dead_letter.message_id, "state", problem)
        for one, changed in zip(pending, change.apply([one.record for one in pending]), strict=True):
            try:
                if isinstance(changed, NotEdited):
                    raise changed
                found = plan_revision(one, changed, self._codec, change.schema_id)
            except NotEdited as refusal:
                preview.add_refusal(one.dead_letter.message_id, refusal.kind, refusal.reason)
                continue
            if found is None:
                preview.unchanged += 1
                continue
            preview.add_planned(one, *found)
            size += found[0].size
        return size

    def _audit(
        self, action: str, who: str, origin: str, selection: Mapping[str, str], count: int, outcome: str
    ) -> None:
        self._store.audit(
            who=who, origin=origin, action=action, selection=selection, count=count, outcome=outcome
        )


def _problem(edited: EditedDeadLetter) -> str:
    """Return why a dead letter cannot be edited, whatever the change; an empty text if it can."""
    dead_letter = edited.dead_letter
    if dead_letter.state == "dead" and not dead_letter.replayable and not edited.was_malformed:
        return "It cannot be replayed, because its topic or its content is not known."
    return "" if dead_letter.state == "dead" else _state(dead_letter.state)


def _state(state: str) -> str:
    if state == "replaying":
        return "A replay has claimed it."
    if state == "archived":
        return "It is archived; restore it first."
    return f"It is {state}."


def _result(kept: keep_revisions.Kept, preview: EditPreview) -> EditResult:
    count = len(kept.numbers)
    sentences = [f"Edited {plural(count, 'dead letter')}."]
    if kept.replacements:
        sentences.append(
            f"{plural(len(kept.replacements), 'original')} may be on the topic and "
            f"{'is' if len(kept.replacements) == 1 else 'are'} archived; "
            f"{'its edit has a new message id' if len(kept.replacements) == 1 else 'their edits have new message ids'}."
        )
    sentences += _paused(kept.paused)
    if left := preview.count - count:
        sentences.append(
            f"{left:,} changed since the preview and {'was' if left == 1 else 'were'} not edited."
        )
    return EditResult(count, left, " ".join(sentences), kept.replacements)


def _paused(operation_ids: Sequence[str]) -> list[str]:
    """Return a sentence about the replays whose start an edit took back."""
    if not operation_ids:
        return []
    it, they = ("it", "it has") if len(operation_ids) == 1 else ("them", "they have")
    return [
        f"Paused {plural(len(operation_ids), 'replay')} ({', '.join(operation_ids)}), because {they} still to send edited "
        f"dead letters. Resume {it} to continue."
    ]
