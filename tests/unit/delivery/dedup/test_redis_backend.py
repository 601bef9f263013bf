"""Claims in Redis: one key in each script."""

from __future__ import annotations

import zlib

import pytest
import redis.asyncio

from producer_core.delivery.dedup.redis_backend import RedisClaimBackend


class ShardedRedis:
    """Simulates a proxy that runs a script on the server of its first key, whatever the other keys are."""

    def __init__(self, servers):
        self._servers = [{} for _ in range(servers)]
        self._replies = []

    def _server(self, key):
        return self._servers[zlib.crc32(key.encode()) % len(self._servers)]

    def eval(self, script, count, *given):
        self._server(given[0]).update(dict.fromkeys(given[:count], "1"))

    def pipeline(self, transaction):
        return self

    def get(self, key):
        self._replies.append(self._server(key).get(key))

    def delete(self, key):
        self._replies.append(1)

    def execute(self):
        return self._replies


@pytest.mark.parametrize(("servers", "accepts_many"), [(1, True), (3, False)])
def test_scripts_take_one_key_each_if_keys_are_on_several_servers(servers, accepts_many):
    with redis.Redis(port=1) as client:
        backend = RedisClaimBackend(client, ttl=60, claim_ttl=60)
        backend._redis = ShardedRedis(servers)

        assert backend._accepts_many_keys() is accepts_many
