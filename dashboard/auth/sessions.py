"""Keep the sessions of signed-in users, and delay repeated failed sign-in attempts."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

COOKIE = "producer_core_session"

_MAX_ENTRIES = 10_000
_FORGET_AFTER = 3600.0


class LoginSessions:
    """Keep the sessions of this process; a restart ends all of them. Safe from any thread.

    The browser holds a random token. The server stores only its hash and the fixed time at which the session ends.
    """

    def __init__(self, length: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._length = length
        self._clock = clock
        self._lock = threading.Lock()  # guards the next field
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def begin(self, name: str) -> str:
        """Start a session and return its token."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[_hash(token)] = name, self._clock() + self._length
            while len(self._sessions) > _MAX_ENTRIES:
                self._sessions.popitem(last=False)
        return token

    def name(self, token: str | None) -> str | None:
        """Return the user of the session; None if the session has ended or does not exist."""
        if not token:
            return None
        with self._lock:
            name, until = self._sessions.get(_hash(token), ("", 0.0))
            if name and self._clock() >= until:
                del self._sessions[_hash(token)]
                return None
        return name or None

    def end(self, token: str | None) -> None:
        if token:
            with self._lock:
                self._sessions.pop(_hash(token), None)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class EndedSessions:
    """Remember the OIDC sign-ins that a user ended in this process. Safe from any thread.

    A copied identity cookie, or one that another tab still has, grants no access after the sign-out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the next field
        self._ended: OrderedDict[str, None] = OrderedDict()

    def add(self, sign_in: str) -> None:
        with self._lock:
            self._ended[_hash(sign_in)] = None
            while len(self._ended) > _MAX_ENTRIES:
                self._ended.popitem(last=False)

    def __contains__(self, sign_in: str) -> bool:
        with self._lock:
            return _hash(sign_in) in self._ended


class LoginAttempts:
    """Compute the delay before the next sign-in attempt, by name, by address and by both. Safe from any thread.

    After `free` failures the delay doubles from one second up to one minute. Attempts during the delay are not checked.
    The delay of a name applies only to addresses that failed with this name, so that other clients cannot lock its user
    out. A known device (a browser that signed in with this name before) has a delay of its own, and no other.
    """

    MAX_DELAY = 60.0

    def __init__(self, *, free: int = 3, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = free
        self._clock = clock
        self._lock = threading.Lock()  # guards the next field
        self._failed: OrderedDict[tuple[str, ...], tuple[int, float]] = OrderedDict()

    def wait(self, name: str, address: str, device: str = "") -> float:
        """Return the seconds until the next attempt is checked; 0 if it is checked now."""
        with self._lock:
            keys = _keys(name, address, device)
            if not device and self._count(keys[0]) < self._free:
                keys.remove(("name", name))
            return max(0.0, *(self._open_at(key) - self._clock() for key in keys))

    def failed(self, name: str, address: str, device: str = "") -> None:
        with self._lock:
            now = self._clock()
            for key in _keys(name, address, device):
                count, last = self._failed.pop(key, (0, now))
                self._failed[key] = (count + 1 if now - last < _FORGET_AFTER else 1), now
            while len(self._failed) > _MAX_ENTRIES:
                self._failed.popitem(last=False)

    def succeeded(self, name: str, address: str, device: str = "") -> None:
        with self._lock:
            for key in _keys(name, address, device):
                self._failed.pop(key, None)

    def _count(self, key: tuple[str, ...]) -> int:
        return self._failed.get(key, (0, 0.0))[0]

    def _open_at(self, key: tuple[str, ...]) -> float:
        count, last = self._failed.get(key, (0, 0.0))
        return last + min(self.MAX_DELAY, 2.0 ** min(count - self._free, 16)) if count >= self._free else 0.0


def _keys(name: str, address: str, device: str) -> list[tuple[str, ...]]:
    if device:
        return [("device", device)]
    client = network(address)
    return [("both", name, client), ("address", client), ("name", name)]


def network(address: str) -> str:
    """Return the address as attempts count it: for IPv6 the /64 network, which belongs to one subscriber."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((int(found), 64), strict=False))
