"""Deduplication with a real Redis: the contract of the backends, outages of Redis, and killed processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter

import pytest
import redis
from confluent_kafka import Consumer, TopicPartition

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.delivery.dedup.claims import Claim
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.dedup.redis_backend import RedisClaimBackend
from producer_core.errors import DedupError
from producer_core.events import Hook
from producer_core.messages import checksum
from producer_core.testing import InMemoryTransport
from tests.conftest import answers, needs
from tests.fixtures.claims import BackendContract
from tests.support import eventually

pytestmark = pytest.mark.redis


class OwnKeys:
    """Wraps a backend and prefixes its keys, because all tests share the server."""

    def __init__(self, backend):
        self._backend, self._prefix = backend, uuid.uuid4().hex

    def __getattr__(self, name):
        return lambda key, *args: getattr(self._backend, name)(self._prefix + key, *args)


class TestRedis(BackendContract):
    @pytest.fixture
    def backend(self, redis_server):
        with redis.Redis(port=redis_server) as client:
            backend = RedisClaimBackend(client, ttl=2, claim_ttl=2)
            yield OwnKeys(backend)
            backend.close()

    @pytest.fixture
    def after(self):
        return lambda seconds, check: eventually(check, timeout=60)


class OwnRedis:
    """Controls a redis-server of the test: stop, freeze and start it again on the same port."""

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
        self.process.wait(60)

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
    with redis.Redis(port=own_redis.port) as opened:
        yield opened


@pytest.fixture
def changes():
    return []


@pytest.fixture(autouse=True)
def short_retry_interval(monkeypatch):
    monkeypatch.setattr("producer_core.delivery.dedup.redis_fallback._RETRY_INTERVAL", 0.2)


@pytest.fixture
def dedup(client, changes):
    opened = MessageDeduplicator(
        client, max_memory_size=3, on_degraded=lambda *change: changes.append(change)
    )
    yield opened
    opened.close()


def test_two_producers_share_their_confirmed_messages(redis_server):
    with redis.Redis(port=redis_server) as client:
        one, other = MessageDeduplicator(client), MessageDeduplicator(client)
        value = {"order": uuid.uuid4().hex}
        assert not one.is_duplicate(value, "orders")
        assert other.is_duplicate(value, "orders")
        for dedup in (one, other):
            dedup.close()


def test_without_redis_memory_detects_duplicates_and_the_callback_is_called_once(own_redis, dedup, changes):
    own_redis.stop()

    first = [dedup.is_duplicate({"n": number}, "orders") for number in range(5)]
    again = [dedup.is_duplicate({"n": number}, "orders") for number in (4, 3, 2)]

    assert first == [False] * 5
    assert again == [True] * 3
    assert dedup.get_stats()["memory_cache_size"] == 3
    assert dedup.get_stats()["degraded"]
    ((degraded, text),) = changes
    assert degraded
    assert "Redis is not responding" in text


def keys(client):
    """Return the keys in Redis with their values: "1" if confirmed, "p:owner" if claimed."""
    known = {key.decode(): client.get(key) for key in client.keys("msg_dedup:*")}
    # A key may expire between the two commands.
    return {key: value.decode() for key, value in known.items() if value is not None}


def test_a_recovered_redis_is_used_again_and_receives_missed_updates(own_redis, dedup, changes, client):
    own_redis.stop()
    assert not dedup.is_duplicate({"n": 1}, "orders")
    assert dedup.claim("sending", "orders", "me") is Claim.NEW
    assert dedup.claim("failed", "orders", "me") is Claim.NEW
    dedup.release("failed", "orders", "me")
    own_redis.start()

    eventually(lambda: len(changes) == 2 and len(keys(client)) == 2, timeout=60)

    digest = dedup.checksum("orders", None, {"n": 1})
    assert keys(client) == {f"msg_dedup:orders:{digest}": "1", "msg_dedup:orders:sending": "p:me"}
    assert not dedup.degraded
    assert [degraded for degraded, _ in changes] == [True, False]
    other = MessageDeduplicator(client)
    assert other.is_duplicate({"n": 1}, "orders")
    assert other.claim("sending", "orders", "other") is Claim.PENDING
    assert other.claim("failed", "orders", "other") is Claim.NEW
    other.close()


def test_memory_detects_duplicates_after_redis_lost_its_data(own_redis, dedup):
    assert not dedup.is_duplicate({"n": 1}, "orders")
    own_redis.stop()
    own_redis.start()
    assert dedup.is_duplicate({"n": 1}, "orders")


def test_a_confirmation_does_not_wait_for_redis(own_redis, dedup, client):
    callers, call = set(), dedup._outbox._backend._call
    dedup._outbox._backend._call = lambda command: callers.add(threading.current_thread()) or call(command)
    for number in range(3):
        dedup.claim(f"d{number}", "orders", "me")
    assert callers == {threading.current_thread()}
    callers.clear()
    own_redis.freeze()
    try:
        for number in range(2):
            dedup.confirm(f"d{number}", "orders")
        dedup.release("d2", "orders", "me")
    finally:
        own_redis.thaw()
    eventually(lambda: set(keys(client).values()) == {"1"} and len(keys(client)) == 2, timeout=60)
    assert {thread.name for thread in callers} == {"producer-core-dedup"}


def test_the_latest_update_of_a_key_reaches_redis_after_an_outage(own_redis, dedup, client):
    own_redis.stop()
    dedup.claim("d", "orders", "me")
    dedup.confirm("d", "orders")
    dedup.release("d", "orders", "another owner")  # a release by another owner has no effect
    own_redis.start()
    eventually(lambda: keys(client) == {"msg_dedup:orders:d": "1"}, timeout=60)


def test_a_released_key_can_be_claimed_again_at_once(own_redis, dedup):
    for number in range(50):
        assert dedup.claim("d", "orders", f"owner {number}") is Claim.NEW
        dedup.release("d", "orders", f"owner {number}")


def test_the_outbox_is_bounded(own_redis, dedup):
    own_redis.stop()
    for number in range(10):
        dedup.claim(f"d{number}", "orders", "me")
        dedup.confirm(f"d{number}", "orders")
    assert dedup._outbox.waiting == 3  # max_memory_size


def test_close_sends_the_queued_updates(own_redis, client):
    dedup = MessageDeduplicator(client)
    for number in range(1000):
        dedup.confirm(f"d{number}", "orders")
    dedup.close(30)
    assert len(keys(client)) == 1000


def test_confirmations_just_before_the_interpreter_ends_reach_redis(own_redis, client):
    """The process ends without close()."""
    code = (
        "import sys, redis; from producer_core.delivery.dedup.deduplicator import MessageDeduplicator\n"
        "dedup = MessageDeduplicator(redis.Redis(port=int(sys.argv[1])))\n"
        "for number in range(1000): dedup.confirm(f'd{number}', 'orders')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(own_redis.port)], timeout=60, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(keys(client)) == 1000


def test_an_idle_thread_ends_and_restarts_on_demand(own_redis, client, monkeypatch):
    monkeypatch.setattr("producer_core.delivery.dedup.redis_fallback._IDLE_TIMEOUT", 0.01)
    dedup = MessageDeduplicator(client)
    for number in range(2):
        dedup.confirm(f"d{number}", "orders")
        eventually(lambda: len(keys(client)) == number + 1 and dedup._outbox._thread is None)
    dedup.close()


def test_a_message_claimed_before_an_outage_of_redis_is_not_sent_twice(own_redis, dedup):
    dedup.claim("d", "orders", "a")
    own_redis.stop()
    assert dedup.claim("d", "orders", "duplicate") is Claim.PENDING


def test_a_message_claimed_during_an_outage_of_redis_is_not_sent_twice_afterwards(own_redis, dedup):
    own_redis.stop()
    assert dedup.claim("d", "orders", "a") is Claim.NEW
    own_redis.start()
    eventually(lambda: not dedup.degraded, timeout=60)
    assert dedup.claim("d", "orders", "duplicate") is Claim.PENDING


def test_a_redis_that_hangs_is_not_called_again(own_redis, dedup, changes, client):
    own_redis.freeze()
    try:
        found = [dedup.is_duplicate({"n": number % 3}, "orders") for number in range(6)]
    finally:
        own_redis.thaw()
    assert found == [False] * 3 + [True] * 3
    assert len(changes) == 1


def test_the_users_client_keeps_its_own_settings(client, dedup):
    assert client.connection_pool.connection_kwargs.get("socket_timeout") != 0.25
    assert client.connection_pool is not dedup._outbox._backend._redis.connection_pool
    client.set("mine", b"\xff")
    assert client.get("mine") == b"\xff"


def test_a_backend_without_redis_raises_an_error(own_redis, client):
    backend = RedisClaimBackend(client, ttl=1, claim_ttl=1)
    own_redis.stop()
    with pytest.raises(DedupError, match="Redis is not responding"):
        backend.claim("k", "a")
    backend.close()


CHILD = """
import sys, time, redis
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
dedup = MessageDeduplicator(redis.Redis(port=int(sys.argv[1])), claim_ttl=5.0)
print(dedup.claim("d", sys.argv[2], "child").value, flush=True)
time.sleep(60)
"""


def test_the_claim_of_a_killed_process_expires(redis_server):
    topic = f"orders-{uuid.uuid4().hex}"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(redis_server), topic], stdout=subprocess.PIPE, text=True
    )
    with redis.Redis(port=redis_server) as client:
        dedup = MessageDeduplicator(client, claim_ttl=5.0)
        try:
            assert child.stdout.readline().strip() == "new"
            assert dedup.claim("d", topic, "parent") is Claim.PENDING
        finally:
            child.kill()
            child.communicate()

        eventually(lambda: dedup.claim("d", topic, "parent") is Claim.NEW)
        dedup.close()


def test_a_producer_suppresses_duplicates_of_another_and_continues_without_redis(own_redis, client, caplog):
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
        eventually(lambda: set(keys(client).values()) == {"1"})
        assert other.send_message("orders", {"n": 1}) is None

        own_redis.stop()
        assert other.send_message("orders", {"n": 2}) is not None
        other.flush(5)
        assert other.send_message("orders", {"n": 2}) is None
        assert other.get_stats()["deduplication_stats"]["degraded"]
    assert "deduplication uses memory only" in caplog.text


# two processes, one of them killed


SENDER = """
import sys, threading, redis
from producer_core import MessageDeduplicator, ReliableKafkaProducer
from producer_core.producer.components import Components

servers, port, topic, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])

def deduplicator(self):
    options = self._options
    return MessageDeduplicator(options.redis_client, ttl_seconds=options.dedup_ttl, claim_ttl=10)

Components._deduplicator = deduplicator  # claims of a killed process expire in ten seconds

reports, suppressed = [], 0
with ReliableKafkaProducer(servers, redis_client=redis.Redis(port=port), enable_deduplication=True, store=None) as producer:
    print(producer.identity.replace("-", ""), flush=True)
    sys.stdin.readline()
    pause = threading.Event()
    for number in range(count):
        options = {"dedup_key": str(number), "on_delivery": reports.append}
        suppressed += producer.send_message(topic, b"%d" % number, **options) is None
        print(number, flush=True)
        pause.wait(0.003)
    producer.flush(120)
sent = sum(report.error is None and not report.duplicate for report in reports)
print("done", sent, suppressed + sum(report.duplicate for report in reports), flush=True)
"""


class Pair:
    """Runs two processes that send the same messages, and kills the first one after some of them."""

    def __init__(self, broker, port, topic, count, kill_at):
        words = [sys.executable, "-c", SENDER, broker.bootstrap_servers, str(port), topic, str(count)]
        self.topic, self.kill_at = topic, kill_at
        self.first, self.other = (
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        )
        self.session = self.first.stdout.readline().strip()
        self.other.stdout.readline()

    def start_both(self):
        for process in (self.first, self.other):
            process.stdin.write("go\n")
            process.stdin.flush()

    def kill(self, client):
        """Kill the first process at `kill_at`, and record the keys that it claimed and did not confirm."""
        while (line := self.first.stdout.readline()) and line.strip() != str(self.kill_at):
            pass
        self.first.kill()
        self.first.wait(60)
        found = {key: client.get(key) for key in client.keys(f"msg_dedup:{self.topic}:*")}
        self.unconfirmed = {
            key for key, value in found.items() if value.startswith(b"p:" + self.session.encode())
        }

    def end(self):
        """Return how many messages the other process sent, and how many it suppressed."""
        out, _ = self.other.communicate(timeout=150)
        return [int(number) for number in out.splitlines()[-1].split()[1:]]

    def stop(self):
        for process in (self.first, self.other):
            process.kill()
            process.communicate()


def on_topic(broker, topic):
    """Count each value on the topic's only partition."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "look"})
    _, end = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    reader.assign([TopicPartition(topic, 0, 0)])
    found = []
    while len(found) < end:
        found += [message.value() for message in reader.consume(end, timeout=10)]
    reader.close()
    return Counter(found)


def test_two_processes_send_each_message_once_and_lose_none_if_one_is_killed(redis_server):
    count, seed = 300, int.from_bytes(os.urandom(4))
    print("seed", seed)
    points = random.Random(seed).sample(range(count), 3)
    with embedded.start(brokers=1) as broker, redis.Redis(port=redis_server) as client:
        pairs = []
        try:
            for point in points:
                topic = f"shared-{uuid.uuid4().hex}"
                broker.create_topic(topic, partitions=1)
                pairs.append(Pair(broker, redis_server, topic, count, point))
            for pair in pairs:
                pair.start_both()
            for pair in pairs:
                pair.kill(client)
            ended = [pair.end() for pair in pairs]
        finally:
            for pair in pairs:
                pair.stop()

        for pair, (sent, suppressed) in zip(pairs, ended, strict=True):
            found = on_topic(broker, pair.topic)
            twice = {value for value, times in found.items() if times > 1}
            unconfirmed = {
                value
                for value in found
                if f"msg_dedup:{pair.topic}:{_digest(pair.topic, value.decode())}".encode()
                in pair.unconfirmed
            }
            assert set(found) == {b"%d" % number for number in range(count)}, f"lost; seed {seed}"
            assert twice <= unconfirmed, f"sent by both; seed {seed}"
            assert max(found.values()) <= 2
            assert sent + suppressed == count


def _digest(topic, dedup_key):
    return checksum(topic, None, {"dedup_key": dedup_key})


class DedupNotices(Hook):
    def __init__(self):
        self.kinds = []

    def notice(self, notice):
        if notice.kind.startswith("dedup"):
            self.kinds.append(notice.kind)


@pytest.mark.parametrize(
    ("stop_redis", "start_redis"), [("freeze", "thaw"), ("stop", "start")], ids=["frozen", "killed"]
)
def test_a_producer_continues_while_redis_is_down_and_updates_it_afterwards(
    own_redis, client, stop_redis, start_redis
):
    """Only one message waits for a Redis that is down; the following ones do not."""
    hook = DedupNotices()
    producer = ReliableKafkaProducer(
        "memory:1",
        redis_client=client,
        enable_deduplication=True,
        store=None,
        hooks=[hook],
        transport=InMemoryTransport.factory(),
    )
    backend, callers = producer.deduplicator._outbox._backend, []
    call = backend._call
    backend._call = lambda command: callers.append(threading.current_thread()) or call(command)

    def send(numbers):
        return [producer.send_message("orders", b"", dedup_key=str(number)) for number in numbers]

    send(range(10))
    producer.flush(30)
    eventually(lambda: producer.deduplicator._outbox.waiting == 0, timeout=60)
    callers.clear()
    getattr(own_redis, stop_redis)()
    try:
        accepted = send(range(10, 200))
        again = send(range(5))
        producer.flush(30)
    finally:
        getattr(own_redis, start_redis)()
    eventually(lambda: not producer.deduplicator.degraded and len(keys(client)) >= 190, timeout=60)
    eventually(lambda: producer.deduplicator._outbox.waiting == 0, timeout=60)
    eventually(lambda: hook.kinds[-1] == "dedup_restored", timeout=60)

    assert None not in accepted
    assert again == [None] * 5
    assert callers.count(threading.current_thread()) < 10  # one, or a few more if Redis was still answering
    assert (hook.kinds[0], hook.kinds[-1]) == ("dedup_degraded", "dedup_restored")
    assert set(keys(client).values()) == {"1"}
    assert producer.close().acknowledged == 200
    producer.deduplicator.close()
