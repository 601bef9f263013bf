"""A runner: looks for replays that wait, and carries them out one after the other."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.lease_watch import LEASE, LeaseWatch
from producer_core._internal.read_activity import mark_background_thread
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
from producer_core.replay.guarantee import NO_CLIENT, ReplayGuarantee, beforehand, lacking, replay_guarantee
from producer_core.replay.guard import GROWTH, ReplayGuard, rule_of
from producer_core.replay.operation import STALE, Operation, end_abandoned
from producer_core.replay.preflight import look_ahead
from producer_core.replay.strategy import ReplayStrategy
from producer_core.replay.transactional import Supervisor, TransactionalReplay

if TYPE_CHECKING:
    from producer_core.kafka.record_lookup import Prober
    from producer_core.store import Store

logger = logging.getLogger(__name__)

Spread = Callable[[ReplayExecution, ReplayClaims, Operation], ReplayStrategy]
"""Makes the way of an operation that is carried out elsewhere: by Spark's workers."""
IN_FLIGHT = 500
"""Records that are claimed at once."""
IN_A_TRANSACTION = 10_000
"""Records, at most, that are claimed at once and go in one transaction: a visit to the store and a commit cost 100 ms
together, however many there are. Fewer where a visit takes long (`work.Portion`), or their bytes are many."""
IN_A_WAVE = 2000
"""Records that Spark's workers get at once."""
SPREAD_DRAIN = 40.0
"""Seconds in which Spark's workers end their wave, or are killed and it is found out what they sent."""
SPREAD_BURST = 5.0
"""Seconds for which what a rate allows adds up before Spark's workers get it: a wave of theirs takes a second to begin."""
SPREAD_GROWTH = 10
"""How many times what succeeded so far may be under way with Spark: a wave of its takes a second whatever its size, and a
slice of which too many fail gives the others back by itself."""
_SWEEP_EVERY = 15.0
CANNOT_LOOK = "Nobody has looked ahead: the process that runs it has no client settings"


@dataclass(frozen=True)
class RunnerSettings:
    """How a runner works: `in_flight` is the number of records at once, the other numbers are seconds."""

    lease: float = LEASE
    in_flight: int = IN_FLIGHT
    interval: float = INTERVAL
    quiet: float = QUIET_PERIOD_S
    look_every: float = 1.0
    monotonic: Callable[[], float] = time.monotonic


class ReplayRunner:
    """Runs the operations of the sender's cluster: those planned by anybody, and orphans of dead runners. It sends one
    after the other; looking ahead does not wait for the one that is sent.

    `client` are the settings (librdkafka's names) of a client of that cluster: with them a replay is exactly once
    where the cluster has transactions and the permissions allow them, and doubtful records are looked for on their
    topics. Without them the sender sends, at least once, and doubtful records stay dead letters with the verdict
    `inconclusive`, unless a `probe` looks for them. Safe in threads.

    With `spread` it is the runner of the operations that Spark jobs planned, and of no others.
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
        spread: Spread | None = None,
    ) -> None:
        settings = settings or RunnerSettings()
        self._store = store
        self._sender = sender
        self._clock = clock
        self._client = client
        self._spread = spread
        self._probe = probe or (None if client is None else prober(client))
        self._settings = settings
        self._watch = LeaseWatch(settings.lease)
        self._candidates = Candidates(store, by_spark=spread is not None, monotonic=settings.monotonic)
        # Two runners must differ even where their senders' names do not, as process ids in two containers.
        self.owner = f"{sender.identity}/{uuid.uuid4().hex[:6]}"
        self._sending = threading.Lock()  # one operation at a time in this process
        self._looking = threading.Lock()  # one look ahead at a time, beside it
        self._stopping = threading.Event()
        self._woken = threading.Event()  # a look ahead is done: there may be something to send
        self._threads: tuple[threading.Thread, ...] = ()
        self._store_away = False
        self._swept = 0.0

    def start(self) -> None:
        """Looks for work once a second, in two threads: one sends, the other looks ahead."""
        self._threads = (
            threading.Thread(target=self._loop, args=(False,), name="replay", daemon=True),
            threading.Thread(target=self._loop, args=(True,), name="replay-ahead", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 15.0) -> None:
        """Sends nothing more, waits a bounded time for what is in flight, and gives the operation back."""
        self._stopping.set()
        self._woken.set()
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def look(self, *, ahead: bool | None = None) -> bool:
        """Runs one operation that nobody holds, or looks ahead for one; False when there is none.

        `ahead` chooses: only those to look ahead for, or only the others.
        """
        cluster = self._sender.cluster_id
        if not cluster:
            return False
        found = self._free(self._candidates.of(cluster))
        return any(
            self._run(held, float("inf"), ahead=on) for held, on in found if ahead is None or on is ahead
        )

    def run_one(self, operation_id: str, timeout: float) -> Operation:
        """Carries this operation out, or waits for whoever has it; what it is after at most `timeout`.

        When the time runs out the rest waits in the store for any runner. A store that somebody holds is waited for.
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
                if any(self._run(held, until, ahead=on) for held, on in self._free(waiting)):
                    continue
            except StoreLocked as error:
                if time.monotonic() >= until or self._stopping.is_set():
                    raise
                self._away(error)
            if self._stopping.wait(self._settings.interval):
                return operations.get(self._store, operation_id)

    def _loop(self, ahead: bool) -> None:
        mark_background_thread()
        while not self._stopping.is_set():
            try:
                ran = self.look(ahead=ahead)
                if not ahead:
                    self._sweep()
                self._store_away = False
            except ProducerError as error:
                ran = False
                self._away(error)
            if ahead:
                if ran:
                    self._woken.set()
                else:
                    self._stopping.wait(self._settings.look_every)
            elif not ran and self._woken.wait(self._settings.look_every) and not self._stopping.is_set():
                self._woken.clear()

    def _sweep(self) -> None:
        """Now and then: ends replays that were cancelled and that nobody can have any more, whatever their cluster."""
        if time.monotonic() - self._swept > _SWEEP_EVERY:
            self._swept = time.monotonic()
            end_abandoned(self._store, self._clock())

    def _away(self, error: ProducerError) -> None:
        """Said once, until the store answers again."""
        if not self._store_away:
            logger.warning("cannot look for replays", extra={"error": str(error)})
        self._store_away = True

    def _free(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those that this runner may take: that nobody has, or that a dead runner left."""
        now = self._clock()
        return [(held, ahead) for held, ahead in candidates if self._is_free(held, now)]

    def _is_free(self, held: LeaseState, now: float) -> bool:
        moment = self._settings.monotonic()
        return self._watch.is_free(held.operation_id, held.owner, held.lease_until, now=now, moment=moment)

    def _run(self, held: LeaseState, until: float, *, ahead: bool) -> bool:
        """False when somebody else has it."""
        operation_id = held.operation_id
        with self._looking if ahead else self._sending:
            started = time.monotonic()
            claims = ReplayClaims(
                self._store, operation_id, self.owner, lease=self._settings.lease, clock=self._clock
            )
            if not claims.take(held):
                return False
            if not ahead:
                self._store.begin_replay()
            logger.info("replay begins", extra={"operation": operation_id})
            work = self._work(claims, operations.get(self._store, operation_id))
            if ahead:
                work.look(started=started)
            else:
                work.run(until=until, started=started)
            after = operations.get(self._store, operation_id)
            logger.info("replay left", extra={"operation": operation_id, "state": after.state})
            return True

    def _work(self, claims: ReplayClaims, operation: Operation) -> ReplayExecution:
        began = time.monotonic()

        def look(work: ReplayExecution) -> None:
            if operation.state not in ("checking", "planned", "running"):
                return
            if _seen_long_ago(operation, self._clock()):
                claims.look_again()
                return
            if self._client is not None:
                look_ahead(
                    claims,
                    operation,
                    self._client,
                    stopping=work.interrupted,
                    promise=lambda: self._promise(claims.topics(), operation),
                )
            elif operation.state == "checking":
                nothing = BrokerCheck(
                    (), self._clock(), stopped=True, delivery="at_least_once", why=NO_CLIENT
                )
                claims.checked(nothing, {}, CANNOT_LOOK)

        def doubtful(topic: str, count: int) -> list[tuple[str, float]]:
            with contextlib.suppress(StoreError):  # those in hand are looked for all the same
                everything = time.monotonic() - began >= self._settings.quiet
                return claims.doubtful_ahead(topic, count, everything_may_go=everything)
            return []

        return ReplayExecution(
            claims,
            lambda work: self._strategy(work, claims, operation),
            DoubtfulRecord(self._probe, doubtful, send_inconclusive=operation.sends_inconclusive),
            ReplayGuard(rule_of(operation), growth=GROWTH if self._spread is None else SPREAD_GROWTH),
            preflight=look,
            stopping=self._stopping,
            settings=ExecutionSettings(
                lease=self._settings.lease,
                most=self._most(),
                quiet=self._settings.quiet,
                interval=self._settings.interval,
                burst=1.0 if self._spread is None else SPREAD_BURST,
                drain=DRAIN if self._spread is None else SPREAD_DRAIN,
            ),
        )

    def _most(self) -> int:
        """How many records may be claimed at once."""
        if self._client is None:
            return self._settings.in_flight
        return max(self._settings.in_flight, IN_A_TRANSACTION if self._spread is None else IN_A_WAVE)

    def _strategy(self, work: ReplayExecution, claims: ReplayClaims, operation: Operation) -> ReplayStrategy:
        """Exactly once where that is possible; what was begun in one way is ended in it."""
        if self._spread is not None:
            if self._client and (missing := self._lacks(self._client, claims.topics(), operation)):
                raise ReplayError(f"A replay by Spark goes exactly once only: {missing}.")
            return self._spread(work, claims, operation)
        if operation.delivery != "at_least_once" and self._client is not None:
            missing = self._lacks(self._client, claims.topics(), operation)
            if not missing:
                return TransactionalReplay(
                    self._client,
                    operation.operation_id,
                    floors=floors_of(operation.floors),
                    supervisor=Supervisor(work.interrupted, work.say, clock=self._clock),
                    most=IN_A_TRANSACTION,
                    newer=operation.newer,
                )
            if operation.delivery == "exactly_once":
                raise ReplayError(
                    f"The replay {operation.operation_id} goes on exactly once only: {missing}."
                )
            work.say(f"At least once: {missing}.")
        return AtLeastOnceReplay(
            self._sender,
            self._probe,
            may_send=work.holds,
            interrupt=work.interrupted,
            closed=self._stopping,
            quiet=self._settings.quiet,
            send_inconclusive=operation.sends_inconclusive,
            clock=self._clock,
        )

    def _promise(self, topics: Sequence[str], operation: Operation) -> ReplayGuarantee:
        """How it would be delivered, as far as anybody can say now."""
        if operation.delivery == "at_least_once" or self._client is None:
            return ReplayGuarantee("at_least_once", "" if self._client is not None else NO_CLIENT)
        return replay_guarantee(
            ClientConfig(self._client), topics, self._sender.cluster_id or operation.cluster_id
        )

    def _lacks(self, client: Mapping[str, Any], topics: Sequence[str], operation: Operation) -> str:
        """Why transactions are not to be had here; empty when they are. BrokerError when nobody answers."""
        if (known := beforehand(self._sender.cluster_id or operation.cluster_id)).delivery:
            return known.why
        missing = lacking(ClientConfig(client), topics)
        return f"its client lacks {missing}" if missing else ""

    def check(self, operation: Operation) -> None:
        """ReplayError or OtherCluster where this runner may not carry it out; to be asked before it is changed."""
        if operation.by_spark != (self._spread is not None) and not operation.ended:
            raise _wrong_hands(operation)
        own = self._sender.cluster_id
        if own and operation.cluster_id not in ("", own):
            raise OtherCluster(
                f"The replay {operation.operation_id} is for the cluster {operation.cluster_id}, and this is {own}.",
                fix=(
                    f"If the messages belong here: `producer-core replay cancel {operation.operation_id}`, then "
                    f"`producer-core dlq replay --to {own}`, or replay_dlq_messages(topic, to_cluster={own!r})."
                ),
            )


def _wrong_hands(operation: Operation) -> ReplayError:
    one = operation.operation_id
    if operation.by_spark:
        fix = f"Go on with `producer-core pipeline reprocess --operation {one}`, or cancel it."
        return ReplayError(f"The replay {one} is carried out by Spark.", fix=fix)
    fix = "Let its runner go on, or cancel it and plan it anew."
    return ReplayError(f"The replay {one} was not planned for Spark.", fix=fix)


def _seen_long_ago(operation: Operation, now: float) -> bool:
    """It went on by itself, for there was nothing to ask, and waited for its turn until that may have changed."""
    untouched = operation.left == operation.total - operation.skipped
    waited = operation.checked_at is not None and operation.checked_at < now - STALE
    return bool(operation.go_at_once) and operation.state != "checking" and waited and untouched
