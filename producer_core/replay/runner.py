"""The replay runner: find replays that wait in the store and run them one at a time."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.lease_watch import LEASE, LeaseWatch
from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.read_activity import mark_background_thread, unattended
from producer_core.config import ClientConfig
from producer_core.delivery.prober import QUIET_PERIOD_S
from producer_core.errors import OtherCluster, ProducerError, ReplayError, StoreError, StoreLocked
from producer_core.kafka.record_lookup import prober
from producer_core.replay import operation as operations
from producer_core.replay.at_least_once import AtLeastOnceReplay, ReplayProducer
from producer_core.replay.broker_check import BrokerCheck
from producer_core.replay.candidates import Candidate, Candidates
from producer_core.replay.claims import LeaseState, ReplayClaims, floors_of
from producer_core.replay.doubtful_records import DoubtfulRecord
from producer_core.replay.execution import DRAIN, INTERVAL, ExecutionSettings, ReplayExecution
from producer_core.replay.guarantee import (
    NO_CLIENT,
    ReplayGuarantee,
    guarantee_from_cluster_id,
    missing_permissions,
    replay_guarantee,
)
from producer_core.replay.guard import GROWTH, ReplayGuard, rule_of
from producer_core.replay.operation import STALE, Operation, end_abandoned
from producer_core.replay.pace import MakeSharedLimit
from producer_core.replay.preflight import run_preflight
from producer_core.replay.strategy import ReplayStrategy
from producer_core.replay.supervisor import Supervisor
from producer_core.replay.transactional import TransactionalReplay

if TYPE_CHECKING:
    from producer_core.kafka.record_lookup import Prober
    from producer_core.store import Store

logger = queued_logger(__name__)

MakeSparkStrategy = Callable[[ReplayExecution, ReplayClaims, Operation], ReplayStrategy]
"""Makes the strategy of an operation that Spark workers run."""
IN_FLIGHT = 500
"""Maximum number of records claimed at once."""
MAX_TRANSACTION_RECORDS = 40_000
"""Maximum number of records sent in one transaction, and of records claimed one by one."""
MAX_WAVE_RECORDS = 120_000
"""Maximum number of records claimed as one wave. DuckDB's checkpoint writes the changed columns of 122,880 rows again,
however few of them changed. `BatchSizer` claims fewer if updates are slow or the records are large."""
SPARK_BATCH_RECORDS = 2000
"""Number of records that the Spark workers receive at once."""
SPARK_STOP_TIMEOUT = 40.0
"""Seconds for the Spark workers to finish their batch, or to be killed, and for finding out what they sent."""
SPARK_RATE_BURST = 5.0
"""Seconds for which a rate limit accumulates for the Spark workers, because a Spark batch takes a second to start."""
SPARK_GROWTH = 10
"""With Spark, records in flight may be at most this multiple of the acknowledged records. A Spark batch takes a second
whatever its size, and a slice in which too many records fail returns the others by itself."""
_SWEEP_EVERY, _SWEEP_AT_LEAST_EVERY = 15.0, 60.0
CANNOT_CHECK = "The topics were not checked: the process that runs this replay has no client settings"


@dataclass(frozen=True)
class RunnerSettings:
    """Settings of a runner: `in_flight` is the number of records at once, the other numbers are seconds.

    `limit` is the rate limit that replays in transactions share with the messages of the process.
    """

    lease: float = LEASE
    in_flight: int = IN_FLIGHT
    interval: float = INTERVAL
    quiet: float = QUIET_PERIOD_S
    poll_interval: float = 1.0
    monotonic: Callable[[], float] = time.monotonic
    limit: MakeSharedLimit | None = None


class ReplayRunner:
    """Run the operations of the sender's cluster, including those of dead runners.

    It sends one operation at a time; preflight checks run in parallel to it.

    `client` holds the client settings (librdkafka's names) for that cluster. With them a replay is exactly once if the
    cluster supports transactions and the permissions allow them, and doubtful records are looked for on their topics.
    Without them the sender sends at least once, and doubtful records remain dead letters with the verdict
    `inconclusive` unless `probe` looks for them. Thread-safe.

    `traced` wraps the strategy of a transactional replay in one that traces it. A sender traces what it sends itself.

    With `make_spark_strategy` it runs the operations that Spark jobs planned, and no others.
    """

    def __init__(
        self,
        store: Store,
        sender: ReplayProducer,
        *,
        clock: Callable[[], float] = time.time,
        client: Mapping[str, Any] | None = None,
        probe: Prober | None = None,
        settings: RunnerSettings | None = None,
        make_spark_strategy: MakeSparkStrategy | None = None,
        traced: Callable[[ReplayStrategy], ReplayStrategy] | None = None,
    ) -> None:
        settings = settings or RunnerSettings()
        self._store = store
        self._sender = sender
        self._clock = clock
        self._client = client
        self._make_spark_strategy = make_spark_strategy
        self._traced = traced
        self._probe = probe or (None if client is None else prober(client))
        self._settings = settings
        self._watch = LeaseWatch(settings.lease)
        self._candidates = Candidates(
            store, by_spark=make_spark_strategy is not None, monotonic=settings.monotonic
        )
        # The suffix separates runners whose senders have equal identities, such as equal process ids in two containers.
        self.owner = f"{sender.identity}/{uuid.uuid4().hex[:6]}"
        self._sending = threading.Lock()  # one operation at a time in this process
        self._checking = threading.Lock()  # one preflight check at a time, in parallel to sending
        self._stopping = threading.Event()
        self._woken = threading.Event()  # a preflight check is done, so an operation may be ready to send
        self._threads: tuple[threading.Thread, ...] = ()
        self._store_away = False
        self._swept, self._swept_changes = 0.0, -1

    def start(self) -> None:
        """Poll the store once a second in two threads: one sends, the other runs preflight checks."""
        self._threads = (
            threading.Thread(target=self._loop, args=(False,), name="replay", daemon=True),
            threading.Thread(target=self._loop, args=(True,), name="replay-ahead", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 15.0) -> None:
        """Stop sending, wait a bounded time for the records in flight, and release the operation."""
        self._stopping.set()
        self._woken.set()
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def poll(self, *, preflight: bool | None = None) -> bool:
        """Run one free operation or its preflight check; return False if there is none.

        `preflight` selects one kind: True for preflight checks only, False for sending only.
        """
        cluster = self._sender.cluster_id
        if not cluster:
            return False
        found = self._free(self._candidates.of(cluster))
        return any(
            self._run(held, float("inf"), preflight=checking)
            for held, checking in found
            if preflight is None or checking is preflight
        )

    def run_one(self, operation_id: str, timeout: float) -> Operation:
        """Run the operation, or wait for its current runner, for at most `timeout` seconds; return its state.

        After the timeout the remaining records wait in the store for any runner. A locked store is retried.
        """
        until = time.monotonic() + timeout
        while True:
            try:
                operation = operations.get(self._store, operation_id)
                self._store_away = False
                self.check(operation)
                if operation.ended or operation.state in ("paused", "ready") or time.monotonic() >= until:
                    return operation
                waiting = self._candidates.ask(operation.cluster_id, operation_id)
                if any(self._run(held, until, preflight=checking) for held, checking in self._free(waiting)):
                    continue
            except StoreLocked as error:
                if time.monotonic() >= until or self._stopping.is_set():
                    raise
                self._away(error)
            if self._stopping.wait(self._settings.interval):
                return operations.get(self._store, operation_id)

    def _loop(self, preflight: bool) -> None:
        mark_background_thread()
        while not self._stopping.is_set():
            try:
                ran = self.poll(preflight=preflight)
                if not preflight:
                    self._sweep()
                self._store_away = False
            except (ProducerError, OSError) as error:  # a folder that is moved can fail anywhere
                ran = False
                self._away(error)
            if preflight:
                if ran:
                    self._woken.set()
                else:
                    self._stopping.wait(self._settings.poll_interval)
            elif not ran and self._woken.wait(self._settings.poll_interval) and not self._stopping.is_set():
                self._woken.clear()

    def _sweep(self) -> None:
        """End abandoned cancelled replays of all clusters at intervals, more often after a write to the store."""
        elapsed, changes = time.monotonic() - self._swept, self._store.changes()
        if elapsed > _SWEEP_AT_LEAST_EVERY or (elapsed > _SWEEP_EVERY and changes != self._swept_changes):
            self._swept = time.monotonic()
            self._swept_changes = changes
            end_abandoned(self._store, self._clock())

    def _away(self, error: Exception) -> None:
        """Log the error once until the store is available again."""
        if not self._store_away:
            logger.warning(**with_fields("cannot read replays from the store", error=str(error)))
        self._store_away = True

    def _free(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates without an owner, or with a dead one."""
        now = self._clock()
        return [(held, checking) for held, checking in candidates if self._is_free(held, now)]

    def _is_free(self, held: LeaseState, now: float) -> bool:
        moment = self._settings.monotonic()
        return self._watch.is_free(held.operation_id, held.owner, held.lease_until, now=now, moment=moment)

    def _run(self, held: LeaseState, until: float, *, preflight: bool) -> bool:
        """Take the operation and run it; return False if another runner has it."""
        operation_id = held.operation_id
        with self._checking if preflight else self._sending:
            started = time.monotonic()
            claims = ReplayClaims(
                self._store, operation_id, self.owner, lease=self._settings.lease, clock=self._clock
            )
            if not claims.take(held):
                return False
            if not preflight:
                self._store.begin_replay()
            logger.info(**with_fields("replay started", operation=operation_id))
            execution = self._execution(claims, operations.get(self._store, operation_id))
            with unattended():
                if preflight:
                    execution.run_check(started=started)
                else:
                    execution.run(until=until, started=started)
            after = operations.get(self._store, operation_id)
            logger.info(**with_fields("replay released", operation=operation_id, state=after.state))
            return True

    def _execution(self, claims: ReplayClaims, operation: Operation) -> ReplayExecution:
        began = time.monotonic()

        def check_topics(execution: ReplayExecution) -> None:
            if operation.state not in ("checking", "planned", "running"):
                return
            if _check_is_outdated(operation, self._clock()):
                claims.request_check()
                return
            if self._client is not None:
                run_preflight(
                    claims,
                    operation,
                    self._client,
                    stopping=execution.interrupted,
                    promise=lambda: self._promise(claims.topics(), operation),
                )
            elif operation.state == "checking":
                unchecked = BrokerCheck(
                    (), self._clock(), stopped=True, delivery="at_least_once", why=NO_CLIENT
                )
                claims.save_check(unchecked, {}, CANNOT_CHECK)

        def upcoming_doubtful(topic: str, count: int) -> list[tuple[str, float]]:
            with contextlib.suppress(StoreError):  # the claimed records are looked for anyway
                everything = time.monotonic() - began >= self._settings.quiet
                return claims.doubtful_ahead(topic, count, everything_may_go=everything)
            return []

        return ReplayExecution(
            claims,
            lambda execution: self._strategy(execution, claims, operation),
            DoubtfulRecord(self._probe, upcoming_doubtful, send_inconclusive=operation.sends_inconclusive),
            ReplayGuard(
                rule_of(operation), growth=GROWTH if self._make_spark_strategy is None else SPARK_GROWTH
            ),
            preflight=check_topics,
            stopping=self._stopping,
            settings=ExecutionSettings(
                lease=self._settings.lease,
                most=self._most(),
                quiet=self._settings.quiet,
                interval=self._settings.interval,
                burst=1.0 if self._make_spark_strategy is None else SPARK_RATE_BURST,
                drain=DRAIN if self._make_spark_strategy is None else SPARK_STOP_TIMEOUT,
                limit=self._settings.limit,
            ),
        )

    def _most(self) -> int:
        """Return the maximum number of records claimed at once."""
        if self._client is None:
            return self._settings.in_flight
        most = MAX_WAVE_RECORDS if self._make_spark_strategy is None else SPARK_BATCH_RECORDS
        return max(self._settings.in_flight, most)

    def _strategy(
        self, execution: ReplayExecution, claims: ReplayClaims, operation: Operation
    ) -> ReplayStrategy:
        """Return the exactly-once strategy if possible; an operation keeps the guarantee that it began with."""
        if self._make_spark_strategy is not None:
            if self._client and (missing := self._obstacle(self._client, claims.topics(), operation)):
                raise ReplayError(f"A replay by Spark requires exactly-once delivery: {missing}.")
            return self._make_spark_strategy(execution, claims, operation)
        if operation.delivery != "at_least_once" and self._client is not None:
            missing = self._obstacle(self._client, claims.topics(), operation)
            if not missing:
                strategy = TransactionalReplay(
                    self._client,
                    operation.operation_id,
                    floors=floors_of(operation.floors),
                    supervisor=Supervisor(execution.interrupted, execution.say, clock=self._clock),
                    most=MAX_TRANSACTION_RECORDS,
                    newer=operation.newer,
                )
                return strategy if self._traced is None else self._traced(strategy)
            if operation.delivery == "exactly_once":
                raise ReplayError(
                    f"The replay {operation.operation_id} can only continue with exactly-once delivery: {missing}."
                )
            execution.say(f"At least once: {missing}.")
        return AtLeastOnceReplay(
            self._sender,
            self._probe,
            may_send=execution.holds,
            interrupt=execution.interrupted,
            closed=self._stopping,
            quiet=self._settings.quiet,
            send_inconclusive=operation.sends_inconclusive,
            clock=self._clock,
        )

    def _promise(self, topics: Sequence[str], operation: Operation) -> ReplayGuarantee:
        """Return the delivery guarantee as far as it is known now."""
        if operation.delivery == "at_least_once" or self._client is None:
            return ReplayGuarantee("at_least_once", "" if self._client is not None else NO_CLIENT)
        return replay_guarantee(
            ClientConfig(self._client), topics, self._sender.cluster_id or operation.cluster_id
        )

    def _obstacle(self, client: Mapping[str, Any], topics: Sequence[str], operation: Operation) -> str:
        """Return why transactions are unavailable, or an empty string; raise BrokerError if no broker responds."""
        if (known := guarantee_from_cluster_id(self._sender.cluster_id or operation.cluster_id)).delivery:
            return known.why
        missing = missing_permissions(ClientConfig(client), topics)
        return f"the sending client lacks {missing}" if missing else ""

    def check(self, operation: Operation) -> None:
        """Raise ReplayError or OtherCluster if this runner must not run the operation; call it before any change."""
        if operation.by_spark != (self._make_spark_strategy is not None) and not operation.ended:
            raise _wrong_runner(operation)
        own = self._sender.cluster_id
        if own and operation.cluster_id not in ("", own):
            raise OtherCluster(
                f"The replay {operation.operation_id} is for the cluster {operation.cluster_id}, but this is {own}.",
                fix=(
                    f"If the messages belong here: `producer-core replay cancel {operation.operation_id}`, then "
                    f"`producer-core dlq replay --to {own}`, or replay_dlq_messages(topic, to_cluster={own!r})."
                ),
            )


def _wrong_runner(operation: Operation) -> ReplayError:
    operation_id = operation.operation_id
    if operation.by_spark:
        fix = f"Continue it with `producer-core pipeline reprocess --operation {operation_id}`, or cancel it."
        return ReplayError(f"The replay {operation_id} is run by Spark.", fix=fix)
    fix = "Let its runner continue, or cancel it and plan it again."
    return ReplayError(f"The replay {operation_id} was not planned for Spark.", fix=fix)


def _check_is_outdated(operation: Operation, now: float) -> bool:
    """Return whether the replay started without a decision and waited so long that its check may no longer hold."""
    untouched = operation.left == operation.total - operation.skipped
    waited = operation.checked_at is not None and operation.checked_at < now - STALE
    return bool(operation.go_at_once) and operation.state != "checking" and waited and untouched
