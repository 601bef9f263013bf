"""Sessions of people who signed in, and the attempts of those who did not get in."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

_MOST = 10_000
_FORGOTTEN_AFTER = 3600.0


class LoginSessions:
    """Who is signed in, in this process; a restart signs everybody out. Safe from any thread.

    A browser holds a random token, we hold its hash and the moment at which it ends whatever happens.
    """

    def __init__(self, length: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._length = length
        self._clock = clock
        self._lock = threading.Lock()  # guards the next field
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def begin(self, name: str) -> str:
        """A new session; its token."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._known[_hash(token)] = name, self._clock() + self._length
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
        return token

    def name(self, token: str | None) -> str | None:
        """Whose session it is; None where it has ended, or never was."""
        if not token:
            return None
        with self._lock:
            name, until = self._known.get(_hash(token), ("", 0.0))
            if name and self._clock() >= until:
                del self._known[_hash(token)]
                return None
        return name or None

    def end(self, token: str | None) -> None:
        if token:
            with self._lock:
                self._known.pop(_hash(token), None)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class EndedSessions:
    """Sign-ins by OIDC that were ended by hand, in this process: a cookie that was copied, or that another tab still
    has, opens nothing any more. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the next field
        self._known: OrderedDict[str, None] = OrderedDict()

    def add(self, sign_in: str) -> None:
        with self._lock:
            self._known[_hash(sign_in)] = None
            while len(self._known) > _MOST:
                self._known.popitem(last=False)

    def __contains__(self, sign_in: str) -> bool:
        with self._lock:
            return _hash(sign_in) in self._known


class LoginAttempts:
    """The wait before the next sign-in attempt, by name, by address and by both. Safe from any thread.

    After `free` failures the wait doubles from a second up to a minute. Attempts during the wait are not checked. The
    wait of a name holds only for addresses that failed with it themselves, so that strangers cannot lock its owner out.
    A known device (a browser that signed in with this name before) has a wait of its own, and no other one.
    """

    LONGEST = 60.0

    def __init__(self, *, free: int = 3, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = free
        self._clock = clock
        self._lock = threading.Lock()  # guards the next field
        self._failed: OrderedDict[tuple[str, ...], tuple[int, float]] = OrderedDict()

    def wait(self, name: str, address: str, device: str = "") -> float:
        """Seconds until an attempt counts; 0 when it does now."""
        with self._lock:
            counted = _counted(name, address, device)
            if not device and self._count(counted[0]) < self._free:
                counted.remove(("name", name))
            return max(0.0, *(self._open_at(key) - self._clock() for key in counted))

    def failed(self, name: str, address: str, device: str = "") -> None:
        with self._lock:
            moment = self._clock()
            for key in _counted(name, address, device):
                count, last = self._failed.pop(key, (0, moment))
                self._failed[key] = (count + 1 if moment - last < _FORGOTTEN_AFTER else 1), moment
            while len(self._failed) > _MOST:
                self._failed.popitem(last=False)

    def succeeded(self, name: str, address: str, device: str = "") -> None:
        with self._lock:
            for key in _counted(name, address, device):
                self._failed.pop(key, None)

    def _count(self, key: tuple[str, ...]) -> int:
        return self._failed.get(key, (0, 0.0))[0]

    def _open_at(self, key: tuple[str, ...]) -> float:
        count, last = self._failed.get(key, (0, 0.0))
        return last + min(self.LONGEST, 2.0 ** min(count - self._free, 16)) if count >= self._free else 0.0


def _counted(name: str, address: str, device: str) -> list[tuple[str, ...]]:
    if device:
        return [("device", device)]
    place = network(address)
    return [("both", name, place), ("address", place), ("name", name)]


def network(address: str) -> str:
    """Return the address as attempts count it; of IPv6 the /64, because one subscriber has all of its addresses."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((int(found), 64), strict=False))
