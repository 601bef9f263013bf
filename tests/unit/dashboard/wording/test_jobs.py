"""Test the texts about jobs."""

from __future__ import annotations

from producer_core.dashboard.wording import jobs as job_wording


def test_progress_is_in_the_unit_of_the_job():
    assert job_wording.progress("integrity", 12_000, 50_000, 0.24) == "24.0 % of 50,000 records"
    assert job_wording.progress("telemetry", 312, None, None) == "312 batches"
    assert job_wording.progress("telemetry", 1, None, None) == "1 batch"
    assert job_wording.progress("reprocess", None, None, None) == "–"
    assert (job_wording.lag(None), job_wording.lag(0), job_wording.lag(1)) == ("–", "none", "1 record")
    assert (job_wording.last_success(None), job_wording.last_success(3.0)) == ("never", "3 s ago")
