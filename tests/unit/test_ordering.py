"""Order across retries: what a failed message holds back, what it cannot, and what each choice means."""

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
    """Every retry is due: the test says when, not the pace of the machine."""
    manager = producer.retry_manager
    with manager._lock:
        manager._clock = lambda: time.monotonic() + 3600
        manager._changed.notify_all()


class FirstTries:
    """Fails the first try of the messages it names, and keeps the first try of others in flight."""

    def __init__(self, fail=(), hold=(), code=REFUSED):
        self.fail, self.hold, self.code, self.seen = set(fail), set(hold), code, set()

    def __call__(self, delivery):
        number = int(delivery.value)
        if number in self.seen:
            return None
        self.seen.add(number)
        return self.code if number in self.fail else "hold" if number in self.hold else None


def test_later_messages_of_a_key_wait_for_its_retry():
    gate = threading.Event()
    script = FirstTries(fail={0})
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


def test_what_was_in_flight_behind_a_failed_message_is_counted_as_an_order_break():
    script = FirstTries(hold={0, 1})
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


def test_messages_of_a_key_that_fail_together_are_sent_again_in_their_order():
    producer, transport = make(FirstTries(fail=range(20)))

    for number in range(20):
        producer.send_message("orders", str(number), "a", value_serializer=str.encode)
    producer.flush(10)

    assert values(transport) == list(range(20))
    producer.close()


def test_a_dead_message_lets_the_later_ones_of_its_key_go():
    producer, transport = make(lambda delivery: REFUSED if delivery.value == b"0" else None)

    for number in range(4):
        producer.send_message("orders", str(number), "a", value_serializer=str.encode)
    producer.flush(10)

    assert sorted(values(transport)) == [1, 2, 3]
    assert len(producer.get_dlq_messages()) == 1
    producer.close()


def test_with_none_a_retry_waits_for_nobody_and_holds_nobody():
    producer, transport = make(
        FirstTries(fail={0}), ordering="none", retry=RetryConfig(1, initial_delay_ms=200, jitter=False)
    )

    producer.send_message("orders", b"0", "a")
    producer.send_message("orders", b"1", "a")
    producer.flush(10)

    assert values(transport) == [1, 0]
    producer.close()


def test_with_strict_one_message_of_a_key_is_in_flight_at_a_time():
    producer, transport = make(FirstTries(hold={0}), ordering="strict")

    for number in range(5):
        producer.send_message("orders", str(number), "a", value_serializer=str.encode)
    producer.send_message("orders", b"9", "b")
    eventually(lambda: values(transport) == [9])
    transport.release()
    producer.flush(10)

    assert values(transport) == [9, 0, 1, 2, 3, 4]
    producer.close()


def test_messages_without_a_key_keep_order_where_a_partition_was_asked_for():
    producer, transport = make(FirstTries(fail={0}), retry=RetryConfig(1, initial_delay_ms=100, jitter=False))

    producer.send_message("orders", b"0", partition=0)
    eventually(lambda: producer.retry_manager.pending == 1)
    producer.send_message("orders", b"1", partition=0)
    producer.flush(10)

    assert values(transport) == [0, 1]
    producer.close()


@pytest.mark.parametrize("ordering", ["key", "strict", "none"])
def test_without_a_key_exactly_once_goes_on_after_each_message(tmp_path, ordering):
    """Exactly-once chooses the partition itself, after the message stands in its lane."""
    with embedded.start(topics={"orders": 4}) as broker:
        producer = ReliableKafkaProducer(
            broker.bootstrap_servers, delivery="exactly_once", journal_dir=tmp_path, transactional_id="shop",
            ordering=ordering, store=None,
        )  # fmt: skip
        for number in range(4):
            producer.send_message("orders", {"number": number})
        report = producer.close(timeout=30)

    assert (report.acknowledged, report.dead, report.journaled) == (4, 0, 0)


def test_held_messages_are_bounded_and_the_sender_is_told(monkeypatch):
    monkeypatch.setattr("producer_core.delivery.enqueue._MAX_HELD", 3)
    producer, transport = make(FirstTries(hold={0}), ordering="strict", config={"max_block_ms": 50})

    for number in range(4):
        producer.send_message("orders", str(number), "a", value_serializer=str.encode)
    with pytest.raises(QueueFull):
        producer.send_message("orders", b"4", "a")
    transport.release()
    producer.flush(10)

    assert values(transport) == [0, 1, 2, 3]
    producer.close()


def test_what_waited_behind_an_undecided_message_is_provably_not_sent_at_close():
    producer, _ = make(FirstTries(hold={0}), ordering="strict")
    producer.send_message("orders", b"0", "a")
    producer.send_message("orders", b"1", "a")

    report = producer.close(timeout=0.05)

    assert report.dead == 2
    verdicts = {dead_letter.value: dead_letter.verdict for dead_letter in producer.dlq.dead_letters("orders")}
    assert verdicts == {b"0": "possibly_persisted", b"1": "not_sent"}


def test_an_unknown_choice_names_the_known_ones():
    with pytest.raises(ConfigError, match="key, strict, none"):
        ReliableKafkaProducer("memory:1", store=None, ordering="random")


def a_delivery(seq, key=b"a", attempts=()):
    delivery = Delivery(seq.to_bytes(24), seq, "orders", key, b"", [])
    delivery.attempts = attempts
    return delivery


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["ok", "fail", "die"])), max_size=30), st.booleans()
)
def test_a_lane_hands_out_everything_once_and_in_order_after_its_head(steps, strict):
    """Whatever the reports say: nothing is forgotten, nothing is handed out twice, no lane stays behind empty."""
    lanes = Lanes("strict" if strict else "key")
    flying, out = [], []

    def advance(about):
        while (following := lanes.following(about)) is not None:
            flying.append(following)

    for seq, (key, outcome) in enumerate(steps):
        delivery = a_delivery(seq, key=str(key).encode())
        if lanes.admit(delivery):
            delivery.place = IN_CLIENT
            flying.append(delivery)
        if flying:
            reported = flying.pop(0)
            if outcome == "fail":
                reported.attempts, reported.place = ("failed",), QUEUED
                lanes.failed(reported)
                if lanes.take_turn(reported):
                    flying.append(reported)
                else:
                    advance(reported)
            else:
                out.append(reported)
                if lanes.settled(reported, acknowledged=outcome == "ok") == "free":
                    advance(reported)
    while flying:
        reported = flying.pop(0)
        out.append(reported)
        if lanes.settled(reported, acknowledged=True) == "free":
            advance(reported)

    assert sorted(delivery.seq for delivery in out) == list(range(len(steps)))
    assert lanes.held == 0
    assert not lanes.queues


def test_a_message_whose_time_comes_while_its_lane_hands_it_out_is_sent_once():
    lanes = Lanes()
    first, second = a_delivery(0, attempts=("failed",)), a_delivery(1, attempts=("failed",))
    lanes.failed(first)
    lanes.failed(second)
    assert lanes.take_turn(first)
    lanes.settled(first, acknowledged=True)

    assert lanes.following(first) is second
    assert not lanes.take_turn(second)
    assert not lanes.set_waiting(second, AWAITING_DUPLICATE)
    assert second.place is IN_CLIENT
    assert lanes.settled(second, acknowledged=True) == "free"
    assert not lanes.take_turn(second)
    assert lanes.following(second) is None
    assert not lanes.queues


def test_a_message_that_died_while_its_retry_asked_for_its_claim_is_not_sent(monkeypatch):
    producer, transport = make(FirstTries(fail={0}), enable_deduplication=True)
    lifecycle, claim, ends = producer._engine, producer.deduplicator.claim, []

    def slow(digest, topic, owner):
        if waiting := lifecycle.pending.get(owner):  # a retry: its lane sent it while Redis was asked
            lifecycle.settlement.give_up(waiting, failure_of("MSG_SIZE_TOO_LARGE"))
        return claim(digest, topic, owner)

    monkeypatch.setattr(producer.deduplicator, "claim", slow)
    producer.send_message("orders", b"0", "a", on_delivery=ends.append)
    producer.flush(5)
    producer.send_message("orders", b"1", "a")
    producer.flush(5)

    assert [report.error is not None for report in ends] == [True]
    assert values(transport) == [1]
    producer.close()


def test_a_copy_that_waits_in_the_lane_of_its_twin_leaves_it_the_claim():
    producer, transport = make(
        FirstTries(fail={0}), retry=RetryConfig(max_retries=1, initial_delay_ms=300, jitter=False),
        enable_deduplication=True,
    )  # fmt: skip
    ends = []
    producer.send_message("orders", b"0", "a", on_delivery=ends.append)
    eventually(lambda: producer.retry_manager.pending == 1)
    producer.deduplicator._memory._entries.clear()  # its claim ran out
    for number in (0, 1):
        producer.send_message("orders", b"%d" % number, "a", on_delivery=ends.append)

    producer.flush(10)

    assert values(transport) == [0, 1]
    assert sorted(report.duplicate for report in ends) == [False, False, True]
    producer.send_message("orders", b"2", "a")
    producer.flush(10)
    assert values(transport) == [0, 1, 2]
    producer.close()


@pytest.mark.parametrize("ordering", ["key", "strict"])
def test_what_waits_in_its_lane_for_longer_than_a_claim_lives_is_sent_once(ordering):
    producer, transport = make(
        FirstTries(fail={0}), retry=LATE,
        ordering=ordering, enable_deduplication=True,
    )  # fmt: skip
    producer.deduplicator._memory._claim_ttl = 0.1
    ends = []
    producer.send_message("orders", b"0", "a")
    eventually(lambda: producer.retry_manager.pending == 1)
    for number in (1, 2):
        producer.send_message("orders", b"%d" % number, "a", on_delivery=ends.append)
    time.sleep(0.2)
    for number in (1, 2):
        producer.send_message("orders", b"%d" % number, "a", on_delivery=ends.append)
    retry_now(producer)
    producer.flush(10)

    assert values(transport) == [0, 1, 2]
    assert sorted(report.duplicate for report in ends) == [False, False, True, True]
    producer.close()


@pytest.mark.parametrize("ordering", ["key", "strict"])
def test_what_waits_in_its_lane_while_an_equal_message_is_acknowledged_is_not_sent(ordering):
    producer, transport = make(
        FirstTries(fail={0}), retry=LATE,
        ordering=ordering, enable_deduplication=True,
    )  # fmt: skip
    ends = []
    producer.send_message("orders", b"0", "a", on_delivery=ends.append)
    eventually(lambda: producer.retry_manager.pending == 1)
    for number in (1, 2):
        producer.send_message("orders", b"%d" % number, "a", on_delivery=ends.append)
    waiting = next(one for one in producer._engine.pending.values() if one.value == b"1")
    producer.deduplicator.confirm(waiting.checksum, "orders")
    retry_now(producer)
    producer.flush(10)

    assert values(transport) == [0, 2]
    assert sorted(report.duplicate for report in ends) == [False, False, True]
    producer.send_message("orders", b"3", "a")
    producer.flush(10)
    assert values(transport) == [0, 2, 3]
    producer.close()


@pytest.mark.parametrize("attempts", [(), ("failed",)], ids=["first try", "retry"])
def test_a_copy_that_stepped_back_is_not_in_the_way_of_its_twin(attempts):
    lanes = Lanes()
    head, twin, other = a_delivery(0, attempts=("failed",)), a_delivery(1), a_delivery(3)
    copy = a_delivery(2, attempts=attempts)
    lanes.failed(head)
    assert lanes.take_turn(head)
    assert not lanes.admit(copy)
    assert not lanes.admit(other)
    assert lanes.withdraw(copy)
    assert not lanes.take_turn(twin)  # it was held until now, and waits in its lane
    assert lanes.settled(head, acknowledged=True) == "free"

    assert lanes.following(head) is twin
    assert lanes.following(twin) is other
    assert lanes.following(other) is None
    twin.attempts, twin.place = ("failed",), QUEUED
    lanes.failed(twin)
    assert lanes.take_turn(twin)  # its retry: nothing stands before it
    lanes.settled(twin, acknowledged=True)
    assert lanes.following(twin) is None
    assert lanes.held == 0
    assert not lanes.queues
    assert copy.place is AWAITING_DUPLICATE
