"""A tour of the producer's reliability features, part by part."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from producer_core._internal.log_fields import with_fields
from producer_core.alerts.health import default_alert_handler
from producer_core.brokers import embedded
from producer_core.config import RetryConfig, client_config
from producer_core.kafka.cluster import Cluster
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.simulate.faults import BrokerFaults
from producer_core.simulate.generator import ECommerceDataGenerator

Part = Literal["basic", "deduplication", "retry", "health", "batch"]
PARTS: tuple[Part, ...] = ("basic", "deduplication", "retry", "health", "batch")
TRANSACTIONS, RETRY_TOPIC = "transactions", "test-retry-topic"

_RETRIES = RetryConfig(
    max_retries=3, initial_delay_ms=100, max_delay_ms=5000, backoff_multiplier=2.0, jitter=True
)
_FLUSH = 30.0

Say = Callable[[str], None]


class Demo:
    """Runs the parts against one producer. `faults` is set when the broker is the embedded one."""

    def __init__(
        self,
        producer: ReliableKafkaProducer,
        *,
        say: Say,
        pause: Callable[[float], Any],
        faults: BrokerFaults | None = None,
        seed: int | None = None,
    ) -> None:
        self._producer = producer
        self._say = say
        self._pause = pause
        self._faults = faults
        self._generator = ECommerceDataGenerator(seed=seed)

    def run(self, parts: Sequence[Part]) -> None:
        """Run the parts, one second apart, and print the final numbers."""
        methods = {
            "basic": self.basic,
            "deduplication": self.deduplication,
            "retry": self.retry,
            "health": self.health,
            "batch": self.batch,
        }
        for number, part in enumerate(parts):
            if number:
                self._pause(1.0)
            methods[part]()
        self.final()

    def basic(self) -> None:
        self._title("Basic: 10 purchases, each acknowledged by every replica")
        for purchase in self._generator.generate_transactions(10):
            self._producer.send_message(TRANSACTIONS, purchase, purchase["user_id"])
            self._pause(0.1)
        self._producer.flush(_FLUSH)
        stats = self._producer.get_stats()
        latency = stats.get("latency_stats", {})
        self._numbers(
            Sent=stats["messages_sent"],
            Failed=stats["messages_failed"],
            Duplicate=stats["messages_duplicate"],
            Error_rate=f"{stats['error_rate']:.2%}",
            Average_latency=_ms(latency.get("avg_ms")),
            P95_latency=_ms(latency.get("p95_ms")),
        )

    def deduplication(self) -> None:
        self._title("Deduplication: the same purchase five times")
        if self._producer.deduplicator is None:
            self._say("Deduplication is off (--disable-dedup): every copy is written.")
            return
        purchase = self._generator.transaction()
        for copy in range(1, 6):
            message_id = self._producer.send_message(TRANSACTIONS, purchase, purchase["user_id"])
            self._producer.flush(_FLUSH)  # a copy counts as a duplicate once the first is acknowledged
            self._say(
                f"Copy {copy}: {'duplicate, not sent' if message_id is None else f'sent as {message_id}'}"
            )
        stats = self._producer.deduplicator.get_stats()
        self._numbers(
            Total_checked=stats["total_checked"],
            Duplicates_found=stats["duplicates_found"],
            Duplicate_rate=f"{stats['duplicate_rate']:.2%}",
        )

    def retry(self) -> None:
        self._title("Retry: 5 messages to a topic with faults")
        before = self._producer.dlq.get_stats()["total_messages"]
        for number in range(1, 6):
            self._disturb(number)
            test = {"test_id": number, "message": f"Retry test {number}"}
            self._producer.send_message(RETRY_TOPIC, test, f"retry-key-{number}")
            self._producer.flush(_FLUSH)
        if self._faults is not None:
            self._faults.accept(RETRY_TOPIC)
        else:
            self._say("No faults are injected into your Kafka, so retries are unlikely.")
        stats = self._producer.get_stats()
        retries = stats["retry_stats"]
        self._numbers(
            DLQ_size_before=before,
            DLQ_size_after=stats["dlq_stats"]["total_messages"],
            Total_retries=retries["total_retries"],
            Successful_retries=retries["successful_retries"],
            Failed_retries=retries["failed_retries"],
        )
        for message in self._producer.get_dlq_messages()[-3:]:
            self._say(f"Dead letter {message.id} of {message.topic}: {message.last_error}")

    def health(self) -> None:
        self._title("Health")
        summary = self._health()
        metrics = summary.get("metrics", {})
        self._numbers(
            Status=summary["status"],
            Timestamp=_with_zone(summary.get("timestamp")),
            Average_error_rate=f"{metrics.get('avg_error_rate', 0):.2%}",
            Average_latency=_ms(metrics.get("avg_latency_ms")),
            Largest_DLQ=metrics.get("max_dlq_size", 0),
        )
        self._say(f"Issues: {'; '.join(summary.get('issues', [])) or 'none'}")

    def batch(self) -> None:
        self._title("Batch: 20 purchases in one call, which returns when all are settled")
        purchases = self._generator.generate_transactions(20)
        result = self._producer.send_batch(TRANSACTIONS, purchases, lambda purchase: purchase["user_id"])
        self._numbers(
            **{name.capitalize(): result[name] for name in ("total", "sent", "failed", "duplicate")}
        )
        self._say(f"Message ids: {len(result['message_ids'])}, the first {result['message_ids'][0]}")
        self._say(
            f"Results: {len(result['results'])}, one per purchase, the first {result['results'][0].status}"
        )

    def final(self) -> None:
        self._title("Final statistics")
        stats = self._producer.get_stats()
        self._numbers(
            Sent=stats["messages_sent"],
            Failed=stats["messages_failed"],
            Duplicated=stats["messages_duplicate"],
            Error_rate=f"{stats['error_rate']:.2%}",
            DLQ_size=stats["dlq_stats"]["total_messages"],
            Average_latency=_ms(stats.get("latency_stats", {}).get("avg_ms")),
        )

    def _disturb(self, number: int) -> None:
        """Throttle the first try of messages 2 and 3, and reject message 5 permanently."""
        if self._faults is None:
            return
        if number in (2, 3):
            self._say(f"Message {number}: the broker throttles the first attempt")
            self._faults.fail_next(RETRY_TOPIC, "THROTTLING_QUOTA_EXCEEDED", 1)
        if number == 5:
            self._say(f"Message {number}: the broker rejects it by policy")
            self._faults.reject(RETRY_TOPIC, "POLICY_VIOLATION")

    def _health(self) -> dict[str, Any]:
        """Return the health summary; the first check runs at the start, so it is available soon."""
        for _ in range(20):
            summary = self._producer.get_health_status()
            if summary["status"] != "unknown":
                break
            self._pause(0.1)
        return summary

    def _title(self, text: str) -> None:
        self._say(f"\n{text}\n{'-' * len(text)}")

    def _numbers(self, **values: Any) -> None:
        for name, value in values.items():
            self._say(f"{name.replace('_', ' ')}: {value}")


def run(
    parts: Sequence[Part],
    *,
    kafka_servers: str | None = None,
    redis_url: str | None = None,
    deduplicate: bool = True,
    say: Say = print,
    pause: Callable[[float], Any] | None = None,
) -> int:
    """Run the demo and return how many messages became dead letters on the user's Kafka.

    `redis_url` is used for deduplication; when Redis does not respond, deduplication works in memory.
    """
    client = redis_client(redis_url, say) if deduplicate and redis_url else None
    with _broker(kafka_servers, say) as (servers, broker):
        producer = ReliableKafkaProducer(
            servers,
            {"max_block_ms": 10_000},
            retry_config=_RETRIES,
            redis_client=client,
            enable_deduplication=deduplicate,
            health_check_interval=10,
            store=None,
            cluster_id=broker.cluster_id if broker else None,
        )
        with producer:
            producer.add_health_alert_callback(
                lambda alert: say(f"Alert: {alert['type']} ({alert['severity']})")
            )
            producer.add_health_alert_callback(default_alert_handler)
            Demo(producer, say=say, pause=pause or threading.Event().wait, faults=broker).run(parts)
            return 0 if broker else producer.metrics.snapshot().dead


@contextmanager
def _broker(kafka_servers: str | None, say: Say) -> Iterator[tuple[str, embedded.EmbeddedBroker | None]]:
    if kafka_servers is None:
        say("Broker: embedded, in this process (--kafka-servers HOST:PORT uses your Kafka)")
        with embedded.start(topics={TRANSACTIONS: 4, RETRY_TOPIC: 1}) as broker:
            yield broker.bootstrap_servers, broker
    else:
        config = client_config(kafka_servers, {})
        cluster = Cluster(config)
        cluster.view(timeout=10.0)
        for topic in (TRANSACTIONS, RETRY_TOPIC):
            cluster.require_topic(topic)
        say(f"Broker: {config.bootstrap_servers}")
        yield config.bootstrap_servers, None


def redis_client(url: str, say: Say) -> Any:
    """Return a client if Redis responds; otherwise print the reason and return None."""
    where = urlsplit(url)
    place = f"{where.hostname or url}:{where.port or 6379}"
    try:
        import redis
    except ModuleNotFoundError:
        say(
            "Redis: the package is not installed (pip install 'producer-core[redis]'); deduplicating in memory"
        )
        return None
    try:
        client = redis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=1)
        client.ping()
    except (redis.RedisError, ValueError) as error:
        logging.getLogger(__name__).debug(**with_fields("redis unavailable", error=str(error)))
        say(f"Redis: no response from {place}; deduplicating in memory")
        return None
    say(f"Redis: {place}")
    return client


def _with_zone(timestamp: str | None) -> str:
    """Return a local time with the offset from UTC."""
    return datetime.fromisoformat(timestamp).astimezone().isoformat() if timestamp else "no check yet"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
