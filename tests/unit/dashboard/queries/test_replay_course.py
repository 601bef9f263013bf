"""Test the records of a replay over time on a real store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core import replay
from producer_core.dashboard.queries.replay_course import replay_course
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.replay_pages import NOW, started
from tests.fixtures.replays import add_dead_letters

store = replay_pages_fixtures.store

OUTCOMES = [("acknowledged", 1.0), ("landed", 2.0), ("failed", 2.0), ("acknowledged", 9.0), ("skipped", 9.0)]


@pytest.fixture
def settled(store):
    """Return a replay that began at NOW, with outcomes at known times, and two records without one."""
    add_dead_letters(store, 7)
    operation_id, _ = started(store)
    with store.borrow(write=True) as connection:
        for number, (state, at) in enumerate(OUTCOMES):
            connection.execute(
                "UPDATE operation_records SET state = ?, settled_at = ? WHERE operation_id = ? AND ord = "
                "(SELECT min(ord) + ? FROM operation_records WHERE operation_id = ?)",
                [state, NOW + at, operation_id, number, operation_id],
            )
    return replace(replay.get(store, operation_id), started_at=NOW)


def test_the_curves_rise_with_each_outcome_until_now(store, settled):
    found = replay_course(store, settled, NOW + 20)

    assert (found.ats[0], found.ats[-1], found.total) == (NOW, NOW + 20, 7)
    assert (found.succeeded[0], found.failed[0]) == (0, 0)
    assert (found.succeeded[-1], found.failed[-1]) == (3, 1)
    assert list(found.succeeded) == sorted(found.succeeded) and list(found.ats) == sorted(found.ats)
    reached = dict(zip(found.succeeded, found.ats, strict=True))
    assert (
        NOW + 9
        <= next(at for at, count in zip(found.ats, found.succeeded, strict=True) if count == 3)
        <= NOW + 9.2
    )
    assert reached[2] >= NOW + 2


def test_the_curves_of_an_ended_replay_end_with_it(store, settled):
    found = replay_course(store, replace(settled, finished_at=NOW + 9.5), NOW + 500)
    assert found.ats[-1] == NOW + 9.5
    assert found.succeeded[-1] == 3


def test_a_replay_that_has_not_started_has_no_curve(store, settled):
    assert replay_course(store, replace(settled, started_at=None), NOW) is None


def test_a_replay_of_no_time_has_a_curve(store, settled):
    found = replay_course(store, replace(settled, finished_at=NOW), NOW)
    assert found.ats[0] == NOW and found.succeeded[-1] == 3
