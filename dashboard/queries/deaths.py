"""Count the messages that failed in a range; every page shows these counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from producer_core.dashboard.queries.view import View
from producer_core.replay.active_cause import LATE
from producer_core.store import Store
from producer_core.store.removed_clusters import removed_clusters

_MAX_ROWS = 10_000


@dataclass(frozen=True)
class FailureCounts:
    """Counts failed messages.

    `rows` counts dead letters by topic, error code and group, largest first. `without_dead_letters` counts by topic the
    failed messages whose producers keep the dead letters in another store; only the statistics have them.
    """

    rows: Sequence[Mapping[str, Any]] = ()
    without_dead_letters: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self._sum("count") + sum(self.without_dead_letters.values())

    @property
    def replayed(self) -> int:
        """Return the number replayed since, or found on their topic."""
        return self._sum("cured")

    @property
    def archived(self) -> int:
        """Return the number archived or purged."""
        return self._sum("aside")

    @property
    def retried(self) -> int:
        """Return the number that failed after a retry by the producer."""
        return self._sum("retried")

    @property
    def last(self) -> float | None:
        """Return the time of the latest failure."""
        return max((row["last"] for row in self.rows), default=None)

    @property
    def last_by_topic(self) -> Mapping[str, float]:
        """Return the time of the latest failure by topic, without the topics in `without_dead_letters`."""
        found: dict[str, float] = {}
        for row in self.rows:
            if row["topic"] not in self.without_dead_letters:
                found[row["topic"]] = max(found.get(row["topic"], 0.0), row["last"])
        return found

    def by(self, name: str, what: str = "count") -> dict[str, int]:
        """Count by topic or by code; failures without a dead letter have no code."""
        counts = Counter(self.without_dead_letters if (name, what) == ("topic", "count") else ())
        for row in self.rows:
            counts[row[name]] += row[what]
        return {key: number for key, number in counts.items() if number}

    def _sum(self, name: str) -> int:
        return sum(row[name] for row in self.rows)


def failure_counts(store: Store, view: View, since: int, until: int | None) -> FailureCounts:
    """Count failures by their dead letters, because statistics arrive later and carry the second of their writing."""
    span = {"since": since, "until": until, **view.where}
    without_dead_letters = _added(store.rows("deaths_without_letters", **span), "topic")
    return FailureCounts(store.rows("deaths", limit=_MAX_ROWS, **span), without_dead_letters)


def pending_rows(store: Store, view: View) -> Sequence[Mapping[str, Any]]:
    """Count the pending dead letters of any age by topic, error code and verdict.

    Dead letters of clusters that no longer exist count only if the view selects the cluster.
    """
    removed = removed_clusters(store, time.time())
    if view.producer is None and view.application is None:
        return store.rows("overview_waiting", topic=view.topic, cluster=view.cluster, removed=removed)
    return store.rows("overview_waiting_of", **view.where, removed=removed)


def by_producer(store: Store, view: View, since: int, until: int | None) -> dict[str, int]:
    """Count the same failures by producer."""
    span = {"since": since, "until": until, **view.where}
    left = (*store.rows("letters_by_producer", **span), *store.rows("deaths_without_letters", **span))
    return _added(left, "producer_id")


def _added(rows: Iterable[Mapping[str, Any]], name: str) -> dict[str, int]:
    counts = Counter[str]()
    for row in rows:
        counts[row[name]] += row["dead"]
    return dict(counts)


def delivered_since(store: Store, view: View, lasts: Mapping[str, float]) -> dict[str, int]:
    """Count the messages of each topic acknowledged since its latest failure.

    Statistics arrive late, so messages that may have been acknowledged before the failure are excluded.
    """
    if not lasts:
        return {}
    rows = store.rows(
        "delivered_since",
        topics=list(lasts),
        lasts=[last + LATE for last in lasts.values()],
        since=int(min(lasts.values())),
        **view.origin,
    )
    return {row["topic"]: row["acknowledged"] for row in rows}


def retry_success(saved: int, given_up: int) -> float | None:
    """Return the share of retried and settled messages that were acknowledged; `given_up` of them failed."""
    return saved / (saved + given_up) if saved + given_up else None
