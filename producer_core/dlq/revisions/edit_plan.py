"""An edit for notebooks: show its preview before anything is kept, then keep it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from producer_core._internal import html
from producer_core._internal.actor import NOTEBOOK, current_actor
from producer_core.dlq.revisions.changes import Change, FieldChange, FunctionChange
from producer_core.dlq.revisions.editor import Editor, EditResult
from producer_core.dlq.revisions.field_path import parse_path
from producer_core.dlq.revisions.sql_change import SqlChange
from producer_core.errors import ConfigError

if TYPE_CHECKING:
    from producer_core.dlq.filter import DeadLetterFilter
    from producer_core.dlq.revisions.preview import EditPreview
    from producer_core.store import Store

ChangeArgument = Callable[[Any], Any] | str | Mapping[str, Any]
_TO_DECIDE = "Nothing has been changed yet. Call go(reason) to keep the edit."


class Edit:
    """A previewed edit. It shows how many dead letters change, which do not fit their schema, and samples.

    Nothing is changed before `go`.
    """

    def __init__(self, editor: Editor, preview: EditPreview, change: Change) -> None:
        self.preview = preview
        self.result: EditResult | None = None
        self._editor = editor
        self._change = change

    @property
    def errors(self) -> list[BaseException]:
        """The exceptions of a Python function, in the order of the dead letters that they leave unchanged."""
        return list(self._change.errors) if isinstance(self._change, FunctionChange) else []

    def go(self, reason: str) -> EditResult:
        """Keep the edit. Dead letters that changed since the preview stay as they are. A second call changes nothing.

        Raise ConfigError without a reason.
        """
        if self.result is None:
            self.result = self._editor.keep(self.preview, who=current_actor(), origin=NOTEBOOK, reason=reason)
        return self.result

    def __repr__(self) -> str:
        samples = [
            f"{one.message_id}  {difference}"
            for one in self.preview.samples
            for difference in one.differences
        ]
        refusals = [f"{one.message_id}  {one.reason}" for one in self.preview.refusals[: html.LISTED]]
        return "\n".join([self.preview.text, *samples, *refusals, self._next])

    def _repr_html_(self) -> str:
        rows = [
            (sample.message_id, sample.topic, one.path, one.before or "", one.after or "")
            for sample in self.preview.samples
            for one in sample.differences
        ]
        refusals = [f"{one.message_id}: {one.reason}" for one in self.preview.refusals[: html.LISTED]]
        return html.page(
            self.preview.text,
            columns=("message", "topic", "field", "before", "after"),
            rows=rows,
            lines=[*refusals, self._next],
        )

    @property
    def _next(self) -> str:
        return _TO_DECIDE if self.result is None else self.result.text


def begin(
    store: Store,
    change: ChangeArgument,
    where: DeadLetterFilter,
    *,
    schema_id: int | None = None,
    registry: Mapping[str, Any] | None = None,
) -> Edit:
    """Return the preview of a change: a function of the decoded value, an SQL expression, or values by field path."""
    editor, made = Editor(store, registry=registry), _change(change, schema_id)
    return Edit(editor, editor.preview(where, made), made)


def _change(change: ChangeArgument, schema_id: int | None) -> Change:
    if isinstance(change, str):
        return SqlChange(change, schema_id=schema_id)
    if isinstance(change, Mapping):
        return FieldChange(
            tuple((parse_path(path), value) for path, value in change.items()), schema_id=schema_id
        )
    if callable(change):
        return FunctionChange(change, schema_id=schema_id)
    raise ConfigError(
        "A change is a function, an SQL expression or a dict of fields.",
        fix='For example edit({"amount": 12.5}).',
    )
