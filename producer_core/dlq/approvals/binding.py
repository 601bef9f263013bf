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
    """`plan` covers the destination, the choices and the frozen ids, and stays the same while a replay runs.

    `content` covers these, and each dead letter's state, topic, partition, cluster, key, value, headers and timestamp.
    """

    plan: str
    content: str


def binding_of(store: Store, operation: Mapping[str, Any]) -> Binding:
    """Return the hashes of an operation, from its row, within the caller's transaction."""
    with store.borrow(limit=READ_LIMIT):
        parts = store.rows("approval_hashes", operation=operation["operation_id"])
    head = {name: operation[name] for name in ("operation_id", "cluster_id", *_CHOICES)}
    plan = hashlib.sha256(orjson.dumps(head, option=orjson.OPT_SORT_KEYS))
    content = plan.copy()
    for row in parts:
        plan.update(f"\n{row['part']} {row['ids']}".encode())
        content.update(f"\n{row['part']} {row['ids']} {row['contents']}".encode())
    return Binding(plan.hexdigest(), content.hexdigest())
