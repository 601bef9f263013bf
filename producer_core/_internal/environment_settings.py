"""Read the client settings that environment variables name, as containers set them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from producer_core.errors import ConfigError

PREFIX = "PRODUCER_CORE_"
CONFIG_FILE = "PRODUCER_CORE_CONFIG"
_FILE = "_FILE"
_NOT_CLIENT_SETTINGS = ("ALERT", "APPLICATION", "CONFIG", "MASKING", "REQUIRE_SERVICES", "STORE", "TEST")
"""How the names of the other variables begin."""


def setting_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each variable of a client setting with the setting's name and value.

    A variable with the suffix `_FILE` names a file that contains the value. Raise ConfigError if it cannot be read.
    """
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
