"""Hash passwords with scrypt, and verify them in constant time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from dataclasses import dataclass

MIN_LENGTH = 12
"""Characters. The delay between attempts slows guessing down, but does not protect a dictionary word."""

_LOG_N, _R, _P = 15, 8, 3  # 32 MB and about 0.2 s a guess: as strong as OWASP's first choice, in less memory
_MAX_LENGTH = 1024


def hashed(password: str) -> str:
    """Return `scrypt$log2(n)$r$p$salt$key` with a random salt."""
    if not MIN_LENGTH <= len(password) <= _MAX_LENGTH:
        raise ValueError(f"A password must have {MIN_LENGTH} to {_MAX_LENGTH} characters.")
    unsalted = _ScryptHash(_LOG_N, _R, _P, os.urandom(16), b"")
    return _ScryptHash(_LOG_N, _R, _P, unsalted.salt, unsalted.derive(password)).text


def verify(password: str, stored: str | None) -> bool:
    """Return whether the password matches the stored hash. The call takes just as long if `stored` is None."""
    expected = _parse(stored) if stored is not None else None
    compared = expected or _UNKNOWN_USER
    matches = hmac.compare_digest(compared.derive(password[:_MAX_LENGTH]), compared.key)
    return matches and expected is not None


def is_hash(stored: str) -> bool:
    return _parse(stored) is not None


@dataclass(frozen=True)
class _ScryptHash:
    log_n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    def derive(self, password: str) -> bytes:
        n = 1 << self.log_n
        return hashlib.scrypt(
            password.encode(), salt=self.salt, n=n, r=self.r, p=self.p, maxmem=256 * n * self.r, dklen=32
        )

    @property
    def text(self) -> str:
        return "$".join(
            ("scrypt", str(self.log_n), str(self.r), str(self.p), _encoded(self.salt), _encoded(self.key))
        )


_UNKNOWN_USER = _ScryptHash(_LOG_N, _R, _P, b"unknown-user-...", bytes(32))


def _parse(stored: str) -> _ScryptHash | None:
    """Return None for any text that is not such a hash, or whose cost parameters are implausibly low or high."""
    name, *parts = stored.split("$")
    try:
        log_n, r, p = (int(part) for part in parts[:3])
        salt, key = (base64.b64decode(part, validate=True) for part in parts[3:])
    except (ValueError, binascii.Error):
        return None
    plausible = name == "scrypt" and 14 <= log_n <= 18 and 1 <= r <= 16 and 1 <= p <= 8
    return _ScryptHash(log_n, r, p, salt, key) if plausible and len(salt) >= 16 and len(key) == 32 else None


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
