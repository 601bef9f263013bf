"""Describe the changes of a revision for display, masked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from producer_core._internal.masking import display_key, is_hidden, mask, mask_headers, mask_text
from producer_core._internal.secret_patterns import HIDDEN
from producer_core.dlq.revisions.field_path import path_text
from producer_core.dlq.revisions.json_patch import Operation, pointer, steps_of
from producer_core.dlq.revisions.patch import Patch


@dataclass(frozen=True, slots=True)
class DisplayedPatch:
    """A patch with masked names and values. `headers` are pairs of a name and a JSON value."""

    operations: Sequence[Operation]
    headers: Sequence[Sequence[Any]]
    unset_headers: tuple[str, ...]
    key: str | None
    schema_id: int | str | None


def displayed_patch(patch: Patch) -> DisplayedPatch:
    """Return a patch for display."""
    return DisplayedPatch(
        [_displayed(operation) for operation in patch.value],
        mask_headers(patch.set_headers),
        tuple(map(mask_text, patch.unset_headers)),
        display_key(patch.key),
        patch.schema_id,
    )


def change_lines(patch: Patch) -> tuple[str, ...]:
    """Return a line for each change of a revision compared with the original: `amount → 7`, `debug removed`."""
    return tuple(_lines(displayed_patch(patch)))


def _lines(shown: DisplayedPatch) -> Iterator[str]:
    for operation in shown.operations:
        path = path_text(steps_of(operation["path"]))
        yield f"{path} removed" if operation["op"] == "remove" else f"{path} → {_json(operation['value'])}"
    for name, value in shown.headers:
        yield f"header {name} → {_json(value)}"
    for name in shown.unset_headers:
        yield f"header {name} removed"
    if shown.key is not None:
        yield f"the key → {_json(shown.key)}"


def _displayed(operation: Operation) -> Operation:
    steps = steps_of(operation["path"])
    shown: Operation = {"op": operation["op"], "path": pointer([mask_text(step) for step in steps])}
    if operation["op"] != "remove":
        shown["value"] = HIDDEN if is_hidden("values") else _masked(steps, operation["value"])
    return shown


def _masked(steps: Sequence[str], value: Any) -> Any:
    """Return the new value as it is masked inside of its fields, because names decide what is masked."""
    for step in reversed(steps):
        value = {step: value}
    shown = mask(value)
    for _ in steps:
        if not isinstance(shown, dict):
            return shown
        (shown,) = shown.values()
    return shown


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
