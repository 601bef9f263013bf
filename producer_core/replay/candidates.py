"""The candidates: operations that wait for a runner. Two threads ask each second, the store only when it was written to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from producer_core.replay.claims import LeaseState

if TYPE_CHECKING:
    from producer_core.store import Store

_TRUSTED = 15.0
"""Seconds for which an unchanged file is believed; its times are as fine as the kernel's clock tick."""

Candidate = tuple[LeaseState, bool]
"""An operation with who had it last, and whether it is only to be looked ahead for."""


class Candidates:
    """Operations of Spark jobs, or all others. Safe in threads."""

    def __init__(
        self, store: Store, *, by_spark: bool, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._by_spark = by_spark
        self._monotonic = monotonic
        self._lock = threading.Lock()  # guards the next three
        self._asked: tuple[object, str] | None = None
        self._at = 0.0
        self._found: list[Candidate] = []

    def of(self, cluster: str) -> list[Candidate]:
        """All of a cluster, the oldest first; who writes while this asks is heard the next time."""
        with self._lock:
            asked, now = (self._store.stamp(), cluster), self._monotonic()
            if asked != self._asked or now - self._at >= _TRUSTED:
                self._asked = None  # the next line may raise
                self._found = self.ask(cluster)
                self._asked, self._at = asked, now
            return self._found

    def ask(self, cluster: str, operation_id: str | None = None) -> list[Candidate]:
        """As the store has them now, or this one of them."""
        rows = self._store.rows(
            "replay_candidates", cluster=cluster, operation=operation_id, by_spark=self._by_spark
        )
        return [
            (LeaseState(row["operation_id"], row["owner"], row["lease_until"]), row["checking"])
            for row in rows
        ]
