"""Claims on checksums, in this process's memory or in a Redis that several processes share."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, Protocol

from producer_core.errors import ConfigError, DedupError

_PATIENCE = 0.25
"""Seconds that Redis may take to answer before it counts as gone."""


class Claim(Enum):
    """What a claim found: nobody had it, somebody is sending it, or it was acknowledged."""

    NEW = "new"
    PENDING = "pending"
    DUPLICATE = "duplicate"


class Backend(Protocol):
    """Where claims live. `owner` names the message: claiming again for the same owner renews the claim."""

    def claim(self, key: str, owner: str) -> Claim: ...
    def confirm(self, key: str) -> None: ...
    def release(self, key: str, owner: str) -> None: ...
    def confirmed(self, key: str) -> bool: ...


class MemoryBackend:
    """Claims of this process. Thread-safe. Of the confirmed it remembers the last `max_size`; claims expire.

    Both tables are in the order of expiry, since all entries of a table live equally long.
    """

    def __init__(
        self, *, ttl: float, claim_ttl: float, max_size: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ttl = ttl
        self._claim_ttl = claim_ttl
        self._max_size = max_size
        self._clock = clock
        self._lock = threading.Lock()  # guards the two tables
        self._pending: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._confirmed: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def claim(self, key: str, owner: str) -> Claim:
        with self._lock:
            self._expire()
            if key in self._confirmed:
                return Claim.DUPLICATE
            if key in self._pending and self._pending[key][1] != owner:
                return Claim.PENDING
            self._put(self._pending, key, self._claim_ttl, owner)
            return Claim.NEW

    def confirm(self, key: str) -> None:
        with self._lock:
            self._pending.pop(key, None)
            self._put(self._confirmed, key, self._ttl, "")
            while len(self._confirmed) > self._max_size:
                self._confirmed.popitem(last=False)

    def release(self, key: str, owner: str) -> None:
        with self._lock:
            if self._pending.get(key, (0.0, ""))[1] == owner:
                del self._pending[key]

    def holds(self, key: str, owner: str) -> bool:
        with self._lock:
            self._expire()
            return self._pending.get(key, (0.0, ""))[1] == owner

    def confirmed(self, key: str) -> bool:
        with self._lock:
            self._expire()
            return key in self._confirmed

    def __len__(self) -> int:
        with self._lock:
            self._expire()
            return len(self._confirmed)

    def _put(self, table: OrderedDict[str, tuple[float, str]], key: str, ttl: float, owner: str) -> None:
        table[key] = (self._clock() + ttl, owner)
        table.move_to_end(key)

    def _expire(self) -> None:
        now = self._clock()
        for table in (self._pending, self._confirmed):
            while table and next(iter(table.values()))[0] <= now:
                table.popitem(last=False)


class Word(NamedTuple):
    """What a backend is to be told of a key, where nobody waits for the answer."""

    kind: Literal["claim", "confirm", "release"]
    owner: str = ""


_CLAIM = """
local held = redis.call('GET', KEYS[1])
if held == ARGV[1] or not held then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 'new' end
if string.sub(held, 1, 2) == 'p:' then return 'pending' end
return 'duplicate'
"""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisBackend:
    """Claims that several processes share; each step is one atomic command or script. Raises DedupError.

    The user's client is copied into a pool of our own with short time-outs, so that a Redis that hangs
    costs at most a quarter of a second before it is left alone.
    """

    def __init__(self, client: Any, *, ttl: float, claim_ttl: float) -> None:
        import redis

        if not isinstance(client, redis.Redis):
            raise ConfigError(
                f"redis_client must be a redis.Redis, not {type(client).__module__}.{type(client).__name__}.",
                fix="For example redis_client=redis.Redis.from_url('redis://localhost:6379/0').",
            )
        settings = dict(client.connection_pool.connection_kwargs)
        settings.update(
            socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE, decode_responses=True, retry=None
        )
        settings.pop("retry_on_error", None)
        pool = redis.ConnectionPool(connection_class=client.connection_pool.connection_class, **settings)
        self._redis = redis.Redis(connection_pool=pool)
        self._failed = (redis.RedisError, OSError)
        self._ttl = max(1, int(ttl * 1000))
        self._claim_ttl = max(1, int(claim_ttl * 1000))
        self._claim = self._redis.register_script(_CLAIM)
        self._release = self._redis.register_script(_RELEASE)

    def claim(self, key: str, owner: str) -> Claim:
        return Claim(self._ask(lambda: self._claim(keys=[key], args=[f"p:{owner}", self._claim_ttl])))

    def confirm(self, key: str) -> None:
        self._ask(lambda: self._redis.set(key, "1", px=self._ttl))

    def release(self, key: str, owner: str) -> None:
        self._ask(lambda: self._release(keys=[key], args=[f"p:{owner}"]))

    def confirmed(self, key: str) -> bool:
        return bool(self._ask(lambda: self._redis.get(key)) == "1")

    def tell(self, words: Sequence[tuple[str, Word]]) -> None:
        """Many steps in one round trip, in order; each is atomic by itself, and telling one twice does no harm."""
        self._ask(lambda: self._pipeline(words).execute())

    def ping(self) -> None:
        self._ask(self._redis.ping)

    def _pipeline(self, words: Sequence[tuple[str, Word]]) -> Any:
        pipeline = self._redis.pipeline(transaction=False)
        for key, word in words:
            if word.kind == "confirm":
                pipeline.set(key, "1", px=self._ttl)
            elif word.kind == "release":
                pipeline.eval(_RELEASE, 1, key, f"p:{word.owner}")
            else:
                pipeline.eval(_CLAIM, 1, key, f"p:{word.owner}", self._claim_ttl)
        return pipeline

    def close(self) -> None:
        self._redis.connection_pool.disconnect()

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except self._failed as error:
            raise DedupError(f"Redis does not answer: {error}.") from error
