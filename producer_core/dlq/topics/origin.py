"""An origin: what the headers of a dead-letter record say of the message, whoever wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Headers = tuple[tuple[str, bytes | None], ...]

Dialect = Literal[
    "producer_core", "spring", "spring_cloud_stream", "connect", "streams", "share_group", "smallrye"
]
Written = Literal["producer_core", "spring", "connect"]
"""What we write; the canonical headers are always among it."""

NAMES: Mapping[Dialect, str] = {
    "producer_core": "producer_core",
    "spring": "Spring Kafka",
    "spring_cloud_stream": "Spring Cloud Stream",
    "connect": "Kafka Connect",
    "streams": "Kafka Streams",
    "share_group": "share group",
    "smallrye": "SmallRye",
}
"""In the order in which they are believed when a record has headers of several."""

GENERATION = "dlq.replay.generation"
OPERATION_ID = "dlq.replay.operation_id"
KEPT = (GENERATION, OPERATION_ID)
"""Headers of ours that a record keeps when it is sent again: how often it came back, and by which replay."""


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """None where the headers do not say. Times in milliseconds since 1970.

    `dialect` None: no header of a dead-letter queue that we know. `consumer` is the group or connector that gave the
    record up. `exception` is the class, or our error code; `attempts` counts tries, `history` are the last of ours, `also` what else its queue's headers say.
    `headers` are all those that belong to the message itself, in order; `notes` say what could not be read.
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
    source: str | None = None
    replayable: str | None = None
    history: str | None = None
    generation: int | None = None
    operation_id: str | None = None
    also: tuple[tuple[str, str], ...] = ()
    headers: Headers = ()
    notes: tuple[str, ...] = ()
