"""Checkpoints of partitions are bounded, and a loss replaces them."""

from __future__ import annotations

from producer_core.delivery.loss_detection import Checkpoint
from producer_core.delivery.loss_detection.ack_checkpoints import PartitionCheckpoints


def test_checkpoints_are_limited_and_evictions_are_recorded():
    checkpoints = PartitionCheckpoints(limit=10)
    for number in range(25):
        checkpoints.put(f"t{number % 5}", number // 5, Checkpoint(number, number, 1.0))

    assert len(checkpoints) == 10
    assert sum(len(checkpoints.of(topic)) for topic in checkpoints.topics()) == 10
    assert checkpoints.evicted
    assert checkpoints.get("t4", 4) == Checkpoint(24, 24, 1.0)


def test_after_a_loss_the_newest_acknowledgement_becomes_the_checkpoint():
    checkpoints = PartitionCheckpoints(limit=10)
    checkpoints.put("orders", 0, Checkpoint(100, 1, 1.0))
    checkpoints.put("orders", 0, Checkpoint(51, 2, 2.0))
    before = checkpoints.get("orders", 0)
    checkpoints.mark_lost("orders", 0, Checkpoint(100, 1, 1.0))

    assert before == Checkpoint(100, 1, 1.0)
    assert checkpoints.get("orders", 0) == Checkpoint(51, 2, 2.0)
    checkpoints.mark_lost("orders", 0, Checkpoint(51, 2, 2.0))
    assert checkpoints.get("orders", 0) is None
