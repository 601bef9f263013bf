"""Refuse edits of fields that are shown masked, so that the mask never becomes the content of a record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from producer_core._internal.masking import is_hidden, mask, mask_headers
from producer_core._internal.secret_patterns import HIDDEN
from producer_core.dlq.revisions.field_path import path_text
from producer_core.dlq.revisions.json_patch import equal
from producer_core.dlq.revisions.patch import Headers
from producer_core.dlq.revisions.refusal import NotEdited

_ABSENT = object()
Path = tuple[str | int, ...]
_SHORTEST_QUOTED = 4
"""Characters from which a masked value is looked for within other texts. A shorter one occurs in too many."""


def check_value(before: Any, after: Any) -> None:
    """Raise NotEdited if a masked field of the decoded value differs, if a changed field contains the mask, or if the result
    shows a masked value.

    All are checked on the result, so it does not matter how the change was made: by field, by SQL, by a function or as a
    whole value that was copied from a page.
    """
    if is_hidden("values"):
        raise NotEdited("masked", "The masking rules hide all values, so none can be edited.")
    for path, value in masked_fields(before):
        if not equal(value, _at(after, path)):
            raise NotEdited("masked", f"{path_text(path)} is masked and cannot be edited.")
    for path, text in _texts(after, ()):
        if HIDDEN in text and _at(before, path) != text:
            raise NotEdited("masked", f"{path_text(path)} would contain the mask {HIDDEN}.")
    _check_shown(before, after)


def _check_shown(before: Any, after: Any) -> None:
    """Raise NotEdited if the result shows a masked value: a copy, or one whose neighbour no longer makes it a secret."""
    secrets = {text for _, item in masked_fields(before) for _, text in _leaves(item, ()) if text}
    if not secrets:
        return
    shown = set(_leaves(mask(before), ()))
    for path, text in _leaves(mask(after), ()):
        if (path, text) not in shown and any(_quotes(text, secret) for secret in secrets):
            raise NotEdited("masked", "The change would show a masked value in a field that is not masked.")


def _quotes(text: str, secret: str) -> bool:
    return secret in text if len(secret) >= _SHORTEST_QUOTED else secret == text


def check_whole_value(before: bytes | None, after: Any) -> None:
    """Raise NotEdited if a value that replaces bytes without fields contains the mask and the original does not."""
    if is_hidden("values"):
        raise NotEdited("masked", "The masking rules hide all values, so none can be edited.")
    original = (before or b"").decode(errors="replace")
    for path, text in _texts(after, ()):
        if HIDDEN in text and text not in original:
            raise NotEdited("masked", f"{path_text(path)} would contain the mask {HIDDEN}.")


def check_headers(before: Headers, after: Headers) -> None:
    """Raise NotEdited if a masked header differs, or if a changed header contains the mask."""
    if before == after:
        return
    if is_hidden("headers"):
        raise NotEdited("masked", "The masking rules hide all headers, so none can be edited.")
    masked, plain = mask_headers(before), mask_headers(before, reveal=True)
    for number, (name, _) in enumerate(before):
        if masked[number] != plain[number] and _values(after, name) != _values(before, name):
            raise NotEdited("masked", f"The header {masked[number][0]} is masked and cannot be edited.")
    for name, value in after:
        if HIDDEN.encode() in (value or b"") and value not in _values(before, name):
            raise NotEdited("masked", f"The header {name} would contain the mask {HIDDEN}.")


def check_key(key: bytes | None) -> None:
    """Raise NotEdited if a new key contains the mask."""
    if HIDDEN.encode() in (key or b""):
        raise NotEdited("masked", f"The key would contain the mask {HIDDEN}.")


def masked_fields(value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the path and the value of each field that is shown masked. A field with a masked name is one."""
    yield from _differing(value, mask(value), ())


def _differing(value: Any, masked: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and isinstance(masked, dict):
        # Masking keeps the order and the number of fields.
        for (name, item), (shown, masked_item) in zip(value.items(), masked.items(), strict=True):
            if name != shown:
                yield (*path, name), item
            else:
                yield from _differing(item, masked_item, (*path, name))
    elif isinstance(value, list) and isinstance(masked, list):
        for number, (item, masked_item) in enumerate(zip(value, masked, strict=True)):
            yield from _differing(item, masked_item, (*path, number))
    elif value != masked:
        yield path, value


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            if HIDDEN in name:
                yield (*path, name), name
            yield from _texts(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _texts(item, (*path, number))


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the names of fields, and the texts and numbers, as texts."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield (*path, name), name
            yield from _leaves(item, (*path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, (*path, number))
    elif value is not None and not isinstance(value, bool):
        yield path, str(value)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        known: Any = (
            value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        )
        if step not in known:
            return _ABSENT
        value = value[step]
    return value


def _values(headers: Headers, name: str) -> Sequence[bytes | None]:
    return [value for one, value in headers if one == name]
