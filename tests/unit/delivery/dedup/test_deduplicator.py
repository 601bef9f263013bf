"""Deduplication: the contract of every backend, tested with memory here, and MessageDeduplicator."""

from __future__ import annotations

import math
import threading

import pytest
import redis.asyncio

from producer_core.delivery.dedup.claims import Claim
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.errors import ConfigError
from producer_core.testing import FakeClock


def test_an_equal_message_is_a_duplicate_regardless_of_its_time_fields():
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


@pytest.mark.slow
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


def test_an_exception_in_the_callback_does_not_stop_the_message(caplog):
    client = redis.Redis(port=1)
    dedup = MessageDeduplicator(client, on_degraded=lambda degraded, text: 1 / 0)
    assert not dedup.is_duplicate({"n": 1}, "orders")
    assert dedup.is_duplicate({"n": 1}, "orders")
    assert "deduplication callback failed" in caplog.text
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
