"""How often and when a lost transactional id is taken back."""

from __future__ import annotations

from producer_core.delivery.exactly_once.ownership import Ownership


def test_a_lost_id_is_taken_back_three_times_a_day_with_increasing_delays():
    now = [0.0]
    ownership = Ownership(0, clock=lambda: now[0])

    waits = [ownership.record_loss(explained=False) for _ in range(5)]

    assert waits[3:] == [None, None]
    assert 0 < waits[0] < waits[1] < waits[2] < 5
    now[0] = 23 * 3600.0
    assert ownership.record_loss(explained=False) is None
    now[0] = 25 * 3600.0
    assert ownership.record_loss(explained=False) is not None


def test_a_loss_explained_by_a_late_own_request_stops_counting_after_ten_minutes():
    now = [0.0]
    ownership = Ownership(0, clock=lambda: now[0])
    assert None not in [ownership.record_loss(explained=True) for _ in range(3)]
    assert ownership.record_loss(explained=True) is None

    now[0] = 601.0

    assert ownership.record_loss(explained=True) is not None


def test_each_further_shard_has_more_attempts_so_that_one_id_decides():
    attempts = [Ownership(number).attempts for number in range(4)]
    assert attempts == sorted(set(attempts))
