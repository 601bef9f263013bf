"""Test the cause of dead letters."""

from __future__ import annotations

import pytest

from producer_core.dashboard.queries.cause import Cause


@pytest.mark.parametrize(("waiting", "left"), [(None, 3), (0, 0), (1, 1)])
def test_all_dead_letters_of_a_cause_count_as_remaining_unless_the_pending_count_is_known(waiting, left):
    assert Cause("orders", "It timed out.", 3, waiting=waiting).left == left
