"""Keep the claims of one process in memory: the only backend without Redis, and the fallback while Redis is down."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from producer_core.delivery.dedup.claims import Claim

_SWEEP_INTERVAL = 1.0
"""Seconds between two removals of expired entries."""

_NEW, _PENDING, _DUPLICATE = Claim  # for speed: a module-level name is found faster than an enum member

_Claimed = tuple[float, str | bytes]
"""A claim: when it expires, and its owner."""


class MemoryClaimBackend:
    """Keeps claims in memory. Thread-safe.

    The backend remembers the latest `max_size` confirmed keys, each for `ttl` seconds. A claim expires after `claim_ttl`
    seconds, unless its owner is still `pending` then. An expired entry has no effect. Its memory is freed within
    `_SWEEP_INTERVAL` seconds of use; the memory of a claim that was neither confirmed nor released, within another
    `claim_ttl`.
    """

    def __init__(
        self,
        *,
        ttl: float,
        claim_ttl: float,
        max_size: int,
        clock: Callable[[], float] = time.monotonic,
        pending: Callable[[str | bytes], bool] = lambda owner: False,
    ) -> None:
        self._ttl = ttl
        self._claim_ttl = claim_ttl
        self._max_size = max_size
        self._chunk_size = 1 + max_size // 64
        self._clock = clock
        self._pending = pending
        self._lock = threading.Lock()  # guards the fields below
        # Claimed keys, and confirmed keys with their expiry. One table costs half as much as two, because most of the
        # cost is access to memory that is no longer in the processor's cache.
        self._entries: dict[str, _Claimed | float] = {}
        self._confirmed: deque[tuple[float, Sequence[str]]] = deque()  # chunks of keys in the order of expiry
        self._confirmed_count = 0
        self._next_sweep = self._next_claim_sweep = -math.inf
        self.new_claims = 0
        """Claims that returned `NEW`, not counting renewals by the same owner."""

    def claim(self, key: str, owner: str | bytes) -> Claim:
        with self._lock:
            now = self._clock()
            if now >= self._next_sweep:
                self._sweep(now)
            claim = (now + self._claim_ttl, owner)
            entry = self._entries.setdefault(key, claim)
            if entry is claim:  # the usual case
                self.new_claims += 1
                return _NEW
            expires_at, holder = (entry, None) if isinstance(entry, float) else entry
            if expires_at <= now and (holder is None or not self._pending(holder)):
                self.new_claims += 1
            elif holder is None:
                return _DUPLICATE
            elif holder != owner:
                return _PENDING
            self._entries[key] = claim
            return _NEW

    def confirm(self, key: str) -> None:
        self.confirm_many((key,))

    def confirm_many(self, keys: Sequence[str]) -> None:
        with self._lock:
            entries, expires_at = self._entries, self._clock() + self._ttl
            for key in keys:
                entries[key] = expires_at
            for start in range(0, len(keys), self._chunk_size):
                self._confirmed.append((expires_at, keys[start : start + self._chunk_size]))
            self._confirmed_count += len(keys)
            while self._confirmed and self._confirmed_count - len(self._confirmed[0][1]) >= self._max_size:
                self._forget_oldest()

    def release(self, key: str, owner: str | bytes) -> None:
        with self._lock:
            entry = self._entries.get(key)
            if isinstance(entry, tuple) and entry[1] == owner:
                del self._entries[key]

    def transfer(self, key: str, holder: str | bytes, owner: str | bytes) -> bool:
        """Move a claim from `holder` to `owner` for a full `claim_ttl`; return False when `holder` does not have it."""
        with self._lock:
            entry = self._entries.get(key)
            if not isinstance(entry, tuple) or entry[1] != holder:
                return False
            self._entries[key] = (self._clock() + self._claim_ttl, owner)
            return True

    def holder(self, key: str) -> str | bytes | None:
        """Return the owner of an unconfirmed claim."""
        with self._lock:
            entry = self._entries.get(key)
            return entry[1] if isinstance(entry, tuple) else None

    def confirmed(self, key: str) -> bool:
        with self._lock:
            entry = self._entries.get(key)
            return isinstance(entry, float) and entry > self._clock()

    def __len__(self) -> int:
        """Return the number of confirmed keys: at most `max_size` and a 64th, because whole chunks are removed."""
        with self._lock:
            self._sweep(self._clock())
            return self._confirmed_count

    def _sweep(self, now: float) -> None:
        self._next_sweep = now + _SWEEP_INTERVAL
        while self._confirmed and self._confirmed[0][0] <= now:
            self._forget_oldest()
        if now >= self._next_claim_sweep:
            self._next_claim_sweep = now + self._claim_ttl
            expired = (
                (key, entry[1])
                for key, entry in self._entries.items()
                if isinstance(entry, tuple) and entry[0] <= now
            )
            for key in [key for key, holder in expired if not self._pending(holder)]:
                del self._entries[key]

    def _forget_oldest(self) -> None:
        expires_at, keys = self._confirmed.popleft()
        self._confirmed_count -= len(keys)
        for key in keys:
            if self._entries.get(key) is expires_at:  # not claimed or confirmed again since
                del self._entries[key]
