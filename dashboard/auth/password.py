"""A password: kept as a hash that is slow to try, and compared without telling how near a guess was."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from dataclasses import dataclass

SHORTEST = 12
"""Characters; guesses are slowed down, but a word of a dictionary is found all the same."""

_LOG_N, _R, _P = 15, 8, 3  # 32 MB and about 0.2 s a guess: as strong as OWASP's first choice, in less memory
_LONGEST = 1024


def hashed(password: str) -> str:
    """`scrypt$log2(n)$r$p$salt$key`; each time another salt."""
    if not SHORTEST <= len(password) <= _LONGEST:
        raise ValueError(f"A password has at least {SHORTEST} characters, and at most {_LONGEST}.")
    kept = _Kept(_LOG_N, _R, _P, os.urandom(16), b"")
    return _Kept(_LOG_N, _R, _P, kept.salt, kept.key_of(password)).text


def right(password: str, kept: str | None) -> bool:
    """Whether this is the password; takes as long where there is none (`kept` is None)."""
    known = _read(kept) if kept is not None else None
    asked = known or _NOBODY
    same = hmac.compare_digest(asked.key_of(password[:_LONGEST]), asked.key)
    return same and known is not None


def readable(kept: str) -> bool:
    return _read(kept) is not None


@dataclass(frozen=True)
class _Kept:
    log_n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    def key_of(self, password: str) -> bytes:
        n = 1 << self.log_n
        return hashlib.scrypt(
            password.encode(), salt=self.salt, n=n, r=self.r, p=self.p, maxmem=256 * n * self.r, dklen=32
        )

    @property
    def text(self) -> str:
        return "$".join(
            ("scrypt", str(self.log_n), str(self.r), str(self.p), _encoded(self.salt), _encoded(self.key))
        )


_NOBODY = _Kept(_LOG_N, _R, _P, b"nobody's salt...", bytes(32))


def _read(kept: str) -> _Kept | None:
    """None where it is no hash of ours, or one so cheap or dear that a mistake is likelier."""
    name, *parts = kept.split("$")
    try:
        log_n, r, p = (int(part) for part in parts[:3])
        salt, key = (base64.b64decode(part, validate=True) for part in parts[3:])
    except (ValueError, binascii.Error):
        return None
    good = name == "scrypt" and 14 <= log_n <= 18 and 1 <= r <= 16 and 1 <= p <= 8
    return _Kept(log_n, r, p, salt, key) if good and len(salt) >= 16 and len(key) == 32 else None


def _encoded(given: bytes) -> str:
    return base64.b64encode(given).decode()
