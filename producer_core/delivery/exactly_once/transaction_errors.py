"""Find the cause of a failed transaction: the rejected records, or another process with the same transactional id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.exactly_once.log_positions import PartitionId
from producer_core.kafka.classify import failure_of

FENCING = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})

_SPARED_CODE = "_INVALID_DIFFERENT_RECORD"
_WHOLE_TOPIC_CODES = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION", "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
    }
)  # fmt: skip
"""Rejections that apply to every record of the topic or partition, so no single record is the cause."""
_MISSING_PARTITION_CODES = frozenset({"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART"})
_MISUSE_CODES = frozenset({"_STATE", "_CONFLICT", "_QUEUE_FULL", "_FATAL"})
_TIMEOUT_SHARE = 0.8
"""Share of transaction.timeout.ms after which the coordinator may have aborted the transaction itself."""


@dataclass(frozen=True)
class FailureCause:
    """The cause of a failed transaction.

    `rejected` are records that can never be written. `limits` is the number of records that the next transaction may
    have for a partition whose batch was rejected because of one of several records.
    """

    rejected: list[tuple[Delivery, KafkaError]] = field(default_factory=list)
    limits: Mapping[PartitionId, int] = field(default_factory=dict)


def is_permanent_rejection(error: KafkaError) -> bool:
    """Return whether the record with this content will never be accepted on its topic."""
    failure = failure_of(error)
    return (
        failure.kind in ("permanent", "local")
        and failure.verdict in ("rejected", "not_sent")
        and failure.code not in _MISUSE_CODES
    )


def rejects_whole_topic(error: KafkaError) -> bool:
    """Return whether the rejection applies to every record of the topic or partition."""
    return error.name() in _WHOLE_TOPIC_CODES


def is_missing_partition(error: KafkaError) -> bool:
    """Return whether the partition does not exist, so that the message can go to another one."""
    return error.name() in _MISSING_PARTITION_CODES


def failure_cause(
    reports: Sequence[tuple[Delivery, KafkaError | None]], sent: Mapping[PartitionId, int]
) -> FailureCause:
    """Find the cause in the delivery reports of a transaction with `sent` records for each partition.

    Brokers reject whole batches: one record that is too large, or too many together, fails its neighbors with the same
    code. A record counts as rejected only when it was the only one for its partition, when the broker distinguished it
    from its neighbors, or when the rejection applies to the topic. Otherwise the partition continues with smaller
    transactions.
    """
    suspects = [(delivery, error) for delivery, error in reports if error and is_permanent_rejection(error)]
    spared = {
        _partition_of(delivery) for delivery, error in reports if error and error.name() == _SPARED_CODE
    }
    suspect_counts = Counter(_partition_of(delivery) for delivery, _ in suspects)
    rejected, limits = [], {}
    for delivery, error in suspects:
        partition = _partition_of(delivery)
        if rejects_whole_topic(error) or sent[partition] == 1 or partition in spared:
            rejected.append((delivery, error))
        else:
            limits[partition] = max(1, min(sent[partition] - 1, suspect_counts[partition] // 2))
    return FailureCause(rejected, limits)


def _partition_of(delivery: Delivery) -> PartitionId:
    return (delivery.topic, delivery.partition)


def id_was_taken(code: str, *, lasted: float, timeout: float) -> bool:
    """Return whether this error means that another request took the transactional id.

    The coordinator returns the same error for a transaction that exceeded its timeout; the id then still belongs to
    this producer.
    """

    return code in FENCING and lasted < _TIMEOUT_SHARE * timeout
