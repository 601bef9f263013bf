"""The work on one operation in this process: a bounded number of records in flight, settled in batches."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from producer_core.errors import NotAccepted, ProducerClosed, StoreError
from producer_core.events import DeadLetter
from producer_core.replay.claims import Claims, Outcome
from producer_core.replay.doubt import look_after, look_first, still_doubtful

if TYPE_CHECKING:
    from producer_core.landing import Prober
    from producer_core.reports import Resent

logger = logging.getLogger(__name__)

IN_FLIGHT = 500
INTERVAL = 0.2
"""Seconds between two visits to the store: outcomes are gathered meanwhile."""

_ORPHANS = 500  # looked for at once


class Sender(Protocol):
    """Who sends: a producer, usually. `identity` must be unique to this process."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def identity(self) -> str: ...

    def resend(self, letter: DeadLetter, settled: Callable[[Resent], None]) -> None:
        """Sends the letter under its own id; `settled` is called once, from any thread, when it has ended."""


class Pace:
    """How many records may go now at a rate; unused ones add up to one second's worth. No rate: no bound."""

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate = rate
        self._allowed = 1.0
        self._at = now

    def room(self, now: float, most: int) -> int:
        if self._rate is None:
            return most
        self._allowed = min(max(1.0, self._rate), self._allowed + (now - self._at) * self._rate)
        self._at = now
        return min(most, int(self._allowed))

    def spend(self, count: int) -> None:
        self._allowed -= count


class Keeper:
    """A thread that renews the lease three times in its length, whatever the work waits for.

    `holds` is judged by the monotonic clock from the moment before the last renewal, so that a process that
    was stopped knows, when it wakes, that it may not send.
    """

    def __init__(self, claims: Claims, lease: float, started: float) -> None:
        self._claims = claims
        self._lease = lease
        self._until = started + lease
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="replay-lease", daemon=True)

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def holds(self) -> bool:
        return time.monotonic() < self._until

    def renewed(self, started: float) -> None:
        self._until = max(self._until, started + self._lease)

    def _keep(self) -> None:
        while not self._done.wait(self._lease / 3):
            started = time.monotonic()
            try:
                if not self._claims.renew():
                    self._until = 0.0
                    return
            except StoreError:
                continue  # nobody can take the lease meanwhile; sending stops when it has run out
            self.renewed(started)


class Work:
    """One operation, from `take` to its end, its pause, or the loss of its lease. Runs in one thread."""

    def __init__(
        self,
        claims: Claims,
        sender: Sender,
        probe: Prober | None,
        *,
        lease: float,
        stopping: threading.Event,
        in_flight: int = IN_FLIGHT,
        interval: float = INTERVAL,
        drain: float = 10.0,
    ) -> None:
        self._claims = claims
        self._sender = sender
        self._probe = probe
        self._lease = lease
        self._stopping = stopping
        self._most = in_flight
        self._interval = interval
        self._drain = drain
        self._reports: queue.SimpleQueue[Resent] = queue.SimpleQueue()  # filled by the sender's threads
        self._in_flight: dict[str, DeadLetter] = {}
        self._outcomes: list[Outcome] = []  # at most what was in flight: bounded while the store is away
        self._pace: Pace | None = None
        self._turn_due = self._send_due = 0.0
        self._over = self._store_away = False

    def run(self, *, until: float, started: float) -> None:
        """Until it is over, this process stops, or the moment `until` (monotonic) has come.

        `started` is the monotonic time before the lease was taken. What is in flight at the end is waited
        for; what even then has no report stays claimed, and the next runner looks for it on the topic.
        """
        with Keeper(self._claims, self._lease, started) as self._keeper:
            while not self._over and not self._stopping.is_set() and time.monotonic() < until:
                self._safely(self._step)
            self._finish()

    def _step(self) -> None:
        if self._pace is None:
            self._recover()
            self._pace = Pace(self._claims.get().rate, time.monotonic())
            return
        now = time.monotonic()
        room = self._room(self._pace, now)
        if self._outcomes or (room and now >= self._turn_due):
            letters = self._turn(room, busy=bool(self._in_flight))
            self._pace.spend(len(letters))
            self._turn_due = now + (0.0 if letters else self._interval * 5)
            self._send(letters)
        if not self._over:
            self._gather(self._interval)

    def _recover(self) -> None:
        """What the owner before us left claimed is looked for before anything is sent."""
        orphans = self._claims.orphans()
        for start in range(0, len(orphans), _ORPHANS):
            self._outcomes = look_after(orphans[start : start + _ORPHANS], self._probe)
            self._turn(0, busy=True)
            if self._over:
                return

    def _room(self, pace: Pace, now: float) -> int:
        if now < self._send_due or not self._keeper.holds():
            return 0
        return pace.room(now, self._most - len(self._in_flight))

    def _turn(self, want: int, *, busy: bool) -> tuple[DeadLetter, ...]:
        """One visit to the store; outcomes are forgotten only when it has them."""
        started = time.monotonic()
        turn = self._claims.turn(self._outcomes, want=want, busy=busy)
        self._outcomes = []
        self._over = turn.over
        if not turn.over:
            self._keeper.renewed(started)
        return turn.letters

    def _send(self, letters: Sequence[DeadLetter]) -> None:
        sendable, outcomes = look_first(letters, self._probe)
        self._outcomes += outcomes
        for letter in sendable:
            if self._keeper.holds() and time.monotonic() >= self._send_due:
                self._resend(letter)
            else:
                self._give_back(letter)

    def _resend(self, letter: DeadLetter) -> None:
        self._in_flight[letter.message_id] = letter  # first: the report may come before `resend` returns
        try:
            self._sender.resend(letter, self._reports.put)
        except ProducerClosed:
            self._give_back(letter)
            self._stopping.set()
        except ValueError as error:  # InvalidMessage too: it can never be sent as it is
            self._in_flight.pop(letter.message_id, None)
            self._outcomes.append(Outcome(letter.message_id, "failed", str(error)))
        except NotAccepted as error:
            logger.info("replay waits for room", extra={"error": str(error)})
            self._give_back(letter)
            self._send_due = time.monotonic() + 1.0

    def _give_back(self, letter: DeadLetter) -> None:
        self._in_flight.pop(letter.message_id, None)
        self._outcomes.append(Outcome(letter.message_id, "pending"))

    def _gather(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._report(self._reports.get(timeout=left))
            except queue.Empty:
                return

    def _report(self, report: Resent) -> None:
        letter = self._in_flight.pop(report.message_id, None)
        if letter is None:
            return
        if report.outcome == "acknowledged":
            self._outcomes.append(
                Outcome(report.message_id, "acknowledged", None, report.partition, report.offset)
            )
            return
        death = None if report.letter is None else still_doubtful(letter, report.letter)
        text = report.text or (death.error_text if death else "no reason given")
        self._outcomes.append(Outcome(report.message_id, "failed", text, letter=death))

    def _finish(self) -> None:
        """Waits for what is in flight, within the bound, writes it down, and gives the operation back."""
        deadline = time.monotonic() + self._drain
        while not self._over and self._in_flight and time.monotonic() < deadline:
            self._gather(self._interval)
        while not self._over and time.monotonic() < deadline + 1:
            self._safely(self._leave)

    def _leave(self) -> None:
        self._turn(0, busy=bool(self._in_flight))
        if not self._over and not self._in_flight:
            self._claims.let_go()
        self._over = True

    def _safely(self, step: Callable[[], None]) -> None:
        """A step that the store may refuse; it is tried again until the store is back."""
        try:
            step()
        except StoreError as error:
            if not self._store_away:
                logger.warning("store away during a replay", extra={"error": str(error)})
            self._store_away = True
            self._gather(self._interval)
        else:
            if self._store_away:
                logger.info("store back during a replay")
            self._store_away = False
