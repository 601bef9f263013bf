"""The checks of a producer's schema registry and of the subjects of its topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer_core._internal.masking import mask_or_hide
from producer_core._internal.schema_settings import SchemaSettings, client_settings, with_registry
from producer_core.config import client_config
from producer_core.diagnostics.doctor.finding import DoctorFinding, of_error
from producer_core.errors import ConfigError, SchemaUnavailable
from producer_core.kafka.schemas.viewer_settings import registry_settings

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema

    from producer_core.kafka.schemas.registry import Registry

_CHECK = "schema registry"
_PARTS = ("value", "key")
_TYPES = {"avro": "AVRO", "json": "JSON"}


def check_schemas(
    servers: str,
    settings: Mapping[str, Any],
    topics: Sequence[str],
    timeout: float,
    *,
    url: str | None = None,
) -> Iterator[DoctorFinding]:
    """Check the registry of a producer with these settings, or at `url`, and the subjects of the topics.

    Without a registry there is no finding. Invalid settings are a finding of `check_kafka`. A request waits `timeout`
    seconds.
    """
    try:
        schemas = client_config(servers, with_registry(settings, url)).schemas
    except ConfigError:
        return
    if schemas is None and url is None:
        return
    try:
        registry = _opened(schemas.client if schemas else registry_settings(settings), url, timeout)
    except ConfigError as error:
        yield of_error(_CHECK, error)
        return
    try:
        yield from _findings(registry, schemas or SchemaSettings({}, {"url": url}), topics)
    finally:
        registry.close()


def _opened(given: Mapping[str, Any], url: str | None, timeout: float) -> Registry:
    from producer_core.kafka.schemas.registry import Registry

    client = dict(given)
    if url is not None:
        client["url"] = url
    return Registry(client_settings({"timeout": timeout, "max.retries": 0, **client}))


def _findings(registry: Registry, schemas: SchemaSettings, topics: Sequence[str]) -> Iterator[DoctorFinding]:
    address = mask_or_hide(str(schemas.client["url"]))
    try:
        level = registry.level()
    except SchemaUnavailable as error:
        text = mask_or_hide(error.what)
        yield DoctorFinding(_CHECK, "problem", f"{address}: {text}", _registry_fix(text))
        return
    yield DoctorFinding(_CHECK, "ok", f"{address} responds. Its compatibility level is {level}.")
    if not topics:
        yield DoctorFinding(
            "subject", "ok", "No topic was specified; --topic NAME checks the schemas of its subjects."
        )
    for topic in topics:
        for part in [part for part in _PARTS if part in schemas.formats] or ["value"]:
            yield from _subject(registry, schemas, f"{topic}-{part}", part)


def _registry_fix(text: str) -> str:
    if "credentials" in text:
        return "Set schema.registry.basic.auth.user.info, and grant its user read access to the subjects."
    return "Check schema.registry.url, schema.registry.ssl.ca.location, the firewall, and that the registry is running."


def _subject(registry: Registry, schemas: SchemaSettings, subject: str, part: str) -> Iterator[DoctorFinding]:
    check = f"subject {subject}"
    try:
        latest = registry.latest_or_none(subject)
        level = registry.level(subject)
        if latest is None:
            yield _absent(check, schemas, subject, part)
            return
        yield _latest(check, schemas, latest, part, level)
        if part in schemas.schemas:
            yield from _given(registry, schemas, subject, part)
    except SchemaUnavailable as error:
        yield DoctorFinding(check, "problem", mask_or_hide(error.what), _registry_fix(error.what))
        return
    if level == "NONE":
        yield DoctorFinding(
            check,
            "warning",
            "The compatibility level is NONE: a new version can be one that consumers cannot read.",
            f"Set the level of {subject} to BACKWARD (or FORWARD, FULL) in the registry.",
        )


def _absent(check: str, schemas: SchemaSettings, subject: str, part: str) -> DoctorFinding:
    if schemas.auto_register and part in schemas.schemas:
        return DoctorFinding(check, "ok", "The subject does not exist; the first message registers it.")
    register = f"Register a schema under {subject}"
    if part not in schemas.formats:
        return DoctorFinding(
            check,
            "warning",
            "The subject does not exist.",
            f"{register}, or let a serializer register it with the first message.",
        )
    return DoctorFinding(
        check,
        "problem",
        "The subject does not exist: every message raises SchemaUnavailable.",
        f"{register}, or set {part}.schema and auto.register.schemas=true.",
    )


def _latest(
    check: str, schemas: SchemaSettings, latest: RegisteredSchema, part: str, level: str
) -> DoctorFinding:
    kind = (latest.schema.schema_type if latest.schema else None) or "AVRO"
    wanted = _TYPES.get(schemas.formats.get(part, ""))
    if wanted is not None and kind != wanted:
        return DoctorFinding(
            check,
            "problem",
            f"Version {latest.version} is of type {kind}, but {part}.serializer writes {wanted}.",
            f"Register a schema of type {wanted} under another topic's subject, or change {part}.serializer.",
        )
    return DoctorFinding(
        check,
        "ok",
        f"Version {latest.version} ({kind}, schema id {latest.schema_id}). Compatibility level {level}.",
    )


def _given(registry: Registry, schemas: SchemaSettings, subject: str, part: str) -> Iterator[DoctorFinding]:
    """Check a schema of the settings: it must be registered, or be compatible if the producer registers it."""
    from confluent_kafka.schema_registry import Schema

    check, text, kind = f"subject {subject}", schemas.schemas[part], _TYPES[schemas.formats[part]]
    try:
        found = registry.id_of(subject, Schema(text, kind), register=False)
    except SchemaUnavailable as error:
        if "no such schema" not in error.what:
            raise
    else:
        yield DoctorFinding(check, "ok", f"The schema of {part}.schema is registered with id {found}.")
        return
    if not schemas.auto_register:
        yield DoctorFinding(
            check,
            "problem",
            f"The schema of {part}.schema is not registered: every message raises SchemaUnavailable.",
            "Register it, or set auto.register.schemas=true.",
        )
        return
    yield _compatible(registry, check, subject, part, text, kind)


def _compatible(
    registry: Registry, check: str, subject: str, part: str, text: str, kind: str
) -> DoctorFinding:
    try:
        verdict = registry.compatibility(subject, text, kind)
    except ConfigError as error:
        return of_error(check, error)
    if verdict.compatible:
        return DoctorFinding(check, "ok", f"The first message registers the schema of {part}.schema.")
    fields = ", ".join(dict.fromkeys(one.field or "the whole value" for one in verdict.problems))
    return DoctorFinding(
        check,
        "problem",
        f"The schema of {part}.schema is not compatible ({verdict.level}){f': {fields}' if fields else ''}.",
        f"producer-core schema check FILE --subject {subject} names each field and the rule.",
    )
