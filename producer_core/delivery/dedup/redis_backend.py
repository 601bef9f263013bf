"""Keep claims in a Redis that several processes share. Every call raises DedupError if Redis does not respond."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import orjson

from producer_core.delivery.dedup.claims import Claim, ClaimUpdate
from producer_core.errors import ConfigError, DedupError

_TIMEOUT = 0.25
"""Seconds that Redis may take to respond before it counts as down."""

_PROBE_KEYS = 16
"""Keys that show whether the address spreads keys over several servers: with 16, some would be on another server."""

T = TypeVar("T")

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
_RESULTS = {"n": Claim.NEW, "p": Claim.PENDING, "d": Claim.DUPLICATE}
_CONFIRM = "for _, key in ipairs(KEYS) do redis.call('SET', key, '1', 'PX', ARGV[1]) end"
_RELEASE = """
local owners = cjson.decode(ARGV[2])
for at, key in ipairs(KEYS) do
    if redis.call('GET', key) == owners[at] then redis.call('DEL', key) end
end
"""
"""Each script handles many keys in one atomic step. ARGV[1] is the lifetime of an entry in milliseconds, ARGV[2] the
owners of the keys as JSON.

redis-py encodes each argument and decodes each item of a reply in Python, at 1 to 2 µs each. Therefore all owners are one
argument, and the reply of `_CLAIM` is one string with a character for each key.
"""


class RedisClaimBackend:
    """Keeps claims in Redis; each step is one atomic command or script. Raises DedupError when Redis does not respond.

    The settings of the user's client are copied into a pool with short time-outs, so that a Redis that hangs delays a call
    by a quarter of a second at most.
    """

    def __init__(self, client: Any, *, ttl: float, claim_ttl: float) -> None:
        import redis

        if not isinstance(client, redis.Redis):
            raise ConfigError(
                f"redis_client must be a redis.Redis, not {type(client).__module__}.{type(client).__name__}.",
                fix="For example, redis_client=redis.Redis.from_url('redis://localhost:6379/0').",
            )
        settings = dict(client.connection_pool.connection_kwargs)
        settings.update(
            socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT, decode_responses=True, retry=None
        )
        settings.pop("retry_on_error", None)
        pool = redis.ConnectionPool(connection_class=client.connection_pool.connection_class, **settings)
        self._redis = redis.Redis(connection_pool=pool)
        self._redis_errors = (redis.RedisError, OSError)
        self._response_error = redis.ResponseError
        self._ttl_ms = max(1, int(ttl * 1000))
        self._claim_ttl_ms = max(1, int(claim_ttl * 1000))
        self._multi_key: bool | None = None  # whether a script may take many keys; None until this is tested
        self._claim_script = self._redis.register_script(_CLAIM)
        self._release_script = self._redis.register_script(_RELEASE)

    def claim(self, key: str, owner: str) -> Claim:
        return self.claim_many([(key, owner)])[0]

    def claim_many(self, keys: Sequence[tuple[str, str]]) -> list[Claim]:
        """Claim each key for its owner in one round trip, and return the results in order."""
        results = self._call(lambda: self._run_claims(keys))
        return [_RESULTS[result] for result in results]

    def _run_claims(self, keys: Sequence[tuple[str, str]]) -> Sequence[str]:
        if len(keys) == 1 or self._accepts_many_keys():
            results: str = self._claim_script(*self._script_input(keys))
            return results
        pipeline = self._redis.pipeline(transaction=False)
        for one in keys:
            names, arguments = self._script_input([one])
            pipeline.eval(_CLAIM, 1, *names, *arguments)
        return "".join(pipeline.execute())

    def confirm(self, key: str) -> None:
        self._call(lambda: self._redis.set(key, "1", px=self._ttl_ms))

    def release(self, key: str, owner: str) -> None:
        self._call(lambda: self._release_script(*self._script_input([(key, owner)])))

    def confirmed(self, key: str) -> bool:
        return bool(self._call(lambda: self._redis.get(key)) == "1")

    def apply(self, updates: Sequence[tuple[str, ClaimUpdate]]) -> None:
        """Apply an update to each of many keys in one round trip. The same update may be applied twice."""
        self._call(lambda: self._pipeline_of(updates).execute())

    def _pipeline_of(self, updates: Sequence[tuple[str, ClaimUpdate]]) -> Any:
        size = len(updates) if len(updates) == 1 or self._accepts_many_keys() else 1
        pipeline = self._redis.pipeline(transaction=False)
        confirmed = [key.encode() for key, update in updates if update.kind == "confirm"]
        for chunk in _chunks(confirmed, size):
            pipeline.eval(_CONFIRM, len(chunk), *chunk, self._ttl_ms)
        for kind, script in (("release", _RELEASE), ("claim", _CLAIM)):
            owned = [(key, update.owner) for key, update in updates if update.kind == kind]
            for part in _chunks(owned, size):
                names, arguments = self._script_input(part)
                pipeline.eval(script, len(names), *names, *arguments)
        return pipeline

    def _accepts_many_keys(self) -> bool:
        """Return whether one script may take many keys; tested once.

        A proxy that spreads keys over several servers either refuses such a script (CROSSSLOT), or runs it on the server of
        the first key, where the other keys are never found again.
        """
        if self._multi_key is None:
            keys = [f"msg_dedup:{uuid.uuid4().hex}" for _ in range(_PROBE_KEYS)]
            try:
                self._redis.eval(_CONFIRM, len(keys), *keys, 5_000)
            except self._response_error:
                self._multi_key = False
            else:
                pipeline = self._redis.pipeline(transaction=False)
                for key in keys:
                    pipeline.get(key)
                    pipeline.delete(key)
                self._multi_key = all(pipeline.execute()[::2])
        return self._multi_key

    def _script_input(self, keys: Sequence[tuple[str, str]]) -> tuple[list[bytes], list[Any]]:
        """Return the keys and the arguments of a script that compares owners."""
        owners = [f"p:{owner}" for _, owner in keys]
        return [key.encode() for key, _ in keys], [self._claim_ttl_ms, orjson.dumps(owners)]

    def ping(self) -> None:
        self._call(self._redis.ping)

    def close(self) -> None:
        self._redis.connection_pool.disconnect()

    def _call(self, command: Callable[[], Any]) -> Any:
        try:
            return command()
        except self._redis_errors as error:
            raise DedupError(f"Redis is not responding: {error}.") from error


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
