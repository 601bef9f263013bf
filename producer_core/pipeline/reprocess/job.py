"""The reprocess job: dead letters sent again by Spark's workers, each exactly once, as a replay that the store knows."""

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
from producer_core.config import ClientConfig, client_config
from producer_core.errors import ConfigError, PipelineError, ReplayError
from producer_core.kafka.record_lookup import prober
from producer_core.pipeline.job_status import JobStatus, track_job
from producer_core.pipeline.preflight import reach
from producer_core.pipeline.reprocess.progress_topic import require_topic
from producer_core.pipeline.reprocess.slicing import MOST, By, Slicing, begin_epoch
from producer_core.pipeline.reprocess.spark_lookup import far
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
"""Letters in a wave, at most; and no more than 32 MB of keys and values, which pass through the driver. Settling so many,
and claiming the next, holds the store for a second of a core: on a busy machine several times as long, and its lease and
whoever else wants the store wait."""

TRANSACTION = 30_000
"""Milliseconds that a transaction may last: for so long a killed worker's hides the ends of its partitions from the
other slices' read-backs, where its own slice does not begin again before."""


ENDING = 60.0
"""Seconds for which a cancelled operation's end is waited for: its driver may still have it."""


@dataclass(frozen=True)
class ReprocessDriver:
    """Who runs it, as the store knows him. He sends nothing himself."""

    identity: str
    cluster_id: str

    def resend(self, *_: object) -> None:
        raise AssertionError("Spark's workers send")


@dataclass(frozen=True)
class ReprocessOptions:
    """How a job is carried out. Slices, what they keep in order, and the progress topic are decided once for an
    operation; None takes what it has, or twice as many slices as Spark has cores, by session."""

    slices: int | None = None
    slice_by: By | None = None
    progress_topic: str | None = None
    wave: int = RECORDS_PER_BATCH

    def for_end(self) -> ReprocessOptions:
        """What was cancelled ends as it was begun."""
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
    """Replays the dead letters of a selection, or goes on with an operation, and says how it stands afterwards.

    Each dead letter is on its topic exactly once for a `read_committed` reader, whatever of workers, driver and brokers is
    killed meanwhile; after a killed driver call it again, with the same selection or the operation's id. It leaves
    the DLQ only by its own outcome. `plan` are the choices of `replay.plan`: limit, rate (of the whole job), canary,
    stop_percent, stop_last, newer, inconclusive, allow_quarantined, to_cluster, reason. What was begun keeps them: with `operation_id`
    only `rate` may be given, for a replay that is paused. The session is the caller's and stays open.
    """
    if operation_id is not None:
        _only_goes_on(selection, plan)
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
        _keeps_its_rate(operation, plan.get("rate"))
        if operation.state == "paused":
            operation = replay.resume(
                store, operation_id, who=who or current_actor(), origin=PIPELINE, rate=plan.get("rate")
            )
    return carried_out(runner, store, operation, timeout)


def _only_goes_on(selection: DeadLetterFilter | None, plan: Mapping[str, Any]) -> None:
    given = [
        name
        for name, value in {"selection": selection, **plan}.items()
        if value is not None and value is not False and name != "rate"
    ]
    if given:
        raise ConfigError(
            f"A replay that was begun keeps its dead letters and its plan, and you gave {', '.join(given)}.",
            fix="Leave that out; only rate may change with operation_id.",
        )


def _keeps_its_rate(operation: Operation, rate: float | None) -> None:
    if operation.state in ("planned", "running") and rate not in (None, operation.rate):
        raise ConfigError(
            f"The replay {operation.operation_id} goes on at the rate that it has.",
            fix="Pause it first: only a paused one takes another rate.",
        )


def end_cancelled(
    store: Store, runner: ReplayRunner, cluster: str, timeout: float = ENDING
) -> list[Operation]:
    """Ends what was cancelled under a driver that died, and says what became of its dead letters: they are looked for on
    their topics, so that those which were not sent can be in the next plan. Nothing is sent, and Spark is not needed."""
    ended = []
    for row in store.rows("replay_ending"):
        operation = replay.get(store, row["operation_id"])
        if operation.by_spark and operation.cluster_id in ("", cluster):
            ended.append(runner.run_one(operation.operation_id, timeout))
    return [operation for operation in ended if operation.ended]


def carried_out(
    runner: ReplayRunner, store: Store, operation: Operation, timeout: float = float("inf")
) -> Operation:
    """The operation after this driver, with a line among the store's jobs while it runs."""
    if operation.ended:
        return operation
    with track_job(store, name=f"reprocess {operation.operation_id}", kind="reprocess") as job:
        job.records(done=operation.total - operation.left, total=operation.total)
        after = runner.run_one(operation.operation_id, timeout)
        tell(job, after)
        job.message(after.message or after.state)
    return after


def tell(job: JobStatus, operation: Operation) -> None:
    """How far it is; where it was paused or cancelled, or stopped itself, its job is no success."""
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
    """A runner of the operations that were planned for Spark. Without a session it can only look ahead, and end
    what was cancelled."""
    from producer_core.replay.runner import ReplayRunner, RunnerSettings

    identity = f"spark:{socket.gethostname()}:{os.getpid()}"
    if session is not None:
        identity = f"spark:{session().sparkContext.applicationId}"

    def spread(work: ReplayExecution, claims: ReplayClaims, operation: Operation) -> SparkReplay:
        if session is None and operation.state != "cancelled":
            raise ReplayError("Spark was not started.")
        cores = 1 if session is None else _cores(session)
        chosen = choices.for_end() if operation.state == "cancelled" else choices
        life = begin_epoch(
            store,
            operation.operation_id,
            count=chosen.slices,
            by=chosen.slice_by,
            otherwise=Slicing(min(MOST, max(4, 2 * cores))),
            topic=chosen.progress_topic,
            partitions=partial(require_topic, settings),
            holds=claims.renew,
        )
        course = BatchProgress(
            operation.operation_id,
            {"transaction.timeout.ms": TRANSACTION, **settings},
            life,
            choices.wave,
            cores,
            rule_of(operation),
            rate=work.rate,
            newer=operation.newer,
        )
        return SparkReplay(
            session or _no_session,
            course,
            floors=floors_of(operation.floors),
            interrupt=work.interrupted,
            holds=work.holds,
            ending=work.ending,
            say=work.say,
            clock=time.time,
        )

    return ReplayRunner(
        store,
        ReprocessDriver(identity, cluster),
        client=settings,
        # one batch is claimed and settled while Spark sends the other
        settings=RunnerSettings(in_flight=2 * choices.wave),
        spread=spread,
        probe=prober(settings, far=None if session is None else far(session, ClientConfig(settings))),
    )


def _cores(session: Callable[[], SparkSession]) -> int:
    try:
        return int(session().sparkContext.defaultParallelism)
    except Exception as error:  # py4j's, and a socket's: whose Java process was killed has none
        raise explained(error) or PipelineError(
            "Spark's Java process is gone.", fix="Go on with the same command."
        ) from error


def _no_session() -> SparkSession:
    raise ReplayError("Spark was not started.")
