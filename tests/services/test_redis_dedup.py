"""De-duplication over a real Redis: the same contract as memory, Redis that goes and comes, processes that die."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid

import pytest
import redis

from producer_core import ReliableKafkaProducer
from producer_core.dedup import Claim, MessageDeduplicator, RedisBackend
from producer_core.errors import DedupError
from producer_core.testing import FakeClock, InMemoryTransport
from tests.conftest import answers, needs
from tests.support import eventually
from tests.unit.test_dedup import BackendContract

pytestmark = pytest.mark.redis


class OwnKeys:
    """A backend whose keys nobody else uses: the server is shared by all tests."""

    def __init__(self, backend):
        self._backend, self._prefix = backend, uuid.uuid4().hex

    def __getattr__(self, name):
        return lambda key, *more: getattr(self._backend, name)(self._prefix + key, *more)


class TestRedis(BackendContract):
    @pytest.fixture
    def backend(self, redis_server):
        with redis.Redis(port=redis_server) as client:
            backend = RedisBackend(client, ttl=2, claim_ttl=2)
            yield OwnKeys(backend)
            backend.close()

    @pytest.fixture
    def after(self):
        return lambda seconds, check: eventually(check, timeout=10)


class OwnRedis:
    """A redis-server of the test's own, which it may stop, freeze and start again on the same port."""

    def __init__(self, port):
        self.port, self.process = port, None

    def start(self):
        binary = needs("redis-server", "redis-server")
        self.process = subprocess.Popen(
            [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
            stdout=subprocess.DEVNULL,
        )
        eventually(lambda: answers(self.port))

    def stop(self):
        self.process.kill()
        self.process.wait(10)

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def own_redis():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = OwnRedis(port)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(own_redis):
    with redis.Redis(port=own_redis.port) as made:
        yield made


@pytest.fixture
def told():
    return []


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def dedup(client, told, clock):
    made = MessageDeduplicator(
        client, max_memory_size=3, on_degraded=lambda *seen: told.append(seen), clock=clock
    )
    yield made
    made._shared.close()


def test_two_producers_share_what_they_know(redis_server):
    with redis.Redis(port=redis_server) as client:
        one, other = MessageDeduplicator(client), MessageDeduplicator(client)
        value = {"order": uuid.uuid4().hex}
        assert not one.is_duplicate(value, "orders")
        assert other.is_duplicate(value, "orders")
        for dedup in (one, other):
            dedup._shared.close()


def test_without_redis_memory_finds_the_latest_duplicates_and_the_owner_hears_of_it_once(
    own_redis, dedup, told
):
    own_redis.stop()

    first = [dedup.is_duplicate({"n": number}, "orders") for number in range(5)]
    again = [dedup.is_duplicate({"n": number}, "orders") for number in (4, 3, 2)]

    assert first == [False] * 5
    assert again == [True] * 3
    assert dedup.get_stats()["memory_cache_size"] == 3
    assert dedup.get_stats()["degraded"]
    ((degraded, text),) = told
    assert degraded
    assert "Redis does not answer" in text


def test_a_redis_that_is_back_is_used_again_and_the_owner_hears_of_it_once(
    own_redis, dedup, told, clock, client
):
    own_redis.stop()
    dedup.is_duplicate({"n": 1}, "orders")
    own_redis.start()
    clock.advance(5)

    assert not dedup.is_duplicate({"n": 2}, "orders")

    assert len(client.keys("msg_dedup:orders:*")) == 1
    assert [degraded for degraded, _ in told] == [True, False]
    assert not dedup.degraded
    assert dedup.is_duplicate({"n": 1}, "orders")  # what memory learned meanwhile is not forgotten


def test_a_message_claimed_before_redis_went_away_is_not_sent_twice(own_redis, dedup):
    dedup.claim("d", "orders", "a")
    own_redis.stop()
    assert dedup.claim("d", "orders", "copy") is Claim.PENDING


def test_a_message_claimed_while_redis_was_away_is_not_sent_twice_when_it_is_back(own_redis, dedup, clock):
    own_redis.stop()
    assert dedup.claim("d", "orders", "a") is Claim.NEW
    own_redis.start()
    clock.advance(5)
    assert dedup.claim("d", "orders", "copy") is Claim.PENDING


def test_a_redis_that_hangs_is_left_alone_after_one_question(own_redis, dedup, told, client):
    own_redis.freeze()
    try:
        found = [dedup.is_duplicate({"n": number % 3}, "orders") for number in range(6)]
    finally:
        own_redis.thaw()
    assert found == [False] * 3 + [True] * 3
    assert len(told) == 1


def test_the_users_client_keeps_its_own_settings(client, dedup):
    assert client.connection_pool.connection_kwargs.get("socket_timeout") != 0.25
    assert client.connection_pool is not dedup._shared._redis.connection_pool
    client.set("mine", b"\xff")
    assert client.get("mine") == b"\xff"


def test_a_backend_without_redis_says_so(own_redis, client):
    backend = RedisBackend(client, ttl=1, claim_ttl=1)
    own_redis.stop()
    with pytest.raises(DedupError, match="Redis does not answer"):
        backend.claim("k", "a")
    backend.close()


CHILD = """
import sys, time, redis
from producer_core.dedup import MessageDeduplicator
dedup = MessageDeduplicator(redis.Redis(port=int(sys.argv[1])), claim_ttl=1.0)
print(dedup.claim("d", sys.argv[2], "child").value, flush=True)
time.sleep(60)
"""


def test_a_process_that_was_killed_does_not_hold_its_message_for_ever(redis_server):
    topic = f"orders-{uuid.uuid4().hex}"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(redis_server), topic], stdout=subprocess.PIPE, text=True
    )
    with redis.Redis(port=redis_server) as client:
        dedup = MessageDeduplicator(client, claim_ttl=1.0)
        try:
            assert child.stdout.readline().strip() == "new"
            assert dedup.claim("d", topic, "parent") is Claim.PENDING
        finally:
            child.kill()
            child.communicate()

        eventually(lambda: dedup.claim("d", topic, "parent") is Claim.NEW)
        dedup._shared.close()


def test_a_producer_over_redis_suppresses_what_another_delivered_and_goes_on_without_it(
    own_redis, client, caplog
):
    def make():
        return ReliableKafkaProducer(
            "memory:1",
            redis_client=client,
            enable_deduplication=True,
            store=None,
            transport=InMemoryTransport.factory(),
        )

    with make() as one, make() as other:
        one.send_message("orders", {"n": 1})
        one.flush(5)
        assert other.send_message("orders", {"n": 1}) is None

        own_redis.stop()
        assert other.send_message("orders", {"n": 2}) is not None
        other.flush(5)
        assert other.send_message("orders", {"n": 2}) is None
        assert other.get_stats()["deduplication_stats"]["degraded"]
    assert "degraded to memory" in caplog.text
