"""Order across retries: which messages a failed one holds back, with each value of `ordering`."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.brokers import embedded
from producer_core.delivery.delivery import AWAITING_DUPLICATE, IN_CLIENT, QUEUED, Delivery
from producer_core.delivery.ordering import Lanes
from producer_core.errors import ConfigError, QueueFull
from producer_core.kafka.classify import failure_of
from producer_core.testing import InMemoryTransport
from tests.support import eventually

QUICK = RetryConfig(max_retries=3, initial_delay_ms=1, max_delay_ms=2, jitter=False)
LATE = RetryConfig(max_retries=1, initial_delay_ms=600_000, max_delay_ms=600_000, jitter=False)
REFUSED = "NOT_ENOUGH_REPLICAS"


def make(script=None, *, retry=QUICK, **options):
    made = []
    transport = InMemoryTransport.factory(made, script=script)
    producer = ReliableKafkaProducer(
        "memory:1", options.pop("config", None), retry, store=None, transport=transport,
        health_check_interval=3600, **options,
    )  # fmt: skip
    return producer, made[0]


def values(transport, topic="orders"):
    return [int(delivery.value) for delivery in transport.log[topic]]


def retry_now(producer):
    """Make every retry due at once, so that the test does not depend on time."""
    manager = producer.retry_manager
    with manager._lock:
        manager._clock = lambda: time.monotonic() + 3600
        manager._changed.notify_all()


class FirstAttempts:
    """Fails the first attempt of the messages in `fail`, and keeps the first attempt of those in `hold` in flight."""

    def __init__(self, fail=(), hold=(), code=REFUSED):
        self.fail, self.hold, self.code, self.seen = set(fail), set(hold), code, set()

    def __call__(self, delivery):
        number = int(delivery.value)
        if number in self.seen:
            return None
        self.seen.add(number)
        return self.code if number in self.fail else "hold" if number in self.hold else None


def test_later_messages_of_a_key_wait_for_the_retry_of_an_earlier_one():
    gate = threading.Event()
    script = FirstAttempts(fail={0})
    producer, transport = make(script, retry=LATE)

    producer.send_message("orders", b"0", "a", callback=lambda *_: gate.set())
    eventually(lambda: producer.retry_manager.pending == 1)
    for number in range(1, 6):
        producer.send_message("orders", str(number), "a", value_serializer=str.encode)
    producer.send_message("orders", b"9", "b")
    eventually(lambda: values(transport) == [9])
    retry_now(producer)
    producer.flush(10)

    assert gate.is_set()
    assert values(transport) == [9, 0, 1, 2, 3, 4, 5]
    assert producer.get_stats()["order_breaks"] == 0
    producer.close()


def test_a_message_in_flight_behind_a_failed_one_is_counted_as_an_order_break():
    script = FirstAttempts(hold={0, 1})
    producer, transport = make(script, retry=RetryConfig(max_retries=1, initial_delay_ms=50, jitter=False))
    producer.send_message("orders", b"0", "a")
    producer.send_message("orders", b"1", "a")
    eventually(lambda: transport.held == 2)

    first, second = transport._held
    transport._held.clear()
    transport._report([(first, 19), (second, None)])
    producer.flush(10)

    assert values(transport) == [1, 0]
    assert producer.get_stats()["order_breaks"] == 1
    producer.close()


def test_messages_of_a_key_that_fail_together_are_retried_in_order():
    producer, transport = make(FirstAttempts(fail=range(20)))

    for number in range(20):
        producer.send_message("orders", str(number), "a", value_serializer=str.encode)
    producer.flush(10)

    assert values(transport) == list(range(20))
    producer.close()


def test_a_dead_letter_releases_the_later_messages_of_its_key():
    producer, transport = make(lambda delivery: REFUSED if delivery.value == b"0" else None)

    for number in range(4):
        producer.send_message("orders", str(number), "a", value_serializer=str.encode)
    producer.flush(10)

    assert sorted(values(transport)) == [1, 2, 3]
    assert len(producer.get_dlq_messages()) == 1
    producer.close()


@pytest.mark.slow
def test_with_ordering_none_a_retry_neither_waits_nor_holds_back_messages():
    producer, transport = make(
        FirstAttempts(fail={0}), ordering="none", retry=RetryConfig(1, initial_delay_ms=200, jitter=False)
    )

    producer.send_message("orders", b"0", "a")
    producer.send_message("orders", b"1", "a")
    producer.flush(10)

    assert values(transport) == [1, 0]
    producer.close()


def test_with_ordering_strict_one_message_of_a_key_is_in_flight_at_a_time():
    producer, transport = make(FirstAttempts(hold={0}), ordering="strict")

    for number in range(5):
        producer.send_message("orders", str(number), "a", value_serializer=str.encode)
    producer.send_message("orders", b"9", "b")
    eventually(lambda: values(transport) == [9])
    transport.release()
    producer.flush(10)

    assert values(transport) == [9, 0, 1, 2, 3, 4]
    producer.close()


def test_messages_without_a_key_keep_their_order_in_a_chosen_partition():
    producer, transport = make(
        FirstAttempts(fail={0}), retry=RetryConfig(1, initial_delay_ms=100, jitter=False)
    )

    producer.send_message("orders", b"0", partition=0)
    eventually(lambda: producer.retry_manager.pending == 1)
    producer.send_message("orders", b"1", partition=0)
    producer.flush(10)

    assert values(transport) == [0, 1]
    producer.close()


@pytest.mark.slow
@pytest.mark.parametrize("ordering", ["key", "strict", "none"])
def test_exactly_once_without_a_key_continues_after_each_message(tmp_path, ordering):
    """Exactly-once delivery chooses the partition itself, after the message has entered its lane."""
    with embedded.start(topics={"orders": 4}) as broker:
        producer = ReliableKafkaProducer(
            broker.bootstrap_servers, delivery="exactly_once", journal_dir=tmp_path, transactional_id="shop",
            ordering=ordering, store=None,
        )  # fmt: skip
        for number in range(4):
            producer.send_message("orders", {"number": number})
        report = producer.close(timeout=30)

    assert (report.acknowledged, report.dead, report.journaled) == (4, 0, 0)


def test_held_messages_are_bounded_and_the_sender_gets_an_error(monkeypatch):
    monkeypatch.setattr("producer_core.delivery.enqueue._MAX_HELD", 3)
    producer, transport = make(FirstAttempts(hold={0}), ordering="strict", config={"max_block_ms": 50})

    for number in range(4):
        producer.send_message("orders", str(number), "a", value_serializer=str.encode)
    with pytest.raises(QueueFull):
        producer.send_message("orders", b"4", "a")
    transport.release()
    producer.flush(10)

    assert values(transport) == [0, 1, 2, 3]
    producer.close()


def test_a_message_held_behind_an_unsettled_one_is_not_sent_at_close():
    producer, _ = make(FirstAttempts(hold={0}), ordering="strict")
    producer.send_message("orders", b"0", "a")
    producer.send_message("orders", b"1", "a")

    report = producer.close(timeout=0.05)

    assert report.dead == 2
    verdicts = {dead_letter.value: dead_letter.verdict for dead_letter in producer.dlq.dead_letters("orders")}
    assert verdicts == {b"0": "possibly_persisted", b"1": "not_sent"}


def test_an_unknown_ordering_is_refused_with_the_valid_ones():
    with pytest.raises(ConfigError, match="key, strict, none"):
        ReliableKafkaProducer("memory:1", store=None, ordering="random")


def make_delivery(seq, key=b"a", attempts=()):
    delivery = Delivery(seq.to_bytes(24), seq, "orders", key, b"", [])
    delivery.attempts = attempts
    return delivery


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["ok", "fail", "die"])), max_size=30), st.booleans()
)
def test_a_lane_releases_every_message_once_regardless_of_the_reports(steps, strict):
    """No message is lost or released twice, and no empty lane remains."""
    lanes = Lanes("strict" if strict else "key")
    in_flight, settled = [], []

    def advance(released):
        while (following := lanes.following(released)) is not None:
            in_flight.append(following)

    for seq, (key, outcome) in enumerate(steps):
        delivery = make_delivery(seq, key=str(key).encode())
        if lanes.admit(delivery):
            delivery.state = IN_CLIENT
            in_flight.append(delivery)
        if in_flight:
            reported = in_flight.pop(0)
            if outcome == "fail":
                reported.attempts, reported.state = ("failed",), QUEUED
                lanes.failed(reported)
                if lanes.take_turn(reported):
                    in_flight.append(reported)
                else:
                    advance(reported)
            else:
                settled.append(reported)
                if lanes.settled(reported, acknowledged=outcome == "ok") == "free":
                    advance(reported)
    while in_flight:
        reported = in_flight.pop(0)
        settled.append(reported)
        if lanes.settled(reported, acknowledged=True) == "free":
            advance(reported)

    assert sorted(delivery.seq for delivery in settled) == list(range(len(steps)))
    assert lanes.held == 0
    assert not lanes.queues


def test_a_message_that_is_due_while_its_lane_releases_it_is_sent_once():
    lanes = Lanes()
    first, second = make_delivery(0, attempts=("failed",)), make_delivery(1, attempts=("failed",))
    lanes.failed(first)
    lanes.failed(second)
    assert lanes.take_turn(first)
    lanes.settled(first, acknowledged=True)

    assert lanes.following(first) is second
    assert not lanes.take_turn(second)
    assert not lanes.set_waiting(second, AWAITING_DUPLICATE)
    assert second.state is IN_CLIENT
    assert lanes.settled(second, acknowledged=True) == "free"
    assert not lanes.take_turn(second)
    assert lanes.following(second) is None
    assert not lanes.queues


def test_a_message_that_was_given_up_while_its_retry_claimed_is_not_sent(monkeypatch):
    producer, transport = make(FirstAttempts(fail={0}), enable_deduplication=True)
    engine, claim, reports = producer._engine, producer.deduplicator.claim, []

    def slow_claim(digest, topic, owner):
        if waiting := engine.pending.get(owner):  # a retry, which was given up before Redis answered
            engine.settlement.give_up(waiting, failure_of("MSG_SIZE_TOO_LARGE"))
        return claim(digest, topic, owner)

    monkeypatch.setattr(producer.deduplicator, "claim", slow_claim)
    producer.send_message("orders", b"0", "a", on_delivery=reports.append)
    producer.flush(5)
    producer.send_message("orders", b"1", "a")
    producer.flush(5)

    assert [report.error is not None for report in reports] == [True]
    assert values(transport) == [1]
    producer.close()


@pytest.mark.slow
def test_a_duplicate_in_the_lane_of_its_original_gives_up_the_claim():
    producer, transport = make(
        FirstAttempts(fail={0}), retry=RetryConfig(max_retries=1, initial_delay_ms=300, jitter=False),
        enable_deduplication=True,
    )  # fmt: skip
    reports = []
    producer.send_message("orders", b"0", "a", on_delivery=reports.append)
    eventually(lambda: producer.retry_manager.pending == 1)
    producer.deduplicator._memory._entries.clear()  # its claim expired
    for number in (0, 1):
        producer.send_message("orders", b"%d" % number, "a", on_delivery=reports.append)

    producer.flush(10)

    assert values(transport) == [0, 1]
    assert sorted(report.duplicate for report in reports) == [False, False, True]
    producer.send_message("orders", b"2", "a")
    producer.flush(10)
    assert values(transport) == [0, 1, 2]
    producer.close()


@pytest.mark.slow
@pytest.mark.parametrize("ordering", ["key", "strict"])
def test_a_message_that_waits_in_its_lane_longer_than_the_claim_ttl_is_sent_once(ordering):
    producer, transport = make(
        FirstAttempts(fail={0}), retry=LATE,
        ordering=ordering, enable_deduplication=True,
    )  # fmt: skip
    producer.deduplicator._memory._claim_ttl = 0.1
    reports = []
    producer.send_message("orders", b"0", "a")
    eventually(lambda: producer.retry_manager.pending == 1)
    for number in (1, 2):
        producer.send_message("orders", b"%d" % number, "a", on_delivery=reports.append)
    time.sleep(0.2)
    for number in (1, 2):
        producer.send_message("orders", b"%d" % number, "a", on_delivery=reports.append)
    retry_now(producer)
    producer.flush(10)

    assert values(transport) == [0, 1, 2]
    assert sorted(report.duplicate for report in reports) == [False, False, True, True]
    producer.close()


@pytest.mark.parametrize("ordering", ["key", "strict"])
def test_a_message_is_not_sent_if_an_equal_one_is_acknowledged_while_it_waits(ordering):
    producer, transport = make(
        FirstAttempts(fail={0}), retry=LATE,
        ordering=ordering, enable_deduplication=True,
    )  # fmt: skip
    reports = []
    producer.send_message("orders", b"0", "a", on_delivery=reports.append)
    eventually(lambda: producer.retry_manager.pending == 1)
    for number in (1, 2):
        producer.send_message("orders", b"%d" % number, "a", on_delivery=reports.append)
    waiting = next(one for one in producer._engine.pending.values() if one.value == b"1")
    producer.deduplicator.confirm(waiting.checksum, "orders")
    retry_now(producer)
    producer.flush(10)

    assert values(transport) == [0, 2]
    assert sorted(report.duplicate for report in reports) == [False, False, True]
    producer.send_message("orders", b"3", "a")
    producer.flush(10)
    assert values(transport) == [0, 2, 3]
    producer.close()


@pytest.mark.parametrize("attempts", [(), ("failed",)], ids=["first attempt", "retry"])
def test_a_withdrawn_duplicate_does_not_block_its_original(attempts):
    lanes = Lanes()
    head, original, other = make_delivery(0, attempts=("failed",)), make_delivery(1), make_delivery(3)
    duplicate = make_delivery(2, attempts=attempts)
    lanes.failed(head)
    assert lanes.take_turn(head)
    assert not lanes.admit(duplicate)
    assert not lanes.admit(other)
    assert lanes.withdraw(duplicate)
    assert not lanes.take_turn(original)  # it waits in its lane, behind the head
    assert lanes.settled(head, acknowledged=True) == "free"

    assert lanes.following(head) is original
    assert lanes.following(original) is other
    assert lanes.following(other) is None
    original.attempts, original.state = ("failed",), QUEUED
    lanes.failed(original)
    assert lanes.take_turn(original)  # its retry: it is the first of its lane
    lanes.settled(original, acknowledged=True)
    assert lanes.following(original) is None
    assert lanes.held == 0
    assert not lanes.queues
    assert duplicate.state is AWAITING_DUPLICATE
