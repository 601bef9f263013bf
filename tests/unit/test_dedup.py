"""De-duplication: one contract for every backend, here with memory; and what users see of it."""

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
    """What every backend promises. A subclass offers `backend`, and `after` that lets time pass and then looks."""

    def test_a_new_claim_is_new_and_stays_its_owners(self, backend):
        assert backend.claim("k", "a") is Claim.NEW
        assert backend.claim("k", "a") is Claim.NEW
        assert backend.claim("other", "b") is Claim.NEW

    def test_a_copy_of_what_is_being_sent_is_pending_and_not_a_duplicate(self, backend):
        backend.claim("k", "a")
        assert backend.claim("k", "b") is Claim.PENDING
        assert not backend.confirmed("k")

    def test_a_copy_of_what_was_acknowledged_is_a_duplicate(self, backend):
        backend.claim("k", "a")
        backend.confirm("k")
        assert backend.claim("k", "b") is Claim.DUPLICATE
        assert backend.claim("k", "a") is Claim.DUPLICATE
        assert backend.confirmed("k")

    def test_a_message_that_failed_can_be_sent_again_at_once(self, backend):
        backend.claim("k", "a")
        backend.release("k", "a")
        assert backend.claim("k", "b") is Claim.NEW

    def test_nobody_releases_the_claim_of_another(self, backend):
        backend.claim("k", "a")
        backend.release("k", "b")
        assert backend.claim("k", "b") is Claim.PENDING

    def test_what_is_confirmed_cannot_be_released(self, backend):
        backend.claim("k", "a")
        backend.confirm("k")
        backend.release("k", "a")
        assert backend.claim("k", "b") is Claim.DUPLICATE

    def test_a_claim_that_is_neither_confirmed_nor_released_expires(self, backend, after):
        backend.claim("k", "a")
        after(CLAIM_TTL, lambda: backend.claim("k", "b") is Claim.NEW)

    def test_a_confirmed_message_is_forgotten_after_its_time(self, backend, after):
        backend.confirm("k")
        after(TTL, lambda: not backend.confirmed("k"))
        assert backend.claim("k", "b") is Claim.NEW

    def test_of_many_claims_at_the_same_time_one_is_new(self, backend):
        found, ready = [], threading.Barrier(8)

        def claim(owner):
            ready.wait()
            found.append(backend.claim("k", owner))

        threads = [threading.Thread(target=claim, args=(f"owner-{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(claim.value for claim in found) == ["new"] + ["pending"] * 7


@pytest.fixture
def clock():
    return FakeClock()


class TestMemory(BackendContract):
    @pytest.fixture
    def backend(self, clock):
        return MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=100, clock=clock)

    @pytest.fixture
    def after(self, clock):
        def look(seconds, check):
            clock.advance(seconds - 0.01)
            assert not check()
            clock.advance(0.02)
            assert check()

        return look

    def test_renewing_a_claim_gives_it_its_whole_time_again(self, backend, clock):
        backend.claim("k", "a")
        clock.advance(CLAIM_TTL - 1)
        backend.claim("k", "a")
        clock.advance(CLAIM_TTL - 1)
        assert backend.claim("k", "b") is Claim.PENDING

    def test_it_forgets_the_oldest_and_never_what_is_being_sent(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=2, clock=clock)
        backend.claim("pending", "a")
        for key in "xyz":
            backend.confirm(key)
        assert [backend.confirmed(key) for key in "xyz"] == [False, True, True]
        assert backend.claim("pending", "b") is Claim.PENDING
        assert len(backend) == 2

    def test_however_many_are_confirmed_together_memory_keeps_the_latest_and_hardly_more(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=128, clock=clock)
        for first in range(0, 1_000, 10):
            backend.confirm_many([f"k{number}" for number in range(first, first + 10)])
            assert all(backend.confirmed(f"k{number}") for number in range(max(0, first - 118), first + 10))
            assert len(backend) == len(backend._entries) <= 130

    def test_what_has_expired_takes_no_memory(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=100, clock=clock)
        backend.claim("in doubt", "a")
        backend.confirm("acknowledged")
        clock.advance(CLAIM_TTL)
        backend.claim("another", "a")
        assert [*backend._entries] == ["acknowledged", "another"]
        clock.advance(TTL)
        backend.claim("and another", "a")
        assert [*backend._entries] == ["and another"]

    def test_what_is_confirmed_again_is_remembered_its_whole_time_again(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=100, clock=clock)
        backend.confirm("k")
        clock.advance(TTL - 1)
        backend.confirm("k")
        clock.advance(2)
        backend.claim("another", "a")
        assert backend.claim("k", "b") is Claim.DUPLICATE


# the contract's face


def test_a_second_copy_is_a_duplicate_whatever_its_time_fields_say():
    dedup = MessageDeduplicator()
    assert not dedup.is_duplicate({"n": 1, "timestamp": "now", "message_id": 1}, "orders")
    assert dedup.is_duplicate({"timestamp": "later", "message_id": 2, "n": 1}, "orders")
    assert not dedup.is_duplicate({"n": 1}, "refunds")
    assert not dedup.is_duplicate({"n": 2}, "orders")


def test_the_ignored_fields_are_settable():
    dedup = MessageDeduplicator(ignored_fields=("at",))
    assert not dedup.is_duplicate({"n": 1, "timestamp": 1, "at": 1}, "orders")
    assert dedup.is_duplicate({"n": 1, "timestamp": 1, "at": 2}, "orders")
    assert not dedup.is_duplicate({"n": 1, "timestamp": 2, "at": 1}, "orders")


def test_a_full_memory_forgets_the_oldest_and_still_finds_the_newest():
    dedup = MessageDeduplicator(max_memory_size=1)
    dedup.is_duplicate({"n": 1}, "orders")
    dedup.is_duplicate({"n": 2}, "orders")
    assert dedup.is_duplicate({"n": 2}, "orders")  # it let every later duplicate through
    assert dedup.get_stats()["memory_cache_size"] == 1


def test_a_copy_is_sent_again_after_the_ttl():
    clock = FakeClock()
    dedup = MessageDeduplicator(ttl_seconds=60, clock=clock)
    dedup.is_duplicate({"n": 1}, "orders")
    clock.advance(60)
    assert not dedup.is_duplicate({"n": 1}, "orders")


def test_of_two_threads_with_equal_messages_one_is_told_to_send():
    for number in range(50):
        dedup, told, ready = MessageDeduplicator(), [], threading.Barrier(4)

        def ask(dedup=dedup, told=told, ready=ready, number=number):
            ready.wait()
            told.append(dedup.is_duplicate({"n": number}, "orders"))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(told) == [False, True, True, True]


def test_the_statistics_count_each_message_once():
    dedup = MessageDeduplicator()
    dedup.claim("d", "orders", "a")
    for _ in range(5):
        dedup.claim("d", "orders", "copy")  # held: it asks again and again
    dedup.claim("d", "orders", "a")  # a retry renews its claim
    dedup.confirm("d", "orders")
    dedup.claim("d", "orders", "copy")

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


def test_rates_of_nothing_are_zero():
    stats = MessageDeduplicator().get_stats()
    assert (stats["duplicate_rate"], stats["cache_hit_rate"], stats["degraded"]) == (0.0, 0.0, False)


def test_a_message_in_doubt_does_not_hold_its_copies_back_for_ever():
    clock = FakeClock()
    dedup = MessageDeduplicator(claim_ttl=150, clock=clock)
    dedup.claim("d", "orders", "dead, possibly persisted")
    assert dedup.claim("d", "orders", "copy") is Claim.PENDING
    clock.advance(150)
    assert dedup.claim("d", "orders", "copy") is Claim.NEW


@pytest.mark.parametrize("client", [None, redis.Redis(port=1)], ids=["memory", "Redis gone"])
def test_the_claim_of_a_message_that_is_on_its_way_does_not_run_out(client):
    clock = FakeClock()
    dedup = MessageDeduplicator(client, claim_ttl=150, clock=clock)
    pending = {b"first"}
    dedup.pending = pending.__contains__
    dedup.claim("d", "orders", b"first")
    for _ in range(3):
        clock.advance(150)
        dedup.claim("another", "orders", b"sweeps")
        assert dedup.claim("d", "orders", b"copy") is Claim.PENDING
    pending.clear()
    assert dedup.claim("d", "orders", b"copy") is Claim.NEW
    dedup.close()


def test_a_message_that_is_in_doubt_after_a_long_time_holds_its_copies_back_from_then_on():
    clock = FakeClock()
    dedup = MessageDeduplicator(claim_ttl=150, clock=clock)
    dedup.claim("d", "orders", b"first")
    clock.advance(149)
    dedup.prolong("d", b"first")
    dedup.prolong("d", b"copy")
    clock.advance(149)
    assert dedup.claim("d", "orders", b"copy") is Claim.PENDING
    clock.advance(1)
    assert dedup.claim("d", "orders", b"copy") is Claim.NEW


@pytest.mark.parametrize(
    "client", [object(), "redis://localhost:6379/0", redis.asyncio.Redis()], ids=["object", "url", "asyncio"]
)
def test_what_is_no_redis_client_is_an_error_at_once(client):
    with pytest.raises(ConfigError, match=r"must be a redis\.Redis"):
        MessageDeduplicator(client)


def test_a_copy_that_is_let_go_leaves_the_claim_of_the_first_to_be_told():
    """Redis was gone, and when it was back it heard of no claim: another process sent the message beside it."""
    nobody = redis.Redis(port=1)
    dedup = MessageDeduplicator(nobody)
    assert dedup.claim("d", "orders", b"first") is Claim.NEW
    assert dedup.claim("d", "orders", b"copy") is Claim.PENDING
    dedup.release("d", "orders", b"copy")

    ((_, word),) = dedup._outbox._updates.values()
    assert (word.kind, word.owner) == ("claim", b"first".hex())
    dedup.close()
    nobody.close()


class Spread:
    """Behind a proxy that sends a script to the server of its first key, whatever the others are."""

    def __init__(self, servers):
        self._servers = [{} for _ in range(servers)]
        self._asked = []

    def _server(self, key):
        return self._servers[zlib.crc32(key.encode()) % len(self._servers)]

    def eval(self, script, count, *given):
        self._server(given[0]).update(dict.fromkeys(given[:count], "1"))

    def pipeline(self, transaction):
        return self

    def get(self, key):
        self._asked.append(self._server(key).get(key))

    def delete(self, key):
        self._asked.append(1)

    def execute(self):
        return self._asked


@pytest.mark.parametrize(("servers", "one_place"), [(1, True), (3, False)])
def test_keys_that_lie_on_several_servers_are_not_asked_for_together(servers, one_place):
    with redis.Redis(port=1) as nobody:
        backend = RedisClaimBackend(nobody, ttl=60, claim_ttl=60)
        backend._redis = Spread(servers)

        assert backend._accepts_many_keys() is one_place


def test_a_callback_that_fails_does_not_stop_the_message(caplog):
    nobody = redis.Redis(port=1)
    dedup = MessageDeduplicator(nobody, on_degraded=lambda degraded, text: 1 / 0)
    assert not dedup.is_duplicate({"n": 1}, "orders")
    assert dedup.is_duplicate({"n": 1}, "orders")
    assert "de-duplication callback failed" in caplog.text
    dedup.close()
    nobody.close()


def test_a_message_that_never_times_out_keeps_its_claim_for_a_day_and_not_for_ever():
    clock = FakeClock()  # delivery_timeout_ms=0: the claim lived 30 s, then a copy was sent beside it
    dedup = MessageDeduplicator(claim_ttl=math.inf, clock=clock)
    dedup.claim("d", "orders", "a")
    clock.advance(86_399)
    assert dedup.claim("d", "orders", "copy") is Claim.PENDING
    clock.advance(1)
    assert dedup.claim("d", "orders", "copy") is Claim.NEW


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "confirm", "release", "wait"]), st.sampled_from("ab"), st.integers(0, 3)
    ),
    max_size=40,
)


@given(STEPS)
def test_at_no_time_do_two_owners_hold_one_key(steps):
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
