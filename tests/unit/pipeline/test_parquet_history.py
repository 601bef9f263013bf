"""The history of the telemetry job: few files, and no row twice or missing after a kill at any point."""

from __future__ import annotations

import duckdb
import pytest

from producer_core.errors import ConfigError, PipelineError, StoreLocked
from producer_core.pipeline import telemetry
from producer_core.pipeline.job_status import JobStatus
from producer_core.pipeline.merge_batch import merge, unseen
from producer_core.pipeline.parquet_history import ParquetHistory
from producer_core.store import Store
from tests.fixtures.spark import Killed, Query
from tests.fixtures.telemetry_batches import batches, micro_batch

HOUR = 3600.0
TEN = 1_700_000_000 // 3600 * 3600.0 + 60  # a minute past a full hour


class Job:
    """Merges and keeps batches like the telemetry job, and can be killed at a named point."""

    def __init__(self, folder, *, dies_at=None, store="fleet.duckdb"):
        self.store = Store.open(folder / store)
        self.dies_at = dies_at
        self.history = ParquetHistory(folder / "history", reached=self.reached)
        self.history.open(self.store)

    def reached(self, point):
        if point == self.dies_at:
            raise Killed

    def run(self, given, now=TEN):
        fresh = unseen(self.store, given)
        draft = self.history.draft(fresh, now)
        self.reached("drafted")
        merge(self.store, fresh, record=micro_batch("q", 0, now), reached=self.reached)
        self.reached("merged")
        self.history.keep(draft)

    def end(self):
        """Release the lock, as the kernel does for a killed process."""
        self.history.close()
        self.store.close()


@pytest.fixture
def jobs(tmp_path):
    started = []

    def start(**choices):
        started.append(Job(tmp_path, **choices))
        return started[-1]

    yield start
    for job in started:
        job.end()


def rows(folder, kind="statistics"):
    found = duckdb.sql(
        f"SELECT batch_producer, batch_sequence FROM read_parquet('{folder}/history/{kind}/*.parquet')"
    )
    return sorted(found.fetchall())


def files(folder, kind="statistics"):
    return sorted(file.name for file in (folder / "history" / kind).glob("*.parquet"))


def numbered(*numbers):
    return batches(*(("p1", number) for number in numbers))


@pytest.mark.slow
def test_micro_batches_of_an_hour_become_one_file_per_kind(jobs, tmp_path):
    job = jobs()
    for number in range(5):
        job.run(numbered(number))
    job.history.publish()

    assert rows(tmp_path) == rows(tmp_path, "latencies") == [("p1", number) for number in range(5)]
    assert len(files(tmp_path)) == len(files(tmp_path, "errors")) == 1
    assert not any((tmp_path / "history" / "_waiting").iterdir())


@pytest.mark.slow
def test_only_closed_hours_are_published_while_the_job_runs(jobs, tmp_path):
    job = jobs()
    job.run(numbered(0), TEN - HOUR)
    job.run(numbered(1), TEN)

    job.history.publish(before=TEN + 5)
    assert rows(tmp_path) == [("p1", 0)]

    job.history.publish(before=TEN + HOUR)
    assert rows(tmp_path) == [("p1", 0), ("p1", 1)]
    assert len(files(tmp_path)) == 2


@pytest.mark.slow
def test_many_short_runs_within_an_hour_make_one_file(jobs, tmp_path):
    for number in range(3):
        job = jobs()
        job.run(numbered(number))
        job.history.publish()
        job.end()

    assert rows(tmp_path) == [("p1", number) for number in range(3)]
    assert len(files(tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("point", ["drafted", "in the transaction", "merged"])
def test_a_kill_while_merging_leaves_each_row_once(jobs, tmp_path, point):
    first = jobs()
    first.run(numbered(0))
    first.dies_at = point
    with pytest.raises(Killed):
        first.run(numbered(1, 2))
    first.end()

    again = jobs()
    again.run(numbered(1, 2)) if unseen(again.store, numbered(1, 2)).num_rows else None
    again.run(numbered(3))
    again.history.publish()

    assert rows(tmp_path) == [("p1", number) for number in range(4)]


@pytest.mark.slow
def test_a_history_belongs_to_its_store_even_if_its_first_job_was_killed(jobs, tmp_path):
    job = jobs(dies_at="merged")
    with pytest.raises(Killed):
        job.run(numbered(0))
    job.end()
    again = jobs()
    again.history.publish()
    again.end()

    jobs().run(numbered(1))
    assert rows(tmp_path) == [("p1", 0)]


@pytest.mark.slow
@pytest.mark.parametrize("point", ["drafted a file", "renamed a file", "published"])
def test_a_kill_while_publishing_leaves_each_row_once(jobs, tmp_path, point):
    job = jobs()
    job.run(numbered(0))
    job.history.publish()
    job.run(numbered(1, 2))
    for number in range(2):
        job.dies_at = point
        with pytest.raises(Killed):
            job.history.publish()
        job.end()
        job = jobs()
        job.run(numbered(3 + number))
    job.history.publish()

    assert rows(tmp_path) == rows(tmp_path, "errors") == [("p1", number) for number in range(5)]
    assert len(files(tmp_path)) == 1


@pytest.mark.slow
def test_a_concurrent_reader_sees_the_old_file_or_the_new_one(jobs, tmp_path):
    job = jobs()
    job.run(numbered(0))
    job.history.publish()
    seen = []
    job.reached = lambda point: seen.append(rows(tmp_path))
    job.history._reached = job.reached
    job.run(numbered(1))
    job.history.publish()

    whole = [("p1", 0), ("p1", 1)]
    assert all(found in ([("p1", 0)], whole) for found in seen)
    assert seen[-1] == whole


def test_an_incomplete_draft_is_dropped(jobs, tmp_path):
    job = jobs()
    draft = job.history.draft(numbered(0), TEN)
    draft.write_bytes(draft.read_bytes()[:100])
    job.end()

    again = jobs()
    again.run(numbered(0))
    again.history.publish()

    assert rows(tmp_path) == [("p1", 0)]


def test_a_history_is_written_by_one_job_at_a_time(jobs):
    jobs()
    with pytest.raises(PipelineError, match="Another job is using the history"):
        jobs()


class Stream(telemetry._Stream):
    """Merges the same micro-batch in every run, without Spark."""

    def _start(self, sink):
        sink._pieces._add(numbered(1, 2), micro_batch("q", 1, TEN))
        return Query()


@pytest.mark.slow
def test_a_store_that_was_locked_for_a_while_has_each_row_once(jobs, tmp_path):
    job = jobs()
    job.run(numbered(0))
    points = iter(["drafted", None])
    failing = None

    def reached(point):
        if point == failing:
            raise StoreLocked

    now = TEN
    run = telemetry._Run(JobStatus(), lambda state: None, lambda: False)
    source = telemetry.TelemetrySource((), {}, "c", {})
    stream = Stream(None, source, job.store, tmp_path, job.history, False, 1.0, reached, lambda: now, dict)
    results = []
    for failing in points:
        results.append(stream.run_once(run))
        now += HOUR
    job.history.publish()
    job.end()
    jobs().history.publish()

    assert results == [False, True]
    assert rows(tmp_path) == [("p1", 0), ("p1", 1), ("p1", 2)]


@pytest.mark.slow
def test_a_history_of_a_deleted_store_is_rejected_because_it_would_hold_each_row_twice(jobs, tmp_path):
    job = jobs()
    job.run(numbered(0))
    job.history.publish()
    job.end()
    (tmp_path / "fleet.duckdb").unlink()

    with pytest.raises(ConfigError, match="a store other than"):
        jobs()
    with pytest.raises(ConfigError, match="a store other than"):
        ParquetHistory(tmp_path / "history").check(None, tmp_path / "none.duckdb")


@pytest.mark.slow
def test_a_history_of_another_store_with_the_same_batches_is_rejected(jobs, tmp_path):
    job = jobs()
    job.run(numbered(0))
    job.end()
    other = Store.open(tmp_path / "other.duckdb")
    merge(other, numbered(0), record=micro_batch("q", 0, TEN))
    other.close()

    with pytest.raises(ConfigError, match="a store other than"):
        jobs(store="other.duckdb")


@pytest.mark.slow
@pytest.mark.parametrize("published", [True, False])
def test_a_history_that_is_ahead_of_a_store_restored_from_a_copy_is_rejected(jobs, tmp_path, published):
    job = jobs()
    job.run(numbered(0))
    job.store.snapshot(tmp_path / "copy.duckdb")
    job.run(numbered(1), TEN + HOUR)
    if published:
        job.history.publish()
    job.end()
    (tmp_path / "copy.duckdb").replace(tmp_path / "fleet.duckdb")

    with pytest.raises(ConfigError, match="never merged") as raised:
        jobs()
    assert "new folder with --history" in str(raised.value)


@pytest.mark.slow
def test_a_copy_of_a_store_continues_its_history(jobs, tmp_path):
    job = jobs()
    job.run(numbered(0))
    job.store.snapshot(tmp_path / "moved.duckdb")
    job.end()

    moved = jobs(store="moved.duckdb")
    moved.run(numbered(1))
    moved.history.publish()

    assert rows(tmp_path) == [("p1", 0), ("p1", 1)]


@pytest.mark.slow
def test_only_the_owner_can_read_a_history(jobs, tmp_path):
    job = jobs()
    job.run(numbered(0))
    job.history.publish()

    folder = tmp_path / "history"
    assert {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*.parquet"))} == {0}


@pytest.mark.slow
def test_a_kind_without_rows_still_has_a_readable_file(jobs, tmp_path):
    job = jobs()
    job.run(numbered(0))
    job.history.publish()

    assert rows(tmp_path, "broker_statistics") == []
