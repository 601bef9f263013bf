"""Admission: who may see the dashboard and who may act, as `.streamlit/secrets.toml` says."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from producer_core.dashboard.auth.password import readable
from producer_core.errors import ConfigError

SESSION_HOURS = 12.0

SHORTEST_SECRET = 32
"""Characters of the secret that signs who people are, with OIDC."""

_SHARED = ("redirect_uri", "cookie_secret")
_CLIENT = ("client_id", "client_secret", "server_metadata_url")
_KEYS = ("passwords", "may_see", "may_act", "read_only", "session_hours")


@dataclass(frozen=True)
class AccessRules:
    """`passwords` are hashes by name. Patterns (`*@example.com`) are compared without regard to case.

    `provider` is the name of the OIDC provider where it has one, `comes_back_to` the address that it sends people to.
    """

    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    oidc: bool = False
    provider: str | None = None
    comes_back_to: str = ""
    may_see: tuple[str, ...] = ("*",)
    may_act: tuple[str, ...] = ("*",)
    read_only: tuple[str, ...] = ()
    session: float = SESSION_HOURS * 3600

    @property
    def needs_sign_in(self) -> bool:
        return bool(self.passwords) or self.oidc

    def sees(self, name: str) -> bool:
        return _matches(name, self.may_see)

    def acts(self, name: str) -> bool:
        """Who is named in both lists only looks."""
        return _matches(name, self.may_act) and not _matches(name, self.read_only)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.casefold(), pattern.casefold()) for pattern in patterns)


def files() -> tuple[Path, ...]:
    """Where Streamlit looks for secrets; what stands in the later one counts."""
    return tuple(folder / ".streamlit" / "secrets.toml" for folder in (Path.home(), Path.cwd()))


def read(places: Sequence[Path] | None = None) -> AccessRules:
    """The admission that the files of secrets say; ConfigError names what is wrong in them."""
    raw: dict[str, Any] = {}
    for path in files() if places is None else places:
        raw |= _table(path)
    return _admission(raw.get("dashboard", {}), raw.get("auth"))


def refusal(address: str, hosts: Sequence[str], admission: AccessRules) -> str | None:
    """Why the dashboard does not listen at an address, or under a name; None where it may."""
    if admission.needs_sign_in:
        return None
    far = [name for name in (address, *hosts) if not loopback(name)]
    return f"Nobody would have to sign in, so the dashboard does not listen for {far[0]}." if far else None


def loopback(name: str) -> bool:
    """Whether only this machine can be meant."""
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
            fix="It must be TOML; nobody is let in until it is.",
        ) from None


def _admission(table: Any, auth: Any) -> AccessRules:
    if not isinstance(table, dict):
        raise ConfigError("[dashboard] in secrets.toml must be a table.")
    if unknown := [name for name in table if name not in _KEYS]:
        raise ConfigError(
            f"[dashboard] in secrets.toml has no key {unknown[0]!r}.", fix=f"There are {', '.join(_KEYS)}."
        )
    passwords = _passwords(table.get("passwords", {}))
    oidc = auth is not None
    if oidc and passwords:
        raise ConfigError(
            "secrets.toml has both [auth] and [dashboard.passwords].", fix="Keep one: people sign in one way."
        )
    if oidc and "may_see" not in table:
        raise ConfigError(
            "With [auth], [dashboard] in secrets.toml must say who is let in.",
            fix='For example may_see = ["*@example.com"]; ["*"] is everybody that the provider signs in.',
        )
    provider, comes_back_to = _provider(auth) if oidc else (None, "")
    return AccessRules(
        passwords,
        oidc,
        provider,
        comes_back_to,
        may_see=_patterns(table, "may_see", ("*",)),
        may_act=_patterns(table, "may_act", ("*",)),
        read_only=_patterns(table, "read_only", ()),
        session=3600 * _hours(table.get("session_hours", SESSION_HOURS)),
    )


def _provider(auth: Any) -> tuple[str | None, str]:
    """The name of the provider, None for the only one that has no name, and where it sends people back to."""
    if not isinstance(auth, dict):
        raise ConfigError("[auth] in secrets.toml must be a table.")
    named = [name for name, table in auth.items() if isinstance(table, dict) and name != "client_kwargs"]
    name = named[0] if len(named) == 1 and "client_id" not in auth else None
    client = auth if name is None else auth[name]
    for table, wanted in ((auth, _SHARED), (client, _CLIENT)):
        if missing := [key for key in wanted if not isinstance(table.get(key), str) or not table[key]]:
            where = "[auth]" if table is auth else f"[auth.{name}]"
            raise ConfigError(
                f"{where} in secrets.toml has no {missing[0]}.",
                fix="One provider, with what «Access» in the README lists.",
            )
    if not auth["redirect_uri"].endswith("/oauth2callback"):
        raise ConfigError(
            "redirect_uri in secrets.toml must end in /oauth2callback.",
            fix="It is the dashboard's own address with that path; the provider must know the same.",
        )
    if len(auth["cookie_secret"]) < SHORTEST_SECRET:
        raise ConfigError(
            f"cookie_secret in secrets.toml has fewer than {SHORTEST_SECRET} characters: who guesses it is whoever he "
            "wants to be.",
            fix="Make it with: openssl rand -hex 32",
        )
    return name, auth["redirect_uri"]


def _passwords(table: Any) -> Mapping[str, str]:
    if not isinstance(table, dict):
        raise ConfigError("[dashboard.passwords] in secrets.toml must be a table of names and hashes.")
    for name, kept in table.items():
        if not (isinstance(kept, str) and readable(kept)):
            raise ConfigError(
                f"The password of {name} in secrets.toml is not a hash.",
                fix=f"Make the line with: producer-core dashboard password {name}",
            )
    return dict(table)


def _patterns(table: Mapping[str, Any], key: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    given = table.get(key, otherwise)
    if isinstance(given, str) or not all(isinstance(item, str) and item for item in given):
        raise ConfigError(f"{key} in secrets.toml must be a list of names.", fix=f'{key} = ["ada"]')
    return tuple(given)


def _hours(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 24 * 31:
        raise ConfigError("session_hours in secrets.toml must be a number of hours, 744 at most.")
    return float(given)
