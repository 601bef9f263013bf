"""Read the metrics of this process's producers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client.registry import Collector

from producer_core._internal import forks
from producer_core.delivery.flow_control.circuit_breaker import CircuitState
from producer_core.delivery.journal import Journal
from producer_core.dlq import DeadLetterQueue
from producer_core.errors import ConfigError
from producer_core.metrics.batch import KINDS, BrokerRow, ClientRow
from producer_core.metrics.client_stats import ClientStats
from producer_core.producer.prometheus.arguments import check_producer, check_topics
from producer_core.producer.prometheus.exposition import render
from producer_core.producer.prometheus.families import TOPICS, Families
from producer_core.producer.prometheus.family import Family, to_metric
from producer_core.producer.prometheus.readings import (
    BrokerReading,
    CircuitKey,
    CircuitReading,
    ClientReading,
    DeadLetters,
    FailedAttempts,
    ProcessReading,
    ProducersReading,
    Reading,
    TopicReading,
    add,
    sum_by_label,
)
from producer_core.producer.prometheus.server import LOOPBACK, MetricsServer

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from producer_core.delivery.connection_state import ConnectionState
    from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
    from producer_core.delivery.flow_control.circuits import CircuitReport
    from producer_core.delivery.retry import RetryManager
    from producer_core.metrics.counters import Metrics, TopicCounters

_NOWHERE = (0, "", "")


class MeasuredProducer(Protocol):
    """The parts of `ReliableKafkaProducer` that metrics are read from."""

    deduplicator: MessageDeduplicator | None

    @property
    def metrics(self) -> Metrics: ...
    @property
    def connection(self) -> ConnectionState: ...
    @property
    def retry_manager(self) -> RetryManager: ...
    @property
    def pending_count(self) -> int: ...
    @property
    def journal(self) -> Any: ...
    @property
    def dlq(self) -> Any: ...
    @property
    def circuits(self) -> CircuitReport | None: ...
    @property
    def application(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def add_statistics_listener(self, listener: Callable[[Mapping[str, Any]], None]) -> None: ...


def start_metrics_server(
    port: int, *producers: MeasuredProducer, address: str = LOOPBACK, topics: int = TOPICS
) -> MetricsServer:
    """Serve the metrics of these producers on `/metrics` in a daemon thread, and return the server.

    `port` 0 chooses a free one; `server.url` has it, and `server.close()` stops the server. Raises ConfigError for an
    invalid argument, and if the port is in use: of several worker processes only one could have it, so use
    `producer-core metrics serve` there.
    """
    for producer in producers:
        check_producer(producer, "start_metrics_server(9464, producer, another_producer)")
    collector = ProducerCollector(*producers, topics=topics)
    return MetricsServer(collector.render, port=port, address=address)


class ProducerCollector(Collector):
    """A Prometheus collector of the producers of this process, for `registry.register(ProducerCollector(producer))`.

    Its counters are totals since each producer was created; those of librdkafka, since the collector was. It reads the
    counters that the store receives too, and keeps its producers, so that the totals of a closed one remain. The first
    `topics` topics have a label of their own, the others share `other`. Safe in threads. In a forked child it has no
    metrics, because its producers belong to the parent.
    """

    def __init__(self, *producers: MeasuredProducer, topics: int = TOPICS) -> None:
        if not producers:
            raise ConfigError("No producer was given.", fix="Pass the producers whose metrics are collected.")
        check_topics(topics)
        self._fork_mark = forks.mark()
        self._lock = threading.Lock()  # guards the fields below
        self._families = Families(topics=topics)
        self._sources: list[_ProducerSource] = []
        for producer in producers:
            self.add(producer)

    def add(self, producer: MeasuredProducer) -> None:
        """Collect the metrics of another producer of this process too."""
        check_producer(producer, "ProducerCollector(producer, another_producer)")
        with self._lock:
            if any(source.producer is producer for source in self._sources):
                raise ConfigError("The metrics of this producer are collected already.", fix="Pass it once.")
            self._sources.append(_ProducerSource(producer))

    def collect(self) -> Iterator[Metric]:
        """Return the metric families of the producers at this moment."""
        return map(to_metric, self._read())

    def render(self) -> bytes:
        """Return the metrics as text for `/metrics`, in a fifth of the time of `prometheus_client.generate_latest`."""
        return render(self._read())

    def _read(self) -> list[Family]:
        if not self._fork_mark[0]:  # before the lock, which a thread of the parent may hold forever
            return []
        with self._lock:
            return self._families.of(_read(self._sources))

    def describe(self) -> Iterator[Metric]:
        """Return nothing, so that a registry accepts the collector without a scrape."""
        return iter(())


class _ProducerSource:
    """A producer, and the totals of its Kafka client since this object was created."""

    def __init__(self, producer: MeasuredProducer) -> None:
        self.producer = producer
        self._statistics = ClientStats()
        self.client = ClientReading()
        self.brokers: dict[int, BrokerReading] = {}
        producer.add_statistics_listener(self._add)

    def _add(self, statistics: Mapping[str, Any]) -> None:
        self._statistics.add(statistics, 0.0)  # the time only matters for maxima, which are not exposed

    def take(self) -> None:
        """Add the client's statistics since the last call to the totals."""
        clients, brokers = self._statistics.take(_NOWHERE)
        self.client = add(ClientReading, [self.client, *map(_client_reading, clients)])
        items = [*self.brokers.items(), *((row.broker_id, _broker_reading(row)) for row in brokers)]
        self.brokers = sum_by_label(BrokerReading, items)


def _read(sources: Sequence[_ProducerSource]) -> Reading:
    for source in sources:
        source.take()
    producers = [source.producer for source in sources]
    running = [producer for producer in producers if not producer.closed]
    snapshots = [producer.metrics.snapshot() for producer in producers]
    topics = [item for snapshot in snapshots for item in snapshot.topics.items()]
    failed = [item for snapshot in snapshots for item in snapshot.errors.items()]
    return Reading(
        topics=sum_by_label(TopicReading, ((name, _topic_reading(counters)) for name, counters in topics)),
        failed_attempts=_failed_attempts(failed),
        client=add(ClientReading, [source.client for source in sources]),
        brokers=sum_by_label(BrokerReading, (item for source in sources for item in source.brokers.items())),
        producers=add(ProducersReading, [ProducersReading(), *map(_state, running)]),
        applications=Counter(producer.application for producer in running),
        dead_letters=_dead_letters(producers),
        process=_process(running),
        circuits=_circuits(producers, running),
    )


def _topic_reading(counters: TopicCounters) -> TopicReading:
    return TopicReading(
        acknowledged=counters.acknowledged,
        bytes=counters.bytes,
        dead=counters.dead,
        retried=counters.retried,
        retry_successes=counters.retry_successes,
        duplicates=counters.duplicates,
        possible_duplicates=counters.possible_duplicates,
        latency_sum=counters.latency_sum,
        buckets=counters.histogram.counts,
    )


def _failed_attempts(
    counts: Sequence[tuple[tuple[str, str, str], int]],
) -> Mapping[FailedAttempts, int]:
    sums: Counter[FailedAttempts] = Counter()
    for (topic, code, _), count in counts:
        sums[FailedAttempts(topic, code)] += count
    return sums


def _state(producer: MeasuredProducer) -> ProducersReading:
    connection = producer.connection
    return ProducersReading(
        running=1,
        connected=int(connection.connected),
        pending=producer.pending_count,
        waiting_retry=producer.retry_manager.get_stats()["pending_retries"],
        queue_messages=connection.queue_messages,
        queue_limit=connection.queue_limit,
    )


def _dead_letters(producers: Sequence[MeasuredProducer]) -> Mapping[DeadLetters, int] | None:
    """Count the dead letters in memory; None with stores, whose own endpoint has them."""
    queues = [producer.dlq for producer in producers if isinstance(producer.dlq, DeadLetterQueue)]
    if not queues:
        return None
    return Counter(
        DeadLetters(item.topic, item.state, item.code, item.verdict)
        for queue in queues
        for item in queue.dead_letters()
    )


def _process(producers: Sequence[MeasuredProducer]) -> ProcessReading:
    journals = [producer.journal for producer in producers if isinstance(producer.journal, Journal)]
    guards = [producer.deduplicator for producer in producers if producer.deduplicator is not None]
    return ProcessReading(
        journal_messages=sum(journal.unsettled() for journal in journals) if journals else None,
        journal_bytes=sum(journal.size() for journal in journals) if journals else None,
        deduplication_degraded=any(guard.degraded for guard in guards) if guards else None,
    )


def _circuits(
    producers: Sequence[MeasuredProducer], running: Sequence[MeasuredProducer]
) -> CircuitReading | None:
    reports = [report for producer in producers if (report := producer.circuits) is not None]
    if not reports:
        return None
    states: Counter[CircuitKey] = Counter({CircuitKey("", state): 0 for state in CircuitState})
    for report in (report for producer in running if (report := producer.circuits) is not None):
        states[CircuitKey("", report.cluster.state)] += 1
        states.update(CircuitKey(topic, status.state) for topic, status in report.topics.items())
    refused: Counter[str] = Counter()
    for report in reports:
        refused.update(report.refused)
    return CircuitReading(states, refused, sum(report.times_opened for report in reports))


def _client_reading(row: ClientRow) -> ClientReading:
    return ClientReading(row.batches, row.batch_messages, row.batch_bytes, row.epoch_rises)


def _broker_reading(row: BrokerRow) -> BrokerReading:
    sums = KINDS["broker_statistics"].sums
    return BrokerReading(**{name: getattr(row, name) for name in sums if name in BrokerReading.__slots__})
