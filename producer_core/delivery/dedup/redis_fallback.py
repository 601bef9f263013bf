"""Claim in Redis while it responds. While it is down, let memory decide and keep the updates that Redis must receive.

A claim waits for the reply of Redis, because the reply decides. While Redis is down, `claim` returns None at once, and the
claim in memory counts (`deduplicator.py:_claim`). Only the thread of the outbox checks whether Redis is back, so a message
waits for a Redis that is down only once.

A confirmation or a release never waits: it goes to the outbox, and the outbox's thread sends it in a batch, so that no
delivery report waits for a round trip. While Redis is down, the outbox keeps the latest update of each key.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.delivery.dedup.claims import Claim, ClaimUpdate
from producer_core.delivery.dedup.redis_backend import RedisClaimBackend
from producer_core.errors import DedupError

logger = queued_logger(__name__)

_RETRY_INTERVAL = 5.0
"""Seconds between two attempts to reach a Redis that is down."""
_BATCH_SIZE = 1_000
"""Updates sent in one round trip."""
_CONFIRMED = ClaimUpdate("confirm")
_IDLE_TIMEOUT = 2.0
"""Seconds without work after which the thread ends; the next update starts another."""

_outboxes: weakref.WeakSet[RedisClaimOutbox] = weakref.WeakSet()


class RedisClaimOutbox:
    """Claims keys in Redis, and sends updates of claims to it. Thread-safe.

    `on_change(degraded, text)` is called when Redis stops or resumes responding. The outbox keeps at most
    `limit` keys, each for `ttl` seconds. Beyond the limit the oldest key is dropped; then only its claim holds back
    duplicates in other processes.
    """

    def __init__(
        self,
        backend: RedisClaimBackend,
        *,
        ttl: float,
        limit: int,
        on_change: Callable[[bool, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._ttl = ttl
        self._limit = limit
        self._on_change = on_change
        self._clock = clock
        self._reset()
        _outboxes.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        # Guards the fields below. Code acquires the lock itself: an interrupt inside Condition would leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._updates: OrderedDict[str, tuple[float, ClaimUpdate]] = OrderedDict()  # with the time of entry
        self._thread: threading.Thread | None = None
        self._down = False
        self._closing = False

    # the three steps of a claim

    def claim(self, key: str, owner: str) -> Claim | None:
        """Claim a key in Redis; return None while Redis is down, in which case the claim is sent later."""
        self._after_fork()
        with self._lock:
            queued, down = self._updates.get(key), self._down
        if queued is not None and queued[1].kind == "confirm":
            return Claim.DUPLICATE
        try:
            if not down:
                if queued is not None and queued[1].kind == "release":
                    self._backend.release(key, queued[1].owner)
                return self._backend.claim(key, owner)
        except DedupError as error:
            self._failed(str(error))
        self._enqueue((key,), ClaimUpdate("claim", owner))
        return None

    def claim_many(self, keys: Sequence[tuple[str, str]]) -> list[Claim | None]:
        """Claim different keys, each for its owner, in one round trip; return the results of `claim` in order."""
        self._after_fork()
        with self._lock:
            queued = any(key in self._updates for key, _ in keys)
            down = self._down
        if down or queued:  # an update that Redis has not received decides its key
            return [self.claim(key, owner) for key, owner in keys]
        try:
            return list(self._backend.claim_many(keys))
        except DedupError as error:
            self._failed(str(error))
        for key, owner in keys:
            self._enqueue((key,), ClaimUpdate("claim", owner))
        return [None] * len(keys)

    def confirm_many(self, keys: Sequence[str]) -> None:
        self._enqueue(keys, _CONFIRMED)

    def release(self, key: str, owner: str) -> None:
        self._enqueue((key,), ClaimUpdate("release", owner))

    # state and close

    @property
    def degraded(self) -> bool:
        return self._down

    @property
    def waiting(self) -> int:
        """The number of keys with an update that Redis has not received."""
        return len(self._updates)

    def close(self, timeout: float = 1.0) -> None:
        """Send the queued updates for at most `timeout` seconds; a Redis that is down is tried once more."""
        self._after_fork()
        deadline = time.monotonic() + timeout
        with self._lock:
            self._closing = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        while self._updates and time.monotonic() < deadline and self._send_batch():
            pass
        with self._lock:
            self._closing = False  # the outbox may be used again
            left = len(self._updates)
        if left:
            logger.warning(**with_fields("claim updates were not sent to Redis", keys=left))
        self._backend.close()

    # the queue

    def _enqueue(self, keys: Sequence[str], update: ClaimUpdate) -> None:
        """Queue the update for each key, unless an earlier update takes precedence."""
        self._after_fork()
        with self._lock:
            idle, entry = not self._updates, (self._clock(), update)
            for key in keys:
                before = self._updates.get(key)
                if before is not None:
                    if _takes_precedence(before[1], update):
                        continue
                    del self._updates[key]
                self._updates[key] = entry
            while len(self._updates) > self._limit:
                self._updates.popitem(last=False)
            if idle:  # otherwise the thread is sending already
                self._changed.notify_all()
            self._ensure_thread()

    def _ensure_thread(self) -> None:
        """Start the thread if there is none. The caller holds the lock."""
        if self._closing or (self._thread is not None and self._thread.is_alive()):
            return
        thread = threading.Thread(target=self._run, name="producer-core-dedup", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down: close() sends the rest
            return
        self._thread = thread

    def _run(self) -> None:
        while self._wait():
            self._send_batch()

    def _wait(self) -> bool:
        """Wait for work; return False when this thread can end."""
        with self._lock:
            if self._down:
                self._changed.wait_for(lambda: self._closing, _RETRY_INTERVAL)
            else:
                self._changed.wait_for(lambda: self._updates or self._closing, _IDLE_TIMEOUT)
            busy = (bool(self._updates) or self._down) and not self._closing
            if not busy and self._thread is threading.current_thread():
                self._thread = None
            return busy

    def _send_batch(self) -> bool:
        """Send the oldest updates, or ping Redis when there are none; return False when it does not respond."""
        batch = self._oldest()
        try:
            if batch:
                self._backend.apply([(key, update) for key, (_, update) in batch])
            else:
                self._backend.ping()
        except DedupError as error:
            self._failed(str(error))
            return False
        with self._lock:
            for key, sent in batch:
                if self._updates.get(key) is sent:  # else a newer update replaced it
                    del self._updates[key]
        self._answered()
        return True

    def _oldest(self) -> list[tuple[str, tuple[float, ClaimUpdate]]]:
        with self._lock:
            expired = self._clock() - self._ttl
            while self._updates and next(iter(self._updates.values()))[0] < expired:
                self._updates.popitem(last=False)
            return list(islice(self._updates.items(), _BATCH_SIZE))

    # failure and recovery

    def _failed(self, text: str) -> None:
        with self._lock:
            first, self._down = not self._down, True
            self._ensure_thread()  # it checks when Redis is back
        if first:
            self._on_change(True, text)

    def _answered(self) -> None:
        with self._lock:
            was_down, self._down = self._down, False
        if was_down:
            self._on_change(False, "Redis is responding again.")

    def _after_fork(self) -> None:
        """Start empty in a forked child: it has no thread, and its parent sends the parent's updates."""
        if self._pid != os.getpid():
            self._reset()


def _takes_precedence(before: ClaimUpdate, update: ClaimUpdate) -> bool:
    """Return whether a queued update stays: a confirmation over anything else, a claim over a release by another owner."""
    if before.kind == "claim":
        return update.kind == "release" and update.owner != before.owner
    return before.kind == "confirm" and update.kind != "confirm"


@atexit.register
def _close_all() -> None:
    """Send what producers confirmed when the interpreter ended: their exit handler runs before this one."""
    for outbox in list(_outboxes):
        outbox.close(1.0)
