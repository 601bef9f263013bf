"""Name a field of a value: `customer.items[0].price`, or as a JSON Pointer `/customer/items/0/price`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from producer_core.dlq.revisions.json_patch import pointer, steps_of
from producer_core.dlq.revisions.refusal import NotEdited
from producer_core.errors import ConfigError

Path = tuple[str, ...]
"""The steps to a field: names, and the indexes of list items as text."""

_PART = re.compile(r"""\[(\d+)\]|\["([^"]+)"\]|(?:^|\.)([^.\[\]]+)""")


def parse_path(text: str) -> Path:
    """Return the steps of a path; none for the whole value (`/` or an empty text). Raise ConfigError.

    A name with a dot or bracket is written `["a.b"]`.
    """
    if text in ("", "/"):
        return ()
    if text.startswith("/"):
        return steps_of(text)
    steps: list[str] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at) if at or not text.startswith(".") else None
        if found is None:
            raise ConfigError(
                f"{text!r} is not a path to a field.",
                fix='Write it as customer.items[0].price, ["a.b"] or /customer/items/0/price.',
            )
        steps.append(next(part for part in found.groups() if part is not None))
        at = found.end()
    return tuple(steps)


def path_text(steps: Sequence[str | int]) -> str:
    """Return a path as an operator writes it."""
    text = ""
    for step in map(str, steps):
        if step.isdecimal() and text:
            text += f"[{step}]"
        elif re.search(r"[.\[\]/]", step):
            text += f'["{step}"]'
        else:
            text += f".{step}" if text else step
    return text or "the value"


def argument_of(path: Path) -> str | None:
    """Return a path as the argument of a command, which `parse_path` reads; None for a path that has no such text."""
    for text in (path_text(path) if path else "/", pointer(path)):
        if "=" not in text and text == text.strip() and _parsed_or_none(text) == path:
            return text
    return None


def _parsed_or_none(text: str) -> Path | None:
    try:
        return parse_path(text)
    except ConfigError:
        return None


def set_field(document: Any, path: Path, value: Any) -> Any:
    """Return the document, changed in place, with this value at the path. Missing objects are created."""
    if not path:
        return value
    if not isinstance(document, dict | list):
        raise NotEdited("invalid", f"{path_text(path)} cannot be set: the value is not an object or list.")
    holder = document
    for number, step in enumerate(path[:-1]):
        holder = _inside(holder, step, path[: number + 1])
    last = path[-1]
    if isinstance(holder, dict):
        holder[last] = value
    elif last.isdecimal() and int(last) < len(holder):
        holder[int(last)] = value
    elif last == str(len(holder)):
        holder.append(value)
    else:
        raise NotEdited("invalid", f"{path_text(path)} cannot be set: the list has {len(holder):,} items.")
    return document


def unset_field(document: Any, path: Path) -> Any:
    """Return the document, changed in place, without this field or list item. A missing one changes nothing."""
    if not path:
        raise NotEdited("invalid", "The whole value cannot be removed.")
    holder = document
    for step in path[:-1]:
        holder = _child(holder, step)
    last = path[-1]
    if isinstance(holder, dict):
        holder.pop(last, None)
    elif isinstance(holder, list) and last.isdecimal() and int(last) < len(holder):
        del holder[int(last)]
    return document


def _inside(holder: Any, step: str, path: Path) -> Any:
    """Return the object or list at a step, created if the object lacks it."""
    if isinstance(holder, dict) and holder.get(step) is None:
        holder[step] = {}
    found = _child(holder, step)
    if not isinstance(found, dict | list):
        raise NotEdited("invalid", f"{path_text(path)} is not an object or list.")
    return found


def _child(holder: Any, step: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(step)
    if isinstance(holder, list) and step.isdecimal() and int(step) < len(holder):
        return holder[int(step)]
    return None
