"""Prove that a late request of a failed attempt can no longer be appended.

No waiting time proves it: a kernel, a proxy or a stopped broker can deliver a request whenever it likes, and a produce
request carries no leader epoch, so that a leader that changed and came back appends it. What proves it is a later
batch of the same idempotent producer on the same partition: the broker keeps the producer's epoch and sequence there
(for `producer.id.expiration.ms`, a day by default) and refuses whatever comes after it with an older one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from producer_core.delivery.delivery import Delivery
from producer_core.metrics.ack_batch import Acknowledgements


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """Where an attempt was sent, by which producer id, and the sequence of the first message accepted after it failed."""

    topic: str
    partition: int
    producer_id: int
    next_sequence: int


class LateRequests:
    """Written on the poll thread; `impossible` is asked from any thread."""

    def __init__(self, next_sequence: Callable[[], int]) -> None:
        self._next_sequence = next_sequence
        self._producer_id = -1
        self._known_from = 0  # messages from this sequence on were sent under this producer id, if at all
        # By topic and partition the highest sequence acknowledged: now, before the last statistics, and before those
        # before them. Only the last are proved to be this producer id's: statistics may be older than their hearing.
        self._acknowledged: dict[tuple[str, int], int] = {}
        self._before: dict[tuple[str, int], int] = {}
        self._confirmed: dict[tuple[str, int], int] = {}

    def statistics(self, statistics: Mapping[str, Any]) -> None:
        """Note the client's producer id; a client without idempotence has none, and proves nothing."""
        producer_id = int((statistics.get("eos") or {}).get("producer_id", -1))
        if producer_id != self._producer_id:  # brokers give none twice
            self._producer_id = producer_id
            self._known_from = self._next_sequence()
            self._acknowledged, self._before = {}, {}
        self._confirmed, self._before = self._before, dict(self._acknowledged)

    def note(self, told: Acknowledgements) -> None:
        """Note a batch of acknowledgements."""
        for _, last in told.runs():
            where, sequence = (told.topics[last], told.partitions[last]), told.seqs[last]
            if told.offsets[last] is not None and sequence > self._acknowledged.get(where, -1):
                self._acknowledged[where] = sequence

    def failed(self, delivery: Delivery, partition: int | None) -> FailedAttempt | None:
        """What a proof about this attempt needs, noted when its report came; None where there can be none.

        An earlier attempt in doubt may have gone elsewhere, or have been another process's.
        """
        verdicts = [verdict for _, verdict in delivery.attempts]
        if partition is None or partition < 0 or verdicts.count("possibly_persisted") != 1:
            return None
        if self._producer_id < 0 or not self._known_from <= delivery.seq:
            return None
        return FailedAttempt(delivery.topic, partition, self._producer_id, self._next_sequence())

    def impossible(self, attempt: FailedAttempt | None) -> bool:
        """Whether a message that was accepted after the attempt failed was acknowledged on its partition, by the same
        producer id. Ask it before the topic is read, or what lands in between is missed."""
        if attempt is None:
            return False
        acknowledged = self._confirmed.get((attempt.topic, attempt.partition), -1)  # before the producer id
        return acknowledged >= attempt.next_sequence and attempt.producer_id == self._producer_id
