"""The difference between an original record and its revision."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from producer_core.dlq.revisions.json_patch import Operation

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Patch:
    """The fields, headers and key that a revision changes. `value` is a JSON Patch against the decoded original value.

    `set_headers` replace all headers of their names, `unset_headers` removes all of a name. `key` is None where the key
    stays as it was. `schema_id` is the schema that the new value is written with, None for plain JSON.
    """

    value: tuple[Operation, ...] = ()
    set_headers: Headers = ()
    unset_headers: tuple[str, ...] = ()
    key: bytes | None = None
    schema_id: int | str | None = None

    def headers_of(self, original: Headers) -> Headers:
        """Return the original headers with this patch applied."""
        new = dict(self.set_headers)
        changed: list[tuple[str, bytes | None]] = []
        for name, value in original:
            if name in new:
                changed.append((name, new.pop(name)))
            elif name not in self.unset_headers and name not in dict(self.set_headers):
                changed.append((name, value))
        return (*changed, *new.items())

    def to_json(self) -> str:
        return json.dumps(
            {
                "value": list(self.value),
                "set_headers": [[name, _text(value)] for name, value in self.set_headers],
                "unset_headers": list(self.unset_headers),
                "key": _text(self.key),
                "schema_id": self.schema_id,
            },
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Patch:
        """Parse the text of `to_json`. Raise ValueError for any other text."""
        try:
            found = json.loads(text)
            return cls(
                tuple(map(_operation, found["value"])),
                tuple((_name(name), _bytes(value)) for name, value in found["set_headers"]),
                tuple(map(_name, found["unset_headers"])),
                _bytes(found["key"]),
                _schema_id(found["schema_id"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a patch: {error}") from error


def header_changes(before: Headers, after: Headers) -> tuple[Headers, tuple[str, ...]]:
    """Return the headers to set and the names to remove that turn one list into the other.

    A change of one of several headers with the same name cannot be written as such: the last one is kept.
    """
    old, new = _by_name(before), _by_name(after)
    changed = tuple((name, values[-1]) for name, values in new.items() if old.get(name) != values)
    return changed, tuple(name for name in old if name not in new)


def _by_name(headers: Headers) -> dict[str, Sequence[bytes | None]]:
    found: dict[str, list[bytes | None]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(value)
    return dict(found)


def _operation(found: Any) -> Operation:
    if not isinstance(found, Mapping) or found.get("op") not in ("add", "replace", "remove"):
        raise ValueError("not a patch: it has an unknown operation")
    if not isinstance(found.get("path"), str):
        raise ValueError("not a patch: an operation has no path")
    return dict(found)


def _name(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError("the name of a header is not text")
    return found


def _schema_id(found: Any) -> int | str | None:
    if found is not None and not isinstance(found, int | str):
        raise TypeError("the schema id is neither a number nor text")
    return found


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
