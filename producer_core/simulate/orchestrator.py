"""Run a scenario, or send historical data, through a reliable producer."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from producer_core.alerts.health import default_alert_handler
from producer_core.config import DEFAULT_SERVERS
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.simulate.config import DataGenerationConfig
from producer_core.simulate.generator import ECommerceDataGenerator
from producer_core.simulate.rates import Rates
from producer_core.simulate.scenarios import scenarios
from producer_core.simulate.streaming import KafkaDataProducer
from producer_core.simulate.streams import Stream, Streams
from producer_core.simulate.traffic import TOPICS, TrafficSource

logger = logging.getLogger(__name__)

Record = dict[str, Any]

_UPDATES_PER_DAY = 100


class DataGenerationOrchestrator:
    """Sends the shop's traffic. Blocking calls end early on `stop()` from another thread, or on Ctrl-C.

    `producer` is a ReliableKafkaProducer (or a KafkaDataProducer with `use_reliable_producer=False`); a given one is
    used unchanged and stays open after `close()`.
    """

    def __init__(
        self,
        config: DataGenerationConfig | None = None,
        use_reliable_producer: bool = True,
        redis_client: Any = None,
        *,
        bootstrap_servers: str | Sequence[str] = DEFAULT_SERVERS,
        producer_config: Mapping[str, Any] | None = None,
        producer: ReliableKafkaProducer | None = None,
        store: Any = "auto",
        seed: int | None = None,
    ) -> None:
        self.config = config or DataGenerationConfig()
        self.generator = ECommerceDataGenerator(self.config, seed=seed)
        self.scenarios = scenarios()
        self._own = producer is None
        self.producer: ReliableKafkaProducer | KafkaDataProducer
        if producer is not None:
            self.producer = producer
        elif use_reliable_producer:
            self.producer = ReliableKafkaProducer(
                bootstrap_servers,
                producer_config,
                redis_client=redis_client,
                enable_deduplication=redis_client is not None,
                store=store,
            )
        else:
            self.producer = KafkaDataProducer(self.generator, bootstrap_servers, producer_config)
        if isinstance(self.producer, ReliableKafkaProducer):
            self.producer.add_health_alert_callback(default_alert_handler)
        self._streams = Streams()
        self._stopping = threading.Event()

    def run_scenario(
        self, scenario_name: str, duration_hours: float = 1.0, *, rate: float | None = None
    ) -> None:
        """Send a scenario's traffic for this time, then wait for its delivery reports.

        `rate` is the total in messages per second; without it the shop's hours and seasons decide.
        """
        scenario = self.scenarios.get(scenario_name)
        if scenario is None:
            raise ValueError(f"Unknown scenario: {scenario_name}")
        with self._fraud_rate(scenario.get("fraud_rate_override")):
            self.run_topics(
                scenario["topics"], duration_hours, rate_multiplier=scenario["rate_multiplier"], rate=rate
            )

    def run_topics(
        self,
        topics: Sequence[str],
        duration_hours: float = 1.0,
        *,
        rate_multiplier: float = 1.0,
        rate: float | None = None,
    ) -> None:
        """Send the traffic of these topics for this time, then wait for its delivery reports."""
        unknown = [topic for topic in topics if topic not in TOPICS]
        if unknown:
            raise ValueError(f"Unknown topic: {unknown[0]}")
        self._stopping.clear()
        self.generator.prepare()  # not counted in the duration
        source = TrafficSource(self.generator, purchases="transactions" in topics)
        rates = self.rates(topics, rate_multiplier=rate_multiplier, rate=rate)
        self._streams.start([self._stream(topic, source, rates) for topic in topics], duration_hours * 3600)
        self._streams.wait()
        self._sending.flush(30)

    def rates(
        self, topics: Sequence[str], *, rate_multiplier: float = 1.0, rate: float | None = None
    ) -> Rates:
        """Return the current messages per second of each topic."""
        return Rates(self.generator, topics, multiplier=rate_multiplier, total=rate)

    def generate_historical_data(self, days: int = 30, *, batch_size: int = 1000) -> dict[str, Any]:
        """Send the last `days` days of purchases, visits and product changes, with one batch in memory at a time.

        Each topic's result is that of `send_batch`, summed over the batches (`message_ids` stays empty, because
        millions of ids would fill the memory). `stop()` ends it after the current batch.
        """
        self._stopping.clear()
        end = datetime.now()
        start = end - timedelta(days=days)
        hours = 24 * days
        made: dict[str, Iterator[Record]] = {
            "transactions": self.generator.iter_transactions(
                int(self.config.base_transaction_rate * hours), start, end
            ),
            "user-events": self.generator.iter_user_events(
                int(self.config.base_event_rate * hours), start, end
            ),
            "product-updates": self.generator.iter_product_updates(_UPDATES_PER_DAY * days, start, end),
        }
        return {topic: self._send_all(topic, records, batch_size) for topic, records in made.items()}

    def get_comprehensive_stats(self) -> dict[str, Any]:
        reliable = isinstance(self.producer, ReliableKafkaProducer)
        return {
            "generator_stats": self.generator.get_statistics(),
            "producer_stats": self.producer.get_stats(),
            "producer_health": self.producer.get_health_status()
            if isinstance(self.producer, ReliableKafkaProducer)
            else self.producer.health_check(),
            "config": {**asdict(self.config), "use_reliable_producer": reliable},
        }

    def stop(self) -> None:
        """End the current run; may be called from any thread."""
        self._stopping.set()
        self._streams.stop()

    def close(self) -> None:
        self.stop()
        if self._own:
            self.producer.close()

    @property
    def _sending(self) -> ReliableKafkaProducer:
        return self.producer if isinstance(self.producer, ReliableKafkaProducer) else self.producer.producer

    def _stream(self, topic: str, source: TrafficSource, rates: Rates) -> Stream:
        def send() -> None:
            record = source.next(topic, datetime.now())
            if record is not None:
                self._sending.send_message(topic, record, TOPICS[topic].key(record))

        return Stream(topic, lambda: rates.of(topic), send)

    def _send_all(self, topic: str, records: Iterator[Record], size: int) -> Any:
        total: Any = None
        while not self._stopping.is_set() and (batch := list(itertools.islice(records, size))):
            total = _added(total, self.producer.send_batch(topic, batch, TOPICS[topic].key))
        return (
            _added(None, self.producer.send_batch(topic, [], TOPICS[topic].key)) if total is None else total
        )

    @contextlib.contextmanager
    def _fraud_rate(self, override: float | None) -> Iterator[None]:
        """Override the fraud rate for the block; the generator reads it from the config at each purchase."""
        before = self.config.fraud_rate
        if override is not None:
            self.config.fraud_rate = override
        try:
            yield
        finally:
            self.config.fraud_rate = before


def _added(total: Any, result: Any) -> Any:
    """Add two results of `send_batch`: numbers of messages, or the reliable producer's dictionaries."""
    if isinstance(result, dict):
        counts = {name: value for name, value in result.items() if isinstance(value, int)}
        before = total or {}
        return {
            **result,
            **{name: before.get(name, 0) + value for name, value in counts.items()},
            "message_ids": [],
        }
    return (total or 0) + result
