"""Test the texts about jobs."""

from __future__ import annotations

import pytest

from producer_core.dashboard.wording import jobs as job_wording


def test_progress_is_in_the_unit_of_the_job():
    assert job_wording.progress("integrity", 12_000, 50_000, 0.24) == "24.0% of 50,000 records"
    assert job_wording.progress("telemetry", 312, None, None) == "312 batches"
    assert job_wording.progress("telemetry", 1, None, None) == "1 batch"
    assert job_wording.progress("reprocess", None, None, None) == "–"
    assert (job_wording.lag(None), job_wording.lag(0), job_wording.lag(1)) == ("–", "none", "1 record")
    assert (job_wording.last_success(None), job_wording.last_success(3.0)) == ("never", "3 s ago")


@pytest.mark.parametrize(
    ("state", "tone", "text"),
    [
        ("running", "good", "running for 10 min"),
        ("dead", "bad", "dead: never finished, last seen 2 min ago"),
        ("failed", "warning", "failed 60 s ago"),
        ("done", "quiet", "finished 60 s ago"),
    ],
)
def test_a_job_has_a_tone_and_the_age_of_its_state(state, tone, text):
    assert job_wording.state(state, 1000.0, started_at=400.0, seen_at=880.0, ended_at=940.0) == (tone, text)


def test_a_job_without_a_recorded_end_ended_at_its_last_heartbeat():
    assert (
        job_wording.state("failed", 1000.0, started_at=400.0, seen_at=880.0, ended_at=None)[1]
        == "failed 2 min ago"
    )


def test_dead_jobs_are_counted():
    assert job_wording.dead_jobs(1).startswith("1 job is dead:")
    assert job_wording.dead_jobs(1200).startswith("1,200 jobs are dead:")
