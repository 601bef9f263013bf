"""Identify the user of the current session and decide what that user may do."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from producer_core._internal.actor import current_actor
from producer_core._internal.identity import Identity
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.auth.sessions import COOKIE, EndedSessions, LoginAttempts, LoginSessions
from producer_core.errors import ProducerError


class NotAllowed(ProducerError):
    """The signed-in user has read-only access."""


@dataclass(frozen=True)
class AccessGuard:
    """Hold the access rules and the sessions of a server process.

    `started` says that the server was started by the command, which installs the sign-in middleware.
    `read_only` is the reason why no user may act, for a store that cannot be changed; empty otherwise.
    """

    rules: AccessRules = field(default_factory=AccessRules)
    sessions: LoginSessions = field(default_factory=lambda: LoginSessions(0.0))
    attempts: LoginAttempts = field(default_factory=LoginAttempts)
    ended: EndedSessions = field(default_factory=EndedSessions)
    started: bool = False
    read_only: str = ""


_guards: list[AccessGuard] = [AccessGuard()]


def set_guard(guard: AccessGuard) -> None:
    """Install the guard of this process; called once, when the server starts."""
    _guards[0] = guard


def guard() -> AccessGuard:
    return _guards[0]


def user() -> str:
    """Return the signed-in name, or the operating system's user where no sign-in is required.

    An empty string means that the session has ended.
    """
    return current_actor() if not guard().rules.needs_sign_in else _signed_in_name() or ""


def may_act() -> tuple[bool, str]:
    """Return whether the user may make changes, and otherwise the reason as a sentence for the page."""
    if reason := guard().read_only:
        return False, reason
    name, rules = user(), guard().rules
    if not name:
        return False, "Your session has ended. Sign in again."
    if not rules.can_act(name):
        return (
            False,
            f"{name} has read-only access. To allow changes, edit may_act or read_only in secrets.toml.",
        )
    return True, ""


def identity(groups_claim: str) -> Identity:
    """Return the user of the session with the groups of the OIDC token, as the approval policy knows people.

    Without sign-in, everyone who opens the page acts under one name, which is therefore not `known`.
    """
    rules = guard().rules
    groups = _groups(_claims().get(groups_claim)) if rules.oidc else ()
    return Identity(user(), groups=groups, known=rules.needs_sign_in)


def _groups(claim: object) -> tuple[str, ...]:
    """Return the groups of a claim, which a provider sends as a list or, for a single group, as text."""
    if isinstance(claim, str):
        return (claim,)
    return tuple(one for one in claim if isinstance(one, str)) if isinstance(claim, list | tuple) else ()


def actor() -> str:
    """Return the name that an action records in the audit log; raise NotAllowed where the user may not act.

    Every action calls this function, whatever state the buttons on the page had.
    """
    allowed, reason = may_act()
    if not allowed:
        raise NotAllowed(reason)
    return user()


def sign_out() -> None:
    """End this browser's session in every tab; with OIDC also the provider's session, if the provider supports it."""
    if guard().rules.oidc:
        guard().ended.add(_sign_in_id(_claims()))
        _streamlit().logout()
    else:
        guard().sessions.end(_token())


def access_denied() -> str | None:
    """Return why a user who signed in by OIDC has no access; None if access is granted or no user is signed in."""
    rules = guard().rules
    claims = _claims() if rules.oidc else {}
    if not claims.get("is_logged_in"):
        return None
    name = _name_from(claims)
    if not rules.can_view(name):
        return f"{name} has no access to this dashboard. To grant it, edit may_see in secrets.toml."
    return None


def _signed_in_name() -> str | None:
    rules = guard().rules
    if not rules.oidc:
        return guard().sessions.name(_token())
    claims = _claims()
    if not claims.get("is_logged_in") or _has_expired(claims, rules.session):
        return None
    if _sign_in_id(claims) in guard().ended:
        return None
    name = _name_from(claims)
    return name if rules.can_view(name) else None


def _has_expired(claims: Mapping[str, Any], length: float) -> bool:
    """Return whether the sign-in is older than `length` seconds. A token without `iat` counts as expired.

    The function ignores `auth_time`: a provider may keep its own session for days, and a new sign-in would then expire
    at once.
    """
    since = claims.get("iat")
    return not isinstance(since, int | float) or time.time() - since > length


def _sign_in_id(claims: Mapping[str, Any]) -> str:
    """Return a string that identifies one sign-in of one user and is the same in every tab."""
    return repr([claims.get(name) for name in ("iss", "sub", "iat", "nonce", "jti", "sid")])


def _name_from(claims: Mapping[str, Any]) -> str:
    """Return the email address, unless the provider reports it as unverified: a user could claim any address."""
    if claims.get("email") and claims.get("email_verified", True) not in (False, "false"):
        return str(claims["email"])
    return str(claims.get("preferred_username") or claims.get("sub") or "")


def _token() -> str | None:
    cookies: Mapping[str, str] = _streamlit().context.cookies
    return cookies.get(COOKIE)


def _claims() -> Mapping[str, Any]:
    found: Mapping[str, Any] = _streamlit().user.to_dict()
    return found


def _streamlit() -> Any:
    """Return the loaded Streamlit module. Sign-in exists only inside a Streamlit server; a notebook does not import it."""
    return sys.modules["streamlit"]
