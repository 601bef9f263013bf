"""A batch whose claims are asked for in Redis together: what one by one would find, in one round trip."""

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
from tests.services.test_backlog import crash, make, send, values
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


def test_claims_together_find_what_each_would_find_alone(backend):
    free, held, done, own = keys(4)
    backend.claim(held, "somebody")
    backend.claim(own, "me")
    backend.confirm(done)

    found = backend.claim_many([(free, "me"), (held, "me"), (done, "me"), (own, "me")])

    assert found == [Claim.NEW, Claim.PENDING, Claim.DUPLICATE, Claim.NEW]
    assert backend.claim(free, "somebody") is Claim.PENDING


def test_words_told_together_each_do_what_they_say(backend):
    confirmed, mine, others, claimed = keys(4)
    backend.claim(mine, "me")
    backend.claim(others, "somebody")

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
    """A server that refuses scripts over keys of several slots, as sharding proxies do: its port."""
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


def test_where_keys_are_spread_each_is_asked_for_alone(cluster_node):
    """CROSSSLOT: the batch took Redis for gone, and nothing was de-duplicated between processes."""
    spread = RedisClaimBackend(cluster_node, ttl=60, claim_ttl=60)
    try:
        test_claims_together_find_what_each_would_find_alone(spread)
        test_words_told_together_each_do_what_they_say(spread)
    finally:
        spread.close()


def producer_on(client):
    made = []
    transport = InMemoryTransport.factory(made)
    producer = ReliableKafkaProducer(
        "memory:1", store=None, transport=transport, redis_client=client, enable_deduplication=True
    )
    return producer, made[0]


def test_of_two_producers_with_equal_batches_each_message_is_sent_once(client):
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


def test_a_batch_is_sent_without_redis_and_tells_it_later(client, redis_server):
    told = []
    with redis.Redis(port=1) as gone:
        dedup = MessageDeduplicator(gone, on_degraded=lambda degraded, text: told.append(degraded))
        found = dedup.claim_many(
            [("a", "orders", b"x" * 24), ("b", "orders", b"y" * 24), ("a", "orders", b"z" * 24)]
        )

        assert found == [Claim.NEW, Claim.NEW, Claim.PENDING]
        assert told == [True]
        assert dedup._outbox.waiting == 2
        dedup.close(0.1)


def test_a_claim_is_taken_over_from_a_later_copy_that_was_not_sent(client):
    first, later, other = (number.to_bytes(24) for number in (1, 2, 3))
    with redis.Redis(port=client.connection_pool.connection_kwargs["port"]) as elsewhere:
        dedup, another = MessageDeduplicator(client), MessageDeduplicator(elsewhere)
        (digest,) = keys(1)
        assert dedup.claim(digest, "orders", later) is Claim.NEW

        assert dedup.take_over(digest, "orders", first, lambda holder: holder != later) is False
        assert dedup.take_over(digest, "orders", other, lambda holder: True) is False  # it came later itself
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


def test_two_equal_messages_that_a_crashed_producer_left_do_not_wait_for_each_other(client, tmp_path):
    """Redis has the claim of the later one, the lane begins with the earlier one: the key stood still."""
    own = client.connection_pool.connection_kwargs["port"]

    def start(path, seconds, script=None, **memory):
        producer, transport = make(
            path, script, memory=memory, enable_deduplication=True, redis_client=redis.Redis(port=own)
        )
        producer.deduplicator._memory._claim_ttl = seconds
        producer.deduplicator._outbox._backend._claim_ttl_ms = int(seconds * 1000)
        return producer, transport

    key = uuid.uuid4().hex
    producer, _ = start(tmp_path / "j", 1.0, lambda delivery: "hold", capacity=1)
    send(producer, [0, 1], key=f"another {key}")  # with the client, and waiting for room there
    send(producer, [2], key=key)
    time.sleep(1.2)
    producer.deduplicator._outbox._backend._claim_ttl_ms = 60_000
    send(producer, [2], key=key)
    left = crash(tmp_path / "j", tmp_path)

    again, second = start(left, 60.0)
    send(again, [3], key=key)
    assert again.flush(20) is None
    assert sorted(values(second)) == [0, 1, 2, 3]
    assert again.close().journaled == 0
    producer.close(timeout=0)


def test_a_message_that_waits_in_its_lane_gets_the_claim_of_an_equal_one_that_finds_no_room(
    client, tmp_path, monkeypatch
):
    """Room comes only when the lane moves, and the feeder renewed that claim for ever: all of it stood still."""
    monkeypatch.setattr(enqueue, "_MAX_HELD", 3)
    failed, key, retry = [], uuid.uuid4().hex, RetryConfig(max_retries=3, initial_delay_ms=500, jitter=False)

    def once(delivery):
        if delivery.value == b"0" and not failed:
            failed.append(delivery)
            return "NOT_ENOUGH_REPLICAS"
        return None

    own = client.connection_pool.connection_kwargs["port"]
    producer, transport = make(
        tmp_path / "j", once, retry=retry, enable_deduplication=True, redis_client=redis.Redis(port=own)
    )
    another = MessageDeduplicator(redis.Redis(port=own), claim_ttl=60)
    send(producer, [0], key=key)
    eventually(lambda: failed and producer.retry_manager.pending == 1)
    (waiting,) = failed
    client.delete(_key("orders", waiting.checksum))  # its claim ran out, and another process has it
    another.claim(waiting.checksum, "orders", "another process")
    eventually(lambda: waiting.place is AWAITING_DUPLICATE)
    send(producer, [1, 2, 3], key=key)
    another.release(waiting.checksum, "orders", "another process")
    eventually(lambda: client.get(_key("orders", waiting.checksum)) is None, every=0.0005)

    send(producer, [0], key=key)

    assert producer.flush(20) is None
    assert sorted(values(transport)) == [0, 1, 2, 3]
    producer.close()
    another.close()
