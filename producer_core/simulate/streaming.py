"""The simulator's older interface: a producer that generates the records it sends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from producer_core._internal.log_fields import with_fields
from producer_core.config import DEFAULT_SERVERS
from producer_core.delivery.reports import DeliveryReport
from producer_core.errors import BrokerError
from producer_core.kafka.cluster import Cluster
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.simulate.generator import ECommerceDataGenerator
from producer_core.simulate.streams import Stream, Streams
from producer_core.simulate.traffic import TOPICS, TrafficSource, rate_now

logger = logging.getLogger(__name__)

Record = dict[str, Any]

_SETTINGS = {
    "client_id": "ecap-data-producer",
    "buffer_memory": 33_554_432,
    "enable_idempotence": False,
}


class KafkaDataProducer:
    """Streams the shop's topics without idempotence and without a store; its numbers count acknowledgements."""

    def __init__(
        self,
        generator: ECommerceDataGenerator,
        bootstrap_servers: str | Sequence[str] = DEFAULT_SERVERS,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.generator = generator
        self.producer = ReliableKafkaProducer(
            bootstrap_servers, {**_SETTINGS, **(config or {})}, store=None, run_replays=False
        )
        self.bootstrap_servers = self.producer.bootstrap_servers
        self._source = TrafficSource(generator)
        self._streams = Streams()
        self._lock = threading.Lock()  # guards _last and _started
        self._last: dict[str, datetime] = {}
        self._started: datetime | None = None

    def start_streaming(
        self,
        topics: Iterable[str] | None = None,
        duration_hours: float | None = None,
        rate_multiplier: float = 1.0,
    ) -> None:
        """Start a thread per topic (all by default) and return; without a duration they run until stopped."""
        if self._streams.active:
            logger.warning("already streaming; nothing started")
            return
        chosen = [topic for topic in (TOPICS if topics is None else topics) if _known(topic)]
        self.generator.prepare()
        self._source = TrafficSource(self.generator, purchases="transactions" in chosen)
        with self._lock:
            self._started = datetime.now()
        seconds = None if duration_hours is None else duration_hours * 3600
        self._streams.start([self._stream(topic, rate_multiplier) for topic in chosen], seconds)

    def stop_streaming(self) -> None:
        self._streams.stop()

    def send_batch(
        self, topic: str, data: Iterable[Record], key_extractor: Callable[[Record], Any] | None = None
    ) -> int:
        """Send the records, with the keys of the topic's streams, and return how many were acknowledged."""
        if topic not in TOPICS:
            raise ValueError(f"Unknown topic: {topic}")
        result = self.producer.send_batch(topic, data, key_extractor or TOPICS[topic].key)
        if result["sent"]:
            self._sent(topic)
        return int(result["sent"])

    def get_stats(self) -> dict[str, Any]:
        snapshot = self.producer.metrics.snapshot()
        with self._lock:
            last, started = dict(self._last), self._started
        stats: dict[str, Any] = {
            "messages_sent": snapshot.acknowledged,
            "messages_failed": snapshot.dead,
            "bytes_sent": snapshot.total("bytes"),
            "start_time": started,
            "topic_stats": {
                topic: {
                    "messages_sent": counters.acknowledged,
                    "messages_failed": counters.dead,
                    "bytes_sent": counters.bytes,
                    "last_message_time": last.get(topic),
                }
                for topic, counters in snapshot.topics.items()
            },
        }
        if started is not None:
            elapsed = max((datetime.now() - started).total_seconds(), 1e-9)
            stats["elapsed_seconds"] = elapsed
            stats["messages_per_second"] = stats["messages_sent"] / elapsed
            stats["bytes_per_second"] = stats["bytes_sent"] / elapsed
        return stats

    def health_check(self) -> dict[str, Any]:
        """Ask the brokers, for at most five seconds: `HEALTHY`, `DEGRADED` or `UNHEALTHY`."""
        active = self._streams.active
        health: dict[str, Any] = {
            "timestamp": datetime.now().isoformat(),
            "producer_connected": False,
            "streaming_active": active > 0,
            "active_threads": active,
            "bootstrap_servers": self.bootstrap_servers,
            "stats": self.get_stats(),
            "available_topics": [],
        }
        try:
            topics = Cluster(self.producer.config).view(timeout=5.0).topics
        except BrokerError as error:
            return {**health, "overall_status": "UNHEALTHY", "error": str(error)}
        missing = [topic for topic in TOPICS if topic not in topics]
        health.update(
            producer_connected=True,
            available_topics=sorted(topics),
            overall_status="DEGRADED" if missing else "HEALTHY",
        )
        return {**health, "missing_topics": missing} if missing else health

    def close(self) -> None:
        self._streams.stop()
        self.producer.close()

    def _stream(self, topic: str, multiplier: float) -> Stream:
        def rate() -> float:
            context = self.generator.temporal_patterns.get_temporal_context(datetime.now())
            return rate_now(TOPICS[topic], context, multiplier)

        def send() -> None:
            record = self._source.next(topic, datetime.now())
            if record is not None:
                self.producer.send_message(
                    topic, record, TOPICS[topic].key(record), on_delivery=self._reported
                )

        return Stream(topic, rate, send)

    def _reported(self, report: DeliveryReport) -> None:
        if report.error is None:
            self._sent(report.topic)

    def _sent(self, topic: str) -> None:
        with self._lock:
            self._last[topic] = datetime.now()


def _known(topic: str) -> bool:
    if topic in TOPICS:
        return True
    logger.warning(**with_fields("unknown topic ignored", topic=topic))
    return False
