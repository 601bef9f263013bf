"""De-duplication: the contract of every backend, tested with memory here, and MessageDeduplicator."""

from __future__ import annotations

import math
import threading
import zlib

import pytest
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st

from producer_core.delivery.dedup.claims import Claim
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.dedup.memory_backend import MemoryClaimBackend
from producer_core.delivery.dedup.redis_backend import RedisClaimBackend
from producer_core.errors import ConfigError
from producer_core.testing import FakeClock

TTL, CLAIM_TTL = 60.0, 10.0


class BackendContract:
    """Tests the contract of a backend. A subclass provides the fixtures `backend` and `after(seconds, check)`."""

    def test_a_new_claim_is_new_and_stays_with_its_owner(self, backend):
        assert backend.claim("k", "a") is Claim.NEW
        assert backend.claim("k", "a") is Claim.NEW
        assert backend.claim("other", "b") is Claim.NEW

    def test_a_claim_of_a_key_that_another_owner_holds_is_pending(self, backend):
        backend.claim("k", "a")
        assert backend.claim("k", "b") is Claim.PENDING
        assert not backend.confirmed("k")

    def test_a_claim_of_a_confirmed_key_is_a_duplicate(self, backend):
        backend.claim("k", "a")
        backend.confirm("k")
        assert backend.claim("k", "b") is Claim.DUPLICATE
        assert backend.claim("k", "a") is Claim.DUPLICATE
        assert backend.confirmed("k")

    def test_a_released_key_can_be_claimed_at_once(self, backend):
        backend.claim("k", "a")
        backend.release("k", "a")
        assert backend.claim("k", "b") is Claim.NEW

    def test_a_release_by_another_owner_has_no_effect(self, backend):
        backend.claim("k", "a")
        backend.release("k", "b")
        assert backend.claim("k", "b") is Claim.PENDING

    def test_a_confirmed_key_cannot_be_released(self, backend):
        backend.claim("k", "a")
        backend.confirm("k")
        backend.release("k", "a")
        assert backend.claim("k", "b") is Claim.DUPLICATE

    def test_a_claim_expires_after_its_ttl(self, backend, after):
        backend.claim("k", "a")
        after(CLAIM_TTL, lambda: backend.claim("k", "b") is Claim.NEW)

    def test_a_confirmed_key_expires_after_its_ttl(self, backend, after):
        backend.confirm("k")
        after(TTL, lambda: not backend.confirmed("k"))
        assert backend.claim("k", "b") is Claim.NEW

    def test_one_of_several_concurrent_claims_is_new(self, backend):
        results, ready = [], threading.Barrier(8)

        def claim(owner):
            ready.wait()
            results.append(backend.claim("k", owner))

        threads = [threading.Thread(target=claim, args=(f"owner-{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(claim.value for claim in results) == ["new"] + ["pending"] * 7


@pytest.fixture
def clock():
    return FakeClock()


class TestMemory(BackendContract):
    @pytest.fixture
    def backend(self, clock):
        return MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=100, clock=clock)

    @pytest.fixture
    def after(self, clock):
        def advance_and_check(seconds, check):
            clock.advance(seconds - 0.01)
            assert not check()
            clock.advance(0.02)
            assert check()

        return advance_and_check

    def test_a_renewed_claim_gets_its_full_ttl(self, backend, clock):
        backend.claim("k", "a")
        clock.advance(CLAIM_TTL - 1)
        backend.claim("k", "a")
        clock.advance(CLAIM_TTL - 1)
        assert backend.claim("k", "b") is Claim.PENDING

    def test_the_oldest_confirmed_key_is_dropped_and_never_a_pending_claim(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=2, clock=clock)
        backend.claim("pending", "a")
        for key in "xyz":
            backend.confirm(key)
        assert [backend.confirmed(key) for key in "xyz"] == [False, True, True]
        assert backend.claim("pending", "b") is Claim.PENDING
        assert len(backend) == 2

    def test_memory_keeps_the_latest_confirmed_keys_and_hardly_more(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=128, clock=clock)
        for first in range(0, 1_000, 10):
            backend.confirm_many([f"k{number}" for number in range(first, first + 10)])
            assert all(backend.confirmed(f"k{number}") for number in range(max(0, first - 118), first + 10))
            assert len(backend) == len(backend._entries) <= 130

    def test_expired_entries_use_no_memory(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=100, clock=clock)
        backend.claim("ambiguous", "a")
        backend.confirm("acknowledged")
        clock.advance(CLAIM_TTL)
        backend.claim("another", "a")
        assert [*backend._entries] == ["acknowledged", "another"]
        clock.advance(TTL)
        backend.claim("and another", "a")
        assert [*backend._entries] == ["and another"]

    def test_a_key_that_is_confirmed_again_gets_its_full_ttl(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=100, clock=clock)
        backend.confirm("k")
        clock.advance(TTL - 1)
        backend.confirm("k")
        clock.advance(2)
        backend.claim("another", "a")
        assert backend.claim("k", "b") is Claim.DUPLICATE


# MessageDeduplicator


def test_an_equal_message_is_a_duplicate_whatever_its_time_fields():
    dedup = MessageDeduplicator()
    assert not dedup.is_duplicate({"n": 1, "timestamp": "now", "message_id": 1}, "orders")
    assert dedup.is_duplicate({"timestamp": "later", "message_id": 2, "n": 1}, "orders")
    assert not dedup.is_duplicate({"n": 1}, "refunds")
    assert not dedup.is_duplicate({"n": 2}, "orders")


def test_the_ignored_fields_are_configurable():
    dedup = MessageDeduplicator(ignored_fields=("at",))
    assert not dedup.is_duplicate({"n": 1, "timestamp": 1, "at": 1}, "orders")
    assert dedup.is_duplicate({"n": 1, "timestamp": 1, "at": 2}, "orders")
    assert not dedup.is_duplicate({"n": 1, "timestamp": 2, "at": 1}, "orders")


def test_a_full_memory_drops_the_oldest_and_still_finds_the_newest():
    dedup = MessageDeduplicator(max_memory_size=1)
    dedup.is_duplicate({"n": 1}, "orders")
    dedup.is_duplicate({"n": 2}, "orders")
    assert dedup.is_duplicate({"n": 2}, "orders")  # regression: every later duplicate was missed
    assert dedup.get_stats()["memory_cache_size"] == 1


def test_an_equal_message_is_new_after_the_ttl():
    clock = FakeClock()
    dedup = MessageDeduplicator(ttl_seconds=60, clock=clock)
    dedup.is_duplicate({"n": 1}, "orders")
    clock.advance(60)
    assert not dedup.is_duplicate({"n": 1}, "orders")


def test_one_of_several_threads_with_equal_messages_gets_false():
    for number in range(50):
        dedup, answers, ready = MessageDeduplicator(), [], threading.Barrier(4)

        def check(dedup=dedup, answers=answers, ready=ready, number=number):
            ready.wait()
            answers.append(dedup.is_duplicate({"n": number}, "orders"))

        threads = [threading.Thread(target=check) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [False, True, True, True]


def test_the_statistics_count_each_message_once():
    dedup = MessageDeduplicator()
    dedup.claim("d", "orders", "a")
    for _ in range(5):
        dedup.claim("d", "orders", "duplicate")  # a held duplicate claims repeatedly
    dedup.claim("d", "orders", "a")  # a retry renews its claim
    dedup.confirm("d", "orders")
    dedup.claim("d", "orders", "duplicate")

    stats = dedup.get_stats()
    assert {name: stats[name] for name in stats if name != "degraded"} == {
        "total_checked": 2,
        "duplicates_found": 1,
        "cache_hits": 1,
        "cache_misses": 1,
        "memory_cache_size": 1,
        "duplicate_rate": 0.5,
        "cache_hit_rate": 0.5,
    }


def test_rates_are_zero_without_messages():
    stats = MessageDeduplicator().get_stats()
    assert (stats["duplicate_rate"], stats["cache_hit_rate"], stats["degraded"]) == (0.0, 0.0, False)


def test_an_ambiguous_message_holds_back_its_duplicates_for_the_claim_ttl():
    clock = FakeClock()
    dedup = MessageDeduplicator(claim_ttl=150, clock=clock)
    dedup.claim("d", "orders", "ambiguous")
    assert dedup.claim("d", "orders", "duplicate") is Claim.PENDING
    clock.advance(150)
    assert dedup.claim("d", "orders", "duplicate") is Claim.NEW


@pytest.mark.parametrize("client", [None, redis.Redis(port=1)], ids=["memory", "Redis down"])
def test_the_claim_of_a_pending_message_does_not_expire(client):
    clock = FakeClock()
    dedup = MessageDeduplicator(client, claim_ttl=150, clock=clock)
    pending = {b"first"}
    dedup.pending = pending.__contains__
    dedup.claim("d", "orders", b"first")
    for _ in range(3):
        clock.advance(150)
        dedup.claim("another", "orders", b"other")
        assert dedup.claim("d", "orders", b"duplicate") is Claim.PENDING
    pending.clear()
    assert dedup.claim("d", "orders", b"duplicate") is Claim.NEW
    dedup.close()


def test_a_prolonged_claim_holds_back_duplicates_for_its_full_ttl():
    clock = FakeClock()
    dedup = MessageDeduplicator(claim_ttl=150, clock=clock)
    dedup.claim("d", "orders", b"first")
    clock.advance(149)
    dedup.prolong("d", b"first")
    dedup.prolong("d", b"duplicate")
    clock.advance(149)
    assert dedup.claim("d", "orders", b"duplicate") is Claim.PENDING
    clock.advance(1)
    assert dedup.claim("d", "orders", b"duplicate") is Claim.NEW


@pytest.mark.parametrize(
    "client", [object(), "redis://localhost:6379/0", redis.asyncio.Redis()], ids=["object", "url", "asyncio"]
)
def test_an_invalid_redis_client_is_refused_at_once(client):
    with pytest.raises(ConfigError, match=r"must be a redis\.Redis"):
        MessageDeduplicator(client)


def test_a_release_of_a_duplicate_keeps_the_queued_claim_of_its_original():
    """Regression: Redis did not receive the claim when it was back, and another process sent the message too."""
    client = redis.Redis(port=1)
    dedup = MessageDeduplicator(client)
    assert dedup.claim("d", "orders", b"first") is Claim.NEW
    assert dedup.claim("d", "orders", b"duplicate") is Claim.PENDING
    dedup.release("d", "orders", b"duplicate")

    ((_, update),) = dedup._outbox._updates.values()
    assert (update.kind, update.owner) == ("claim", b"first".hex())
    dedup.close()
    client.close()


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


def test_an_exception_in_the_callback_does_not_stop_the_message(caplog):
    client = redis.Redis(port=1)
    dedup = MessageDeduplicator(client, on_degraded=lambda degraded, text: 1 / 0)
    assert not dedup.is_duplicate({"n": 1}, "orders")
    assert dedup.is_duplicate({"n": 1}, "orders")
    assert "de-duplication callback failed" in caplog.text
    dedup.close()
    client.close()


def test_the_claim_of_a_message_without_a_delivery_timeout_lasts_for_a_day():
    clock = FakeClock()  # regression: with delivery_timeout_ms=0 a claim expired after 30 s
    dedup = MessageDeduplicator(claim_ttl=math.inf, clock=clock)
    dedup.claim("d", "orders", "a")
    clock.advance(86_399)
    assert dedup.claim("d", "orders", "duplicate") is Claim.PENDING
    clock.advance(1)
    assert dedup.claim("d", "orders", "duplicate") is Claim.NEW


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "confirm", "release", "wait"]), st.sampled_from("ab"), st.integers(0, 3)
    ),
    max_size=40,
)


@given(STEPS)
def test_two_owners_never_hold_the_same_key(steps):
    clock = FakeClock()
    backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=2, clock=clock)
    holder = {}  # key -> (owner, until)
    for step, owner, number in steps:
        key = f"k{number}"
        if step == "claim" and backend.claim(key, owner) is Claim.NEW:
            assert key not in holder or holder[key][0] == owner or holder[key][1] <= clock()
            holder[key] = owner, clock() + CLAIM_TTL
        elif step == "confirm":
            backend.confirm(key)
            holder.pop(key, None)
        elif step == "release":
            backend.release(key, owner)
            if key in holder and holder[key][0] == owner:
                del holder[key]
        elif step == "wait":
            clock.advance(number)
