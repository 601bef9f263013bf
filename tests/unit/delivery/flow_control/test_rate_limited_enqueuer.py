"""A producer with rate limits: every way to send waits, and nothing is lost or counted twice."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError

from producer_core import CircuitOpen, QueueFull, RateLimited
from producer_core.errors import ConfigError, ProducerClosed
from tests.fixtures.enqueueing import counts, memory_producer, quick_producer
from tests.support import eventually

SLOW = {"max_messages_per_second": 0.001}
"""One message, then none for 1,000 seconds."""


def stats(producer):
    return producer.get_stats()["rate_limit_stats"]


def test_messages_above_the_rate_wait_and_are_all_delivered():
    producer, _ = quick_producer(config={"max_messages_per_second": 500, "rate_limit_burst_ms": 0})
    for number in range(21):
        producer.send_message("orders", {"n": number})
    producer.flush(5)

    assert producer.get_stats()["messages_sent"] == 21
    assert stats(producer)["delayed_messages"] + stats(producer)["refused_messages"] <= 20
    assert stats(producer)["refused_messages"] == 0
    producer.close()


def test_a_message_that_would_wait_longer_than_max_block_ms_is_refused_at_once():
    producer, _ = quick_producer(config=SLOW)
    producer.send_message("orders", b"1")

    with pytest.raises(RateLimited, match=r"rate limit of the producer.*max_block_ms") as refused:
        producer.send_message("orders", b"2")
    assert refused.value.retry_after_s > 60
    assert producer.close().acknowledged == 1


def test_the_bound_of_a_message_may_be_longer_than_the_setting():
    producer, _ = quick_producer(
        config={"max_messages_per_second": 5, "rate_limit_burst_ms": 0, "max_block_ms": 1}
    )
    producer.send_message("orders", b"1")

    with pytest.raises(RateLimited):
        producer.send_message("orders", b"2")
    producer.send_message("orders", b"2", max_block_ms=60_000)
    assert producer.close().acknowledged == 2


def test_try_send_says_whether_the_message_was_accepted():
    producer, _ = quick_producer(config={"max_messages_per_second": {"orders": 0.001}})

    assert producer.try_send("orders", b"1")
    assert not producer.try_send("orders", b"2")
    assert producer.try_send("payments", b"3")
    assert producer.close().acknowledged == 2


def test_try_send_does_not_wait_for_a_full_queue():
    producer, transport = quick_producer(lambda delivery: "hold", memory={"capacity": 1})
    assert producer.try_send("orders", b"1")
    eventually(lambda: transport.held == 1)

    assert not producer.try_send("orders", b"2")
    with pytest.raises(QueueFull):
        producer.send_message("orders", b"3", max_block_ms=5)
    transport.release()
    assert producer.close().acknowledged == 1


def test_max_block_ms_of_a_call_is_checked():
    producer, _ = quick_producer()
    with pytest.raises(ConfigError, match="max_block_ms=-1"):
        producer.send_message("orders", b"1", max_block_ms=-1)
    producer.close()


def test_a_message_that_the_queue_refuses_gives_its_tokens_back():
    producer, transport = quick_producer(
        lambda delivery: "hold",
        memory={"capacity": 1},
        config={"max_messages_per_second": 0.002, "rate_limit_burst_ms": 1_000_000},
    )
    producer.send_message("orders", b"1")
    eventually(lambda: transport.held == 1)
    assert [producer.try_send("orders", b"2") for _ in range(5)] == [False] * 5
    transport.release()
    producer.flush(5)

    assert producer.try_send("orders", b"2")
    assert stats(producer)["refused_messages"] == 0
    eventually(lambda: transport.held == 1)
    transport.release()
    producer.close()


def test_a_batch_waits_for_each_message_and_reports_the_refused_ones():
    producer, _ = quick_producer(config={"max_messages_per_second": 0.003, "rate_limit_burst_ms": 1_000_000})
    result = producer.send_batch("orders", [{"n": number} for number in range(5)])

    assert counts(result) == {"total": 5, "sent": 3, "failed": 2, "duplicate": 0}
    assert [entry.status for entry in result["results"]] == ["sent"] * 3 + ["failed"] * 2
    assert "rate limit" in result["results"][4].error
    producer.close()


def test_a_journaled_batch_is_written_in_groups_as_far_as_the_limit_lets_it(tmp_path):
    producer, _ = memory_producer(
        tmp_path, config={"max_messages_per_second": 0.003, "rate_limit_burst_ms": 1_000_000}
    )
    groups = []
    inner = producer._enqueuer._enqueuer
    accept_many = inner.accept_many
    inner.accept_many = lambda deliveries: groups.append(len(deliveries)) or accept_many(deliveries)
    result = producer.send_batch("orders", [{"n": number} for number in range(5)])

    assert groups == [3]
    assert counts(result) == {"total": 5, "sent": 3, "failed": 2, "duplicate": 0}
    producer.close()


def test_a_delivery_callback_does_not_wait_for_the_limit():
    producer, _ = quick_producer(config={"max_messages_per_second": 2, "rate_limit_burst_ms": 0})
    errors = []

    def send_more(ok, message, report):
        try:
            producer.send_message("orders", b"2")
        except RateLimited as error:
            errors.append(error)

    producer.send_message("orders", b"1", callback=send_more)
    eventually(lambda: errors)
    producer.close()


def test_close_ends_the_wait_of_another_thread_and_its_message_is_not_accepted():
    producer, _ = quick_producer(config={"max_messages_per_second": 0.1, "rate_limit_burst_ms": 0})
    producer.send_message("orders", b"1")
    errors = []

    def send():
        try:
            producer.send_message("orders", b"2")
        except ProducerClosed as error:
            errors.append(error)

    limit = producer._components.rate_limiter._all_topics[0]
    first = limit._last
    waiting = threading.Thread(target=send)
    waiting.start()
    eventually(lambda: limit._last > first)
    report = producer.close(5)
    waiting.join(10)

    assert (report.acknowledged, len(errors)) == (1, 1)


def test_send_async_waits_on_the_producers_own_threads():
    """A wait on the event loop's threads would block every other call of asyncio.to_thread."""
    producer, _ = quick_producer(config={"max_messages_per_second": 500, "rate_limit_burst_ms": 0})
    names = set()
    send = producer._components.rate_limiter.acquire

    def acquire(*arguments, **options):
        names.add(threading.current_thread().name.rpartition("_")[0])
        return send(*arguments, **options)

    producer._components.rate_limiter.acquire = acquire

    async def send_all():
        return await asyncio.gather(*(producer.send_async("orders", {"n": n}) for n in range(20)))

    reports = asyncio.run(send_all())

    assert {report.error for report in reports} == {None}
    assert names == {"producer-send-async"}
    producer.close()


def test_send_async_to_a_topic_without_a_limit_does_not_wait_for_those_that_wait():
    """Regression: four waiting calls occupied every thread."""
    producer, _ = quick_producer(
        config={"max_messages_per_second": {"orders": 0.02}, "max_block_ms": 600_000}
    )
    producer.send_message("orders", b"1")

    async def send_all():
        waiting = [asyncio.ensure_future(producer.send_async("orders", b"2")) for _ in range(20)]
        await asyncio.sleep(0)
        report = await asyncio.wait_for(producer.send_async("payments", b"3"), 20)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return report

    assert asyncio.run(send_all()).error is None
    producer.close()


def test_resends_take_from_the_same_limit():
    attempts = []

    def fail_once(delivery):
        attempts.append(delivery)
        return KafkaError.NOT_LEADER_FOR_PARTITION if len(attempts) == 1 else None

    producer, _ = quick_producer(
        fail_once, config={"max_messages_per_second": 0.002, "rate_limit_burst_ms": 1_000_000}
    )
    producer.send_message("orders", b"1")
    producer.flush(5)

    assert len(attempts) == 2
    assert not producer.try_send("orders", b"2")
    producer.close()


def test_a_producer_without_limits_has_no_limiter():
    producer, _ = quick_producer()

    assert producer._components.rate_limiter is None
    assert producer._enqueuer is producer._engine.enqueuer
    assert "rate_limit_stats" not in producer.get_stats()
    producer.close()


def test_a_message_that_an_open_circuit_refuses_does_not_wait_for_the_limit(monkeypatch):
    """Its tokens return, so that the refusals of an outage do not add up to a wait."""
    producer, _ = quick_producer(
        config={"max_messages_per_second": 0.002, "rate_limit_burst_ms": 1_000_000}, circuit_breaker=True
    )

    def refuse(topic):
        raise CircuitOpen(topic=topic, reason="no broker is connected")

    monkeypatch.setattr(producer._components.circuits, "guarded", True)
    monkeypatch.setattr(producer._components.circuits, "admit", refuse)
    for _ in range(10):
        with pytest.raises(CircuitOpen):
            producer.send_message("orders", b"1")
    monkeypatch.undo()

    assert producer.try_send("orders", b"1")
    producer.close()


def test_send_async_after_close_raises_producer_closed():
    producer, _ = quick_producer(config=SLOW)
    producer.close()

    with pytest.raises(ProducerClosed):
        asyncio.run(producer.send_async("orders", b"1"))


def test_a_waiting_send_async_does_not_delay_the_exit_of_its_process():
    """Regression: the interpreter joined the thread, which waited for the limit, before it closed the producer."""
    script = """
import asyncio, threading
from producer_core import ReliableKafkaProducer
from producer_core.testing import InMemoryTransport

settings = {"max_messages_per_second": 0.02, "rate_limit_burst_ms": 0}
producer = ReliableKafkaProducer("memory:1", settings, store=None, transport=InMemoryTransport.factory())
producer.send_message("orders", b"1")
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(producer.send_async("orders", b"2"), loop)
while not producer._components.rate_limiter._all_topics[0]._last:
    pass
"""
    subprocess.run([sys.executable, "-c", script], timeout=30, check=True)


def test_a_signal_handler_that_sends_or_closes_does_not_wait_for_its_own_thread():
    producer, _ = quick_producer(config={"max_messages_per_second": 0.05, "rate_limit_burst_ms": 0})
    limiter = producer._components.rate_limiter
    with limiter._all_topics[0]._lock:  # as in a handler that interrupts `reserve`
        assert producer.try_send("orders", b"1")

    before = signal.signal(signal.SIGALRM, lambda *_: producer.close(5))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(ProducerClosed):
            producer.send_message("orders", b"2")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Outage:
    """Opens the circuit of the cluster, as an outage does, at a moment that the test chooses."""

    def __init__(self, producer):
        self._circuits = producer._components.circuits

    def begin(self):
        self._circuits._unreachable = lambda: "no broker"
        self._circuits._last_tick -= 60
        self._circuits._longest_tick = 60
        for _ in range(2):
            self._circuits.client_statistics({})
            self._circuits._last_tick -= 60


def test_an_open_circuit_refuses_a_message_before_its_wait_for_the_limit():
    """Regression: the caller learned about the outage only after the wait, or was told RateLimited instead."""
    producer, _ = quick_producer(config=SLOW, circuit_breaker=True)
    producer.send_message("orders", b"1")
    Outage(producer).begin()

    with pytest.raises(CircuitOpen):
        producer.send_message("orders", b"2", max_block_ms=3_600_000)
    with pytest.raises(CircuitOpen):
        producer.send_message("orders", b"2")
    with pytest.raises(CircuitOpen):
        producer.try_send("orders", b"2")
    assert producer.send_batch("orders", [1, 2])["failed"] == 2
    assert stats(producer)["refused_messages"] == 0
    assert producer.get_stats()["circuit_breaker"]["messages_refused"] == 5
    producer.close()


def test_a_circuit_that_opens_ends_the_wait_for_the_limit():
    producer, _ = quick_producer(config={**SLOW, "max_block_ms": 3_600_000}, circuit_breaker=True)
    producer.send_message("orders", b"1")
    limit = producer._components.rate_limiter._all_topics[0]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(producer.send_message, "orders", b"2")
        try:
            eventually(lambda: limit._waiting)
            Outage(producer).begin()
            with pytest.raises(CircuitOpen):
                waiting.result(20)
        finally:
            producer.close()
    assert not limit._waiting


def test_with_a_journal_a_message_waits_for_the_limit_while_the_circuit_is_open(tmp_path):
    producer, _ = memory_producer(tmp_path, config=SLOW, circuit_breaker=True)
    producer.send_message("orders", b"1")
    Outage(producer).begin()

    with pytest.raises(RateLimited):
        producer.send_message("orders", b"2")
    producer.close()


def test_an_interrupted_wait_gives_its_place_back():
    """Regression: a later message waited as long as one that Ctrl-C had ended."""
    producer, _ = quick_producer(
        config={"max_bytes_per_second": 1, "rate_limit_burst_ms": 1_000_000, "max_block_ms": 3_600_000}
    )
    producer.send_message("orders", b"x" * 1000)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            producer.send_message("orders", b"x" * 1000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    with pytest.raises(RateLimited) as refused:
        producer.send_message("orders", b"x" * 500, max_block_ms=0)
    assert refused.value.retry_after_s <= 500
    producer.close()


def test_a_cancelled_send_async_that_waits_for_the_limit_is_withdrawn():
    """Regression: the message was sent although its caller had given up."""
    producer, _ = quick_producer(config={**SLOW, "max_block_ms": 36_000_000})
    producer.send_message("orders", b"1")
    limit = producer._components.rate_limiter._all_topics[0]

    async def give_up():
        sends = [
            asyncio.create_task(producer.send_async("orders", b"2")) for _ in range(8)
        ]  # 4 have a thread
        while len(limit._waiting) < 4:
            await asyncio.sleep(0.001)
        for send in sends:
            send.cancel()
        return await asyncio.gather(*sends, return_exceptions=True)

    outcomes = asyncio.run(give_up())

    assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
    eventually(lambda: not limit._waiting)
    with pytest.raises(RateLimited) as refused:
        producer.send_message("orders", b"3", max_block_ms=0)
    assert refused.value.retry_after_s <= 1000
    assert producer.close().acknowledged == 1


def test_max_block_ms_of_try_send_is_refused_with_the_reason():
    producer, _ = quick_producer()
    with pytest.raises(ConfigError, match=r"try_send takes no max_block_ms.*send_message"):
        producer.try_send("orders", b"1", max_block_ms=5)
    producer.close()


@pytest.mark.parametrize(
    "given", [10**400, 10**5000, "soon", True], ids=["400 digits", "5,000 digits", "text", "bool"]
)
def test_a_max_block_ms_that_is_no_usable_number_is_refused(given):
    producer, _ = quick_producer()
    with pytest.raises(ConfigError, match="max_block_ms="):
        producer.send_message("orders", b"1", max_block_ms=given)
    producer.close()
