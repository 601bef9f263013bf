"""Run one replay from the command line, with a producer of this process or by a live producer of the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from producer_core import replay
from producer_core._internal.plural import plural
from producer_core.cli import options
from producer_core.config import ClientConfig, client_config
from producer_core.errors import NoReplayRunner, OtherCluster, ProducerError, StoreLocked

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.producer.environment_tracing import ReplayTracing
    from producer_core.producer.producer import ReliableKafkaProducer
    from producer_core.replay import Operation
    from producer_core.replay.dry_run import DryRun
    from producer_core.replay.schema_versions import SchemaVersions
    from producer_core.store import Store

_NO_RUNNER_FIX = "Use --bootstrap-servers to send from here, or start a producer on this store."
_POLL_INTERVAL = 0.3
_NO_TIMEOUT = 10.0**9
_RUNNER_TIMEOUT = 30.0
"""Seconds without a live runner or an available store after which the command stops waiting."""


@dataclass
class ReplayRun:
    """A replay of `where`. `client` holds the broker addresses and settings; None leaves sending to a live producer.

    `registry` has the settings of a schema registry, for the dry run.
    """

    store: Store
    where: DeadLetterFilter
    client: tuple[str, Mapping[str, Any]] | None
    to_cluster: str | None = None
    origin: str = "cli"
    registry: Mapping[str, Any] | None = None
    stop_timeout: ClassVar[float] = 20.0
    """Seconds for the runner of this process to release the operation."""
    pause_notice: ClassVar[str] = (
        "Waiting for the records in flight, 20 s at most; the rest stay in the store …"
    )
    """Printed after Ctrl-C."""
    _cluster: str = field(default="", init=False)
    _producer: ReliableKafkaProducer | None = field(default=None, init=False)
    _tracing: ReplayTracing | None = field(default=None, init=False)
    _runner: replay.ReplayRunner | None = field(default=None, init=False)
    _runner_thread: _RunnerThread | None = field(default=None, init=False)
    _operation_id: str = field(default="", init=False)

    def __enter__(self) -> Self:
        if self.client is not None:
            self._connect(*self.client)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        if self._tracing is not None:
            self._tracing.close()
        if self._producer is not None:
            self._producer.close()

    def dry_run(self, *, operation: Operation | None = None, **choices: Any) -> DryRun:
        """Return the dry run by the store, and by the operation's preflight check if there is one."""
        from producer_core.replay.dry_run import dry_run

        return dry_run(
            self.store,
            self.where,
            operation=operation,
            to_cluster=self.to_cluster,
            schemas=self._schema_versions(operation, **choices),
            **choices,
        )

    def _schema_versions(self, operation: Operation | None, **choices: Any) -> SchemaVersions:
        from producer_core.replay.schema_versions import schema_versions

        return schema_versions(
            self.store,
            self.where,
            operation,
            given=self.registry,
            limit=choices.get("limit"),
            allow_quarantined=bool(choices.get("allow_quarantined")),
            cluster=choices.get("cluster"),
            anywhere=bool(self.to_cluster),
        )

    def preflight(
        self, *, allow_quarantined: bool = False, limit: int | None = None, **choices: Any
    ) -> DryRun:
        """Return the dry run with a check of the topics from this process; no replay is planned or stored."""
        from producer_core.replay.broker_check import check
        from producer_core.replay.guarantee import replay_guarantee
        from producer_core.replay.preflight import topics_to_scan
        from producer_core.replay.selection_counts import iter_selection

        assert self.client is not None
        config, cluster = connected_cluster(*self.client, self.to_cluster)
        dead_letters = iter_selection(
            self.store,
            self.where,
            allow_quarantined=allow_quarantined,
            cluster=None if self.to_cluster else cluster,
            limit=limit,
        )
        to_scan = topics_to_scan(choices.get("newer") or "auto", cluster, asked_first=True)
        result, _ = check(
            config.settings, dead_letters, newer=to_scan, sends_at_most=config.max_message_bytes
        )
        topics = [topic.topic for topic in result.topics if topic.partitions]
        guarantee = replay_guarantee(config, topics, cluster)
        result = replace(result, delivery=guarantee.delivery, why=guarantee.why)
        return self.dry_run(
            check=result, cluster=cluster, allow_quarantined=allow_quarantined, limit=limit, **choices
        )

    def plan(self, **choices: Any) -> Operation:
        """Plan the replay with the options of `replay.plan`, or return the unfinished one of the same selection."""
        try:
            planned = replay.plan(
                self.store,
                self.where,
                to_cluster=self.to_cluster,
                can_run=self._cluster or False,
                **{**_who(), "origin": self.origin},
                **choices,
            )
        except NoReplayRunner as error:
            raise NoReplayRunner(fix=_NO_RUNNER_FIX) from error
        except OtherCluster as error:
            raise OtherCluster(error.what, fix=self._other_cluster_fix()) from error
        self._operation_id = planned.operation_id
        return planned

    def go(
        self,
        operation: Operation,
        *,
        newer: replay.Newer | None = None,
        inconclusive: replay.Inconclusive | None = None,
        rate: float | None = None,
    ) -> Operation:
        """Start a replay that is ready or paused, with a new rate limit if given."""
        if operation.state == "ready":
            return replay.go(
                self.store,
                operation.operation_id,
                newer=newer,
                inconclusive=inconclusive,
                rate=rate,
                **_who(),
            )
        if operation.state == "paused":
            return replay.resume(self.store, operation.operation_id, rate=rate, **_who())
        return operation

    def cancel(self) -> None:
        """Cancel a planned replay of which no record was sent."""
        replay.cancel(self.store, self._operation_id, **_who())

    def watch(
        self, operation: Operation, until: Callable[[Operation], bool] = lambda operation: False
    ) -> Iterator[Operation]:
        """Yield the operation as it progresses, until it ends, is paused, or `until` returns true.

        A locked store is retried, because the runner waits for it too.
        """
        runner_seen = store_read = time.monotonic()
        while True:
            try:
                operation = replay.get(self.store, operation.operation_id)
            except StoreLocked:
                if time.monotonic() - store_read > _RUNNER_TIMEOUT:
                    raise
                continue
            store_read = time.monotonic()
            yield operation
            if operation.ended or operation.state == "paused" or until(operation):
                return
            if self._runner is not None:
                if self._runner_thread is not None and self._runner_thread.ended:
                    self._runner_thread.wait(0)  # raises the error that ended the thread, instead of a retry
                if self._runner_thread is None or self._runner_thread.ended:
                    self._runner_thread = _RunnerThread(self._runner, operation.operation_id)
                self._runner_thread.wait(_POLL_INTERVAL)
                continue
            if replay.runners(self.store, time.time(), cluster_id=operation.cluster_id):
                runner_seen = time.monotonic()
            elif time.monotonic() - runner_seen > _RUNNER_TIMEOUT:
                raise NoReplayRunner(
                    f"The process that ran the replay stopped; {operation.left:,} of "
                    f"{plural(operation.total, 'record')} {'is' if operation.left == 1 else 'are'} left.",
                    fix="The records stay in the store. Use --bootstrap-servers to send them from here.",
                )
            threading.Event().wait(_POLL_INTERVAL)

    def pause(self) -> Operation:
        """Stop sending; records in flight are settled, the rest waits."""
        paused = replay.pause(self.store, self._operation_id, **_who())
        if self._stop():
            paused = replay.get(self.store, self._operation_id)
        return paused

    def _stop(self) -> bool:
        """Stop the runner of this process and release the operation; return False if there is none."""
        if self._runner is None or self._runner_thread is None:
            return False
        self._runner.stop()
        self._runner_thread.join(self.stop_timeout)
        return True

    def _other_cluster_fix(self) -> str:
        return f"If they belong there, use --to {self._cluster or 'CLUSTER'}"

    def _connect(self, servers: str, settings: Mapping[str, Any]) -> None:
        from producer_core.producer.environment_tracing import ReplayTracing, tracing_from_environment
        from producer_core.producer.producer import ReliableKafkaProducer

        config, found = connected_cluster(servers, settings, self.to_cluster)
        self._producer = ReliableKafkaProducer(
            servers, settings, store=self.store, cluster_id=found or None, run_replays=False,
            tracing=tracing_from_environment(),
        )  # fmt: skip
        self._cluster = found
        self._tracing = ReplayTracing(config, cluster=lambda: found)
        self._runner = replay.ReplayRunner(
            self.store, self._producer, client=config.settings, traced=self._tracing.traced
        )


def connected_cluster(
    servers: str, settings: Mapping[str, Any], to_cluster: str | None
) -> tuple[ClientConfig, str]:
    """Return the client settings and the id of the cluster; raise OtherCluster if it is not `to_cluster`."""
    from producer_core.kafka.cluster import Cluster

    config = client_config(servers, settings)
    found = Cluster(config).view().cluster_id
    if to_cluster and to_cluster != found:
        raise OtherCluster(f"{servers} is cluster {found}, not {to_cluster}.", fix="No record was sent.")
    return config, found


def _who() -> dict[str, Any]:
    return {"who": options.current_user(), "origin": "cli"}


class _RunnerThread:
    """Run the runner in a thread, so that the main thread handles Ctrl-C; `wait` raises its error."""

    def __init__(self, runner: replay.ReplayRunner, operation_id: str) -> None:
        self._error: ProducerError | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(runner, operation_id), name="replay", daemon=True
        )
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the runner has finished: the operation ended, was paused, or needs a decision."""
        return self._done.is_set()

    def wait(self, seconds: float) -> None:
        self._done.wait(seconds)
        if self._error is not None:
            raise self._error

    def join(self, seconds: float) -> None:
        """Wait for the release of the operation, so that the next runner need not wait for its lease to expire."""
        self._thread.join(seconds)

    def _run(self, runner: replay.ReplayRunner, operation_id: str) -> None:
        try:
            runner.run_one(operation_id, _NO_TIMEOUT)
        except ProducerError as error:
            self._error = error
        finally:
            self._done.set()
