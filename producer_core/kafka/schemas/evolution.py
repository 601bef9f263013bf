"""Compare the schema that a record was written with to the latest version of its subject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer_core.errors import ConfigError
from producer_core.kafka.schemas.compatibility import avro_problems, compatibility_level, or_absent

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, SchemaRegistryClient


@dataclass(frozen=True, slots=True)
class Evolution:
    """How an earlier schema relates to the latest version of a subject.

    `version` is None if the subject does not have the schema. `readable` says whether the latest version reads records
    of the schema; None if that is not known, for the `reason`. Otherwise `reason` names the fields that are not readable.
    """

    subject: str
    schema_id: int
    version: int | None
    latest: int
    readable: bool | None = None
    reason: str = ""

    @property
    def current(self) -> bool:
        return self.version == self.latest


def evolution(client: SchemaRegistryClient, subject: str, schema_id: int) -> Evolution | None:
    """Return how the schema relates to the subject, also to a deleted one; None without the subject.

    Raise the client's exceptions.
    """
    latest = or_absent(lambda: client.get_latest_version(subject))
    if latest is None:
        return _deleted(client, subject, schema_id)
    newest = int(latest.version)
    if latest.schema_id == schema_id:
        return Evolution(subject, schema_id, newest, newest, readable=True)
    uses = or_absent(lambda: client.get_schema_versions(schema_id)) or []
    version = max((int(use.version) for use in uses if use.subject == subject), default=None)
    if version is None:
        return Evolution(subject, schema_id, None, newest, reason=f"{subject} does not have this schema.")
    readable, reason = _readable(client, subject, latest, version)
    return Evolution(subject, schema_id, version, newest, readable, reason)


def _deleted(client: SchemaRegistryClient, subject: str, schema_id: int) -> Evolution | None:
    """Return that the subject was deleted; None for a subject that the registry never had, or deleted permanently."""
    versions = or_absent(lambda: client.get_versions(subject, deleted=True))
    if not versions:
        return None
    return Evolution(
        subject, schema_id, None, max(map(int, versions)), reason=f"The subject {subject} was deleted."
    )


def _readable(
    client: SchemaRegistryClient, subject: str, latest: RegisteredSchema, version: int
) -> tuple[bool | None, str]:
    schema = latest.schema
    assert schema is not None
    if (schema.schema_type or "AVRO") == "AVRO":
        old = client.get_version(subject, version).schema
        assert old is not None
        try:
            found = avro_problems(reader=str(schema.schema_str), writer=str(old.schema_str))
        except ConfigError:
            return None, "A schema with references is not compared."
        return not found, "; ".join(
            f"{field or 'the whole value'}: {why.rstrip('.')}" for field, why in found
        )
    level = compatibility_level(client, subject)
    if not level.startswith(("BACKWARD", "FULL")):
        return None, f"With the compatibility level {level}, the registry does not check it."
    return bool(client.test_compatibility(subject, schema, version)), ""
