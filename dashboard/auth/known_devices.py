"""Recognize browsers that have signed in with a name before, by a signed cookie.

Attempts by a known device are counted separately, so that attempts by other clients do not delay its user (OWASP:
device cookies). The password hash is the key of the signature: the server keeps no state, a restart changes nothing,
and a new password invalidates all devices of its name.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

COOKIE = "producer_core_device"
SECONDS = 180 * 86400


def issue(name: str, password_hash: str) -> str:
    """Return the value of a new device cookie for a name with this password hash."""
    number = secrets.token_urlsafe(16)
    return f"{number}.{_signature(number, name, password_hash)}"


def known(value: str, name: str, password_hash: str | None) -> str:
    """Return the device that a cookie identifies; an empty string if it is not a device of this name."""
    number, _, signature = value.partition(".")
    valid = password_hash is not None and hmac.compare_digest(
        signature.encode("utf-8", "replace"), _signature(number, name, password_hash).encode()
    )
    return number if valid else ""


def _signature(number: str, name: str, password_hash: str) -> str:
    return hmac.new(password_hash.encode(), f"device\0{number}\0{name}".encode(), hashlib.sha256).hexdigest()
