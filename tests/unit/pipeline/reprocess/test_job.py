"""The reprocess job: its operation, its lease, and its end."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ConfigError, OtherCluster, PipelineError, ReplayError
from producer_core.pipeline.job_status import track_job
from producer_core.pipeline.reprocess import ReprocessOptions, job
from producer_core.replay.operation import PIPELINE
from tests.factories import replay_runner
from tests.fixtures.replays import CLUSTER, ScriptedSender, add_dead_letters, replay_record, write_heartbeat
from tests.fixtures.reprocess import Session, command_for, paused_replay


def test_an_ordinary_runner_does_not_run_sparks_operations(store):
    add_dead_letters(store, 5)
    write_heartbeat(store, time.time())
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    sender = ScriptedSender()
    ordinary = replay_runner(store, sender)

    assert ordinary.poll() is False
    with pytest.raises(ReplayError, match=r"pipeline reprocess --operation " + planned.operation_id):
        ordinary.run_one(planned.operation_id, 1)
    assert sender.sent == []


def test_sparks_runner_does_not_run_ordinary_operations(store):
    add_dead_letters(store, 5)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin="cli", can_run=CLUSTER)
    runner = replay_runner(
        store, ScriptedSender(), make_spark_strategy=lambda *_: pytest.fail("it ran the operation")
    )

    assert runner.poll() is False
    with pytest.raises(ReplayError, match="not planned for Spark"):
        runner.run_one(planned.operation_id, 1)


def test_an_operation_of_another_cluster_stays_paused(store, monkeypatch):
    """The command has the operation's id and the addresses of another cluster."""
    one = paused_replay(store)
    monkeypatch.setattr(job, "reach", lambda client: SimpleNamespace(view=lambda: Elsewhere))

    with pytest.raises(OtherCluster):
        job.reprocess(Session, store, "broker:9092", operation_id=one)
    with pytest.raises(OtherCluster):
        command_for(store, Elsewhere.cluster_id).select(one)

    assert replay.get(store, one).state == "paused"


def test_reprocess_in_python_keeps_the_plan_of_a_started_operation(store, monkeypatch):
    one = paused_replay(store, rate=5.0)
    monkeypatch.setattr(job, "reach", lambda client: SimpleNamespace(view=lambda: Here))

    def continue_replay(**plan):
        return job.reprocess(Session, store, "broker:9092", operation_id=one, **plan)

    with pytest.raises(
        ConfigError, match=r"combined with selection, limit and canary\. .*only rate may change"
    ):
        continue_replay(selection=DeadLetterFilter(topic="orders"), limit=3, rate=9.0, canary=0, reason=None)
    assert replay.get(store, one).state == "paused"

    replay.resume(store, one, who="ann", origin="dashboard")
    with pytest.raises(ConfigError, match="cannot change its rate"):
        continue_replay(rate=9.0)


class Here:
    cluster_id = CLUSTER


class Elsewhere:
    cluster_id = "cluster-2"


def test_a_request_for_other_slices_fails_and_releases_the_lease(store, log, monkeypatch):
    add_dead_letters(store, 3)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    store.set_setting(
        f"reprocess.{planned.operation_id}",
        {"slices": 4, "by": "key", "lives": 1, "topic": "seals", "partitions": 3},
    )
    monkeypatch.setattr(job, "require_topic", lambda settings, topic: 3)
    runner = job.spark_runner(store, {}, CLUSTER, ReprocessOptions(slices=3), session=lambda: Session)
    monkeypatch.setattr(runner, "_obstacle", lambda *_: "")
    monkeypatch.setattr(runner, "_client", None)

    with pytest.raises(ReplayError, match="started with 4 slices by key"):
        runner.run_one(planned.operation_id, 10)

    assert replay.get(store, planned.operation_id).owner is None


class Killed:
    """A session whose Java process was killed."""

    class sparkContext:
        applicationId = "app-1"

        @property
        def defaultParallelism(self):
            raise ConnectionRefusedError(111, "Connection refused")

    sparkContext = sparkContext()


def test_a_driver_whose_spark_has_ended_reports_it_and_releases_the_lease(store, log, monkeypatch):
    """It used to retry forever, with a traceback each time."""
    add_dead_letters(store, 3)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    runner = job.spark_runner(store, {}, CLUSTER, ReprocessOptions(), session=lambda: Killed)
    monkeypatch.setattr(runner, "_obstacle", lambda *_: "")
    monkeypatch.setattr(runner, "_client", None)

    with pytest.raises(PipelineError, match="Java process exited"):
        runner.run_one(planned.operation_id, 10)

    assert replay.get(store, planned.operation_id).owner is None


def cancelled_under_a_dead_driver(store, ago):
    """Cancel a replay of three dead letters, two of which were claimed `ago` seconds ago."""
    now = time.time()
    ids = add_dead_letters(store, 3)
    write_heartbeat(store, now)
    planned = replay.plan(store, DeadLetterFilter(), who="ann", origin=PIPELINE, can_run=CLUSTER)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE operations SET owner = 'spark:gone', lease_until = ?", [now - ago])
        connection.execute("UPDATE operation_records SET state = 'claimed' WHERE ord < 3")
        connection.execute(
            "UPDATE dead_letters SET state = 'replaying', operation_id = ?, state_at = ? WHERE list_contains(?, message_id)",
            [planned.operation_id, now - ago, ids[:2]],
        )
    return replay.cancel(store, planned.operation_id, who="ann", origin="cli")


def test_a_cancelled_operation_whose_driver_died_ends_automatically(store):
    ended = cancelled_under_a_dead_driver(store, ago=100)

    assert (ended.state, ended.ended, ended.left) == ("cancelled", True, 0)
    assert DeadLetters(store).count(DeadLetterFilter(verdict="inconclusive")) == 2


@pytest.mark.slow
def test_the_next_driver_settles_a_cancelled_operation_and_sends_nothing(store, log, monkeypatch):
    cancelled = cancelled_under_a_dead_driver(store, ago=20)
    assert not cancelled.ended
    log.on_topic = {replay_record(0).message_id: 4}
    monkeypatch.setattr(job, "require_topic", lambda settings, topic: 16)
    runner = job.spark_runner(store, {}, CLUSTER, ReprocessOptions(slices=3), session=None)
    runner._lease = runner._watch._lease = 0.3
    monkeypatch.setattr(runner, "_obstacle", lambda *_: "")

    (ended,) = job.end_cancelled(store, runner, CLUSTER)

    assert (ended.landed, ended.skipped, ended.left, ended.ended) == (1, 2, 0, True)
    assert DeadLetters(store).count_by(DeadLetterFilter(state=None), "state") == {"dead": 2, "landed": 1}
    assert log.batches == []


@pytest.mark.parametrize(
    ("state", "job_state", "success"),
    [("paused", "done", False), ("stopped", "failed", False), ("done", "done", True)],
)
def test_a_job_succeeds_only_when_its_replay_is_done(store, state, job_state, success):
    operation = SimpleNamespace(state=state, total=5, left=0)

    with track_job(store, name="reprocess op", kind="reprocess") as status:
        job.report_progress(status, operation)

    (row,) = store.rows("jobs")
    assert (row["state"], row["last_success_at"] is not None) == (job_state, success)
