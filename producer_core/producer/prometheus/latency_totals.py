"""Sum the histograms of a store without grouping its old rows at each scrape."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from producer_core.store.queries import run

if TYPE_CHECKING:
    import duckdb

_SETTLED_AFTER = 120
"""Seconds after which rows count as old. Later rows for that time only cost a full read."""


class LatencyTotals:
    """Remembers the histograms of rows that start before a minute, with their total count.

    Retention moves and sums these rows, which leaves their total count as it is; a late batch raises it. A different total
    therefore means that everything must be read again. Used by one thread at a time.
    """

    def __init__(self) -> None:
        self._before = 0
        self._old: Counter[tuple[str, int]] = Counter()

    def read(self, connection: duckdb.DuckDBPyConnection, now: float) -> Mapping[str, Mapping[int, int]]:
        """Return the histogram of each topic since the store was created."""
        if not self._before or _value(connection, before=self._before) != self._old.total():
            self._before = 0
            self._old = _counts(connection, "metric_expired_latencies")
        settled = max(self._before, int(now - _SETTLED_AFTER) // 60 * 60)
        if settled > self._before:
            self._old += _counts(connection, "metric_latencies", since=self._before, until=settled)
            self._before = settled
        return _by_topic(self._old + _counts(connection, "metric_latencies", since=settled))


def _counts(connection: duckdb.DuckDBPyConnection, name: str, **params: Any) -> Counter[tuple[str, int]]:
    return Counter(
        {(topic, bucket): count for topic, bucket, count in run(connection, name, **params).fetchall()}
    )


def _value(connection: duckdb.DuckDBPyConnection, *, before: int) -> int:
    ((total,),) = run(connection, "metric_latencies_total", before=before).fetchall()
    return int(total)


def _by_topic(counts: Mapping[tuple[str, int], int]) -> Mapping[str, Mapping[int, int]]:
    topics: dict[str, dict[int, int]] = defaultdict(dict)
    for (topic, bucket), count in counts.items():
        topics[topic][bucket] = count
    return topics
