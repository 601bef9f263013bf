"""Duplicates within one group, and a claim that is interrupted."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from tests.fixtures.enqueueing import claimed, counts, memory_producer, quick_producer
from tests.support import eventually


def test_an_interrupt_during_a_claim_in_redis_leaves_no_claim():
    dedup = MessageDeduplicator()

    class Interrupted:
        degraded, released = False, []

        def claim(self, key, owner):
            raise KeyboardInterrupt

        def claim_many(self, keys):
            raise KeyboardInterrupt

        def release(self, key, owner):
            self.released.append(key)

    dedup._outbox = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        dedup.claim("a", "orders", b"x" * 24)
    with pytest.raises(KeyboardInterrupt):
        dedup.claim_many([("b", "orders", b"x" * 24), ("c", "orders", b"y" * 24)])

    assert not claimed(dedup)
    assert len(Interrupted.released) == 3


def test_equal_messages_in_one_group_are_sent_once(tmp_path):
    producer, transport = memory_producer(tmp_path, enable_deduplication=True, ordering="strict")

    result = producer.send_batch(
        "orders", [{"n": number % 3} for number in range(30)], lambda value: value["n"]
    )

    assert counts(result) == {"total": 30, "sent": 3, "failed": 0, "duplicate": 27}
    assert len(transport.log["orders"]) == 3
    producer.close()


def test_a_confirmed_duplicate_returns_none_and_a_failed_message_can_be_sent_again():
    fail = [True]
    producer, _ = quick_producer(
        lambda delivery: KafkaError.POLICY_VIOLATION if fail[0] else None, enable_deduplication=True
    )

    producer.send_message("orders", {"n": 1})
    producer.flush(5)
    fail[0] = False
    send_more = producer.send_message("orders", {"n": 1})
    producer.flush(5)
    third = producer.send_message("orders", {"n": 1})

    assert send_more is not None
    assert third is None
    assert producer.get_stats()["messages_duplicate"] == 1
    producer.close()


def test_one_dedup_key_on_two_topics_is_two_messages():
    producer, _ = quick_producer(lambda delivery: None, enable_deduplication=True)

    sent = [producer.send_message(topic, {}, dedup_key="a 1") for topic in ("orders", "refunds", "orders.a")]
    producer.flush(5)

    assert None not in sent
    assert producer.send_message("orders", {}, dedup_key="a 1") is None
    producer.close()


def test_a_duplicate_of_a_pending_message_is_held_until_the_original_is_settled():
    producer, transport = quick_producer(lambda delivery: "hold", enable_deduplication=True)
    reports = []

    producer.send_message("orders", {"n": 1})
    producer.send_message("orders", {"n": 1}, on_delivery=reports.append)
    eventually(lambda: transport.held == 1)
    transport.release()
    producer.flush(5)

    assert len(transport.log["orders"]) == 1
    assert reports[0].duplicate
    producer.close()
