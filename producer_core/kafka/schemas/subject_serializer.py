"""Serialize keys or values with the schema that the registry has for their topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.schema_settings import SchemaSettings
from producer_core.errors import ConfigError, NotAccepted, ProducerClosed, SchemaUnavailable
from producer_core.kafka.schemas.formats import TYPES, Write, make_writer, schema_problem
from producer_core.kafka.schemas.registry import Registry
from producer_core.kafka.schemas.rejections import UnusableResponse, clipped, not_accepted, registry_failure
from producer_core.kafka.schemas.shared_lookups import REMEMBERED, SharedLookups

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.serialization import SerializationContext

logger = queued_logger(__name__)

_FORMATS = {"AVRO": "Avro", "JSON": "JSON"}


@dataclass(slots=True)
class _Writer:
    """Serializes the messages of one topic. `refresh_at` is the time to look for a later version, on `monotonic`."""

    schema_id: int
    write: Write
    refresh_at: float


class SubjectSerializer:
    """Serializes with the schema of the subject `{topic}-value` or `{topic}-key`. Any thread may call it.

    The first message of a topic waits for the registry, if `may_wait(topic)` returns True; it may also raise. Every other
    message needs no registry. After `ttl` seconds a message starts a lookup for a later version; until that has a result,
    and if it fails, the cached schema stays in use.
    """

    def __init__(
        self, registry: Registry, settings: SchemaSettings, part: str, *, may_wait: Callable[[str], bool]
    ) -> None:
        self._registry = registry
        self._part = part
        self._type = TYPES[settings.formats[part]]
        self._make = make_writer(settings.formats[part])
        self._text = settings.schemas.get(part)
        if self._text is not None:
            self._check(self._text)
        self._auto_register = settings.auto_register
        self._ttl = settings.ttl if self._text is None else float("inf")
        self._may_wait = may_wait
        self._lookups = SharedLookups(self._look_up, wait=registry.longest_wait)

    def __call__(self, value: Any, context: SerializationContext) -> bytes | None:
        writer = self._lookups.found.get(context.topic)
        if writer is None:
            writer = self._first(context.topic)
        elif time.monotonic() >= writer.refresh_at:
            self._lookups.refresh(context.topic)
        try:
            return writer.write(value, context)
        except NotAccepted:
            raise
        except Exception as error:
            raise not_accepted(error, writer.write, value, self._part) from error

    async def wait_for_schema(self, topic: str) -> None:
        """Wait for the schema of a topic without blocking the event loop. Raise SchemaUnavailable."""
        if topic not in self._lookups.found:
            self._may_wait(topic)
            await self._lookups.wait_for(topic)

    def close(self) -> None:
        self._lookups.close()

    def _first(self, topic: str) -> _Writer:
        if self._may_wait(topic):
            return self._lookups.get(topic)
        self._lookups.start(topic)
        raise SchemaUnavailable(
            f"The schema of the subject {self._subject(topic)} is not cached, and a delivery callback cannot wait for it.",
            fix="The producer asks the registry now. Send the message again later, or on another thread.",
        )

    def _check(self, text: str) -> None:
        """Raise ConfigError for a schema of the settings that cannot be used."""
        if problem := schema_problem(self._type, text):
            raise ConfigError(
                f"{self._part}.schema is not a valid {_FORMATS[self._type]} schema: {clipped(problem).rstrip('.')}.",
                fix="Correct the schema, or its file.",
            )

    def _subject(self, topic: str) -> str:
        return f"{topic}-{self._part}"

    # on a thread of the lookups

    def _look_up(self, topic: str) -> _Writer:
        """Return the writer of the topic's schema; the cached one if there is one and the registry provides no other."""
        try:
            return self._load(topic)
        except Exception as error:
            cached = self._lookups.found.get(topic)
            if cached is None or isinstance(error, ProducerClosed):
                raise
            cached.refresh_at = time.monotonic() + max(self._ttl, REMEMBERED)
            logger.warning(
                "schema registry not available; the cached schema stays in use",
                extra={"topic": topic, "schema_id": cached.schema_id, "error": str(error)},
            )
            return cached

    def _load(self, topic: str) -> _Writer:
        subject = self._subject(topic)
        schema, schema_id = self._latest(subject) if self._text is None else self._given(subject, self._text)
        try:
            write = self._make(self._registry.client, schema, schema_id)
        except Exception as error:
            failure = registry_failure(error)  # a schema that this one refers to
            if not isinstance(failure, UnusableResponse):
                raise failure from error
            raise SchemaUnavailable(
                f"The schema of the subject {subject} cannot be used: {clipped(str(error))}.",
                fix="Register a valid version.",
            ) from error
        return _Writer(schema_id, write, time.monotonic() + self._ttl)

    def _latest(self, subject: str) -> tuple[Schema, int]:
        found = self._registry.latest(subject)
        assert found.schema is not None and found.schema_id is not None  # `latest` checks both
        stored = found.schema.schema_type or "AVRO"
        if stored != self._type:
            raise SchemaUnavailable(
                f"The schema of the subject {subject} is of type {clipped(str(stored))}, not {self._type}.",
                fix=f"Use the serializer of this type for {self._part}.serializer.",
            )
        return found.schema, found.schema_id

    def _given(self, subject: str, text: str) -> tuple[Schema, int]:
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, self._type)
        return schema, self._registry.id_of(subject, schema, register=self._auto_register)
