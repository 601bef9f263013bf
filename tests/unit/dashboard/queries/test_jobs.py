"""Test the state of pipeline jobs."""

from __future__ import annotations

import pytest

from producer_core.dashboard.queries.jobs import jobs, state_of
from tests.fixtures.audits import job, job_ended


def test_a_running_job_has_progress_and_lag(store, now):
    job(store, began=now - 100, seen=now - 1, records_done=120, records_total=480, lag=9, message="reads")
    (found,) = jobs(store, now)
    assert (found.state, found.share, found.lag, found.message) == ("running", 0.25, 9, "reads")


@pytest.mark.parametrize(
    ("state", "silent", "text"),
    [("running", 59, "running"), ("running", 61, "dead"), ("done", 999, "done"), ("failed", 999, "failed")],
)
def test_a_running_job_without_a_heartbeat_for_a_minute_is_dead(state, silent, text):
    assert state_of(state, silent) == text


def test_jobs_are_sorted_dead_first_then_latest(store, now):
    job(store, "old", began=now - 900, seen=now - 800)
    job_ended(store, "old", "done", began=now - 900, ended=now - 800)
    job(store, "new", began=now - 90, seen=now - 80)
    job_ended(store, "new", "failed", began=now - 90, ended=now - 80)
    job(store, "dead", began=now - 9000, seen=now - 61)
    job(store, "runs", began=now - 500, seen=now)
    assert [found.name for found in jobs(store, now)] == ["dead", "runs", "new", "old"]


@pytest.mark.parametrize(
    ("done", "total", "share"), [(None, 10, None), (3, None, None), (3, 0, None), (0, 10, 0.0), (30, 10, 1.0)]
)
def test_the_share_of_a_job_is_known_with_its_total_and_never_above_one(store, now, done, total, share):
    job(store, began=now - 100, seen=now - 1, records_done=done, records_total=total)
    (found,) = jobs(store, now)
    assert found.share == share


def test_a_store_without_jobs_has_none(store, now):
    assert jobs(store, now) == ()
