"""Access: who looks at the dashboard, and whether that person may act."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from producer_core._internal.actor import current_actor
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.auth.login import COOKIE
from producer_core.dashboard.auth.sessions import EndedSessions, LoginAttempts, LoginSessions
from producer_core.errors import ProducerError


class NotAllowed(ProducerError):
    """Who is signed in may look, not act."""


@dataclass(frozen=True)
class AccessGuard:
    """What a server's process knows of its people. `started`: behind the door that asks them to sign in."""

    admission: AccessRules = field(default_factory=AccessRules)
    sessions: LoginSessions = field(default_factory=lambda: LoginSessions(0.0))
    attempts: LoginAttempts = field(default_factory=LoginAttempts)
    ended: EndedSessions = field(default_factory=EndedSessions)
    started: bool = False


_guards: list[AccessGuard] = [AccessGuard()]


def keep(guard: AccessGuard) -> None:
    """Once, when the server starts."""
    _guards[0] = guard


def guard() -> AccessGuard:
    return _guards[0]


def user() -> str:
    """The signed-in name; where nobody has to sign in, the operating system's. Empty where a session has ended."""
    return current_actor() if not guard().admission.needs_sign_in else _signed_in() or ""


def may_act() -> tuple[bool, str]:
    """Whether the person may act, and if not why, in a sentence for the page."""
    name, admission = user(), guard().admission
    if not name:
        return False, "Your session has ended. Sign in again."
    if not admission.acts(name):
        return False, f"{name} may look, not act: the settings of this dashboard say so."
    return True, ""


def actor() -> str:
    """The name that an act carries into the audit; NotAllowed where this person may not act.

    Every act asks it, whatever the buttons on the page looked like.
    """
    allowed, reason = may_act()
    if not allowed:
        raise NotAllowed(reason)
    return user()


def sign_out() -> None:
    """End the session of this browser, in every tab; with OIDC also that at the provider, where it can be."""
    if guard().admission.oidc:
        guard().ended.add(_sign_in(_claims()))
        _streamlit().logout()
    else:
        guard().sessions.end(_token())


def turned_away() -> str | None:
    """Why a person who is signed in by OIDC is not let in; None where he is, or nobody is signed in."""
    admission = guard().admission
    claims = _claims() if admission.oidc else {}
    if not claims.get("is_logged_in"):
        return None
    name = _name_in(claims)
    if not admission.sees(name):
        return f"{name} is not let in: the settings of this dashboard say so."
    return None


def _signed_in() -> str | None:
    admission = guard().admission
    if not admission.oidc:
        return guard().sessions.name(_token())
    claims = _claims()
    if not claims.get("is_logged_in") or _over(claims, admission.session):
        return None
    if _sign_in(claims) in guard().ended:
        return None
    name = _name_in(claims)
    return name if admission.sees(name) else None


def _over(claims: Mapping[str, Any], length: float) -> bool:
    """Who signed in here too long ago; one whose provider does not say when has to sign in again.

    Not by `auth_time`: a provider may remember a person for days, and then nobody would ever come in.
    """
    since = claims.get("iat")
    return not isinstance(since, int | float) or time.time() - since > length


def _sign_in(claims: Mapping[str, Any]) -> str:
    """One coming in of one person, the same in every tab."""
    return repr([claims.get(name) for name in ("iss", "sub", "iat", "nonce", "jti", "sid")])


def _name_in(claims: Mapping[str, Any]) -> str:
    """The address, unless the provider says that it was never verified: anybody could call himself so."""
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
    """Loaded already wherever anybody has to sign in; a notebook does without."""
    return sys.modules["streamlit"]
