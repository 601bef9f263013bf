"""Serialize keys or values with the schema that the registry has for their topic."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.schema_settings import SchemaSettings
from producer_core.errors import NotAccepted, SchemaUnavailable
from producer_core.kafka.schemas.formats import TYPES, Write, make_writer
from producer_core.kafka.schemas.registry import Registry
from producer_core.kafka.schemas.rejections import not_accepted

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.serialization import SerializationContext

logger = queued_logger(__name__)


@dataclass(slots=True)
class _Writer:
    """Serializes the messages of one topic. `refresh_at` is the time to look for a later version, on `monotonic`."""

    schema_id: int
    write: Write
    refresh_at: float


class SubjectSerializer:
    """Serializes with the schema of the subject `{topic}-value` or `{topic}-key`. Any thread may call it.

    The first message of a topic asks the registry for the schema, and so does the first one after `ttl` seconds. Every
    other message needs no registry. If a later request fails, the cached schema stays in use for another `ttl`.
    """

    def __init__(self, registry: Registry, settings: SchemaSettings, part: str) -> None:
        self._registry = registry
        self._part = part
        self._type = TYPES[settings.formats[part]]
        self._make = make_writer(settings.formats[part])
        self._text = settings.schemas.get(part)
        self._auto_register = settings.auto_register
        self._ttl = settings.ttl if self._text is None else float("inf")
        self._writers: dict[str, _Writer] = {}
        self._lock = threading.Lock()  # guards `refresh_at`

    def __call__(self, value: Any, context: SerializationContext) -> bytes | None:
        writer = self._writers.get(context.topic)
        if writer is None:
            writer = self._writers[context.topic] = self._load(context.topic)
        elif time.monotonic() >= writer.refresh_at:
            writer = self._refresh(context.topic, writer)
        try:
            return writer.write(value, context)
        except NotAccepted:
            raise
        except Exception as error:
            raise not_accepted(error, writer.write, value) from error

    def _refresh(self, topic: str, writer: _Writer) -> _Writer:
        """Return the writer of the latest version. One thread asks; until it has the answer, the others use the cached version."""
        with self._lock:
            if time.monotonic() < writer.refresh_at:
                return writer
            writer.refresh_at = time.monotonic() + self._ttl
        try:
            writer = self._writers[topic] = self._load(topic)
        except NotAccepted as error:
            logger.warning(
                "schema registry not available; the cached schema stays in use",
                extra={"topic": topic, "schema_id": writer.schema_id, "error": str(error)},
            )
        return writer

    def _load(self, topic: str) -> _Writer:
        subject = f"{topic}-{self._part}"
        schema, schema_id = self._latest(subject) if self._text is None else self._given(subject, self._text)
        try:
            write = self._make(self._registry.client, schema, schema_id)
        except Exception as error:
            raise SchemaUnavailable(
                f"The schema of the subject {subject} cannot be used: {error}.",
                fix="Register a valid version.",
            ) from error
        return _Writer(schema_id, write, time.monotonic() + self._ttl)

    def _latest(self, subject: str) -> tuple[Schema, int]:
        found = self._registry.latest(subject)
        assert found.schema is not None and found.schema_id is not None
        stored = found.schema.schema_type or "AVRO"
        if stored != self._type:
            raise SchemaUnavailable(
                f"The schema of the subject {subject} is of type {stored}, not {self._type}.",
                fix=f"Use the serializer of this type for {self._part}.serializer.",
            )
        return found.schema, found.schema_id

    def _given(self, subject: str, text: str) -> tuple[Schema, int]:
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, self._type)
        return schema, self._registry.id_of(subject, schema, register=self._auto_register)
