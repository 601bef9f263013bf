"""Read from `.streamlit/secrets.toml` which users may view the dashboard and which may make changes."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from producer_core._internal.home_folder import expand_user
from producer_core.dashboard.auth.password import is_hash
from producer_core.errors import ConfigError

SESSION_HOURS = 12.0

MIN_SECRET_LENGTH = 32
"""Minimum number of characters of `cookie_secret`, which signs the identity cookie of OIDC."""

_AUTH_KEYS = ("redirect_uri", "cookie_secret")
_CLIENT_KEYS = ("client_id", "client_secret", "server_metadata_url")
_DASHBOARD_KEYS = ("passwords", "may_see", "may_act", "read_only", "session_hours")


@dataclass(frozen=True)
class AccessRules:
    """State which users may view the dashboard and which may act.

    `passwords` maps names to hashes. Patterns such as `*@example.com` ignore case. `provider` is the name of the OIDC
    provider, if it has one; `redirect_uri` is the URL to which the provider returns the browser. `session` is in
    seconds.
    """

    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    oidc: bool = False
    provider: str | None = None
    redirect_uri: str = ""
    may_see: tuple[str, ...] = ("*",)
    may_act: tuple[str, ...] = ("*",)
    read_only: tuple[str, ...] = ()
    session: float = SESSION_HOURS * 3600

    @property
    def needs_sign_in(self) -> bool:
        return bool(self.passwords) or self.oidc

    def can_view(self, name: str) -> bool:
        return _matches(name, self.may_see)

    def can_act(self, name: str) -> bool:
        """Return whether the user may make changes; `read_only` overrides `may_act`."""
        return _matches(name, self.may_act) and not _matches(name, self.read_only)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.casefold(), pattern.casefold()) for pattern in patterns)


def secrets_files() -> tuple[Path, ...]:
    """Return the files in which Streamlit looks for secrets; the later one takes precedence."""
    return tuple(folder / ".streamlit" / "secrets.toml" for folder in (expand_user("~"), Path.cwd()))


def read(files: Sequence[Path] | None = None) -> AccessRules:
    """Return the rules of the secrets files; raise ConfigError where a file contains a mistake."""
    raw: dict[str, Any] = {}
    for path in secrets_files() if files is None else files:
        raw |= _table(path)
    return _rules(raw.get("dashboard", {}), raw.get("auth"))


def refusal(address: str, hosts: Sequence[str], rules: AccessRules) -> str | None:
    """Return why the dashboard does not listen at an address or under a host name; None where it may."""
    if rules.needs_sign_in:
        return None
    exposed = [name for name in (address, *hosts) if not is_loopback(name)]
    return (
        f"No sign-in is configured, so the dashboard cannot be served on {exposed[0]}." if exposed else None
    )


def is_loopback(name: str) -> bool:
    """Return whether only clients on this machine can use the address or name."""
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {type(error).__name__}.",
            fix="Make it a readable TOML file; the dashboard does not start until it is.",
        ) from None


def _rules(table: Any, auth: Any) -> AccessRules:
    if not isinstance(table, dict):
        raise ConfigError("[dashboard] in secrets.toml must be a table.")
    if unknown := [name for name in table if name not in _DASHBOARD_KEYS]:
        raise ConfigError(
            f"[dashboard] in secrets.toml has an unknown key: {unknown[0]!r}.",
            fix=f"Valid keys are {', '.join(_DASHBOARD_KEYS)}.",
        )
    passwords = _passwords(table.get("passwords", {}))
    oidc = auth is not None
    if oidc and passwords:
        raise ConfigError(
            "secrets.toml has both [auth] and [dashboard.passwords].",
            fix="Keep one: all users sign in with the same method.",
        )
    if oidc and "may_see" not in table:
        raise ConfigError(
            "If [auth] is configured, [dashboard] in secrets.toml must contain may_see, the list of users with access.",
            fix='For example, may_see = ["*@example.com"]; ["*"] admits every user of the provider.',
        )
    provider, redirect_uri = _provider(auth) if oidc else (None, "")
    return AccessRules(
        passwords,
        oidc,
        provider,
        redirect_uri,
        may_see=_patterns(table, "may_see", ("*",)),
        may_act=_patterns(table, "may_act", ("*",)),
        read_only=_patterns(table, "read_only", ()),
        session=3600 * _hours(table.get("session_hours", SESSION_HOURS)),
    )


def _provider(auth: Any) -> tuple[str | None, str]:
    """Return the provider's name and its redirect URI; the name is None if [auth] itself describes the provider."""
    if not isinstance(auth, dict):
        raise ConfigError("[auth] in secrets.toml must be a table.")
    named = [name for name, table in auth.items() if isinstance(table, dict) and name != "client_kwargs"]
    name = named[0] if len(named) == 1 and "client_id" not in auth else None
    client = auth if name is None else auth[name]
    for table, required in ((auth, _AUTH_KEYS), (client, _CLIENT_KEYS)):
        if missing := [key for key in required if not isinstance(table.get(key), str) or not table[key]]:
            where = "[auth]" if table is auth else f"[auth.{name}]"
            raise ConfigError(
                f"{where} in secrets.toml has no {missing[0]}.",
                fix="Configure one provider with all keys that docs/how-to/sign-in.md lists.",
            )
    if not auth["redirect_uri"].endswith("/oauth2callback"):
        raise ConfigError(
            "redirect_uri in secrets.toml must end in /oauth2callback.",
            fix="Use the dashboard's own URL with that path, and register the same URL with the provider.",
        )
    if len(auth["cookie_secret"]) < MIN_SECRET_LENGTH:
        raise ConfigError(
            f"cookie_secret in secrets.toml has fewer than {MIN_SECRET_LENGTH} characters: an attacker who guesses it "
            "can sign in as any user.",
            fix="Create one with: openssl rand -hex 32",
        )
    return name, auth["redirect_uri"]


def _passwords(table: Any) -> Mapping[str, str]:
    if not isinstance(table, dict):
        raise ConfigError("[dashboard.passwords] in secrets.toml must be a table of names and hashes.")
    for name, stored in table.items():
        if not (isinstance(stored, str) and is_hash(stored)):
            raise ConfigError(
                f"The password of {name} in secrets.toml is not a hash.",
                fix=f"Create the line with: producer-core dashboard password {name}",
            )
    return dict(table)


def _patterns(table: Mapping[str, Any], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    given = table.get(key, default)
    if isinstance(given, str) or not all(isinstance(item, str) and item for item in given):
        raise ConfigError(f"{key} in secrets.toml must be a list of names.", fix=f'{key} = ["ada"]')
    return tuple(given)


def _hours(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 24 * 31:
        raise ConfigError("session_hours in secrets.toml must be a number of hours, 744 at most.")
    return float(given)
