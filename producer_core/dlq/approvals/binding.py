"""What an approval binds: the destination, the choices, the frozen dead letters and their content, as SHA-256 hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from producer_core.store import Store

_CHOICES = ("newer", "inconclusive", "canary", "stop_percent", "stop_last")
"""Every choice that decides which records are sent, or when the replay stops. The rate has a rule of its own: it may
fall."""
READ_LIMIT = 60.0
"""Seconds to hash one slice of the dead letters of a replay."""
_SLICE_BYTES = 32 * 1024 * 1024
_SLICE_PARTS = 8
"""Bounds of what is hashed in one borrow of the store. A slice has at least one part, which is 4,096 records."""


class Contents(NamedTuple):
    """The hashed content of an operation's dead letters, and the `version` that they had before it was read."""

    version: str
    parts: list[str]


class Binding:
    """The hashes of an operation, from its row, computed when they are needed, within the caller's transaction.

    With `known` contents, the bodies are read again only if a dead letter of the operation changed since.
    """

    def __init__(self, store: Store, operation: Mapping[str, Any], known: Contents | None = None) -> None:
        self._store = store
        self._operation = operation
        self._known = known

    @cached_property
    def plan(self) -> str:
        """Covers the destination, the choices, the frozen ids and the numbers of their edits.

        It stays the same while a replay runs, unless a dead letter is edited.
        """
        return self._digest(f"{row['part']} {row['ids']}" for row in self._parts)

    @cached_property
    def content(self) -> str:
        """Covers the same, and each dead letter's state, topic, partition, cluster, key, value, headers, timestamp and edits."""
        return self._digest(self._contents().parts)

    @cached_property
    def _parts(self) -> list[dict[str, Any]]:
        return _parts_of(self._store, self._id)

    @property
    def _id(self) -> str:
        return str(self._operation["operation_id"])

    def _contents(self) -> Contents:
        if self._known is not None and self._known.version == _version_of(self._store, self._id):
            return self._known
        return read_contents(self._store, self._id)

    def _digest(self, parts: Iterator[str] | list[str]) -> str:
        head = {name: self._operation[name] for name in ("operation_id", "cluster_id", *_CHOICES)}
        digest = hashlib.sha256(orjson.dumps(head, option=orjson.OPT_SORT_KEYS))
        for part in parts:
            digest.update(f"\n{part}".encode())
        digest.update(f"\nedits {self._edits}".encode())
        return digest.hexdigest()

    @cached_property
    def _edits(self) -> str:
        (row,) = self._store.rows("approval_edits", operation=self._id)
        return row["edits"] or ""


def read_contents(store: Store, operation_id: str) -> Contents:
    """Hash the dead letters of an operation. Other users write to the store between two slices."""
    version = _version_of(store, operation_id)
    parts: list[str] = []
    for first, last in _slices(_parts_of(store, operation_id)):
        with store.borrow(limit=READ_LIMIT):
            rows = store.rows("approval_hashes", operation=operation_id, first=first, last=last)
        parts.extend(f"{row['part']} {row['ids']} {row['contents']} {row['edits']}" for row in rows)
    return Contents(version, parts)


def _parts_of(store: Store, operation_id: str) -> list[dict[str, Any]]:
    with store.borrow(limit=READ_LIMIT):
        return store.rows("approval_parts", operation=operation_id)


def _version_of(store: Store, operation_id: str) -> str:
    """Return a text that changes with every change of the operation's records, of their dead letters and of their edits."""
    with store.borrow(limit=READ_LIMIT):
        (row,) = store.rows("approval_version", operation=operation_id)
    return str(row["version"])


def _slices(parts: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last part of each slice."""
    held: list[int] = []
    size = 0
    for row in parts:
        if held and (len(held) == _SLICE_PARTS or size + row["bytes"] > _SLICE_BYTES):
            yield held[0], held[-1]
            held, size = [], 0
        held.append(row["part"])
        size += row["bytes"]
    if held:
        yield held[0], held[-1]
