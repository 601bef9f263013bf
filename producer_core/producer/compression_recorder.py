"""Sample the payloads that a producer sends, and keep in the store how much each codec compresses them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from producer_core._internal.compression_choice import CompressionChoice, codec_of
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.read_activity import unattended
from producer_core.config import ClientConfig
from producer_core.delivery.delivery import Delivery
from producer_core.errors import StoreError
from producer_core.metrics.compression import (
    CompressionSample,
    TopicCompression,
    measure,
    recommended_codec,
)
from producer_core.metrics.counters import Metrics
from producer_core.store import Store
from producer_core.store.compression_samples import CompressionRow, load_compression, save_compression

logger = queued_logger(__name__)

_BATCH_BYTES = 65_536
"""Bytes of a sample. Of larger messages, each counts with its first bytes."""
_MAX_MESSAGES = 1_000
_MAX_TOPICS = 1_000
_FIRST_SAMPLES, _INTERVAL_S = 10, 15.0
"""A topic is sampled at most once a second, and after its first samples at most once in the interval."""
_FADE_AT_BYTES = 1 << 20
_SAVE_S = 60.0

InFlight = Callable[[int], Sequence[Delivery]]
"""Returns up to the given number of consecutive messages that a client has."""


class CompressionRecorder:
    """Samples once a second and writes once a minute, on the recorder's thread. Sending does no work for it.

    `in_flight` returns messages, `per_batch` the average messages of the client's batches, 0 while it is unknown.
    """

    def __init__(
        self,
        client: ClientConfig,
        application: str,
        *,
        metrics: Metrics,
        in_flight: InFlight,
        per_batch: Callable[[], float],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._application = application
        self._metrics = metrics
        self._in_flight, self._per_batch = in_flight, per_batch
        self._clock = clock
        self._started_at = clock()
        self._samples: dict[str, CompressionSample] = {}
        self._next_at: dict[str, float] = {}
        self._changed: set[str] = set()
        self._saved_at = -math.inf
        self._broken = False

    def choose(self, store: Store | None) -> None:
        """Set the codec of the first client from what the store has about producers of the same application."""
        choice = self._client.compression
        if choice is None or store is None:
            return
        try:
            with unattended():
                topics = load_compression(store, application=self._application)
        except StoreError as error:
            logger.warning(**with_fields("compression not chosen from the store", error=str(error)))
            return
        _set(choice, topics)

    def sample(self) -> None:
        """Measure one topic of the messages in flight. An error ends the sampling, and nothing else."""
        if self._broken:
            return
        try:
            self._sample()
        except Exception:  # the recorder's thread must continue
            self._broken = True
            logger.exception("compression is not sampled any more")

    def _sample(self) -> None:
        per_batch = round(self._per_batch()) or _MAX_MESSAGES
        now, by_topic = self._clock(), _by_topic(self._in_flight(_MAX_MESSAGES), per_batch)
        due = [
            topic
            for topic in by_topic
            if now >= self._next_at.get(topic, 0.0)
            and (topic in self._samples or len(self._samples) < _MAX_TOPICS)
        ]
        if due:
            topic = min(due, key=lambda one: self._samples.get(one, CompressionSample()).samples)
            self._add(topic, measure(by_topic[topic]), now)

    def save(self, store: Store, producer_id: str, cluster_id: str, *, closing: bool) -> None:
        """Write the sums that changed, once a minute and at the end, and set the codec of the next client.

        A store that does not take them is tried again a minute later: the samples are not worth an alert.
        """
        now = self._clock()
        if not self._changed or not (closing or now - self._saved_at >= _SAVE_S):
            return
        self._saved_at = now
        try:
            self._save(store, producer_id, cluster_id, now)
        except StoreError as error:
            logger.warning(**with_fields("compression samples not stored", error=str(error)))
        except Exception:  # the recorder's thread must continue
            logger.exception("compression samples not stored")

    def _save(self, store: Store, producer_id: str, cluster_id: str, now: float) -> None:
        topics = self._topics(now)
        if self._client.compression is not None:
            _set(self._client.compression, list(topics.values()))
        codec = codec_of(self._client.settings)
        rows = [
            CompressionRow(producer_id, cluster_id, topic, now, codec, one.bytes_per_second, *one.sample)
            for topic, one in topics.items()
            if topic in self._changed and one.is_enough
        ]
        if rows:
            save_compression(store, rows)
            self._changed -= {row.topic for row in rows}

    def _add(self, topic: str, sample: CompressionSample, now: float) -> None:
        before = self._samples.get(topic, CompressionSample())
        if before.bytes >= _FADE_AT_BYTES:
            before = before.halved()
        self._samples[topic] = before.plus(sample)
        if self._samples[topic].samples >= _FIRST_SAMPLES:
            self._next_at[topic] = now + _INTERVAL_S
        self._changed.add(topic)

    def _topics(self, now: float) -> dict[str, TopicCompression]:
        counters, seconds = self._metrics.snapshot().topics, max(1.0, now - self._started_at)
        return {
            topic: TopicCompression(sample, counters[topic].bytes / seconds if topic in counters else 0.0)
            for topic, sample in self._samples.items()
        }


def _set(choice: CompressionChoice, topics: Sequence[TopicCompression]) -> None:
    choice.codec = recommended_codec(topics) or choice.codec


def _by_topic(deliveries: Sequence[Delivery], per_batch: int) -> dict[str, list[bytes]]:
    """Return the payload of one batch for each topic."""
    batches: dict[str, list[bytes]] = {}
    room: dict[str, int] = {}
    for delivery in deliveries:
        batch = batches.setdefault(delivery.topic, [])
        left = room.setdefault(delivery.topic, _BATCH_BYTES)
        if left > 0 and len(batch) < per_batch:
            payload = _payload(delivery, left)
            batch.append(payload)
            room[delivery.topic] = left - len(payload)
    return batches


def _payload(delivery: Delivery, limit: int) -> bytes:
    """Return what a record adds to a batch: key, value and headers."""
    parts = [delivery.key or b"", (delivery.value or b"")[:limit]]
    for name, value in delivery.record_headers:
        parts += [name.encode(), value or b""]
    return b"".join(parts)[:limit]
