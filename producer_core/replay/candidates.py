"""Find operations that wait for a runner; the store is queried only after it changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from producer_core.replay.claims import LeaseState

if TYPE_CHECKING:
    from producer_core.store import Store

_MAX_AGE = 15.0
"""Seconds after which the store is queried even if its file looks unchanged, because file times are coarse."""

Candidate = tuple[LeaseState, bool]
"""The lease of an operation, and whether the operation needs its preflight check."""


class Candidates:
    """Operations of Spark jobs, or all others. Thread-safe."""

    def __init__(
        self, store: Store, *, by_spark: bool, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._by_spark = by_spark
        self._monotonic = monotonic
        self._lock = threading.Lock()  # guards the next three
        self._key: tuple[int, str] | None = None
        self._queried_at = 0.0
        self._found: list[Candidate] = []

    def of(self, cluster: str) -> list[Candidate]:
        """Return the candidates of a cluster, oldest first; a concurrent write is seen by the next call."""
        with self._lock:
            key, now = (self._store.changes(), cluster), self._monotonic()
            if key != self._key or now - self._queried_at >= _MAX_AGE:
                self._key = None  # the next line may raise
                self._found = self.ask(cluster)
                self._key, self._queried_at = key, now
            return self._found

    def ask(self, cluster: str, operation_id: str | None = None) -> list[Candidate]:
        """Query the store for the candidates of a cluster, or for one operation."""
        rows = self._store.rows(
            "replay_candidates", cluster=cluster, operation=operation_id, by_spark=self._by_spark
        )
        return [
            (LeaseState(row["operation_id"], row["owner"], row["lease_until"]), row["checking"])
            for row in rows
        ]
