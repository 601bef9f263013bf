"""send_batch: messages are claimed and journaled in groups, and each message has its own outcome."""

from __future__ import annotations

import pytest

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.grouping import TOGETHER, groups
from producer_core.testing import FakeClock


def make_deliveries(count, value=b"v"):
    return [Delivery(b"", seq, "orders", None, value) for seq in range(count)]


def test_messages_are_grouped_by_count():
    assert [len(group) for group in groups(make_deliveries(2 * TOGETHER + 1))] == [TOGETHER, TOGETHER, 1]
    assert list(groups([])) == []


def test_large_messages_are_grouped_by_size():
    assert [len(group) for group in groups(make_deliveries(5, b"x" * (3 << 20)))] == [2, 2, 1]
    assert len(list(groups(make_deliveries(3, None)))) == 1


def test_messages_of_a_slow_input_are_grouped_by_time():
    clock = FakeClock()

    def slow():
        for delivery in make_deliveries(3):
            yield delivery
            clock.advance(1.0)

    assert [len(group) for group in groups(slow(), clock=clock)] == [2, 1]


def test_messages_before_a_failure_of_the_input_are_yielded():
    first = make_deliveries(1)

    def broken():
        yield from first
        raise OSError("gone")

    seen = []
    with pytest.raises(OSError, match="gone"):
        seen.extend(groups(broken()))
    assert seen == [first]
