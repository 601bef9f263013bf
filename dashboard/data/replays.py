"""Replays as a page shows them."""

from __future__ import annotations

from producer_core.replay import Operation, list_operations
from producer_core.store import Store


def operations(store: Store, limit: int = 5) -> list[Operation]:
    """The latest replays."""
    return list_operations(store, limit=limit)
