"""Settings of a producer from environment variables, as containers set them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from producer_core._internal.argument_settings import is_argument_setting, pop_argument_settings
from producer_core._internal.environment_settings import CONFIG_FILE, PREFIX, setting_variables
from producer_core._internal.rate_settings import check_rate_text
from producer_core._internal.schema_settings import without_unused_registry
from producer_core._internal.settings_file import read_settings
from producer_core.config import check_setting, librdkafka_settings
from producer_core.errors import ConfigError
from producer_core.producer.settings_arguments import check_arguments

_OWN_VARIABLES = ("application", "application_version", "store")
"""Arguments whose variables the producer and the commands read themselves. A variable overrides the file."""


def settings_from(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the variables, and below them those of the file that PRODUCER_CORE_CONFIG names.

    `PRODUCER_CORE_LINGER_MS` sets `linger.ms`, and `PRODUCER_CORE_CIRCUIT_BREAKER` the argument `circuit_breaker`. A
    variable with the suffix `_FILE` names a file that contains the value, as for Docker's and Kubernetes' secrets. An
    empty variable counts as unset. Settings of a schema registry without a serializer are left out. Raise ConfigError for
    an unknown setting, for a value that is not valid, and for two variables that set one setting to different values.
    """
    settings: dict[str, Any] = {}
    if path := environment.get(CONFIG_FILE):
        settings = _from_file(Path(path))
        for name in _OWN_VARIABLES:
            if environment.get(f"{PREFIX}{name.upper()}"):
                settings.pop(name, None)
    return without_unused_registry(merged(settings, _from_variables(environment)))


def _from_file(path: Path) -> dict[str, Any]:
    given = read_settings(path)
    try:
        settings = one_name_each(given)
        for name, value in given.items():
            _check_value(name, value)
    except ConfigError as error:
        raise ConfigError(
            f"The file {path} of the environment variable {CONFIG_FILE} is not valid: {error.what}",
            fix=error.fix,
        ) from error
    return settings


def _from_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the variables by the names that the user gave, without a contradiction."""
    given: dict[str, str] = {}
    found: dict[str, tuple[str, Any]] = {}
    for variable, name, value in setting_variables(environment):
        try:
            # The first one: request.timeout.ms implies socket.timeout.ms, which another variable may set.
            target, converted = next(iter(one_name_each({name: value}).items()))
            _check_value(name, value)
        except ConfigError as error:
            raise ConfigError(
                f"The environment variable {variable} is not valid: {error.what}", fix=error.fix
            ) from error
        other, known = found.setdefault(target, (variable, converted))
        if known != converted:
            raise ConfigError(
                f"The environment variables {other} and {variable} both set {target}, to different values.",
                fix="Keep one.",
            )
        given[name] = value
    return given


def _check_value(name: str, value: Any) -> None:
    """Raise ConfigError if the producer or its client rejects this value of a setting."""
    if is_argument_setting(name):  # `one_name_each` checks these
        return
    if isinstance(value, str):
        check_rate_text(name, value)
    check_setting(name, value)


def merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return both settings; `upper` takes precedence, under any spelling of a name."""
    return {**lower, **one_name_each(upper)}


def one_name_each(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings under one name each. Raise ConfigError for an unknown setting, or for an argument that is not valid."""
    client = dict(given)
    check_arguments(pop_argument_settings(client))
    arguments = {name.replace(".", "_"): value for name, value in given.items() if name not in client}
    return librdkafka_settings(client) | arguments
