"""Claims and updates of a batch in Redis: the same results as one by one, in one round trip."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import uuid

import pytest
import redis

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.delivery import enqueue
from producer_core.delivery.dedup.claims import Claim, ClaimUpdate
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator, _key
from producer_core.delivery.dedup.redis_backend import RedisClaimBackend
from producer_core.delivery.delivery import AWAITING_DUPLICATE
from producer_core.testing import InMemoryTransport
from tests.conftest import answers, needs
from tests.integration.delivery.test_journal_feeder import crash, make, send, values
from tests.support import eventually

pytestmark = pytest.mark.redis


@pytest.fixture
def client(redis_server):
    with redis.Redis(port=redis_server) as opened:
        yield opened


@pytest.fixture
def backend(client):
    backend = RedisClaimBackend(client, ttl=60, claim_ttl=60)
    yield backend
    backend.close()


def keys(count):
    prefix = uuid.uuid4().hex
    return [f"{prefix}-{number}" for number in range(count)]


def test_a_batch_of_claims_has_the_same_results_as_single_claims(backend):
    free, held, done, own = keys(4)
    backend.claim(held, "other")
    backend.claim(own, "me")
    backend.confirm(done)

    results = backend.claim_many([(free, "me"), (held, "me"), (done, "me"), (own, "me")])

    assert results == [Claim.NEW, Claim.PENDING, Claim.DUPLICATE, Claim.NEW]
    assert backend.claim(free, "other") is Claim.PENDING


def test_a_batch_of_updates_has_the_same_effect_as_single_updates(backend):
    confirmed, mine, others, claimed = keys(4)
    backend.claim(mine, "me")
    backend.claim(others, "other")

    backend.apply(
        [
            (confirmed, ClaimUpdate("confirm")),
            (mine, ClaimUpdate("release", "me")),
            (others, ClaimUpdate("release", "me")),
            (claimed, ClaimUpdate("claim", "me")),
        ]
    )

    assert backend.confirmed(confirmed)
    assert backend.claim(mine, "next") is Claim.NEW
    assert backend.claim(others, "next") is Claim.PENDING
    assert backend.claim(claimed, "next") is Claim.PENDING


@pytest.fixture
def cluster_node(tmp_path):
    """Start a server that refuses scripts with keys of several slots, as sharding proxies do; yield a client."""
    with contextlib.closing(socket.socket()) as probe, contextlib.closing(socket.socket()) as other:
        probe.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, bus = probe.getsockname()[1], other.getsockname()[1]
    process = subprocess.Popen(
        [needs("redis-server", "redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", tmp_path,
         "--cluster-enabled", "yes", "--cluster-port", str(bus)],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually(lambda: answers(port))
        with redis.Redis(port=port, decode_responses=True) as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            eventually(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
            yield client
    finally:
        process.terminate()
        process.wait(10)


def test_with_keys_on_several_servers_each_script_takes_one_key(cluster_node):
    """Regression: CROSSSLOT counted as Redis being down, and duplicates of other processes were not detected."""
    backend = RedisClaimBackend(cluster_node, ttl=60, claim_ttl=60)
    try:
        test_a_batch_of_claims_has_the_same_results_as_single_claims(backend)
        test_a_batch_of_updates_has_the_same_effect_as_single_updates(backend)
    finally:
        backend.close()


def producer_on(client):
    made = []
    transport = InMemoryTransport.factory(made)
    producer = ReliableKafkaProducer(
        "memory:1", store=None, transport=transport, redis_client=client, enable_deduplication=True
    )
    return producer, made[0]


def test_two_producers_with_equal_batches_send_each_message_once(client):
    topic, values = f"orders-{uuid.uuid4().hex}", [{"n": number} for number in range(1_100)]
    first, log = producer_on(client)
    second, other = producer_on(client)

    sent = first.send_batch(topic, values)
    eventually(lambda: not first.deduplicator._outbox.waiting)
    again = second.send_batch(topic, [*values, {"n": "new"}])

    assert (sent["sent"], sent["duplicate"]) == (1_100, 0)
    assert (again["sent"], again["duplicate"]) == (1, 1_100)
    assert (len(log.log[topic]), len(other.log[topic])) == (1_100, 1)
    first.close()
    second.close()


def test_a_batch_is_claimed_without_redis_and_the_claims_are_queued(client, redis_server):
    changes = []
    with redis.Redis(port=1) as unreachable:
        dedup = MessageDeduplicator(unreachable, on_degraded=lambda degraded, text: changes.append(degraded))
        results = dedup.claim_many(
            [("a", "orders", b"x" * 24), ("b", "orders", b"y" * 24), ("a", "orders", b"z" * 24)]
        )

        assert results == [Claim.NEW, Claim.NEW, Claim.PENDING]
        assert changes == [True]
        assert dedup._outbox.waiting == 2
        dedup.close(0.1)


def test_a_claim_is_taken_over_from_a_later_duplicate_that_was_not_sent(client):
    first, later, other = (number.to_bytes(24) for number in (1, 2, 3))
    with redis.Redis(port=client.connection_pool.connection_kwargs["port"]) as other_client:
        dedup, another = MessageDeduplicator(client), MessageDeduplicator(other_client)
        (digest,) = keys(1)
        assert dedup.claim(digest, "orders", later) is Claim.NEW

        assert dedup.take_over(digest, "orders", first, lambda holder: holder != later) is False
        # this message is the later one
        assert dedup.take_over(digest, "orders", other, lambda holder: True) is False
        assert dedup.take_over(digest, "orders", first, lambda holder: holder == later) is True
        assert dedup.claim(digest, "orders", first) is Claim.NEW
        eventually(lambda: not dedup._outbox.waiting)

        assert dedup.claim(digest, "orders", later) is Claim.PENDING
        assert another.claim(digest, "orders", other) is Claim.PENDING
        assert another.take_over(digest, "orders", other, lambda holder: True) is False
        dedup.release(digest, "orders", first)
        eventually(lambda: another.claim(digest, "orders", other) is Claim.NEW)
        assert dedup.stats["cache_misses"] == 1
        dedup.close()
        another.close()


def test_two_equal_messages_of_a_crashed_producer_do_not_wait_for_each_other(client, tmp_path):
    """Regression: Redis had the claim of the later message and the lane started with the earlier one, so the key was blocked."""
    port = client.connection_pool.connection_kwargs["port"]

    def start(path, seconds, script=None, **memory):
        producer, transport = make(
            path, script, memory=memory, enable_deduplication=True, redis_client=redis.Redis(port=port)
        )
        producer.deduplicator._memory._claim_ttl = seconds
        producer.deduplicator._outbox._backend._claim_ttl_ms = int(seconds * 1000)
        return producer, transport

    key = uuid.uuid4().hex
    producer, _ = start(tmp_path / "j", 1.0, lambda delivery: "hold", capacity=1)
    send(producer, [0, 1], key=f"another {key}")  # in the client, and waiting for room in it
    send(producer, [2], key=key)
    time.sleep(1.2)
    producer.deduplicator._outbox._backend._claim_ttl_ms = 60_000
    send(producer, [2], key=key)
    crashed = crash(tmp_path / "j", tmp_path)

    again, second = start(crashed, 60.0)
    send(again, [3], key=key)
    assert again.flush(20) is None
    assert sorted(values(second)) == [0, 1, 2, 3]
    assert again.close().journaled == 0
    producer.close(timeout=0)


def test_a_message_in_its_lane_gets_the_claim_of_an_equal_one_without_room(client, tmp_path, monkeypatch):
    """Regression: the feeder renewed the claim forever, and only progress of the lane makes room, so the lane was blocked."""
    monkeypatch.setattr(enqueue, "_MAX_HELD", 3)
    failed, key, retry = [], uuid.uuid4().hex, RetryConfig(max_retries=3, initial_delay_ms=500, jitter=False)

    def once(delivery):
        if delivery.value == b"0" and not failed:
            failed.append(delivery)
            return "NOT_ENOUGH_REPLICAS"
        return None

    port = client.connection_pool.connection_kwargs["port"]
    producer, transport = make(
        tmp_path / "j", once, retry=retry, enable_deduplication=True, redis_client=redis.Redis(port=port)
    )
    another = MessageDeduplicator(redis.Redis(port=port), claim_ttl=60)
    send(producer, [0], key=key)
    eventually(lambda: failed and producer.retry_manager.pending == 1)
    (waiting,) = failed
    client.delete(_key("orders", waiting.checksum))  # its claim expired, and another process claims
    another.claim(waiting.checksum, "orders", "another process")
    eventually(lambda: waiting.state is AWAITING_DUPLICATE)
    send(producer, [1, 2, 3], key=key)
    another.release(waiting.checksum, "orders", "another process")
    eventually(lambda: client.get(_key("orders", waiting.checksum)) is None, every=0.0005)

    send(producer, [0], key=key)

    assert producer.flush(20) is None
    assert sorted(values(transport)) == [0, 1, 2, 3]
    producer.close()
    another.close()
