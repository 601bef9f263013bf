"""Find the schema registry for a command, page or notebook that shows values.

The first of these that has an address decides, with its credentials: the options of the command, the environment
(`PRODUCER_CORE_SCHEMA_REGISTRY_URL`, …, and the file that PRODUCER_CORE_CONFIG names), and the setting
`schema_registry` of the store. The store has an address only: everyone who can change the store could otherwise send
the credentials of another user to a server of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from producer_core._internal.environment_settings import CONFIG_FILE, setting_variables
from producer_core._internal.home_folder import expand_user
from producer_core._internal.settings_file import read_settings
from producer_core.errors import ConfigError

_PREFIX = "schema.registry."
_ADDRESS = re.compile(r"https?://[^\s\"'<>@]+")


class StoredSettings(dict[str, Any]):
    """The settings of a registry whose address comes from the store, not from the operator's own configuration."""


def viewer_settings(
    given: Mapping[str, Any] | None = None,
    stored: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, Any] | None:
    """Return the settings of the registry's client, without their prefix; None if no registry is configured.

    Raise ConfigError for a file that cannot be read, and for an address in the store that is none: the file of a store
    may come from another computer. The settings of the store's address are `StoredSettings`.
    """
    for found in (registry_settings(given or {}), _from_environment(environment)):
        if found.get("url"):
            return found
    return _from_store(stored) if stored else None


def _from_store(address: Any) -> StoredSettings:
    if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
        raise ConfigError(
            "The setting schema_registry of the store is not an HTTP address without credentials.",
            fix="Correct it with: producer-core store set schema_registry=URL",
        )
    return StoredSettings(url=address)


def registry_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that begin with `schema.registry.`, with dots or underscores, without this prefix."""
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return {name.removeprefix(_PREFIX): value for name, value in dotted.items() if name.startswith(_PREFIX)}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    path = environment.get(CONFIG_FILE)
    found = registry_settings(read_settings(expand_user(path))) if path else {}
    named = {
        variable: value
        for variable, value in environment.items()
        if variable.startswith("PRODUCER_CORE_SCHEMA_REGISTRY_")
    }
    return found | registry_settings({name: value for _, name, value in setting_variables(named)})
