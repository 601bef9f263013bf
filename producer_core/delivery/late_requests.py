"""Prove that a late request of a failed attempt can no longer be appended.

No waiting time proves this: a kernel, a proxy or a paused broker can deliver a request at any time, and a produce request
carries no leader epoch, so a broker that lost the leadership and regained it appends the request. A later batch of the same
idempotent producer on the same partition proves it: the broker keeps the producer's epoch and sequence for that partition
(for `producer.id.expiration.ms`, one day by default) and refuses requests with older ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from producer_core.delivery.delivery import Delivery
from producer_core.metrics.ack_batch import Acknowledgements


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """Where an attempt was sent, under which producer id, and the sequence of the first message accepted after it failed."""

    topic: str
    partition: int
    producer_id: int
    next_sequence: int


class LateRequests:
    """Tracks acknowledgements by partition. Written on the poll thread; `impossible` may be called on any thread."""

    def __init__(self, next_sequence: Callable[[], int]) -> None:
        self._next_sequence = next_sequence
        self._producer_id = -1
        self._first_sequence = 0  # messages from this sequence on are sent under this producer id, if at all
        # The highest acknowledged sequence by topic and partition: now, at the latest statistics, and at the statistics
        # before those. Only the last of these certainly belongs to this producer id, because statistics may have been
        # collected some time before the callback receives them.
        self._acknowledged: dict[tuple[str, int], int] = {}
        self._at_latest_statistics: dict[tuple[str, int], int] = {}
        self._confirmed: dict[tuple[str, int], int] = {}

    def statistics(self, statistics: Mapping[str, Any]) -> None:
        """Update the client's producer id. A client without idempotence has none, and proves nothing."""
        producer_id = int((statistics.get("eos") or {}).get("producer_id", -1))
        if producer_id != self._producer_id:  # brokers never assign the same id again
            self._producer_id = producer_id
            self._first_sequence = self._next_sequence()
            self._acknowledged, self._at_latest_statistics = {}, {}
        self._confirmed, self._at_latest_statistics = self._at_latest_statistics, dict(self._acknowledged)

    def note(self, batch: Acknowledgements) -> None:
        """Record a batch of acknowledgements."""
        for _, last in batch.runs():
            partition, sequence = (batch.topics[last], batch.partitions[last]), batch.seqs[last]
            if batch.offsets[last] is not None and sequence > self._acknowledged.get(partition, -1):
                self._acknowledged[partition] = sequence

    def failed(self, delivery: Delivery, partition: int | None) -> FailedAttempt | None:
        """Return what a proof about a failed attempt needs, or None when there can be no proof. Call it with its report.

        There is no proof after an earlier ambiguous attempt: it may have been sent to another partition, or by another
        process.
        """
        verdicts = [verdict for _, verdict in delivery.attempts]
        if partition is None or partition < 0 or verdicts.count("possibly_persisted") != 1:
            return None
        if self._producer_id < 0 or not self._first_sequence <= delivery.seq:
            return None
        return FailedAttempt(delivery.topic, partition, self._producer_id, self._next_sequence())

    def impossible(self, attempt: FailedAttempt | None) -> bool:
        """Return whether the same producer id got an acknowledgement on the attempt's partition for a message that was
        accepted after the attempt failed.

        Call it before the topic is read; otherwise a record appended in between is missed.
        """
        if attempt is None:
            return False
        # Read before the producer id, because the poll thread changes both.
        acknowledged = self._confirmed.get((attempt.topic, attempt.partition), -1)
        return acknowledged >= attempt.next_sequence and attempt.producer_id == self._producer_id
