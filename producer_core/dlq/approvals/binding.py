"""What an approval binds: the destination, the choices, the frozen dead letters and their content, as SHA-256 hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from producer_core.store import Store

_CHOICES = ("newer", "inconclusive", "canary", "stop_percent", "stop_last")
"""Every choice that decides which records are sent, or when the replay stops. The rate has a rule of its own: it may
fall."""
READ_LIMIT = 60.0
"""Seconds to hash the dead letters of a replay."""


@dataclass(frozen=True, slots=True)
class Binding:
    """`plan` covers the destination, the choices, the frozen ids and their revisions. It stays the same while a replay
    runs, unless a dead letter is edited.

    `content` covers these, and each dead letter's state, topic, partition, cluster, key, value, headers and timestamp.
    """

    plan: str
    content: str


def binding_of(store: Store, operation: Mapping[str, Any]) -> Binding:
    """Return the hashes of an operation, from its row, within the caller's transaction."""
    with store.borrow(limit=READ_LIMIT):
        parts = store.rows("approval_hashes", operation=operation["operation_id"])
        revisions = _revisions(store, operation["operation_id"])
    head = {name: operation[name] for name in ("operation_id", "cluster_id", *_CHOICES)}
    plan = hashlib.sha256(orjson.dumps(head, option=orjson.OPT_SORT_KEYS))
    content = plan.copy()
    for row in parts:
        plan.update(f"\n{row['part']} {row['ids']}".encode())
        content.update(f"\n{row['part']} {row['ids']} {row['contents']}".encode())
    for digest in (plan, content):
        digest.update(f"\nrevisions {revisions}".encode())
    return Binding(plan.hexdigest(), content.hexdigest())


_HAS_REVISIONS = "SELECT 1 FROM duckdb_tables() WHERE table_name = 'dead_letter_revisions'"
_REVISIONS = """
SELECT sha256(string_agg(concat(
           message_id, chr(31), number, chr(31), coalesce(sha256(key), 'null'), chr(31), coalesce(sha256(value), 'null'),
           chr(31), sha256(headers)), chr(30) ORDER BY message_id, number))
FROM dead_letter_revisions
WHERE undone_at IS NULL
  AND message_id IN (SELECT message_id FROM operation_records WHERE operation_id = ?)"""
"""A replay sends the latest revision of an edited dead letter that is not undone."""


def _revisions(store: Store, operation_id: str) -> str:
    """Return the hash of the edits of these dead letters; an empty text without edits."""
    with store.borrow() as connection:
        if connection.execute(_HAS_REVISIONS).fetchone() is None:
            return ""
        found = connection.execute(_REVISIONS, [operation_id]).fetchone()
    return (found and found[0]) or ""
