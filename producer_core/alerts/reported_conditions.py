"""The conditions that producers check themselves, each with its threshold, as text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REPORTED_CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        "high_error_rate": "more than error_rate_threshold (default 5%) of a producer's messages failed between two "
        "health checks",
        "high_latency": "a producer's messages take longer than latency_threshold_ms (default 1,000 ms) on average "
        "between two health checks",
        "high_dlq_size": "more than dlq_size_threshold (default 100) dead letters of the application are pending",
        "high_memory_usage": "a process uses more than memory_usage_threshold (default 80%) of its memory limit",
        "connection_lost": "no broker is connected in 2 health checks in a row, or in 1 if the reason is known",
        "circuit_opened": "at least failure_rate_threshold (default 50%) of minimum_number_of_calls (default 20) or more "
        "attempts fail within sliding_window_size_s (default 10 s), or for max_in_flight_age_s (default 5 s) no broker is "
        "connected or none acknowledges a message",
        "store_unavailable": "the store cannot be read or written for 60 s",
        "dedup_degraded": "Redis does not respond, so duplicates are not suppressed",
        "dead_letter_topic_failing": "for 300 s at least 1 dead letter waits for its dead-letter topic, and attempts to "
        "publish it fail or do not end",
        "telemetry_failing": "more than 50% of at least 30 windows of the last 5 min did not reach the telemetry topic",
        "telemetry_lost": "at least 1 window of telemetry was dropped",
        "ledger_lost": "the ledger rows of at least 1 acknowledged message were dropped",
        "fatal_error": "at least 1 fatal error ended the Kafka client, which is created again",
        "loss_suspected": "a broker does not know the sequence of a partition, and acknowledged records may be missing",
        "acknowledged_lost": "at least 1 acknowledged record is missing from its partition",
        "producer_desynchronised": "a broker rejected the sequence of a partition, and no acknowledged record is missing",
        "topic_recreated": "a topic was deleted and created again after at least 1 record was acknowledged",
        "retention_removed": "retention removed at least 1 acknowledged record that the producer compares with the log",
        "standing_unknown": "the brokers do not return enough to decide whether acknowledged records are missing",
        "order_break": "at least 1 message was acknowledged before an earlier one with the same key was retried",
        "epoch_rose": "the producer epoch was bumped at least once",
        "fenced": "another process uses the same transactional id",
        "shard_ended": "an internal error stopped a part of exactly-once delivery",
        "transactions_failing": "at least 1 transaction failed, and none was committed since",
        "read_back_waits": "the read-back at the start of exactly-once delivery takes longer than 5 s",
        "read_back_refused": "the read-back at the start of exactly-once delivery lacks READ on a topic",
        "journal_full": "at least 1 message or delivery does not fit into the journal or on its disk",
        "journal_torn": "the last write to the journal is incomplete",
        "journal_damaged": "at least 1 record of the journal cannot be decoded",
        "store_replaced": "another file replaced the file of the store while a producer used it",
        "dlq_over_bound": "pending dead letters exceed dlq_max_size (default 10,000), dlq_max_bytes (default 256 MiB) or "
        "dlq_max_age (default 7 d)",
        "weak_replication": "a topic has 1 replica, or accepts writes with 1 replica in sync",
    }
)
"""The condition of each built-in rule that producers report. The defaults are those of the settings that the texts name."""
