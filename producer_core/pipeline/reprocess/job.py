"""Run the reprocess job: Spark's workers resend dead letters, each exactly once, as a replay of the store."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from producer_core import replay
from producer_core._internal.actor import current_actor
from producer_core._internal.join_names import join_names
from producer_core.config import ClientConfig, client_config
from producer_core.errors import ConfigError, PipelineError, ReplayError
from producer_core.kafka.record_lookup import prober
from producer_core.pipeline.job_status import JobStatus, track_job
from producer_core.pipeline.preflight import reach
from producer_core.pipeline.reprocess.progress_topic import require_topic
from producer_core.pipeline.reprocess.slicing import MAX_SLICES, By, Slicing, begin_epoch
from producer_core.pipeline.reprocess.spark_lookup import lookup_by_spark
from producer_core.pipeline.reprocess.spark_replay import BatchProgress, SparkReplay
from producer_core.pipeline.spark_errors import explained
from producer_core.replay.claims import floors_of
from producer_core.replay.guard import rule_of
from producer_core.replay.operation import PIPELINE, Operation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay import ReplayRunner
    from producer_core.replay.claims import ReplayClaims
    from producer_core.replay.execution import ReplayExecution
    from producer_core.store import Store

RECORDS_PER_BATCH = 5_000
"""Dead letters in a batch, at most; keys and values, which pass through the driver, are limited to 32 MB.

Settling this many, and claiming the next batch, holds the store for one second of a core, several times as long on a
busy machine. Its lease and other users of the store wait for that time.
"""

TRANSACTION = 30_000
"""Milliseconds that a transaction may last. For this time the transaction of a killed worker hides the ends of its
partitions from the read-backs of other slices, unless its own slice starts again earlier."""


END_TIMEOUT = 60.0
"""Seconds to wait for the end of a cancelled operation, whose driver may still hold it."""


@dataclass(frozen=True)
class ReprocessDriver:
    """Identify the driver of the operation in the store. It sends nothing itself."""

    identity: str
    cluster_id: str

    def resend(self, *_: object) -> None:
        raise AssertionError("Spark's workers send the records")


@dataclass(frozen=True)
class ReprocessOptions:
    """Choose how a job runs.

    The number of slices, the order they keep and the progress topic are fixed when an operation starts; None takes
    the operation's values, or twice as many slices as Spark has cores, by session. `wave` is the maximum batch size.
    """

    slices: int | None = None
    slice_by: By | None = None
    progress_topic: str | None = None
    wave: int = RECORDS_PER_BATCH

    def for_end(self) -> ReprocessOptions:
        """Return options with which a cancelled operation ends as it was started."""
        return ReprocessOptions(wave=self.wave)


def reprocess(
    session: SparkSession,
    store: Store,
    servers: str | Sequence[str],
    *,
    config: Mapping[str, Any] | None = None,
    selection: DeadLetterFilter | None = None,
    operation_id: str | None = None,
    who: str | None = None,
    slices: int | None = None,
    slice_by: By | None = None,
    progress_topic: str | None = None,
    wave: int = RECORDS_PER_BATCH,
    timeout: float = float("inf"),
    **plan: Any,
) -> Operation:
    """Replay the dead letters of a selection, or continue an operation, and return the operation afterwards.

    Each dead letter is on its topic exactly once for a `read_committed` reader, whichever workers, drivers and
    brokers are killed. After the driver was killed, call this again with the same selection or the operation's id. A
    dead letter leaves the DLQ based only on its own outcome. `plan` are the options of `replay.plan`: limit, rate (of the
    whole job), canary, stop_percent, stop_last, newer, inconclusive, allow_quarantined, to_cluster, reason. A started
    operation keeps them: with `operation_id` only `rate` may be given, for a paused replay. The session belongs to
    the caller and stays open.
    """
    if operation_id is not None:
        _check_continuation(selection, plan)
    client = client_config(servers, config)
    cluster = reach(client).view().cluster_id
    choices = ReprocessOptions(slices, slice_by, progress_topic, wave)
    runner = spark_runner(store, client.settings, cluster, choices, session=lambda: session)
    end_cancelled(store, runner, cluster)
    if operation_id is None:
        from producer_core.dlq import DeadLetterFilter

        operation = replay.plan(
            store,
            selection or DeadLetterFilter(),
            who=who or current_actor(),
            origin=PIPELINE,
            can_run=cluster,
            **plan,
        )
    else:
        operation = replay.get(store, operation_id)
        runner.check(operation)
        _check_rate(operation, plan.get("rate"))
        if operation.state == "paused":
            operation = replay.resume(
                store, operation_id, who=who or current_actor(), origin=PIPELINE, rate=plan.get("rate")
            )
    return run_operation(runner, store, operation, timeout)


def _check_continuation(selection: DeadLetterFilter | None, plan: Mapping[str, Any]) -> None:
    given = [
        name
        for name, value in {"selection": selection, **plan}.items()
        if value is not None and value is not False and name != "rate"
    ]
    if given:
        raise ConfigError(
            "A replay that has started keeps its dead letters and its plan, so it cannot be combined with "
            f"{join_names(given)}.",
            fix="With operation_id, only rate may change.",
        )


def _check_rate(operation: Operation, rate: float | None) -> None:
    if operation.state in ("planned", "running") and rate not in (None, operation.rate):
        raise ConfigError(
            f"The replay {operation.operation_id} cannot change its rate while it runs.",
            fix="Pause it first: only a paused replay accepts a new rate.",
        )


def end_cancelled(
    store: Store, runner: ReplayRunner, cluster: str, timeout: float = END_TIMEOUT
) -> list[Operation]:
    """End operations that were cancelled under a driver that died, and return them with the outcomes of their dead
    letters.

    The dead letters are looked up on their topics, so that those that were not sent can be in the next plan. Nothing
    is sent, and Spark is not needed.
    """
    ended = []
    for row in store.rows("replay_ending"):
        operation = replay.get(store, row["operation_id"])
        if operation.by_spark and operation.cluster_id in ("", cluster):
            ended.append(runner.run_one(operation.operation_id, timeout))
    return [operation for operation in ended if operation.ended]


def run_operation(
    runner: ReplayRunner, store: Store, operation: Operation, timeout: float = float("inf")
) -> Operation:
    """Run the operation in this driver, with a row among the store's jobs, and return it afterwards."""
    if operation.ended:
        return operation
    with track_job(store, name=f"reprocess {operation.operation_id}", kind="reprocess") as job:
        job.records(done=operation.total - operation.left, total=operation.total)
        after = runner.run_one(operation.operation_id, timeout)
        report_progress(job, after)
        job.message(after.message or after.state)
    return after


def report_progress(job: JobStatus, operation: Operation) -> None:
    """Report the job's progress; an operation that was paused, cancelled or stopped is not a success."""
    job.records(done=operation.total - operation.left, total=operation.total)
    if operation.state in ("paused", "cancelled", "stopped", "failed"):
        job.unfinished(failed=operation.state in ("stopped", "failed"))


def spark_runner(
    store: Store,
    settings: Mapping[str, Any],
    cluster: str,
    choices: ReprocessOptions,
    *,
    session: Callable[[], SparkSession] | None,
) -> ReplayRunner:
    """Return a runner for operations that were planned for Spark.

    Without a session it can only plan and end cancelled operations.
    """
    from producer_core.replay.runner import ReplayRunner, RunnerSettings

    identity = f"spark:{socket.gethostname()}:{os.getpid()}"
    if session is not None:
        identity = f"spark:{session().sparkContext.applicationId}"

    def spread(execution: ReplayExecution, claims: ReplayClaims, operation: Operation) -> SparkReplay:
        if session is None and operation.state != "cancelled":
            raise ReplayError("Spark was not started.")
        cores = 1 if session is None else _cores(session)
        chosen = choices.for_end() if operation.state == "cancelled" else choices
        epoch = begin_epoch(
            store,
            operation.operation_id,
            count=chosen.slices,
            by=chosen.slice_by,
            otherwise=Slicing(min(MAX_SLICES, max(4, 2 * cores))),
            topic=chosen.progress_topic,
            partitions=partial(require_topic, settings),
            holds=claims.renew,
        )
        progress = BatchProgress(
            operation.operation_id,
            {"transaction.timeout.ms": TRANSACTION, **settings},
            epoch,
            choices.wave,
            cores,
            rule_of(operation),
            rate=execution.rate,
            newer=operation.newer,
        )
        return SparkReplay(
            session or _no_session,
            progress,
            floors=floors_of(operation.floors),
            interrupt=execution.interrupted,
            holds=execution.holds,
            ending=execution.ending,
            report=execution.say,
            clock=time.time,
        )

    return ReplayRunner(
        store,
        ReprocessDriver(identity, cluster),
        client=settings,
        # one batch is claimed and settled while Spark sends the other
        settings=RunnerSettings(in_flight=2 * choices.wave),
        make_spark_strategy=spread,
        probe=prober(
            settings, bulk=None if session is None else lookup_by_spark(session, ClientConfig(settings))
        ),
    )


def _cores(session: Callable[[], SparkSession]) -> int:
    try:
        return int(session().sparkContext.defaultParallelism)
    except Exception as error:  # py4j's or a socket's error: the Java process has ended
        raise explained(error) or PipelineError(
            "Spark's Java process exited.", fix="Continue with the same command."
        ) from error


def _no_session() -> SparkSession:
    raise ReplayError("Spark was not started.")
