"""Name the attributes of a span, as the semantic conventions 1.44 for messaging and Kafka do, and our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from producer_core.config import ClientConfig

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
OFFSET = "messaging.kafka.offset"
TOMBSTONE = "messaging.kafka.message.tombstone"
CLUSTER = "messaging.kafka.cluster.id"
MESSAGE_ID = "messaging.message.id"
BATCH_COUNT = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"
ERROR_TYPE = "error.type"
SERVER_ADDRESS, SERVER_PORT = "server.address", "server.port"

OUTCOME = "producer_core.outcome"
VERDICT = "producer_core.verdict"
FAILED_COUNT = "producer_core.batch.failed_count"

ATTEMPT_FAILED = "producer_core.attempt_failed"
PROBE = "producer_core.probe"
ATTEMPT = "producer_core.attempt"
RETRY_IN = "producer_core.retry_in_s"
AMBIGUOUS = "producer_core.ambiguous"
PROBE_RESULT = "producer_core.probe.result"

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value]


def of_client(config: ClientConfig) -> dict[str, Value]:
    """Return the attributes that all spans of a producer share. The server is the first bootstrap server."""
    shared: dict[str, Value] = {
        SYSTEM: "kafka", OPERATION_NAME: "send", OPERATION_TYPE: "send", CLIENT_ID: config.client_id,
    }  # fmt: skip
    host, port = _server(config.bootstrap_servers)
    if host:
        shared[SERVER_ADDRESS] = host
    if port is not None:
        shared[SERVER_PORT] = port
    return shared


def _server(bootstrap_servers: str) -> tuple[str, int | None]:
    first = bootstrap_servers.split(",")[0].strip().rpartition("://")[2]
    host, colon, port = first.rpartition(":")
    if not colon or not port.isdecimal():
        return first.strip("[]"), None
    return host.strip("[]"), int(port)
