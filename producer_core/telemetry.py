"""Telemetry: a recorder's batches as records of a Kafka topic, for a fleet.

Schema version 1, one JSON object a record: `v`, `producer_id`, `sequence` (dense), `cluster_id`, and the rows of
each kind of `store.batch.KINDS` as arrays in the order of their tuples; a kind without rows may be left out. A reader
merges a batch once by (producer_id, sequence), sets aside what has a `v` that it does not know, and passes over names
that it does not know.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
from confluent_kafka import KafkaError, KafkaException, Producer

from producer_core.config import ClientConfig, client_config
from producer_core.librdkafka import client_log

if TYPE_CHECKING:
    from producer_core.store.batch import Batch

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1
_LATER = ("client_statistics", "broker_statistics")
"""Kinds of rows that came after the first: older writers do not send them, older readers pass them over."""
_CLOSE_BOUND = 5.0


def encode(batch: Batch) -> bytes:
    """The batch as the value of a record."""
    return orjson.dumps(
        {
            "v": SCHEMA_VERSION,
            "producer_id": batch.producer_id,
            "sequence": batch.sequence,
            "cluster_id": batch.cluster_id,
            "statistics": batch.statistics,
            "latencies": batch.latencies,
            "errors": batch.errors,
            "producer": batch.producer,
            **{name: getattr(batch, name) for name in _LATER if getattr(batch, name)},
        },
        default=list,  # named tuples as arrays
    )


def decode(value: bytes) -> Batch:
    """The batch of a record; ValueError for what is none, or of a version that this code does not know."""
    from producer_core.store.batch import KINDS, Batch, ProducerRow

    try:
        data = orjson.loads(value)
        if data["v"] != SCHEMA_VERSION:
            raise ValueError(f"telemetry of version {data['v']}, this code knows {SCHEMA_VERSION}")
        rows: dict[str, Any] = {
            name: tuple(kind.row(*row) for row in (data.get(name) or () if name in _LATER else data[name]))
            for name, kind in KINDS.items()
        }
        producer = ProducerRow(*data["producer"]) if data["producer"] else None
        return Batch(data["producer_id"], data["sequence"], producer=producer, **rows)
    except (KeyError, TypeError, orjson.JSONDecodeError) as error:
        raise ValueError(f"not a telemetry record: {error}") from error


class TelemetryPublisher:
    """Sends batches with an idempotent client of its own; trouble is logged by kind, counted, never raised.

    Settings are those of the producer's client where it has them; idempotence, a delivery timeout of 120 s
    and a request timeout of 30 s are set only if absent.
    """

    def __init__(self, bootstrap_servers: str, topic: str, config: Mapping[str, Any] | None = None) -> None:
        self.topic = topic
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()  # guards _closing: nothing is sent once closing
        self._closing = False
        self._client = Producer(
            _settings(client_config(bootstrap_servers, _own(config or {}), prefix="telemetry"))
        )

    def publish(self, batch: Batch) -> None:
        """Queue a batch, without blocking. Dropped silently once closing, with a count when the queue is full."""
        with self._lock:
            if self._closing:
                return
            try:
                self._client.produce(
                    self.topic, encode(batch), batch.producer_id.encode(), on_delivery=self._report
                )
            except (BufferError, KafkaException) as error:
                self._failed(error.args[0] if isinstance(error, KafkaException) else None, str(error))
        self._poll(0)

    def close(self) -> None:
        """Send what waits, for at most 5 seconds, and let go; what could not be sent is a warning."""
        with self._lock:
            self._closing = True
        deadline = time.monotonic() + _CLOSE_BOUND
        while len(self._client) and time.monotonic() < deadline:
            self._poll(0.1)
        if len(self._client):
            logger.warning("telemetry not flushed", extra={"topic": self.topic, "batches": len(self._client)})
            self._client.purge()
            self._poll(0)

    def _poll(self, timeout: float) -> None:
        try:
            self._client.poll(timeout)
        except KafkaException as error:
            self._failed(error.args[0], str(error))

    def _report(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.counts["sent"] += 1
        else:
            self._failed(error, error.str())

    def _failed(self, error: KafkaError | None, text: str) -> None:
        code = error.name() if error is not None else "_QUEUE_FULL"
        self.counts["failed"] += 1
        level, words = _LEVELS.get(code, (logging.WARNING, "telemetry not sent"))
        logger.log(
            logging.INFO if self._closing else level,
            words,
            extra={"topic": self.topic, "code": code, "error": text},
        )


_LEVELS = {
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (logging.WARNING, "telemetry out of order"),
    "NOT_LEADER_FOR_PARTITION": (logging.WARNING, "telemetry not sent, the leader moved (transient)"),
    "_PURGE_QUEUE": (logging.INFO, "telemetry given up at the end"),
    "_PURGE_INFLIGHT": (logging.INFO, "telemetry given up at the end"),
    "_DESTROY": (logging.INFO, "telemetry given up at the end"),
    "_INTR": (logging.INFO, "telemetry interrupted"),
}


def _own(config: Mapping[str, Any]) -> dict[str, Any]:
    """The producer's settings without what belongs to that client alone."""
    return {
        name: value for name, value in config.items() if name not in ("client.id", "statistics.interval.ms")
    }


def _settings(config: ClientConfig) -> dict[str, Any]:
    settings = dict(config.settings)
    settings["statistics.interval.ms"] = 0
    settings.setdefault("logger", client_log())
    return settings
