"""Read the metrics of all producers of a store."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from producer_core._internal.read_activity import unattended
from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError
from producer_core.metrics.heartbeat import ALIVE
from producer_core.producer.prometheus.arguments import check_topics
from producer_core.producer.prometheus.exposition import render
from producer_core.producer.prometheus.families import TOPICS, Families
from producer_core.producer.prometheus.family import Family, to_metric
from producer_core.producer.prometheus.latency_totals import LatencyTotals
from producer_core.producer.prometheus.readings import (
    BrokerReading,
    ClientReading,
    DeadLetters,
    FailedAttempts,
    FiringAlerts,
    ProducersReading,
    Reading,
    StoreReading,
    TopicReading,
)
from producer_core.store import Store
from producer_core.store.removed_clusters import removed_clusters

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_WAIT_S = 4.0
"""Seconds to wait for the store, below the 10 s that Prometheus waits for a scrape."""
_QUERIES_S = 30.0
"""Seconds for the queries. The first scrape of a large store may take longer than Prometheus waits; later ones do not."""


class StoreCollector(Collector):
    """A Prometheus collector of all producers of a store, for one endpoint per host.

    Its counters are totals since the store was created. They do not fall when a producer ends, or when retention deletes
    rows. The first `topics` topics have a label of their own, the others share `other`. `store` is the path of the store
    or an open Store. Raises StoreUnavailable if the path has no store, and StoreError during a scrape if the store is
    not available. Safe in threads.
    """

    def __init__(
        self, store: Store | Path | str, *, topics: int = TOPICS, clock: Callable[[], float] = time.time
    ) -> None:
        check_topics(topics)
        self._store, self._clock = _opened(store), clock
        self._lock = threading.Lock()  # guards the fields below
        _collectors.add(self)
        self._families = Families(topics=topics)
        self._latencies = LatencyTotals()

    def collect(self) -> Iterator[Metric]:
        """Return the metric families of the store's present content."""
        return map(to_metric, self._read())

    def render(self) -> bytes:
        """Return the metrics as text for `/metrics`, in a fifth of the time of `prometheus_client.generate_latest`."""
        return render(self._read())

    def _read(self) -> list[Family]:
        with self._lock:
            return self._families.of(read(self._store, self._clock(), self._latencies))

    def describe(self) -> Iterator[Metric]:
        """Return nothing, so that a registry accepts the collector without a scrape."""
        return iter(())


def _opened(store: Store | Path | str) -> Store:
    if isinstance(store, Store):
        return store
    if isinstance(store, Path | str) and str(store):
        return Store.open(store, create=False)
    raise ConfigError(
        f"{short_repr(store)} is not a store.",
        fix="Pass the path of a store: StoreCollector('/var/lib/app/store.duckdb').",
    )


_collectors: weakref.WeakSet[StoreCollector] = weakref.WeakSet()


def _unlock_in_child() -> None:
    """Replace the locks that threads of the parent may hold."""
    for collector in list(_collectors):
        collector._lock = threading.Lock()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_unlock_in_child)


def read(store: Store, now: float, latencies: LatencyTotals | None = None) -> Reading:
    """Return the metrics of a store at one moment. `latencies` remembers histograms from one call to the next.

    The read does not count as a person's: it does not make producers write every second. Statistics that ended processes
    left beside the store are merged first, unless the store is in use for longer than a second.
    """
    store.try_recover_statistics()
    with unattended(), store.borrow(timeout=_WAIT_S, limit=_QUERIES_S) as connection:
        (producers,) = store.rows("metric_producers", alive_since=now - ALIVE)
        heartbeat_at = producers.pop("heartbeat_at")
        (client,) = store.rows("metric_client")
        return Reading(
            topics=_topics(store, (latencies or LatencyTotals()).read(connection, now)),
            failed_attempts=_failed_attempts(store),
            client=ClientReading(**client),
            brokers={row.pop("broker_id"): BrokerReading(**row) for row in store.rows("metric_brokers")},
            producers=ProducersReading(**producers),
            applications=_applications(store, now),
            dead_letters=_dead_letters(store),
            oldest_dead_letters={
                row["topic"]: row["oldest"]
                for row in store.rows("alerts_letters", removed=removed_clusters(store, now))
            },
            firing_alerts=_firing_alerts(store),
            store=StoreReading(store.path.stat().st_size, heartbeat_at, _alert_evaluation(store, now)),
        )


def _applications(store: Store, now: float) -> Mapping[str, int]:
    rows = store.rows("metric_applications", alive_since=now - ALIVE)
    return {row["application"]: row["running"] for row in rows}


def _topics(store: Store, histograms: Mapping[str, Mapping[int, int]]) -> Mapping[str, TopicReading]:
    rows = store.rows("metric_topics")
    return {
        (topic := row.pop("topic")): TopicReading(buckets=histograms.get(topic, {}), **row) for row in rows
    }


def _failed_attempts(store: Store) -> Mapping[FailedAttempts, int]:
    rows = store.rows("metric_failed_attempts")
    return {FailedAttempts(row["topic"], row["code"]): row["count"] for row in rows}


def _dead_letters(store: Store) -> Mapping[DeadLetters, int]:
    rows = store.rows("metric_dead_letters")
    return {DeadLetters(*(row[name] for name in DeadLetters._fields)): row["count"] for row in rows}


def _firing_alerts(store: Store) -> Mapping[FiringAlerts, int]:
    return {
        FiringAlerts(row["rule"], row["severity"]): row["count"] for row in store.rows("metric_firing_alerts")
    }


def _alert_evaluation(store: Store, now: float) -> bool:
    return any(row["lease_until"] > now for row in store.rows("lease_holder", name="alerts"))
