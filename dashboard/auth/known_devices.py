"""Known devices: browsers that have signed in with a name before keep a cookie that proves it.

Attempts of a known device are counted for themselves, so that the attempts of strangers delay nobody who has been here
before (OWASP: device cookies). The key of the signature is the hash of the password: no state is kept, a restart changes
nothing, and a new password ends all devices of its name.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

COOKIE = "producer_core_device"
SECONDS = 180 * 86400


def issue(name: str, kept: str) -> str:
    """Return the value of a new cookie for a name whose password is kept as `kept`."""
    number = secrets.token_urlsafe(16)
    return f"{number}.{_signature(number, name, kept)}"


def known(value: str, name: str, kept: str | None) -> str:
    """Return the device that a cookie names, and an empty string where it is not a device of this name."""
    number, _, signature = value.partition(".")
    good = kept is not None and hmac.compare_digest(
        signature.encode("utf-8", "replace"), _signature(number, name, kept).encode()
    )
    return number if good else ""


def _signature(number: str, name: str, kept: str) -> str:
    return hmac.new(kept.encode(), f"device\0{number}\0{name}".encode(), hashlib.sha256).hexdigest()
