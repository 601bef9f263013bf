"""What a failed transaction says: who is to blame for it, and whether another process has taken our place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.exactly_once.log_positions import Where
from producer_core.kafka.classify import failure_of

FENCING = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})

_SINGLED_OUT = "_INVALID_DIFFERENT_RECORD"
_WHOLE_TOPIC = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION", "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
    }
)  # fmt: skip
"""Refusals that hold for every record of the topic or partition: no neighbour is to blame."""
_GONE = frozenset({"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART"})
_MISUSE = frozenset({"_STATE", "_CONFLICT", "_QUEUE_FULL", "_FATAL"})
_ROOM_TO_TIME_OUT = 0.8
"""Share of transaction.timeout.ms from which on the coordinator may have ended our transaction by itself."""


@dataclass(frozen=True)
class FailureCause:
    """`guilty` can never be written. `limits`: how many records of a partition the next transaction may hold,
    where a batch was refused and one of several may be to blame."""

    guilty: list[tuple[Delivery, KafkaError]] = field(default_factory=list)
    limits: Mapping[Where, int] = field(default_factory=dict)


def refused_for_good(error: KafkaError) -> bool:
    """Whether this code says that the record itself will never be taken, as it is and where it is."""
    failure = failure_of(error)
    return (
        failure.kind in ("permanent", "local")
        and failure.verdict in ("rejected", "not_sent")
        and failure.code not in _MISUSE
    )


def whole_topic(error: KafkaError) -> bool:
    """Whether this refusal holds for every record of the topic or partition."""
    return error.name() in _WHOLE_TOPIC


def is_gone(error: KafkaError) -> bool:
    """Return whether this refusal says that the partition does not exist, so that another one may take the message."""
    return error.name() in _GONE


def failure_cause(
    reports: Sequence[tuple[Delivery, KafkaError | None]], sent: Mapping[Where, int]
) -> FailureCause:
    """Who is to blame, from the delivery reports of a transaction that held `sent` records of each partition.

    A broker refuses batches: one record that is too large, or too many together, fails its neighbours with the
    same code. So a record is guilty only when it was alone in its partition, or when the broker told it from its
    neighbours, or when the reason is the topic. Else the partition goes on in smaller transactions.
    """
    suspects = [(delivery, error) for delivery, error in reports if error and refused_for_good(error)]
    spared = {_where(delivery) for delivery, error in reports if error and error.name() == _SINGLED_OUT}
    many = Counter(_where(delivery) for delivery, _ in suspects)
    guilty, limits = [], {}
    for delivery, error in suspects:
        where = _where(delivery)
        if whole_topic(error) or sent[where] == 1 or where in spared:
            guilty.append((delivery, error))
        else:
            limits[where] = max(1, min(sent[where] - 1, many[where] // 2))
    return FailureCause(guilty, limits)


def _where(delivery: Delivery) -> Where:
    return (delivery.topic, delivery.partition)


def lost_the_id(code: str, *, lasted: float, timeout: float) -> bool:
    """Return whether this error means that another request took the transactional id.

    The coordinator answers the same to a transaction that outlived its time-out; then the id is still ours.
    """
    return code in FENCING and lasted < _ROOM_TO_TIME_OUT * timeout
