"""A runner: looks for replays that wait, and carries them out one after the other."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from producer_core.errors import OtherCluster, ReplayError, StoreError
from producer_core.replay import operation as operations
from producer_core.replay.claims import Claims, Held
from producer_core.replay.operation import Operation
from producer_core.replay.work import IN_FLIGHT, INTERVAL, Sender, Work

if TYPE_CHECKING:
    from producer_core.landing import Prober
    from producer_core.store import Store

logger = logging.getLogger(__name__)

LEASE = 15.0
"""Seconds an operation stays a dead runner's before another takes it over; renewed every 5."""


class Watch:
    """Tells a dead owner from a living one without trusting the clock alone, which may be set at any time.

    A living owner renews his lease three times in its length. So he is dead when we saw the same lease for
    its whole length, or for half of it while the clock says that it has run out.
    """

    def __init__(self, lease: float, monotonic: Callable[[], float]) -> None:
        self._lease = lease
        self._monotonic = monotonic
        self._seen: dict[str, tuple[Held, float]] = {}

    def free(self, held: Held, now: float) -> bool:
        if held.owner is None or held.lease_until is None:
            return True
        before, since = self._seen.get(held.operation_id, (None, 0.0))
        if before != held:
            since = self._monotonic()
            self._seen[held.operation_id] = (held, since)
        unchanged = self._monotonic() - since
        return unchanged >= self._lease or (held.lease_until <= now and unchanged >= self._lease / 2)


class ReplayRunner:
    """Runs the operations of the sender's cluster: those planned by anybody, and orphans of dead runners.

    `probe` (`landing.prober(settings)`) looks for doubtful records on their topic; without one they are
    never sent twice, but stay dead letters with the verdict `inconclusive`. Safe in threads.
    """

    def __init__(
        self,
        store: Store,
        sender: Sender,
        *,
        clock: Callable[[], float] = time.time,
        probe: Prober | None = None,
        lease: float = LEASE,
        in_flight: int = IN_FLIGHT,
        interval: float = INTERVAL,
        look_every: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._sender = sender
        self._clock = clock
        self._probe = probe
        self._lease = lease
        self._in_flight = in_flight
        self._interval = interval
        self._look_every = look_every
        self._watch = Watch(lease, monotonic)
        # Two runners must differ even where their senders' names do not, as process ids in two containers.
        self.owner = f"{sender.identity}/{uuid.uuid4().hex[:6]}"
        self._one = threading.Lock()  # one operation at a time in this process
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._store_away = False

    def start(self) -> None:
        """Looks for work once a second, in a thread."""
        self._thread = threading.Thread(target=self._loop, name="replay", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 15.0) -> None:
        """Sends nothing more, waits a bounded time for what is in flight, and gives the operation back."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def look(self) -> bool:
        """Runs one operation that nobody holds; False when there is none."""
        cluster = self._sender.cluster_id
        if not cluster:
            return False
        return any(self._run(held, float("inf")) for held in self._waiting(cluster, None))

    def run_one(self, operation_id: str, timeout: float) -> Operation:
        """Carries this operation out, or waits for whoever has it; what it is after at most `timeout`.

        When the time runs out the rest waits in the store for any runner.
        """
        until = time.monotonic() + timeout
        while True:
            operation = operations.get(self._store, operation_id)
            self._check(operation)
            if operation.ended or operation.state == "paused" or time.monotonic() >= until:
                return operation
            waiting = self._waiting(operation.cluster_id, operation_id)
            if not any(self._run(held, until) for held in waiting) and self._stopping.wait(self._interval):
                return operation

    def _loop(self) -> None:
        while not self._stopping.is_set():
            try:
                ran = self.look()
                self._store_away = False
            except (StoreError, ReplayError) as error:
                ran = False
                if not self._store_away:
                    logger.warning("cannot look for replays", extra={"error": str(error)})
                self._store_away = True
            if not ran:
                self._stopping.wait(self._look_every)

    def _waiting(self, cluster: str, operation_id: str | None) -> list[Held]:
        """What this runner may take: what nobody has, and what a dead runner left."""
        rows = self._store.rows("replay_candidates", cluster=cluster, operation=operation_id)
        now = self._clock()
        return [held for row in rows if self._watch.free(held := Held(**row), now)]

    def _run(self, held: Held, until: float) -> bool:
        """False when somebody else has it."""
        operation_id = held.operation_id
        with self._one:
            started = time.monotonic()
            claims = Claims(self._store, operation_id, self.owner, lease=self._lease, clock=self._clock)
            if not claims.take(held):
                return False
            logger.info("replay begins", extra={"operation": operation_id})
            work = Work(
                claims,
                self._sender,
                self._probe,
                lease=self._lease,
                stopping=self._stopping,
                in_flight=self._in_flight,
                interval=self._interval,
            )
            work.run(until=until, started=started)
            after = operations.get(self._store, operation_id)
            logger.info("replay left", extra={"operation": operation_id, "state": after.state})
            return True

    def _check(self, operation: Operation) -> None:
        own = self._sender.cluster_id
        if own and operation.cluster_id not in ("", own):
            raise OtherCluster(
                f"The replay {operation.operation_id} is for the cluster {operation.cluster_id}, and this is {own}.",
                fix="Plan it again with --to (to_cluster=) if the messages belong here.",
            )
