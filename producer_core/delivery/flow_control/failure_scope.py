"""Decide whether a failed attempt says something about its message, its topic or the cluster."""

from __future__ import annotations

from typing import Literal

from producer_core.events import Kind

FailureScope = Literal["message", "topic", "cluster"]

_OF_MESSAGE = frozenset(
    {
        # the record itself, or a batch with such a record
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "INVALID_MSG_SIZE",
        "INVALID_MSG",
        "_INVALID_DIFFERENT_RECORD",
        "_BAD_MSG",
        # the broker has the message
        "DUPLICATE_SEQUENCE_NUMBER",
        # this client gave the message up: a close, an aborted transaction, a client that is replaced
        "_PURGE_QUEUE",
        "_PURGE_INFLIGHT",
        "_DESTROY",
        "_INTR",
        "INVALID_TXN_STATE",
        "TRANSACTION_ABORTABLE",
    }
)
_OF_TOPIC = frozenset(
    {
        "_UNKNOWN_TOPIC",
        "_ISR_INSUFF",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "POLICY_VIOLATION",
        "INVALID_CONFIG",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "REPLICA_NOT_AVAILABLE",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "KAFKA_STORAGE_ERROR",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "PREFERRED_LEADER_NOT_AVAILABLE",
    }
)


def scope_of(code: str, kind: Kind) -> FailureScope:
    """Return the scope of a failure. A failure of the cluster is one of the topic as well."""
    if code in _OF_TOPIC:
        return "topic"
    return "message" if code in _OF_MESSAGE or kind == "local" else "cluster"
