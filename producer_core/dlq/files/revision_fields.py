"""The revisions of a dead letter as fields of a file's record."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from producer_core._internal.masking import mask_text
from producer_core.dlq.revisions.patch import Patch
from producer_core.dlq.revisions.revision import Revision
from producer_core.dlq.revisions.revision_text import change_lines

_TEXTS = ("message_id", "who", "origin", "reason")
_OPTIONAL_TEXTS = ("schema_id", "replaced_id", "undone_by")
_MAX_TIME = 1e15


def revisions_raw(revisions: Sequence[Revision]) -> list[dict[str, Any]]:
    """Return the revisions with all fields; bytes are base64."""
    return [
        {
            **{name: getattr(one, name) for name in (*_TEXTS, *_OPTIONAL_TEXTS)},
            **{name: getattr(one, name) for name in ("number", "made_at", "made_replayable", "undone_at")},
            "patch": orjson.loads(one.patch.to_json()),
            "key_base64": _base64(one.key),
            "value_base64": _base64(one.value),
            "headers_base64": [[name, _base64(value)] for name, value in one.headers],
        }
        for one in revisions
    ]


def revisions_displayed(revisions: Sequence[Revision]) -> list[dict[str, Any]]:
    """Return the revisions for display: who changed what, when and why. Values are masked."""
    return [
        {
            **{name: getattr(one, name) for name in ("number", "made_at", "who", "undone_at")},
            "reason": mask_text(one.reason),
            "changes": list(change_lines(one.patch)),
        }
        for one in revisions
    ]


def read_revisions(found: Any, message_id: str) -> tuple[Revision, ...]:
    """Return the revisions of a record. Raise ValueError if they are not valid, or not those of this dead letter."""
    if found is None:
        return ()
    if not isinstance(found, list | tuple):
        raise ValueError("revisions is invalid")
    revisions = tuple(map(_revision, found))
    if any(message_id not in (one.message_id, one.replaced_id) for one in revisions):
        raise ValueError("revisions has one of another dead letter")
    return revisions


def _revision(found: Any) -> Revision:
    if not isinstance(found, Mapping):
        raise ValueError("a revision is not an object")
    try:
        _check(found)
        return Revision(
            **{name: found[name] for name in (*_TEXTS, *_OPTIONAL_TEXTS)},
            **{name: found[name] for name in ("number", "made_at", "made_replayable", "undone_at")},
            patch=Patch.from_json(orjson.dumps(found["patch"]).decode()),
            key=_bytes(found["key_base64"]),
            value=_bytes(found["value_base64"]),
            headers=tuple((_text(name), _bytes(value)) for name, value in found["headers_base64"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a revision is invalid: {error}") from error


def _check(found: Mapping[str, Any]) -> None:
    for name in _TEXTS:
        _text(found[name])
    for name in _OPTIONAL_TEXTS:
        if found[name] is not None:
            _text(found[name])
    if type(found["number"]) is not int or not 0 < found["number"] < 2**31:
        raise ValueError("the number of a revision is invalid")
    if not isinstance(found["made_replayable"], bool):
        raise ValueError("made_replayable of a revision is invalid")
    for name in ("made_at", "undone_at"):
        at = found[name]
        if not (name == "undone_at" and at is None) and (type(at) not in (int, float) or abs(at) > _MAX_TIME):
            raise ValueError(f"{name} of a revision is invalid")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is missing")
    value.encode()  # half of a surrogate pair, which the store cannot keep, is a ValueError
    return value


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: Any) -> bytes | None:
    return None if text is None else b64decode(_text(text), validate=True)
