"""The changes that an operator or program asks for: of fields, or by a function."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from producer_core.dlq.revisions.field_path import Path, set_field, unset_field
from producer_core.dlq.revisions.patch import Headers
from producer_core.dlq.revisions.refusal import NotEdited


class Unchanged(Enum):
    """The type of UNCHANGED. A member of an enumeration stays the same object in a deep copy."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
"""The value stays as it is."""


@dataclass(frozen=True, slots=True)
class EditableRecord:
    """A dead letter for a change: what a replay would send now. `value` is the decoded value, None without fields."""

    message_id: str
    topic: str
    key: bytes | None
    value: Any
    has_fields: bool
    problem: str
    headers: Headers


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of a change. `value` is the new decoded value, or UNCHANGED. `key` is None if it stays."""

    value: Any = UNCHANGED
    set_headers: Headers = ()
    unset_headers: tuple[str, ...] = ()
    key: bytes | None = None


class Change(Protocol):
    """A change of dead letters. `schema_id` is the schema to write the values with; None for the one they have."""

    @property
    def schema_id(self) -> int | None: ...

    def apply(self, records: Sequence[EditableRecord]) -> Sequence[Changed | NotEdited]:
        """Return one result for each record, in the same order."""


@dataclass(frozen=True)
class FieldChange:
    """Sets and removes fields and headers, the same in each record. `value` replaces the whole value."""

    set: tuple[tuple[Path, Any], ...] = ()
    unset: tuple[Path, ...] = ()
    value: Any = UNCHANGED
    set_headers: Headers = ()
    unset_headers: tuple[str, ...] = ()
    key: bytes | None = None
    schema_id: int | None = None

    def apply(self, records: Sequence[EditableRecord]) -> Sequence[Changed | NotEdited]:
        return [_or_refusal(self._changed, record) for record in records]

    def _changed(self, record: EditableRecord) -> Changed:
        return Changed(self._new_value(record), self.set_headers, self.unset_headers, self.key)

    def _new_value(self, record: EditableRecord) -> Any:
        value = copy.deepcopy(self.value)
        if not self.set and not self.unset:
            return value
        if value is UNCHANGED:
            if not record.has_fields:
                raise NotEdited("unreadable", record.problem)
            value = copy.deepcopy(record.value)
        for path, item in self.set:
            value = set_field(value, path, copy.deepcopy(item))
        for path in self.unset:
            value = unset_field(value, path)
        return value


@dataclass(frozen=True)
class FunctionChange:
    """Calls a function with each decoded value. It returns the new value, or changes the one it gets and returns None.

    An exception of the function leaves the record unchanged; its type is reported, because its text may quote the value.
    """

    function: Callable[[Any], Any]
    schema_id: int | None = None
    errors: list[BaseException] = field(default_factory=list, compare=False)
    """The exceptions of the function, in order, for the program that passed it."""

    def apply(self, records: Sequence[EditableRecord]) -> Sequence[Changed | NotEdited]:
        return [_or_refusal(self._changed, record) for record in records]

    def _changed(self, record: EditableRecord) -> Changed:
        if not record.has_fields:
            raise NotEdited("unreadable", record.problem)
        value = copy.deepcopy(record.value)
        try:
            returned = self.function(value)
        except Exception as error:
            self.errors.append(error)
            raise NotEdited("invalid", f"The function raised {type(error).__name__}.") from error
        return Changed(value if returned is None else returned)


def _or_refusal(change: Callable[[EditableRecord], Changed], record: EditableRecord) -> Changed | NotEdited:
    try:
        return change(record)
    except NotEdited as refusal:
        return refusal
