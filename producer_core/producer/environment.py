"""Client settings from environment variables, as containers set them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from producer_core._internal.rate_settings import check_rate_text
from producer_core._internal.settings_file import read_settings
from producer_core.config import librdkafka_settings
from producer_core.errors import ConfigError

PREFIX = "PRODUCER_CORE_"
CONFIG_FILE = "PRODUCER_CORE_CONFIG"
_FILE = "_FILE"
_NOT_CLIENT_SETTINGS = ("ALERT", "CONFIG", "MASKING", "REQUIRE_SERVICES", "STORE", "TEST")
"""How the names of the other variables begin."""


def settings_from(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the client settings of the variables, and below them those of the file that PRODUCER_CORE_CONFIG names.

    `PRODUCER_CORE_LINGER_MS` sets `linger.ms`. A variable with the suffix `_FILE` names a file that contains the value,
    as for Docker's and Kubernetes' secrets. An empty variable counts as unset. Raise ConfigError for an unknown setting.
    """
    settings: dict[str, Any] = {}
    if path := environment.get(CONFIG_FILE):
        settings |= librdkafka_settings(read_settings(Path(path)))
    for variable, name, value in _variables(environment):
        try:
            settings |= librdkafka_settings({name: value})
            check_rate_text(name, value)
        except ConfigError as error:
            raise ConfigError(
                f"The environment variable {variable} is not valid: {error.what}", fix=error.fix
            ) from error
    return settings


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each variable of a client setting with the setting's name and value."""
    for variable, value in sorted(environment.items()):
        name = variable.removeprefix(PREFIX)
        if name == variable or not value or name.startswith(_NOT_CLIENT_SETTINGS):
            continue
        if name.endswith(_FILE):
            yield variable, name.removesuffix(_FILE).lower(), _content(variable, Path(value))
        else:
            yield variable, name.lower(), value


def _content(variable: str, path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The file {path} of the environment variable {variable} cannot be read: {error}.",
            fix="Check the path and the permissions.",
        ) from error
