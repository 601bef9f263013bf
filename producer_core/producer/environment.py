"""Settings of a producer from environment variables, as containers set them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from producer_core._internal.argument_settings import pop_argument_settings
from producer_core._internal.environment_settings import CONFIG_FILE, PREFIX, setting_variables
from producer_core._internal.rate_settings import check_rate_text
from producer_core._internal.schema_settings import without_unused_registry
from producer_core._internal.settings_file import read_settings
from producer_core.config import librdkafka_settings
from producer_core.errors import ConfigError
from producer_core.producer.settings_arguments import check_arguments

_OWN_VARIABLES = ("application", "application_version", "store")
"""Arguments whose variables the producer and the commands read themselves. A variable overrides the file."""


def settings_from(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the variables, and below them those of the file that PRODUCER_CORE_CONFIG names.

    `PRODUCER_CORE_LINGER_MS` sets `linger.ms`, and `PRODUCER_CORE_CIRCUIT_BREAKER` the argument `circuit_breaker`. A
    variable with the suffix `_FILE` names a file that contains the value, as for Docker's and Kubernetes' secrets. An
    empty variable counts as unset. Settings of a schema registry without a serializer are left out. Raise ConfigError for
    an unknown setting.
    """
    settings: dict[str, Any] = {}
    if path := environment.get(CONFIG_FILE):
        settings = one_name_each(read_settings(Path(path)))
        for name in _OWN_VARIABLES:
            if environment.get(f"{PREFIX}{name.upper()}"):
                settings.pop(name, None)
    for variable, name, value in setting_variables(environment):
        try:
            settings = merged(settings, {name: value})
            check_rate_text(name, value)
        except ConfigError as error:
            raise ConfigError(
                f"The environment variable {variable} is not valid: {error.what}", fix=error.fix
            ) from error
    return without_unused_registry(settings)


def merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return both settings; `upper` takes precedence, under any spelling of a name."""
    return {**lower, **one_name_each(upper)}


def one_name_each(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings under one name each. Raise ConfigError for an unknown setting, or for an argument that is not valid."""
    client = dict(given)
    check_arguments(pop_argument_settings(client))
    arguments = {name.replace(".", "_"): value for name, value in given.items() if name not in client}
    return librdkafka_settings(client) | arguments
