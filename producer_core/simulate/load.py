"""The load of `make run`: a shop's traffic, with payments and an audit log."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.simulate.generator import ECommerceDataGenerator
from producer_core.simulate.streams import Stream, Streams
from producer_core.simulate.traffic import TOPICS
from producer_core.simulate.weighted_choice import identifier, source

Record = dict[str, Any]

SHARES = {
    "user-events": 0.70,
    "transactions": 0.18,
    "product-updates": 0.08,
    "payments": 0.03,
    "audit-log": 0.002,
}
"""Each topic's share of the total rate."""
MAX_RATES = {"payments": 8.0, "audit-log": 0.5}
"""Messages per second of the rejected topics, so that the dead letters stay few."""
PARTITIONS = 4

_WAVE = 45.0  # seconds
_HEIGHT = 0.3
_ACTIONS = ("login", "price changed", "refund granted", "role changed", "report exported")


def topic_names(prefix: str = "") -> dict[str, int]:
    """Return the load's topics and their numbers of partitions."""
    return {f"{prefix}{topic}": PARTITIONS for topic in SHARES}


class ShopLoad:
    """Sends until it is stopped, at a rate that varies slightly."""

    def __init__(
        self,
        producer: ReliableKafkaProducer,
        *,
        rate: float,
        prefix: str = "",
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._rate = rate
        self._prefix = prefix
        self._clock = clock
        self._generator = ECommerceDataGenerator(seed=seed)
        self._rng = source(seed, "back office")
        self._lock = threading.Lock()  # guards _purchase
        self._purchase: Record | None = None
        self._streams = Streams()
        self._making: dict[str, Callable[[datetime], tuple[str, Record]]] = {
            "transactions": self._transaction,
            "user-events": self._keyed("user-events", self._generator.user_event),
            "product-updates": self._keyed("product-updates", self._generator.product_update),
            "payments": self._payment,
            "audit-log": self._audit,
        }

    def start(self) -> None:
        self._streams.start([self._stream(topic) for topic in SHARES])

    def stop(self, timeout: float = 2.0) -> None:
        self._streams.stop(timeout)

    def _stream(self, topic: str) -> Stream:
        make, name = self._making[topic], self._prefix + topic

        def send() -> None:
            key, record = make(datetime.now())
            self._producer.send_message(name, record, key)

        return Stream(topic, lambda: self.rate_of(topic, self._clock()), send)

    def rate_of(self, topic: str, now: float) -> float:
        """Return the messages per second at this time."""
        wave = 1 + _HEIGHT * math.sin(2 * math.pi * now / _WAVE)
        return min(self._rate * SHARES[topic], MAX_RATES.get(topic, math.inf)) * wave

    @staticmethod
    def _keyed(topic: str, make: Callable[[datetime], Record]) -> Callable[[datetime], tuple[str, Record]]:
        def keyed(at: datetime) -> tuple[str, Record]:
            record = make(at)
            return TOPICS[topic].key(record), record

        return keyed

    def _transaction(self, at: datetime) -> tuple[str, Record]:
        record = self._generator.transaction(at)
        with self._lock:
            self._purchase = record
        return record["user_id"], record

    def _payment(self, at: datetime) -> tuple[str, Record]:
        """Return the payment of the latest purchase."""
        with self._lock:
            purchase = self._purchase
        purchase = purchase or self._generator.transaction(at)
        return purchase["user_id"], {
            "payment_id": identifier(self._rng),
            "transaction_id": purchase["transaction_id"],
            "user_id": purchase["user_id"],
            "amount": purchase["total_amount"],
            "method": purchase["payment_method"],
            "timestamp": at.isoformat(),
        }

    def _audit(self, at: datetime) -> tuple[str, Record]:
        employee = f"employee_{self._rng.randint(1, 40):02d}"
        return employee, {
            "audit_id": identifier(self._rng),
            "who": employee,
            "action": self._rng.choice(_ACTIONS),
            "timestamp": at.isoformat(),
        }
