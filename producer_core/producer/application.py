"""Find the name of the application that a producer belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError

VARIABLE = "PRODUCER_CORE_APPLICATION"
_SERVICE_NAME = "OTEL_SERVICE_NAME"
_RESOURCE_ATTRIBUTES = "OTEL_RESOURCE_ATTRIBUTES"
_LONGEST = 255


def application_name(given: Any, environment: Mapping[str, str]) -> str:
    """Return the application's name, or an empty text if it has none.

    The order is: the argument, `PRODUCER_CORE_APPLICATION`, and the service name of OpenTelemetry's variables
    (`OTEL_SERVICE_NAME`, then `service.name` in `OTEL_RESOURCE_ATTRIBUTES`). Raise ConfigError for an invalid name.
    """
    if given is not None:
        return _checked("application", given)
    if named := environment.get(VARIABLE):
        return _checked(VARIABLE, named)
    named = environment.get(_SERVICE_NAME) or _service_name(environment.get(_RESOURCE_ATTRIBUTES, ""))
    return "".join(filter(str.isprintable, named)).strip()[:_LONGEST]  # isprintable: also no lone surrogates


def _checked(source: str, name: Any) -> str:
    printable = isinstance(name, str) and name.isprintable() and name == name.strip()
    if not printable or not 1 <= len(name) <= _LONGEST:
        raise ConfigError(
            f"{source}={short_repr(name)} is not the name of an application.",
            fix=f"Use 1 to {_LONGEST} printable characters, for example 'checkout'.",
        )
    return str(name)


def _service_name(attributes: str) -> str:
    """Return `service.name` of a list such as `service.name=checkout,service.version=2`, which is percent-encoded."""
    pairs = dict(pair.strip().split("=", 1) for pair in attributes.split(",") if "=" in pair)
    return unquote(pairs.get("service.name", ""))
