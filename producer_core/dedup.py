"""De-duplication: a checksum is claimed before sending, confirmed when acknowledged, released when it failed.

Only a confirmed checksum makes a later copy a duplicate, so a message that failed never blocks its own resend.
Claims expire, so neither a process that was killed nor a message in doubt blocks its copies for good.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from producer_core.errors import ConfigError, DedupError
from producer_core.messages import TIME_FIELDS, checksum

logger = logging.getLogger(__name__)

_PATIENCE = 0.25
"""Seconds that Redis may take to answer before it counts as gone."""
_LONGEST_CLAIM = 86_400.0
"""Seconds after which a claim expires even where librdkafka never gives a message up: its process may be dead."""
_REST = 5.0
"""Seconds for which a Redis that is gone is not asked again."""


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

    def forget(self, key: str) -> None:
        """Drop a claim whoever holds it: it is confirmed elsewhere."""
        with self._lock:
            self._pending.pop(key, None)

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

    def close(self) -> None:
        self._redis.connection_pool.disconnect()

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except self._failed as error:
            raise DedupError(f"Redis does not answer: {error}.") from error


class MessageDeduplicator:
    """Redis while it answers, memory otherwise; and the public contract's `is_duplicate`.

    `on_degraded(degraded, text)` hears when Redis stops answering and when it is back.
    """

    def __init__(
        self,
        redis_client: Any = None,
        ttl_seconds: float = 3600,
        max_memory_size: int = 100_000,
        *,
        claim_ttl: float = 150.0,
        ignored_fields: Sequence[str] = TIME_FIELDS,
        on_degraded: Callable[[bool, str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.redis_client = redis_client
        self.ttl_seconds = ttl_seconds
        self.max_memory_size = max_memory_size
        self.ignored_fields = tuple(ignored_fields)
        self.on_degraded = on_degraded
        self._clock = clock
        claim_ttl = min(claim_ttl, _LONGEST_CLAIM)
        self._memory = MemoryBackend(
            ttl=ttl_seconds, claim_ttl=claim_ttl, max_size=max_memory_size, clock=clock
        )
        self._shared = (
            None if redis_client is None else RedisBackend(redis_client, ttl=ttl_seconds, claim_ttl=claim_ttl)
        )
        self._lock = threading.Lock()  # guards the fields below
        self._asleep_until: float | None = None
        self.stats = {"total_checked": 0, "duplicates_found": 0, "cache_hits": 0, "cache_misses": 0}

    # the producer's three steps

    def claim(self, digest: str, topic: str, owner: bytes | str) -> Claim:
        """Before sending. A duplicate is one that was acknowledged within the ttl."""
        key, who = _key(topic, digest), _owner(owner)
        renewed = self._memory.holds(key, who)
        found = self._claim(key, who)
        if not renewed and found is not Claim.PENDING:  # a copy that waits is counted when that ends
            self._count(found is Claim.DUPLICATE)
        return found

    def confirm(self, digest: str, topic: str) -> None:
        """The broker acknowledged it."""
        key = _key(topic, digest)
        if self._shared is None or self._with_shared(lambda backend: backend.confirm(key)) is _FAILED:
            self._memory.confirm(key)
        else:
            self._memory.forget(key)

    def release(self, digest: str, topic: str, owner: bytes | str) -> None:
        """It is certain that the broker does not have it: the next copy may be sent."""
        key, who = _key(topic, digest), _owner(owner)
        self._memory.release(key, who)
        if self._shared is not None:
            self._with_shared(lambda backend: backend.release(key, who))

    # the contract

    def is_duplicate(self, message: Any, topic: str) -> bool:
        """Whether an equal message was seen within the ttl; it counts as seen from now on.

        One step: of two callers with equal messages, in threads or processes, only one is told False.
        """
        digest = self.checksum(topic, None, message)
        seen = self._claim(_key(topic, digest), uuid.uuid4().hex) is not Claim.NEW
        if not seen:
            self.confirm(digest, topic)
        self._count(seen)
        return seen

    def checksum(self, topic: str, key: bytes | None, value: Any) -> str:
        """What makes two messages equal: topic, key and content, without the ignored fields."""
        return checksum(topic, key, value, ignored=self.ignored_fields)

    @property
    def degraded(self) -> bool:
        """Redis was asked for and does not answer: duplicates of other processes are not seen."""
        return self._asleep_until is not None

    def get_stats(self) -> dict[str, Any]:
        with self._lock:
            counts = dict(self.stats)
        checked = counts["total_checked"]
        return {
            **counts,
            "memory_cache_size": len(self._memory),
            "duplicate_rate": counts["duplicates_found"] / checked if checked else 0.0,
            "cache_hit_rate": counts["cache_hits"] / checked if checked else 0.0,
            "degraded": self.degraded,
        }

    # Redis, and when it is gone

    def _claim(self, key: str, who: str) -> Claim:
        """In this process first, so that its own copies are told apart while Redis comes and goes."""
        found = self._memory.claim(key, who)
        if found is not Claim.NEW or self._shared is None:
            return found
        shared = self._with_shared(lambda backend: backend.claim(key, who))
        if shared in (Claim.PENDING, Claim.DUPLICATE):
            self._memory.release(key, who)
            return Claim(shared)
        return Claim.NEW

    def _with_shared(self, question: Callable[[Backend], Any]) -> Any:
        assert self._shared is not None
        with self._lock:
            if self._asleep_until is not None and self._clock() < self._asleep_until:
                return _FAILED
        try:
            answer = question(self._shared)
        except DedupError as error:
            self._gone(str(error))
            return _FAILED
        self._back()
        return answer

    def _gone(self, text: str) -> None:
        with self._lock:
            first, self._asleep_until = self._asleep_until is None, self._clock() + _REST
        if first:
            logger.warning("de-duplication degraded to memory", extra={"error": text})
            self._tell(True, text)

    def _back(self) -> None:
        with self._lock:
            was, self._asleep_until = self._asleep_until is not None, None
        if was:
            logger.warning("de-duplication on redis again")
            self._tell(False, "Redis answers again.")

    def _tell(self, degraded: bool, text: str) -> None:
        if self.on_degraded is None:
            return
        try:
            self.on_degraded(degraded, text)
        except Exception:
            logger.exception("de-duplication callback failed")

    def _count(self, duplicate: bool) -> None:
        with self._lock:
            self.stats["total_checked"] += 1
            self.stats["duplicates_found"] += duplicate
            self.stats["cache_hits" if duplicate else "cache_misses"] += 1


_FAILED: Any = object()
"""Stands for an answer that Redis did not give."""


def _key(topic: str, digest: str) -> str:
    return f"msg_dedup:{topic}:{digest}"


def _owner(owner: bytes | str) -> str:
    return owner.hex() if isinstance(owner, bytes) else owner
