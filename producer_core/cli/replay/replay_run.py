"""The run of one replay from the command line: by a producer of our own, or by one that is alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from producer_core import replay
from producer_core.cli import options
from producer_core.config import ClientConfig, client_config
from producer_core.errors import NoReplayRunner, OtherCluster, ProducerError, StoreLocked

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.producer.producer import ReliableKafkaProducer
    from producer_core.replay import Operation
    from producer_core.replay.dry_run import DryRun
    from producer_core.store import Store

_FROM_HERE = "Give --bootstrap-servers to send from here, or start a producer on this store."
_LOOK = 0.3
_FOREVER = 10.0**9
_PATIENCE = 30.0
"""Seconds without a live runner after which watching has no use."""


@dataclass
class ReplayRun:
    """A replay of `where`. `client` is addresses and settings to send with, None to let a live producer do it."""

    store: Store
    where: DeadLetterFilter
    client: tuple[str, Mapping[str, Any]] | None
    to_cluster: str | None = None
    origin: str = "cli"
    patience: ClassVar[float] = 20.0
    """Seconds in which our runner gives the operation back."""
    waits_for: ClassVar[str] = "What is on its way is waited for, 20 s at most; the rest stays in the store …"
    """Said when Ctrl-C came."""
    _cluster: str = field(default="", init=False)
    _producer: ReliableKafkaProducer | None = field(default=None, init=False)
    _runner: replay.ReplayRunner | None = field(default=None, init=False)
    _running: _Running | None = field(default=None, init=False)
    _operation_id: str = field(default="", init=False)

    def __enter__(self) -> Self:
        if self.client is not None:
            self._connect(*self.client)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        if self._producer is not None:
            self._producer.close()

    def counted(self, *, operation: Operation | None = None, **choices: Any) -> DryRun:
        """The dry run as far as the store knows it, and as far as a runner has looked ahead."""
        from producer_core.replay.dry_run import dry_run

        return dry_run(self.store, self.where, operation=operation, to_cluster=self.to_cluster, **choices)

    def look_ahead(
        self, *, allow_quarantined: bool = False, limit: int | None = None, **choices: Any
    ) -> DryRun:
        """The dry run with a look at the topics by our own settings; nothing is planned or written."""
        from producer_core.replay.broker_check import check
        from producer_core.replay.guarantee import replay_guarantee
        from producer_core.replay.preflight import which_keys
        from producer_core.replay.selection_counts import listed

        assert self.client is not None
        config, found = reached(*self.client, self.to_cluster)
        dead_letters = listed(
            self.store,
            self.where,
            allow_quarantined=allow_quarantined,
            cluster=None if self.to_cluster else found,
            limit=limit,
        )
        which = which_keys(choices.get("newer") or "auto", found, asked_first=True)
        looked, _ = check(config.settings, dead_letters, newer=which, sends_at_most=config.max_message_bytes)
        said = replay_guarantee(config, [topic.topic for topic in looked.topics if topic.partitions], found)
        looked = replace(looked, delivery=said.delivery, why=said.why)
        return self.counted(
            check=looked, cluster=found, allow_quarantined=allow_quarantined, limit=limit, **choices
        )

    def plan(self, **choices: Any) -> Operation:
        """The frozen operation, with the choices of `replay.plan`; the one under way where there is one already."""
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
            raise NoReplayRunner(fix=_FROM_HERE) from error
        except OtherCluster as error:
            raise OtherCluster(error.what, fix=self._belong()) from error
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
        """Starts what waits for a person: a look ahead that is done, or a pause. `rate`: another one from now on."""
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
        """Ends what was planned and is not wanted; nothing of it was sent."""
        replay.cancel(self.store, self._operation_id, **_who())

    def watch(
        self, operation: Operation, until: Callable[[Operation], bool] = lambda operation: False
    ) -> Iterator[Operation]:
        """The operation as it goes on, until it has ended, somebody paused it, or `until` says so.

        A store that is in use is asked again: who sends waits for it as well.
        """
        heard = answered = time.monotonic()
        while True:
            try:
                operation = replay.get(self.store, operation.operation_id)
            except StoreLocked:
                if time.monotonic() - answered > _PATIENCE:
                    raise
                continue
            answered = time.monotonic()
            yield operation
            if operation.ended or operation.state == "paused" or until(operation):
                return
            if self._runner is not None:
                if self._running is not None and self._running.ended:
                    self._running.wait(0)  # raises what ended it between two looks, instead of another try
                if self._running is None or self._running.ended:
                    self._running = _Running(self._runner, operation.operation_id)
                self._running.wait(_LOOK)
                continue
            if replay.runners(self.store, time.time(), cluster_id=operation.cluster_id):
                heard = time.monotonic()
            elif time.monotonic() - heard > _PATIENCE:
                raise NoReplayRunner(
                    f"The process that ran the replay is gone; {operation.left:,} of {operation.total:,} are left.",
                    fix="They wait in the store: give --bootstrap-servers to send them from here.",
                )
            threading.Event().wait(_LOOK)

    def pause(self) -> Operation:
        """Stop sending; what is on its way is settled, the rest waits."""
        paused = replay.pause(self.store, self._operation_id, **_who())
        if self._stop():
            paused = replay.get(self.store, self._operation_id)
        return paused

    def _stop(self) -> bool:
        """Our runner sends nothing more and gives the operation back; False when we have none."""
        if self._runner is None or self._running is None:
            return False
        self._runner.stop()
        self._running.join(self.patience)
        return True

    def _belong(self) -> str:
        return f"If they belong there, say so: --to {self._cluster or 'CLUSTER'}"

    def _connect(self, servers: str, settings: Mapping[str, Any]) -> None:
        from producer_core.kafka.cluster import Cluster
        from producer_core.producer.producer import ReliableKafkaProducer

        config = client_config(servers, settings)
        found = Cluster(config).view().cluster_id
        if self.to_cluster and self.to_cluster != found:
            raise OtherCluster(
                f"{servers} is cluster {found}, not {self.to_cluster}.", fix="Nothing was sent."
            )
        self._producer = ReliableKafkaProducer(
            servers, settings, store=self.store, cluster_id=found or None, run_replays=False
        )
        self._cluster = found
        self._runner = replay.ReplayRunner(self.store, self._producer, client=config.settings)


def reached(servers: str, settings: Mapping[str, Any], to_cluster: str | None) -> tuple[ClientConfig, str]:
    """The client's settings, and the id of the cluster at this address; OtherCluster when it is not the one told."""
    from producer_core.kafka.cluster import Cluster

    config = client_config(servers, settings)
    found = Cluster(config).view().cluster_id
    if to_cluster and to_cluster != found:
        raise OtherCluster(f"{servers} is cluster {found}, not {to_cluster}.", fix="Nothing was sent.")
    return config, found


def _who() -> dict[str, Any]:
    return {"who": options.current_user(), "origin": "cli"}


class _Running:
    """The runner in a thread of its own, so that Ctrl-C is heard; its error is raised where we wait."""

    def __init__(self, runner: replay.ReplayRunner, operation_id: str) -> None:
        self._error: ProducerError | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(runner, operation_id), name="replay", daemon=True
        )
        self._thread.start()

    @property
    def ended(self) -> bool:
        """The runner is done with it: it ended, was paused, or waits for a person."""
        return self._done.is_set()

    def wait(self, seconds: float) -> None:
        self._done.wait(seconds)
        if self._error is not None:
            raise self._error

    def join(self, seconds: float) -> None:
        """Until the operation was given back, so that the next runner need not wait for its lease to end."""
        self._thread.join(seconds)

    def _run(self, runner: replay.ReplayRunner, operation_id: str) -> None:
        try:
            runner.run_one(operation_id, _FOREVER)
        except ProducerError as error:
            self._error = error
        finally:
            self._done.set()
