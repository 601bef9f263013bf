"""Find the name and the version of the application that a producer belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError

VARIABLE = "PRODUCER_CORE_APPLICATION"
VERSION_VARIABLE = "PRODUCER_CORE_APPLICATION_VERSION"
_SERVICE_NAME = "OTEL_SERVICE_NAME"
_RESOURCE_ATTRIBUTES = "OTEL_RESOURCE_ATTRIBUTES"
_LONGEST = 255
_NAME, _VERSION = ("name", "checkout"), ("version", "4.2.1")


def application_name(given: Any, environment: Mapping[str, str]) -> str:
    """Return the application's name, or an empty text if it has none.

    The order is: the argument, `PRODUCER_CORE_APPLICATION`, and the service name of OpenTelemetry's variables
    (`OTEL_SERVICE_NAME`, then `service.name` in `OTEL_RESOURCE_ATTRIBUTES`). Raise ConfigError for an invalid name.
    """
    if given is not None:
        return _checked("application", given, *_NAME)
    if named := environment.get(VARIABLE):
        return _checked(VARIABLE, named, *_NAME)
    return _printable(environment.get(_SERVICE_NAME) or _attribute(environment, "service.name"))


def application_version(given: Any, environment: Mapping[str, str]) -> str:
    """Return the application's version, or an empty text if it is unknown.

    The order is: the argument, `PRODUCER_CORE_APPLICATION_VERSION`, and `service.version` in `OTEL_RESOURCE_ATTRIBUTES`.
    Raise ConfigError for an invalid version.
    """
    if given is not None:
        return _checked("application_version", given, *_VERSION)
    if named := environment.get(VERSION_VARIABLE):
        return _checked(VERSION_VARIABLE, named, *_VERSION)
    return _printable(_attribute(environment, "service.version"))


def _checked(source: str, text: Any, what: str, example: str) -> str:
    printable = isinstance(text, str) and text.isprintable() and text == text.strip()
    if not printable or not 1 <= len(text) <= _LONGEST:
        raise ConfigError(
            f"{source}={short_repr(text)} is not the {what} of an application.",
            fix=f"Use 1 to {_LONGEST} printable characters, for example {example!r}.",
        )
    return str(text)


def _printable(text: str) -> str:
    return "".join(filter(str.isprintable, text)).strip()[:_LONGEST]  # isprintable: also no lone surrogates


def _attribute(environment: Mapping[str, str], name: str) -> str:
    """Return a resource attribute from a list such as `service.name=checkout,service.version=2`, which is percent-encoded."""
    attributes = environment.get(_RESOURCE_ATTRIBUTES, "")
    pairs = dict(pair.strip().split("=", 1) for pair in attributes.split(",") if "=" in pair)
    return unquote(pairs.get(name, ""))
