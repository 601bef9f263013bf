"""A deadline shares one time limit between several steps."""

from __future__ import annotations

from producer_core._internal import deadline
from producer_core._internal.deadline import Deadline


def test_the_time_left_decreases_to_zero_and_not_below(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])
    limit = Deadline(10.0)

    assert limit.left() == 10.0
    now[0] = 104.0
    assert limit.left() == 6.0
    now[0] = 111.0
    assert limit.left() == 0.0


def test_the_time_for_a_step_is_bounded_below_and_above(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])
    limit = Deadline(10.0)

    assert limit.left(at_most=3.0) == 3.0
    now[0] = 20.0
    assert limit.left(at_least=0.5, at_most=3.0) == 0.5
