"""Describe the changes of a revision for display, masked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from producer_core._internal.masking import display_key, mask, mask_headers
from producer_core.dlq.revisions.field_path import path_text
from producer_core.dlq.revisions.json_patch import Operation, steps_of
from producer_core.dlq.revisions.patch import Patch


def change_lines(patch: Patch) -> tuple[str, ...]:
    """Return a line for each change of a revision compared with the original: `amount → 7`, `debug removed`."""
    return tuple(_lines(patch))


def _lines(patch: Patch) -> Iterator[str]:
    for operation in patch.value:
        path = path_text(steps_of(operation["path"]))
        yield f"{path} removed" if operation["op"] == "remove" else f"{path} → {_masked(operation)}"
    for name, value in mask_headers(patch.set_headers):
        yield f"header {name} → {_json(value)}"
    for name in patch.unset_headers:
        yield f"header {name} removed"
    if patch.key is not None:
        yield f"the key → {_json(display_key(patch.key))}"


def _masked(operation: Operation) -> str:
    """Return the new value as it is masked inside of its fields, because names decide what is masked."""
    steps, value = steps_of(operation["path"]), operation["value"]
    for step in reversed(steps):
        value = {step: value}
    shown = mask(value)
    for _ in steps:
        if not isinstance(shown, dict):
            return _json(shown)
        (shown,) = shown.values()
    return _json(shown)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
