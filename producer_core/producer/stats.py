"""Build the public statistics dictionaries from a snapshot."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypedDict

from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.flow_control.rate_limiter import RateLimiter
from producer_core.delivery.retry import RetryManager
from producer_core.metrics.counters import Metrics, Snapshot, TopicCounters
from producer_core.metrics.histogram import quantiles

if TYPE_CHECKING:
    from producer_core.delivery.flow_control.circuits import CircuitReport

_HISTORY = 100
"""Number of latest latencies in `latency_history`."""

_DISPLAYED = ("messages_sent", "messages_dlq", "pending_messages", "messages_retried", "messages_duplicate")


class StatsSource(Protocol):
    """The source of the statistics: a producer. `elapsed` is in seconds."""

    started_at: float
    metrics: Metrics
    deduplicator: MessageDeduplicator | None
    retry_manager: RetryManager
    rate_limiter: RateLimiter | None

    @property
    def elapsed(self) -> float: ...
    @property
    def pending_count(self) -> int: ...
    @property
    def dlq(self) -> Any: ...
    @property
    def circuits(self) -> CircuitReport | None: ...
    @property
    def core(self) -> str: ...
    @property
    def core_refusal(self) -> str | None: ...


class ProducerStats(dict[str, Any]):
    """The dictionary that `get_stats` returns. A notebook displays it as a table."""

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        facts = [(name.replace("_", " "), self.get(name, 0)) for name in _DISPLAYED]
        facts += [
            (name.replace("_", " "), f"{value:,.1f}") for name, value in self.get("latency_stats", {}).items()
        ]
        rows = [(topic, *counts.values()) for topic, counts in self.get("topic_stats", {}).items()]
        columns = ("topic", *next(iter(self.get("topic_stats", {}).values()), {}))
        return html.page(
            f"Messages acknowledged: {self.get('messages_sent', 0):,}",
            facts=facts,
            columns=columns,
            rows=rows,
        )


class ReadOnlyStats(ProducerStats):
    """The value of `producer.stats`: built at each access, so a write into it would be lost."""

    def _reject_write(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "producer.stats is a new dict on each access, so writes to it are lost. Change a copy: producer.get_stats()."
        )

    __setitem__ = __delitem__ = __ior__ = _reject_write
    update = pop = popitem = clear = setdefault = _reject_write


class BasicStats(TypedDict):
    """The smallest set of statistics. `messages_per_second` is the average since the start."""

    messages_sent: int
    messages_failed: int
    bytes_sent: int
    messages_per_second: float


def basic_stats(producer: StatsSource) -> BasicStats:
    snapshot = producer.metrics.snapshot()
    return {
        "messages_sent": snapshot.acknowledged,
        "messages_failed": snapshot.total("failed_attempts"),
        "bytes_sent": snapshot.total("bytes"),
        "messages_per_second": snapshot.acknowledged / max(producer.elapsed, 1e-9),
    }


def producer_stats(producer: StatsSource) -> ProducerStats:
    """Build `get_stats()`: sent means acknowledged, failed counts attempts, latencies are in milliseconds."""
    snapshot, elapsed = producer.metrics.snapshot(), producer.elapsed
    sent, failed, dead = snapshot.acknowledged, snapshot.total("failed_attempts"), snapshot.dead
    stats = ProducerStats(
        {
            "messages_sent": sent,
            "messages_failed": failed,
            "messages_duplicate": snapshot.total("duplicates"),
            "messages_retried": snapshot.total("retried"),
            "messages_dlq": dead,
            "possible_duplicates": snapshot.total("possible_duplicates"),
            "found_landed": snapshot.total("landed"),
            "order_breaks": snapshot.total("order_breaks"),
            "total_bytes_sent": snapshot.total("bytes"),
            "start_time": datetime.fromtimestamp(producer.started_at, UTC),
            "elapsed_seconds": elapsed,
            "topic_stats": {topic: _of_topic(counters) for topic, counters in snapshot.topics.items()},
            "latency_history": [1000 * latency for latency in snapshot.recent_latencies[-_HISTORY:]],
            "dlq_stats": producer.dlq.get_stats(),
            "retry_stats": producer.retry_manager.get_stats(),
            "pending_messages": producer.pending_count,
            "error_rate": failed / (sent + failed) if sent + failed else 0.0,
            "message_error_rate": dead / (sent + dead) if sent + dead else 0.0,
        }
    )
    stats["core"] = producer.core
    if producer.core_refusal is not None:
        stats["core_refusal"] = producer.core_refusal
    if elapsed > 0:
        stats["messages_per_second"] = sent / elapsed
        stats["bytes_per_second"] = snapshot.total("bytes") / elapsed
    if sent:
        stats["latency_stats"] = _latency_stats(snapshot)
    if producer.deduplicator is not None:
        stats["deduplication_stats"] = producer.deduplicator.get_stats()
    if producer.rate_limiter is not None:
        stats["rate_limit_stats"] = producer.rate_limiter.get_stats()
    if (circuits := producer.circuits) is not None:
        stats["circuit_breaker"] = _circuits(circuits)
    return stats


def _circuits(report: CircuitReport) -> dict[str, Any]:
    """Return the states of the circuits. `topics` has those that are not closed."""
    return {
        "state": report.cluster.state.value,
        "reason": report.cluster.reason,
        "topics": {
            topic: {"state": status.state.value, "reason": status.reason}
            for topic, status in report.topics.items()
        },
        "times_opened": report.times_opened,
        "messages_refused": sum(report.refused.values()),
    }


def _of_topic(counters: TopicCounters) -> dict[str, int]:
    return {
        "sent": counters.acknowledged,
        "failed": counters.failed_attempts,
        "duplicate": counters.duplicates,
        "retried": counters.retried,
        "dlq": counters.dead,
    }


def _latency_stats(snapshot: Snapshot) -> dict[str, float]:
    """Compute percentiles from the merged histogram, within its documented error, and the exact average."""
    low, median, p95, p99, high = quantiles(snapshot.histogram.counts, (0.0, 0.5, 0.95, 0.99, 1.0))
    return {
        "avg_ms": 1000 * snapshot.total("latency_sum") / snapshot.acknowledged,
        "median_ms": 1000 * (median or 0.0),
        "p95_ms": 1000 * (p95 or 0.0),
        "p99_ms": 1000 * (p99 or 0.0),
        "min_ms": 1000 * (low or 0.0),
        "max_ms": 1000 * (high or 0.0),
    }
