"""List every metric with its type, labels, sources and meaning. Names follow OpenTelemetry where it has one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

MetricType = Literal["counter", "gauge", "histogram", "summary"]
Source = Literal["process", "store"]
BOTH: tuple[Source, ...] = ("process", "store")

TOPIC = "messaging_destination_name"
ERROR = "error_type"
_OTEL = ("messaging_system", "messaging_operation_name")
_OTEL_TYPED = (*_OTEL, "messaging_operation_type")
FIXED = MappingProxyType(
    {"messaging_system": "kafka", "messaging_operation_name": "send", "messaging_operation_type": "send"}
)
"""The values of the labels that are the same in every series."""


class MetricDefinition(NamedTuple):
    """A metric: its type, its labels in order, the sources that have it, and its help text with the unit."""

    type: MetricType
    labels: tuple[str, ...]
    sources: tuple[Source, ...]
    help: str


METRICS: Mapping[str, MetricDefinition] = MappingProxyType(
    {
        "messaging_client_sent_messages_total": MetricDefinition(
            "counter", (*_OTEL, TOPIC), BOTH, "Messages that the broker acknowledged."
        ),
        "messaging_client_operation_duration_seconds": MetricDefinition(
            "histogram",
            (*_OTEL_TYPED, TOPIC),
            BOTH,
            "Seconds from produce to acknowledgement, of acknowledged messages with a known latency.",
        ),
        "producer_core_sent_bytes_total": MetricDefinition(
            "counter", (TOPIC,), BOTH, "Bytes of the values of acknowledged messages."
        ),
        "producer_core_failed_attempts_total": MetricDefinition(
            "counter", (TOPIC, ERROR), BOTH, "Delivery reports with an error, by librdkafka's error code."
        ),
        "producer_core_retries_total": MetricDefinition(
            "counter", (TOPIC,), BOTH, "Messages sent again by the producer after a failed attempt."
        ),
        "producer_core_retry_successes_total": MetricDefinition(
            "counter", (TOPIC,), BOTH, "Messages acknowledged after such a retry."
        ),
        "producer_core_dead_letters_total": MetricDefinition(
            "counter", (TOPIC,), BOTH, "Messages that became dead letters."
        ),
        "producer_core_duplicates_suppressed_total": MetricDefinition(
            "counter", (TOPIC,), BOTH, "Messages not sent because they were confirmed duplicates."
        ),
        "producer_core_possible_duplicates_total": MetricDefinition(
            "counter", (TOPIC,), BOTH, "Messages sent again after an ambiguous outcome."
        ),
        "producer_core_refused_messages_total": MetricDefinition(
            "counter", (TOPIC,), ("process",), "Messages refused by an open circuit."
        ),
        "producer_core_circuits": MetricDefinition(
            "gauge",
            (TOPIC, "state"),
            ("process",),
            "Circuits in each state. The cluster's have an empty topic; closed circuits of topics are left out.",
        ),
        "producer_core_circuit_openings_total": MetricDefinition(
            "counter", (), ("process",), "Times that a circuit opened, also again after failed probes."
        ),
        "producer_core_client_batches_total": MetricDefinition(
            "counter", (), BOTH, "Batches that librdkafka created."
        ),
        "producer_core_client_batch_messages_total": MetricDefinition(
            "counter", (), BOTH, "Messages in the batches that librdkafka created."
        ),
        "producer_core_client_batch_bytes_total": MetricDefinition(
            "counter", (), BOTH, "Bytes in the batches that librdkafka created, as sent."
        ),
        "producer_core_client_epoch_rises_total": MetricDefinition(
            "counter",
            (),
            BOTH,
            "New epochs of the idempotent producer, each after a rejected or expired record.",
        ),
        "producer_core_broker_requests_total": MetricDefinition(
            "counter", ("broker",), BOTH, "Requests sent to the broker."
        ),
        "producer_core_broker_request_retries_total": MetricDefinition(
            "counter", ("broker",), BOTH, "Requests that librdkafka sent again."
        ),
        "producer_core_broker_request_timeouts_total": MetricDefinition(
            "counter", ("broker",), BOTH, "Requests that the broker did not answer in time."
        ),
        "producer_core_broker_disconnects_total": MetricDefinition(
            "counter", ("broker",), BOTH, "Connections to the broker that ended."
        ),
        "producer_core_broker_queue_seconds": MetricDefinition(
            "summary", ("broker",), BOTH, "Seconds that messages waited in librdkafka's queue."
        ),
        "producer_core_broker_send_queue_seconds": MetricDefinition(
            "summary", ("broker",), BOTH, "Seconds that requests waited to be written to the connection."
        ),
        "producer_core_broker_round_trip_seconds": MetricDefinition(
            "summary", ("broker",), BOTH, "Seconds from a request to its response."
        ),
        "producer_core_broker_throttle_seconds": MetricDefinition(
            "summary", ("broker",), BOTH, "Seconds by which the broker throttled responses."
        ),
        "producer_core_producers": MetricDefinition("gauge", (), BOTH, "Running producers."),
        "producer_core_application_producers": MetricDefinition(
            "gauge",
            ("application",),
            BOTH,
            "Running producers of each application; an empty label for those without a name.",
        ),
        "producer_core_connected_producers": MetricDefinition(
            "gauge", (), BOTH, "Running producers with a connection to a broker."
        ),
        "producer_core_pending_messages": MetricDefinition(
            "gauge", (), BOTH, "Messages accepted and not settled."
        ),
        "producer_core_waiting_retry_messages": MetricDefinition(
            "gauge", (), BOTH, "Messages waiting for a retry."
        ),
        "producer_core_client_queue_messages": MetricDefinition(
            "gauge", (), BOTH, "Messages in librdkafka's queue."
        ),
        "producer_core_client_queue_limit_messages": MetricDefinition(
            "gauge", (), BOTH, "Maximum number of messages in librdkafka's queue."
        ),
        "producer_core_stored_dead_letters": MetricDefinition(
            "gauge",
            (TOPIC, "state", ERROR, "verdict"),
            BOTH,
            "Dead letters now in the store, or in the memory of a process without a store.",
        ),
        "producer_core_oldest_dead_letter_timestamp_seconds": MetricDefinition(
            "gauge", (TOPIC,), ("store",), "Time of the oldest pending dead letter, in seconds since 1970."
        ),
        "producer_core_firing_alerts": MetricDefinition(
            "gauge", ("alert", "severity"), ("store",), "Firing alerts of each rule."
        ),
        "producer_core_alert_evaluation": MetricDefinition(
            "gauge", (), ("store",), "1 while a process evaluates the alerts of the store, else 0."
        ),
        "producer_core_journal_messages": MetricDefinition(
            "gauge", (), ("process",), "Messages in the journal that are not settled."
        ),
        "producer_core_journal_bytes": MetricDefinition(
            "gauge", (), ("process",), "Bytes of the journal's files."
        ),
        "producer_core_deduplication_degraded": MetricDefinition(
            "gauge", (), ("process",), "1 while deduplication works without Redis, else 0."
        ),
        "producer_core_store_bytes": MetricDefinition("gauge", (), ("store",), "Bytes of the store's file."),
        "producer_core_last_heartbeat_timestamp_seconds": MetricDefinition(
            "gauge", (), ("store",), "Time of the latest heartbeat of any producer, in seconds since 1970."
        ),
        "producer_core_build_info": MetricDefinition("gauge", ("version",), BOTH, "1, with the version."),
    }
)
"""Every metric by its name on `/metrics`."""
