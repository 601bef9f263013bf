"""Claims on checksums, in this process's memory or in a Redis that several processes share."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import orjson

from producer_core.errors import ConfigError, DedupError

_PATIENCE = 0.25
"""Seconds that Redis may take to answer before it counts as gone."""

_SWEEP = 1.0

_PROBES = 16
"""Keys of which some would lie elsewhere, were there an elsewhere."""

T = TypeVar("T")


class Claim(Enum):
    """What a claim found: nobody had it, somebody is sending it, or it was acknowledged."""

    NEW = "new"
    PENDING = "pending"
    DUPLICATE = "duplicate"


_NEW, _PENDING, _DUPLICATE = Claim  # a member of a class costs each claim more than a name of this module


class ClaimBackend(Protocol):
    """Where claims live. `owner` names the message: claiming again for the same owner renews the claim."""

    def claim(self, key: str, owner: str) -> Claim: ...
    def confirm(self, key: str) -> None: ...
    def release(self, key: str, owner: str) -> None: ...
    def confirmed(self, key: str) -> bool: ...


_Claimed = tuple[float, str | bytes]
"""Until when, and whose."""


class MemoryClaimBackend:
    """Claims of this process. Thread-safe. Of the confirmed it remembers the last `max_size`; claims expire.

    The claim of an owner that is still `pending`, which is asked when it has run out, counts on.
    What has expired counts for nothing at once. Its memory is free within `_SWEEP` seconds of use, or, where a claim
    was neither confirmed nor released, within the life of another claim.
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
        self._together = 1 + max_size // 64
        self._clock = clock
        self._pending = pending
        self._lock = threading.Lock()  # guards the fields below
        # One table for both costs half of two: what costs in it is memory that was not touched for long.
        self._held: dict[str, _Claimed | float] = {}  # claimed, or confirmed until then
        self._done: deque[tuple[float, Sequence[str]]] = deque()  # the confirmed, in the order of expiry
        self._remembered = 0  # keys in it
        self._sweep_at = self._search_at = -math.inf
        self.new = 0
        """Claims that nobody had, not even their owner."""

    def claim(self, key: str, owner: str | bytes) -> Claim:
        with self._lock:
            now = self._clock()
            if now >= self._sweep_at:
                self._sweep(now)
            claim = (now + self._claim_ttl, owner)
            held = self._held.setdefault(key, claim)
            if held is claim:  # as nearly all
                self.new += 1
                return _NEW
            until, who = (held, None) if isinstance(held, float) else held
            if until <= now and (who is None or not self._pending(who)):
                self.new += 1
            elif who is None:
                return _DUPLICATE
            elif who != owner:
                return _PENDING
            self._held[key] = claim
            return _NEW

    def confirm(self, key: str) -> None:
        self.confirm_many((key,))

    def confirm_many(self, keys: Sequence[str]) -> None:
        with self._lock:
            held, until = self._held, self._clock() + self._ttl
            for key in keys:
                held[key] = until
            for at in range(0, len(keys), self._together):
                self._done.append((until, keys[at : at + self._together]))
            self._remembered += len(keys)
            while self._done and self._remembered - len(self._done[0][1]) >= self._max_size:
                self._forget_oldest()

    def release(self, key: str, owner: str | bytes) -> None:
        with self._lock:
            held = self._held.get(key)
            if isinstance(held, tuple) and held[1] == owner:
                del self._held[key]

    def hand_over(self, key: str, holder: str | bytes, owner: str | bytes) -> bool:
        """Whether the holder had the claim; in the same step it is the owner's, for its whole time again."""
        with self._lock:
            held = self._held.get(key)
            if not isinstance(held, tuple) or held[1] != holder:
                return False
            self._held[key] = (self._clock() + self._claim_ttl, owner)
            return True

    def holder(self, key: str) -> str | bytes | None:
        """Whose claim a pending one is."""
        with self._lock:
            held = self._held.get(key)
            return held[1] if isinstance(held, tuple) else None

    def confirmed(self, key: str) -> bool:
        with self._lock:
            held = self._held.get(key)
            return isinstance(held, float) and held > self._clock()

    def __len__(self) -> int:
        """Of the confirmed: they go some together, so at most a sixty-fourth more than `max_size`."""
        with self._lock:
            self._sweep(self._clock())
            return self._remembered

    def _sweep(self, now: float) -> None:
        self._sweep_at = now + _SWEEP
        while self._done and self._done[0][0] <= now:
            self._forget_oldest()
        if now >= self._search_at:
            self._search_at = now + self._claim_ttl
            over = (
                (key, held[1])
                for key, held in self._held.items()
                if isinstance(held, tuple) and held[0] <= now
            )
            for key in [key for key, who in over if not self._pending(who)]:
                del self._held[key]

    def _forget_oldest(self) -> None:
        until, keys = self._done.popleft()
        self._remembered -= len(keys)
        for key in keys:
            if self._held.get(key) is until:  # neither claimed nor confirmed anew
                del self._held[key]


class ClaimUpdate(NamedTuple):
    """What a backend is to be told of a key, where nobody waits for the answer."""

    kind: Literal["claim", "confirm", "release"]
    owner: str = ""


_CLAIM = """
local found, owners = {}, cjson.decode(ARGV[2])
for at, key in ipairs(KEYS) do
    local own = owners[at]
    if redis.call('SET', key, own, 'NX', 'PX', ARGV[1]) then
        found[at] = 'n'
    else
        local held = redis.call('GET', key)
        if held == own then
            redis.call('SET', key, own, 'PX', ARGV[1])
            found[at] = 'n'
        elseif string.sub(held, 1, 2) == 'p:' then
            found[at] = 'p'
        else
            found[at] = 'd'
        end
    end
end
return table.concat(found)
"""
_FOUND = {"n": _NEW, "p": _PENDING, "d": _DUPLICATE}
_CONFIRM = "for _, key in ipairs(KEYS) do redis.call('SET', key, '1', 'PX', ARGV[1]) end"
_RELEASE = """
local owners = cjson.decode(ARGV[2])
for at, key in ipairs(KEYS) do
    if redis.call('GET', key) == owners[at] then redis.call('DEL', key) end
end
"""
"""Each for many keys in one step; the life of a claim in milliseconds comes first, then whose each is, as JSON.

The client packs and reads each argument and each item of an answer in Python, 1 to 2 µs: so owners are one, and so is
the answer, a dead letter for each key.
"""


class RedisClaimBackend:
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
        self._together: bool | None = None  # whether a script may name many keys, once that was asked
        self._refused = redis.ResponseError
        self._claim = self._redis.register_script(_CLAIM)
        self._release = self._redis.register_script(_RELEASE)

    def claim(self, key: str, owner: str) -> Claim:
        return self.claim_many([(key, owner)])[0]

    def claim_many(self, asked: Sequence[tuple[str, str]]) -> list[Claim]:
        """Of each key for its owner, in order, in one round trip: what `claim` finds."""
        found = self._ask(lambda: self._claimed(asked))
        return [_FOUND[dead_letter] for dead_letter in found]

    def _claimed(self, asked: Sequence[tuple[str, str]]) -> Sequence[str]:
        if len(asked) == 1 or self._in_one_place():
            dead_letters: str = self._claim(*self._own(asked))
            return dead_letters
        pipeline = self._redis.pipeline(transaction=False)
        for one in asked:
            keys, arguments = self._own([one])
            pipeline.eval(_CLAIM, 1, *keys, *arguments)
        return "".join(pipeline.execute())

    def confirm(self, key: str) -> None:
        self._ask(lambda: self._redis.set(key, "1", px=self._ttl))

    def release(self, key: str, owner: str) -> None:
        self._ask(lambda: self._release(*self._own([(key, owner)])))

    def confirmed(self, key: str) -> bool:
        return bool(self._ask(lambda: self._redis.get(key)) == "1")

    def tell(self, words: Sequence[tuple[str, ClaimUpdate]]) -> None:
        """A word on each of many keys, in one round trip; telling one twice does no harm."""
        self._ask(lambda: self._told(words).execute())

    def _told(self, words: Sequence[tuple[str, ClaimUpdate]]) -> Any:
        size = len(words) if len(words) == 1 or self._in_one_place() else 1
        pipeline = self._redis.pipeline(transaction=False)
        confirmed = [key.encode() for key, word in words if word.kind == "confirm"]
        for some in _portions(confirmed, size):
            pipeline.eval(_CONFIRM, len(some), *some, self._ttl)
        for kind, script in (("release", _RELEASE), ("claim", _CLAIM)):
            told = [(key, word.owner) for key, word in words if word.kind == kind]
            for part in _portions(told, size):
                keys, arguments = self._own(part)
                pipeline.eval(script, len(keys), *keys, *arguments)
        return pipeline

    def _in_one_place(self) -> bool:
        """Whether a script may name many keys: a proxy that spreads them over several servers refuses it (CROSSSLOT).

        Or it runs it where the first key is, and the others are never found again. Asked once.
        """
        if self._together is None:
            keys = [f"msg_dedup:{uuid.uuid4().hex}" for _ in range(_PROBES)]
            try:
                self._redis.eval(_CONFIRM, len(keys), *keys, 5_000)
            except self._refused:
                self._together = False
            else:
                pipeline = self._redis.pipeline(transaction=False)
                for key in keys:
                    pipeline.get(key)
                    pipeline.delete(key)
                self._together = all(pipeline.execute()[::2])
        return self._together

    def _own(self, asked: Sequence[tuple[str, str]]) -> tuple[list[bytes], list[Any]]:
        """Keys and arguments of a script that asks whose they are."""
        owners = [f"p:{owner}" for _, owner in asked]
        return [key.encode() for key, _ in asked], [self._claim_ttl, orjson.dumps(owners)]

    def ping(self) -> None:
        self._ask(self._redis.ping)

    def close(self) -> None:
        self._redis.connection_pool.disconnect()

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except self._failed as error:
            raise DedupError(f"Redis does not answer: {error}.") from error


def _portions(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))
