"""The origin of a dead-letter record, read from its headers in any known dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Headers = tuple[tuple[str, bytes | None], ...]

Dialect = Literal[
    "producer_core", "spring", "spring_cloud_stream", "connect", "streams", "share_group", "smallrye"
]
WrittenDialect = Literal["producer_core", "spring", "connect"]
"""The dialects that `publish` can write. The producer_core headers are always included."""

NAMES: Mapping[Dialect, str] = {
    "producer_core": "producer_core",
    "spring": "Spring Kafka",
    "spring_cloud_stream": "Spring Cloud Stream",
    "connect": "Kafka Connect",
    "streams": "Kafka Streams",
    "share_group": "share group",
    "smallrye": "SmallRye",
}
"""In order of precedence, for records with headers of several dialects."""

GENERATION = "dlq.replay.generation"
OPERATION_ID = "dlq.replay.operation_id"
KEPT = (GENERATION, OPERATION_ID)
"""Headers that a replayed record keeps: how often it came back, and the id of the replay."""


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """The origin of a record. Fields without a header are None; times are in milliseconds since 1970.

    `dialect` is None if the record has no known dead-letter header. `consumer` is the group or connector that failed to
    process the record. `exception` is a Java class or an error code. `attempts` is the number of attempts, `history` the
    encoded last attempts of a producer_core dead letter. `other_headers` are further headers of the dialect, `headers`
    those of the message itself, in order. `notes` describe invalid headers.
    """

    dialect: Dialect | None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    message_id: str | None = None
    cluster_id: str | None = None
    consumer: str | None = None
    exception: str | None = None
    cause: str | None = None
    message: str | None = None
    stacktrace: str | None = None
    attempts: int | None = None
    accepted_ms: int | None = None
    failed_ms: int | None = None
    verdict: str | None = None
    verdict_reason: str | None = None
    kind: str | None = None
    fingerprint: str | None = None
    client_id: str | None = None
    host: str | None = None
    version: str | None = None
    application: str | None = None
    application_version: str | None = None
    source: str | None = None
    replayable: str | None = None
    history: str | None = None
    generation: int | None = None
    operation_id: str | None = None
    other_headers: tuple[tuple[str, str], ...] = ()
    headers: Headers = ()
    notes: tuple[str, ...] = ()
