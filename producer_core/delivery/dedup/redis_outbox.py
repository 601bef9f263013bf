"""Shared claims: Redis while it answers, and an outbox of what it has yet to hear.

A claim waits for Redis, because its answer decides. A confirmation or a release does not: it goes to the outbox,
whose thread tells Redis in batches, so that no delivery report waits for a round trip. While Redis is gone the outbox
keeps the last word on each key, and only its thread looks whether Redis is back: a message waits for Redis once, not
again and again.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice

from producer_core.delivery.dedup.backends import Claim, ClaimUpdate, RedisClaimBackend
from producer_core.errors import DedupError

logger = logging.getLogger(__name__)

_REST = 5.0
"""Seconds between two looks at a Redis that is gone."""
_BATCH = 1_000
"""Steps told in one round trip."""
_CONFIRMED = ClaimUpdate("confirm")
_IDLE = 2.0
"""Seconds without work after which the thread ends; the next step starts another."""

_open: weakref.WeakSet[RedisClaimOutbox] = weakref.WeakSet()


class RedisClaimOutbox:
    """Thread-safe. `on_change(degraded, text)` hears when Redis stops answering and when it is back.

    The outbox keeps at most `limit` keys, each for `ttl` seconds; above that the oldest goes, and its copies in
    other processes are held back by their claim only.
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
        self._fresh()
        _open.add(self)

    def _fresh(self) -> None:
        self._pid = os.getpid()
        # Guards the fields below; taken by its own name, for an interrupt inside Condition would leave it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._words: OrderedDict[str, tuple[float, ClaimUpdate]] = (
            OrderedDict()
        )  # when it was put in, and the word
        self._thread: threading.Thread | None = None
        self._gone = False
        self._closing = False

    # the three steps

    def claim(self, key: str, owner: str) -> Claim | None:
        """What Redis says; None while it is gone, and it will be told of the claim when it is back."""
        self._after_fork()
        with self._lock:
            waiting, gone = self._words.get(key), self._gone
        if waiting is not None and waiting[1].kind == "confirm":
            return Claim.DUPLICATE
        try:
            if not gone:
                if waiting is not None and waiting[1].kind == "release":
                    self._backend.release(key, waiting[1].owner)
                return self._backend.claim(key, owner)
        except DedupError as error:
            self._failed(str(error))
        self._put((key,), ClaimUpdate("claim", owner))
        return None

    def claim_many(self, asked: Sequence[tuple[str, str]]) -> list[Claim | None]:
        """As `claim` for each of different keys, in order, in one round trip."""
        self._after_fork()
        with self._lock:
            known = {key for key, _ in asked if key in self._words}
            gone = self._gone
        if gone or known:  # Redis has yet to hear of some: one by one
            return [self.claim(key, owner) for key, owner in asked]
        try:
            return list(self._backend.claim_many(asked))
        except DedupError as error:
            self._failed(str(error))
        for key, owner in asked:
            self._put((key,), ClaimUpdate("claim", owner))
        return [None] * len(asked)

    def confirm_many(self, keys: Sequence[str]) -> None:
        self._put(keys, _CONFIRMED)

    def release(self, key: str, owner: str) -> None:
        self._put((key,), ClaimUpdate("release", owner))

    # looking and closing

    @property
    def degraded(self) -> bool:
        return self._gone

    @property
    def waiting(self) -> int:
        """Keys of which Redis has yet to hear."""
        return len(self._words)

    def close(self, timeout: float = 1.0) -> None:
        """Tell what is waiting, for `timeout` seconds at most; a Redis that is gone is asked once more."""
        self._after_fork()
        deadline = time.monotonic() + timeout
        with self._lock:
            self._closing = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        while self._words and time.monotonic() < deadline and self._tell_batch():
            pass
        with self._lock:
            self._closing = False  # whoever goes on using it may
            left = len(self._words)
        if left:
            logger.warning("redis was not told of all confirmations", extra={"keys": left})
        self._backend.close()

    # the outbox

    def _put(self, keys: Sequence[str], word: ClaimUpdate) -> None:
        """One word on each key, to the end, unless what was said before stands."""
        self._after_fork()
        with self._lock:
            idle, said = not self._words, (self._clock(), word)
            for key in keys:
                before = self._words.get(key)
                if before is not None:
                    if _stands(before[1], word):
                        continue
                    del self._words[key]
                self._words[key] = said
            while len(self._words) > self._limit:
                self._words.popitem(last=False)
            if idle:  # else its thread is at work
                self._changed.notify_all()
            self._begin()

    def _begin(self) -> None:
        """A thread if there is none; the caller holds the lock."""
        if self._closing or (self._thread is not None and self._thread.is_alive()):
            return
        thread = threading.Thread(target=self._run, name="producer-core-dedup", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending: close() tells the rest
            return
        self._thread = thread

    def _run(self) -> None:
        while self._wait():
            self._tell_batch()

    def _wait(self) -> bool:
        """Until there is something to do; False when this thread may end."""
        with self._lock:
            if self._gone:
                self._changed.wait_for(lambda: self._closing, _REST)
            else:
                self._changed.wait_for(lambda: self._words or self._closing, _IDLE)
            busy = (bool(self._words) or self._gone) and not self._closing
            if not busy and self._thread is threading.current_thread():
                self._thread = None
            return busy

    def _tell_batch(self) -> bool:
        """Tell the oldest steps, or look whether Redis is back; False when it does not answer."""
        batch = self._oldest()
        try:
            if batch:
                self._backend.tell([(key, word) for key, (_, word) in batch])
            else:
                self._backend.ping()
        except DedupError as error:
            self._failed(str(error))
            return False
        with self._lock:
            for key, told in batch:
                if self._words.get(key) is told:  # not a newer word
                    del self._words[key]
        self._answered()
        return True

    def _oldest(self) -> list[tuple[str, tuple[float, ClaimUpdate]]]:
        with self._lock:
            stale = self._clock() - self._ttl
            while self._words and next(iter(self._words.values()))[0] < stale:
                self._words.popitem(last=False)
            return list(islice(self._words.items(), _BATCH))

    # gone and back

    def _failed(self, text: str) -> None:
        with self._lock:
            first, self._gone = not self._gone, True
            self._begin()  # to look when it is back
        if first:
            self._on_change(True, text)

    def _answered(self) -> None:
        with self._lock:
            was, self._gone = self._gone, False
        if was:
            self._on_change(False, "Redis answers again.")

    def _after_fork(self) -> None:
        """A child has no thread, and what its parent had to tell its parent tells."""
        if self._pid != os.getpid():
            self._fresh()


def _stands(before: ClaimUpdate, word: ClaimUpdate) -> bool:
    """A message that is on the topic stays there, whatever another copy's owner does; and so does another's claim."""
    if before.kind == "claim":
        return word.kind == "release" and word.owner != before.owner
    return before.kind == "confirm" and word.kind != "confirm"


@atexit.register
def _tell_the_last() -> None:
    """What producers confirmed that were closed at the interpreter's end: their handler runs before this one."""
    for claims in list(_open):
        claims.close(1.0)
