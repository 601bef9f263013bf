"""Read the settings of serializers that use a schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError

FORMATS = ("avro", "json")
"""The names that `value.serializer` and `key.serializer` accept."""

_PREFIX = "schema.registry."
_OWN = ("auto.register.schemas", "value.schema", "key.schema")
_DAY = 86_400
_NUMBERS = {
    "timeout": (0.001, _DAY),
    "cache.capacity": (1, 1_000_000_000),
    "max.retries": (0, 1_000),
    "retries.wait.ms": (0, 1_000 * _DAY),
    "retries.max.wait.ms": (0, 1_000 * _DAY),
    "cache.latest.ttl.sec": (0, 1_000 * _DAY),
}
"""The smallest and the largest value of each number."""
_SERIALIZERS = ("value.serializer", "key.serializer")
_TTL = "cache.latest.ttl.sec"


@dataclass(frozen=True)
class SchemaSettings:
    """Holds the settings of a producer's schemas. `formats` and `schemas` are keyed by "value" and "key".

    `client` has the registry client's settings without the prefix `schema.registry.`. `ttl` is the time in seconds
    after which the latest version of a subject is looked up again. The repr leaves out `client`, which has passwords.
    """

    formats: Mapping[str, str]
    client: Mapping[str, Any] = field(repr=False)
    schemas: Mapping[str, str] = field(default_factory=dict)
    auto_register: bool = False
    ttl: float = float("inf")


def pop_registry_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the settings of schemas, except the serializers, and return them with dots in their names."""
    return {
        dotted: given.pop(name)
        for name in list(given)
        if (dotted := name.replace("_", ".")).startswith(_PREFIX) or dotted in _OWN
    }


def without_unused_registry(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those of a registry if they name no serializer that uses it.

    The environment or a shared file may name a registry only for commands and pages that show values.
    """
    found = dict(settings)
    if not any(
        name.replace("_", ".") in _SERIALIZERS for name, value in found.items() if isinstance(value, str)
    ):
        pop_registry_settings(found)
    return found


def with_registry(settings: Mapping[str, Any], url: str | None) -> dict[str, Any]:
    """Return the settings with this address of the registry, if one is given and a serializer uses it."""
    if url is None:
        return dict(settings)
    kept = {
        name: value for name, value in settings.items() if name.replace("_", ".") != "schema.registry.url"
    }
    return without_unused_registry({**kept, "schema.registry.url": url})


def pop_schema_settings(given: dict[str, Any]) -> SchemaSettings | None:
    """Remove the settings of schemas, with dots or underscores, and return them; None without any.

    A serializer that is a function stays. Raise ConfigError for settings that contradict each other.
    """
    formats = _pop_formats(given)
    found = pop_registry_settings(given)
    if not formats and not found:
        return None
    client = {name.removeprefix(_PREFIX): value for name, value in found.items() if name.startswith(_PREFIX)}
    _check_together(formats, client, found)
    schemas = {
        part: _schema_text(f"{part}.schema", found[f"{part}.schema"])
        for part in ("value", "key")
        if found.get(f"{part}.schema") is not None
    }
    _convert_numbers(client)
    auto_register = flag("auto.register.schemas", found.get("auto.register.schemas", False))
    if auto_register and not schemas:
        raise ConfigError(
            "auto.register.schemas is set, but there is no schema to register.",
            fix="Set value.schema to the text of a schema, or to the path of its file.",
        )
    ttl = client.pop(_TTL, float("inf"))
    return SchemaSettings(formats, client, schemas, auto_register, ttl)


def client_settings(client: Mapping[str, Any]) -> SchemaSettings:
    """Return settings for a client without serializers, from the client's settings without their prefix."""
    found = {name: value for name, value in client.items() if name != _TTL}
    _convert_numbers(found)
    return SchemaSettings({}, found)


def _convert_numbers(client: dict[str, Any]) -> None:
    for name in _NUMBERS:
        if name in client:
            client[name] = _number(name, client[name])


def _pop_formats(given: dict[str, Any]) -> dict[str, str]:
    """Remove the serializers that are named and return their formats by part."""
    formats: dict[str, str] = {}
    for name in list(given):
        part, _, rest = name.replace("_", ".").partition(".")
        if part in ("value", "key") and rest == "serializer" and isinstance(given[name], str):
            formats[part] = _format(name, given.pop(name))
    return formats


def _format(name: str, value: str) -> str:
    if value.lower() in FORMATS:
        return value.lower()
    if value.lower() == "protobuf":
        raise ConfigError(
            f"{name}='protobuf' is not possible: a Protobuf serializer needs the message class.",
            fix="Pass confluent-kafka's ProtobufSerializer(Order, client, conf) instead.",
        )
    raise ConfigError(
        f"{name}={short_repr(value)} is not a serializer.",
        fix="Use 'avro' or 'json' with schema.registry.url, or pass a function.",
    )


def _check_together(formats: Mapping[str, str], client: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    if formats and not client.get("url"):
        name = f"{next(iter(formats))}.serializer"
        raise ConfigError(
            f"{name} is a schema format, but schema.registry.url is not set.",
            fix="Set schema.registry.url. For JSON without a schema, leave the serializer out.",
        )
    if not formats:
        raise ConfigError(
            f"{next(iter(found))} is set, but no serializer uses the schema registry.",
            fix="Set value.serializer or key.serializer to 'avro' or 'json'.",
        )
    for part in ("value", "key"):
        if f"{part}.schema" in found and part not in formats:
            raise ConfigError(
                f"{part}.schema is set, but {part}.serializer is not.",
                fix=f"Set {part}.serializer to 'avro' or 'json'.",
            )


def _schema_text(name: str, value: Any) -> str:
    """Return the text of a schema, which is given as text or as the path of a file."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        return value
    if not isinstance(value, str | Path):
        raise ConfigError(
            f"{name}={short_repr(value)} is neither a schema nor a path.", fix="Pass the schema as text."
        )
    try:
        return Path(value).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{name} names a file that cannot be read: {error}.",
            fix="Pass the schema as text, or the path of its file.",
        ) from error


def _number(name: str, value: Any) -> float | int:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{_PREFIX}{name}={short_repr(value)} is not a number.", fix="Write a number."
        ) from error
    least, most = _NUMBERS[name]
    if not least <= number <= most:  # NaN too
        raise ConfigError(
            f"{_PREFIX}{name}={short_repr(value)} is not between {least:g} and {most:,}.",
            fix="Write a number in this range.",
        )
    return int(number) if number == int(number) else number


def flag(name: str, value: Any) -> bool:
    """Return the value of a setting that is true or false. Raise ConfigError for any other value."""
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name}={short_repr(value)} is not true or false.", fix="Write true or false.")
    return text == "true"
