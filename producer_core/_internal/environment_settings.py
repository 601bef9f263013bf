"""Read the environment variables that containers set: client settings, and whether there is a default store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from producer_core.errors import ConfigError

PREFIX = "PRODUCER_CORE_"
CONFIG_FILE = "PRODUCER_CORE_CONFIG"
STORE = "PRODUCER_CORE_STORE"
_FILE = "_FILE"
_ROUTES = ("ALERT_WEBHOOK", "ALERTMANAGER")
_OTHER_VARIABLES = (
    *(name + suffix for name in _ROUTES for suffix in ("", _FILE, "_TOKEN", f"_TOKEN{_FILE}")),
    "ALERTS", "APPLICATION", "APPLICATION_VERSION", "CONFIG", "MASKING", "POLICY", "STORE",
    "REQUIRE_SERVICES", "TEST_CORE", "TEST_RUN",
)  # fmt: skip
"""The variables that the producer, the commands, the dashboard and the project's tests read themselves."""

_SERVICE_LINK = re.compile(
    r"(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)"
)
"""The variables that Kubernetes adds to each container for a Service whose name begins with producer-core."""


def is_store_disabled(environment: Mapping[str, str]) -> bool:
    """Return whether `PRODUCER_CORE_STORE=none` disables the default store."""
    return environment.get(STORE, "").strip().lower() == "none"


def setting_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each variable of a client setting with the setting's name and value.

    A variable with the suffix `_FILE` names a file that contains the value. Raise ConfigError if it cannot be read, and
    for a variable whose name only begins like one of the others. The variables of a Kubernetes Service are left out.
    """
    for variable, value in sorted(environment.items()):
        name = variable.removeprefix(PREFIX)
        if name == variable or not value or name in _OTHER_VARIABLES or _SERVICE_LINK.fullmatch(name):
            continue
        _check_name(variable, name)
        if name.endswith(_FILE):
            yield variable, name.removesuffix(_FILE).lower(), _content(variable, Path(value))
        else:
            yield variable, name.lower(), value


def _check_name(variable: str, name: str) -> None:
    similar = [other for other in _OTHER_VARIABLES if name.startswith(f"{other}_")]
    if name and not similar:
        return
    raise ConfigError(
        f"The environment variable {variable} is unknown.",
        fix=f"Did you mean {PREFIX}{max(similar, key=len)}?" if similar else "Unset it.",
    )


def _content(variable: str, path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The file {path} of the environment variable {variable} cannot be read: {error}.",
            fix="Check the path and the permissions.",
        ) from error
