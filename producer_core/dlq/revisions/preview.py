"""What an edit would do, before anything is kept: numbers, refusals, and samples of the differences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from producer_core._internal.masking import display_key, display_value, mask, mask_headers
from producer_core._internal.plural import plural
from producer_core.dlq.revisions.field_path import path_text
from producer_core.dlq.revisions.json_patch import diff, steps_of
from producer_core.dlq.revisions.plan_revision import EditedDeadLetter, PlannedRevision
from producer_core.dlq.revisions.refusal import RefusalKind

SAMPLES = 5
"""Dead letters of a preview whose differences are shown."""
_MAX_REFUSALS = 100


@dataclass(frozen=True, slots=True)
class Difference:
    """One changed field: its path, and its masked JSON before and after. None: the field is absent."""

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.before)} → {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class Sample:
    """The differences of one dead letter."""

    message_id: str
    topic: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A dead letter that the edit leaves unchanged, and why."""

    message_id: str
    kind: RefusalKind
    reason: str


@dataclass
class EditPreview:
    """What an edit would do. `Editor.keep` keeps it; until then nothing is changed.

    `matched` dead letters were looked at: `count` of them change, `unchanged` stay the same, and the others are refused, of
    which `refusals` has the first hundred.
    """

    matched: int = 0
    selection: Mapping[str, str] = field(default_factory=dict)
    planned: list[PlannedRevision] = field(default_factory=list)
    unchanged: int = 0
    refused: Counter[RefusalKind] = field(default_factory=Counter)
    refusals: list[Refusal] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of dead letters that change."""
        return len(self.planned)

    @property
    def misfits(self) -> int:
        """The number of dead letters whose new value does not fit its schema."""
        return self.refused["misfit"]

    @property
    def replacements(self) -> int:
        """The number of edits that become messages of their own, because the original may be on its topic."""
        return sum(planned.replaces for planned in self.planned)

    @property
    def text(self) -> str:
        """Describe the preview for the operator."""
        sentences = [f"{self.count:,} of {plural(self.matched, 'dead letter')} would change."]
        if self.unchanged:
            sentences.append(f"{plural(self.unchanged, 'stays', 'stay')} the same.")
        for kind, words in _KINDS:
            if number := self.refused[kind]:
                sentences.append(f"{number:,} {words[number != 1]}.")
        if self.replacements:
            originals = "1 original" if self.replacements == 1 else f"{self.replacements:,} originals"
            becomes = (
                "its edit is a new message" if self.replacements == 1 else "their edits are new messages"
            )
            sentences.append(f"{originals} may be on the topic: {becomes} with the header pc-replaces.")
        return " ".join(sentences)

    def add_refusal(self, message_id: str, kind: RefusalKind, reason: str) -> None:
        self.refused[kind] += 1
        if len(self.refusals) < _MAX_REFUSALS:
            self.refusals.append(Refusal(message_id, kind, reason))

    def add_planned(self, edited: EditedDeadLetter, planned: PlannedRevision, view: Any) -> None:
        self.planned.append(planned)
        if len(self.samples) < SAMPLES:
            self.samples.append(Sample(planned.message_id, planned.topic, differences(edited, planned, view)))


def differences(edited: EditedDeadLetter, planned: PlannedRevision, view: Any) -> tuple[Difference, ...]:
    """Return the differences between what a replay would send now and the planned revision, masked."""
    found: list[Difference] = []
    if planned.value != edited.value:
        if edited.now.has_fields:
            found += _field_differences(mask(edited.now.view), mask(view))
        else:
            before = display_value(edited.value)  # the text of malformed input is not quoted as JSON
            text = before if isinstance(before, str) else _json(before)
            found.append(Difference("the value", text, _json(mask(view))))
    found += _header_differences(mask_headers(edited.headers), mask_headers(planned.headers))
    if planned.key != edited.key:
        found.append(Difference("the key", _json(display_key(edited.key)), _json(display_key(planned.key))))
    return tuple(found)


_KINDS: Sequence[tuple[RefusalKind, tuple[str, str]]] = (
    ("misfit", ("does not fit its schema", "do not fit their schemas")),
    ("masked", ("would change a masked field", "would change masked fields")),
    ("unreadable", ("has no fields that can be edited", "have no fields that can be edited")),
    ("invalid", ("cannot be changed in this way", "cannot be changed in this way")),
    ("state", ("is not pending or cannot be sent", "are not pending or cannot be sent")),
)


def _field_differences(before: Any, after: Any) -> list[Difference]:
    return [
        Difference(
            path_text(steps_of(one["path"])),
            None if one["op"] == "add" else _json(_at(before, steps_of(one["path"]))),
            None if one["op"] == "remove" else _json(one["value"]),
        )
        for one in diff(before, after)
    ]


def _header_differences(before: Sequence[Any], after: Sequence[Any]) -> list[Difference]:
    old, new = dict(before), dict(after)
    names = [*old, *(name for name in new if name not in old)]
    return [
        Difference(
            f"header {name}",
            _json(old[name]) if name in old else None,
            _json(new[name]) if name in new else None,
        )
        for name in names
        if (name in old, old.get(name)) != (name in new, new.get(name))
    ]


def _at(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _shown(text: str | None) -> str:
    return "(none)" if text is None else text
