"""Ask a schema registry for the schemas of subjects, with a bounded wait."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from producer_core._internal.masking import mask_or_hide
from producer_core._internal.schema_settings import SchemaSettings
from producer_core.errors import ConfigError, ProducerClosed
from producer_core.kafka.schemas.bounded_responses import MAX_SECONDS, bound_responses
from producer_core.kafka.schemas.compatibility import (
    Compatibility,
    check_compatibility,
    compatibility_level,
    or_absent,
)
from producer_core.kafka.schemas.evolution import Evolution, evolution
from producer_core.kafka.schemas.rejections import registry_failure, unusable_response

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient

_WAIT = 10.0
"""Seconds of the requests to a registry, without the pause between them. The client's own defaults have no limit."""
_RETRIES_WAIT_MS, _RETRIES_MAX_WAIT_MS = 200, 20_000

_SCHEMES = ("http://", "https://", "mock://")

_MAX_ID = 2**31 - 1

_SCHEMA_NOT_FOUND = 40403
"""Confluent's error code for a subject that does not have the schema."""


class Registry:
    """A client of a schema registry. It connects with the first request. Any thread may use it.

    The size and duration of each response are limited. `longest_wait` is the time in seconds after which all attempts of
    one request have failed, at every address.
    """

    def __init__(self, settings: SchemaSettings) -> None:
        chosen = {**_defaults(settings.client.get("url")), **settings.client}
        self.client = _open_client(settings, chosen)
        self.longest_wait = _longest_wait(chosen)
        self._closed = False
        bound_responses(self.client, max_seconds=max(MAX_SECONDS, float(chosen["timeout"])))

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest version of a subject, with its id and schema. Raise SchemaUnavailable if the registry does not
        provide it."""
        try:
            self.client.clear_latest_caches()
            return _complete(self.client.get_latest_version(subject))
        except Exception as error:
            raise self._failure(error) from error

    def schema(self, schema_id: int | str, *, compiled: bool = False) -> Schema:
        """Return the schema of an id or GUID; `compiled` asks for the compiled form of a Protobuf schema.

        Raise SchemaUnavailable if the registry does not provide it.
        """
        form = _form(compiled=compiled)
        try:
            if compiled:
                self.client.clear_caches()  # the client caches a schema by id, not by form
            if isinstance(schema_id, str):
                return _schema(self.client.get_schema_by_guid(schema_id, fmt=form))
            return _schema(self.client.get_schema(schema_id, fmt=form))
        except Exception as error:
            raise self._failure(error) from error

    def subjects(self, schema_id: int) -> frozenset[str]:
        """Return the subjects that have the schema of an id, also deleted ones. Raise SchemaUnavailable."""
        try:
            uses = or_absent(lambda: self.client.get_schema_versions(schema_id, deleted=True)) or ()
            return frozenset(str(use.subject) for use in uses)
        except Exception as error:
            raise self._failure(error) from error

    def version(self, subject: str, version: int, *, compiled: bool = False) -> Schema:
        """Return the schema of a version. Raise SchemaUnavailable if the registry does not provide it."""
        try:
            return _schema(self.client.get_version(subject, version, fmt=_form(compiled=compiled)).schema)
        except Exception as error:
            raise self._failure(error) from error

    def latest_or_none(self, subject: str) -> RegisteredSchema | None:
        """Return the latest version; None if the registry does not have the subject. Raise SchemaUnavailable."""
        try:
            self.client.clear_latest_caches()
            return or_absent(lambda: _complete(self.client.get_latest_version(subject)))
        except Exception as error:
            raise self._failure(error) from error

    def level(self, subject: str | None = None) -> str:
        """Return the compatibility level of a subject, or of the registry. Raise SchemaUnavailable."""
        try:
            return compatibility_level(self.client, subject)
        except Exception as error:
            raise self._failure(error) from error

    def id_of(self, subject: str, schema: Schema, *, register: bool) -> int:
        """Return the id of a schema under a subject. `register` registers it first if necessary."""
        try:
            self.client.clear_caches()  # the client also caches a response without an id
            if register:
                return _schema_id(self.client.register_schema(subject, schema))
            return _schema_id(self._lookup(subject, schema).schema_id)
        except Exception as error:
            raise self._failure(error) from error

    def _lookup(self, subject: str, schema: Schema) -> RegisteredSchema:
        """Look up a schema as it is written, then in its normal form: some registries compare the text."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return self.client.lookup_schema(subject, schema)
        except SchemaRegistryError as error:
            if error.error_code != _SCHEMA_NOT_FOUND:
                raise
            return self.client.lookup_schema(subject, schema, normalize_schemas=True)

    def compatibility(self, subject: str, text: str, kind: str) -> Compatibility:
        """Return whether a schema is compatible with a subject. `kind` is AVRO, JSON or PROTOBUF."""
        from confluent_kafka.schema_registry import Schema

        try:
            return check_compatibility(self.client, subject, Schema(text, kind))
        except Exception as error:
            raise self._failure(error) from error

    def evolution(self, subject: str, schema_id: int) -> Evolution | None:
        """Return how a schema relates to the latest version of a subject; None without the subject. Raise SchemaUnavailable."""
        try:
            return evolution(self.client, subject, schema_id)
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        return ProducerClosed() if self._closed else registry_failure(error)

    def close(self) -> None:
        self._closed = True
        self.client.close()


def _complete(found: RegisteredSchema) -> RegisteredSchema:
    """Return a version that has an id and a schema. A proxy may respond to any path with `{}`."""
    _schema(found.schema)
    _schema_id(found.schema_id)
    return found


def _schema(found: Schema | None) -> Schema:
    if found is None or not isinstance(found.schema_str, str):
        raise unusable_response("it has no schema")
    return found


def _schema_id(found: Any) -> int:
    if type(found) is not int or not 0 < found <= _MAX_ID:
        raise unusable_response("it has no schema id")
    return found


def _form(*, compiled: bool) -> str | None:
    return "serialized" if compiled else None


def _addresses(url: Any) -> int:
    return url.count(",") + 1 if isinstance(url, str) else 1


def _defaults(url: Any) -> dict[str, Any]:
    """Return settings with which one request takes about 10 s: two attempts, or one at each of several addresses."""
    addresses = _addresses(url)
    if addresses == 1:
        return {"timeout": _WAIT / 2, "max.retries": 1, "retries.wait.ms": _RETRIES_WAIT_MS}
    return {"timeout": _WAIT / addresses, "max.retries": 0, "retries.wait.ms": _RETRIES_WAIT_MS}


def _longest_wait(chosen: Mapping[str, Any]) -> float:
    timeout, retries, pause = (float(chosen[name]) for name in ("timeout", "max.retries", "retries.wait.ms"))
    longest = float(chosen.get("retries.max.wait.ms", _RETRIES_MAX_WAIT_MS))
    pauses = sum(min(longest, pause * 2.0**number) for number in range(int(retries))) / 1000
    return min(threading.TIMEOUT_MAX, _addresses(chosen["url"]) * (timeout * (int(retries) + 1) + pauses))


def _open_client(settings: SchemaSettings, chosen: dict[str, Any]) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise missing_extra(error) from error
    _check_address(settings.client.get("url"))
    try:
        return SchemaRegistryClient.new_client(chosen)
    except Exception as error:  # noqa: BLE001  its context is left out, because it may contain a password
        raise ConfigError(
            f"The schema registry's client rejects its settings: {_reason(error, settings)}.",
            fix="Check the settings that begin with schema.registry.",
        ) from None


def _reason(error: Exception, settings: SchemaSettings) -> str:
    """Return the text of the error, or only its type if it can quote a part of an address that has a password."""
    if any("@" in str(settings.client.get(name)) for name in ("url", "proxy")):
        return type(error).__name__
    return mask_or_hide(str(error))


def _check_address(url: Any) -> None:
    """Raise ConfigError without the address, which may contain a password."""
    if isinstance(url, str) and not all(one.strip().startswith(_SCHEMES) for one in url.split(",")):
        raise ConfigError(
            "The address of the schema registry does not begin with http:// or https://.",
            fix="Check schema.registry.url.",
        )


def missing_extra(error: ImportError) -> ConfigError:
    """Return the error for a package that only the extra `schemas` installs."""
    return ConfigError(
        f"Serializers with a schema need more packages: {error}.",
        fix="Install them with: pip install 'producer-core[schemas]'",
    )
