"""Duplicates within one group, and a claim that is interrupted."""

from __future__ import annotations

import pytest

from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from tests.fixtures.enqueueing import claimed, counts, memory_producer


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
