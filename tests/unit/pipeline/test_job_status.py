"""The row of a job in the store, while it runs and afterwards."""

from __future__ import annotations

import json

import pytest

from producer_core.errors import PipelineError
from producer_core.pipeline.job_status import track_job
from producer_core.pipeline.spark_errors import explained
from producer_core.store import Store
from tests.fixtures.spark import FromSpark
from tests.support import eventually


def job_rows(store):
    return store.rows("jobs")


def test_a_job_has_a_row_while_it_runs_and_afterwards(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    with track_job(store, name="integrity orders", kind="integrity") as job:
        assert [row["state"] for row in job_rows(store)] == ["running"]
        job.records(total=200)
        job.fraction_done(0.5)
        job.message("half of it")
        job.details({"topic": "orders"})

    (row,) = job_rows(store)
    assert (row["state"], row["records_done"], row["records_total"]) == ("done", 100, 200)
    assert (row["message"], json.loads(row["details"])) == ("half of it", {"topic": "orders"})
    assert row["last_success_at"] is not None


def test_a_failed_job_has_a_reason_and_keeps_its_last_success(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    with track_job(store, name="j", kind="telemetry", clock=lambda: 5.0):
        pass
    with pytest.raises(PipelineError), track_job(store, name="j", kind="telemetry", clock=lambda: 9.0):
        raise PipelineError("Spark ran out of memory.")

    (row,) = job_rows(store)
    assert (row["state"], row["message"]) == ("failed", "Spark ran out of memory.")
    assert (row["last_success_at"], row["ended_at"]) == (5.0, 9.0)


def test_the_row_of_a_failed_job_has_the_same_message_as_the_terminal(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    with pytest.raises(FromSpark), track_job(store, name="j", kind="telemetry"):
        raise FromSpark

    (row,) = job_rows(store)
    assert row["message"] == str(explained(FromSpark()))


def test_an_interrupted_job_is_recorded_as_interrupted(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    with pytest.raises(KeyboardInterrupt), track_job(store, name="j", kind="telemetry"):
        raise KeyboardInterrupt

    (row,) = job_rows(store)
    assert (row["state"], row["message"]) == ("failed", "Interrupted.")


def test_a_replaced_job_does_not_overwrite_its_successor(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    with track_job(store, name="j", kind="telemetry", clock=lambda: 5.0) as first:
        with track_job(store, name="j", kind="telemetry", clock=lambda: 6.0) as second:
            second.message("second")
        first.message("first")

    assert [row["message"] for row in job_rows(store)] == ["second"]


def test_a_heartbeat_statement_runs_with_each_heartbeat(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    store.execute("begin_audit", id="a", topic="t", cluster="c", started=1.0, isolation="x")
    with track_job(store, name="j", kind="integrity", clock=lambda: 5.0, every=0.01) as job:
        job.add_heartbeat("audit_seen", id="a")
        eventually(lambda: store.rows("one_audit", audit="a")[0]["seen_at"] == 5.0)


def test_an_unusable_store_never_fails_a_job(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    (tmp_path / "s.duckdb").write_bytes(b"not a store" * 4096)
    with track_job(store, name="j", kind="telemetry") as job:
        job.message("continues")
    with track_job(None, name="j", kind="telemetry") as job:
        job.message("continues")
