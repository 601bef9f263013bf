"""The work on one operation in this process: a bounded number of records at a time, settled in batches."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer_core.errors import ProducerError, StoreError
from producer_core.replay.claims import BYTES, ReplayClaims
from producer_core.replay.doubtful_records import DoubtfulRecord
from producer_core.replay.guard import ReplayGuard
from producer_core.replay.operation_lease import LeaseRenewer
from producer_core.replay.outcome import RecordOutcome
from producer_core.replay.strategy import Interrupted, ReplayStrategy

if TYPE_CHECKING:
    from producer_core.delivery.dead_letter import ReplayRecord

logger = logging.getLogger(__name__)

INTERVAL = 0.2
"""Seconds between two visits to the store: outcomes are gathered meanwhile."""
REST = 5.0
"""Seconds until records that could not be looked for are looked for again."""
DRAIN = 10.0
"""Seconds in which what is in flight is waited for when the process ends."""
_ASK = 2.0
"""Seconds between two looks at what an operator wants, while brokers are waited for."""


class BatchSizer:
    """How many records a visit to the store may claim: more while visits are short, for others wait meanwhile."""

    FIRST = 2000
    SHORT, LONG = 0.5, 1.0
    """Seconds."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.now = min(most, self.FIRST)

    def stay(self) -> None:
        """No more than now, however short visits are."""
        self._most = self.now

    def took(self, seconds: float, claimed: int) -> None:
        if seconds > self.LONG:
            self.now = min(self._most, max(self.FIRST, self.now // 2))
        elif seconds < self.SHORT and claimed >= self.now:
            self.now = min(self._most, self.now * 2)


class ReplayPace:
    """How many records may go now at a rate; unused ones add up to `burst` seconds' worth. No rate: no bound."""

    def __init__(self, rate: float | None, now: float, *, burst: float = 1.0) -> None:
        self._rate = rate
        self._burst = burst
        self._allowed = 1.0
        self._at = now

    def room(self, now: float, most: int) -> int:
        if self._rate is None:
            return most
        self._allowed = min(max(1.0, self._rate * self._burst), self._allowed + (now - self._at) * self._rate)
        self._at = now
        return min(most, int(self._allowed))

    def follow(self, rate: float | None) -> None:
        """Another rate from now on; what was allowed before is kept within it."""
        self._rate = rate

    @property
    def rate(self) -> float | None:
        return self._rate

    def spend(self, count: int) -> None:
        self._allowed -= count


@dataclass(frozen=True)
class ExecutionSettings:
    """`most` records are claimed at once. `burst` is the number of seconds of the rate limit that may accumulate.

    `quiet` is the time, in seconds, after the last attempt of a record in which an old request of it may still arrive;
    `drain` is how long a pause or a stop waits for what is in flight.
    """

    lease: float
    most: int
    quiet: float
    interval: float = INTERVAL
    drain: float = DRAIN
    burst: float = 1.0


class ReplayExecution:
    """One operation, from `take` to its end, its pause, or the loss of its lease. Runs in one thread.

    `make_strategy` gets this execution's `interrupted`; `burst` is for how many seconds what a rate allows adds up; `quiet` is for how many seconds after the last attempt of a record
    an old request of it may still arrive.
    """

    def __init__(
        self,
        claims: ReplayClaims,
        make_strategy: Callable[[ReplayExecution], ReplayStrategy],
        doubt: DoubtfulRecord,
        guard: ReplayGuard,
        *,
        preflight: Callable[[ReplayExecution], None],
        stopping: threading.Event,
        settings: ExecutionSettings,
    ) -> None:
        self._claims = claims
        self._doubt = doubt
        self._preflight = preflight
        self._guard = guard
        self._settings = settings
        self._stopping = stopping
        self._batch_sizer = BatchSizer(settings.most)
        self._claimed: Sequence[ReplayRecord] = ()  # and neither looked for nor sent yet
        self._outcomes: list[
            RecordOutcome
        ] = []  # at most what was in flight: bounded while the store is away
        self._pace: ReplayPace | None = None
        self._turn_due = self._rest_until = 0.0
        self._asked = self._said = 0.0
        self._unsaid: str | None = None
        self._leave_by: float | None = None
        self._over = self._store_away = self._begun = self._waits = False
        self._began_as = ""  # the operation's state when this work began
        self._make_strategy = make_strategy

    def run(self, *, until: float, started: float) -> None:
        """Until it is over, this process stops, or the moment `until` (monotonic) has come.

        `started` is the monotonic time before the lease was taken. What is in flight at the end is waited
        for; what even then has no report stays claimed, and the next runner looks for it on the topic.
        """
        self._started = started
        with LeaseRenewer(self._claims, self._settings.lease, started) as self._keeper:
            if not self._look_ahead():
                return
            self._strategy = self._strategy_or_release()
            if self._strategy.guarantee == "at_least_once":
                self._batch_sizer.stay()  # they go through the application's own client, which has its own to send
            try:
                while not self._over and not self._stopping.is_set() and time.monotonic() < until:
                    self._safely(self._step)
                self._finish()
            except Interrupted:
                self._abandon()
            except ProducerError:  # the way is at its end: Spark is gone, say
                self._abandon()
                raise
            finally:
                self._strategy.close()

    def look(self, *, started: float) -> None:
        """Looks ahead and gives the operation back: who sends is another thread, and perhaps waits for a person."""
        self._started = started
        with LeaseRenewer(self._claims, self._settings.lease, started) as self._keeper:
            self._preflight(self)
            self._claims.release()

    def _look_ahead(self) -> bool:
        """Whether to go on: not where nobody wants it now."""
        self._preflight(self)
        self._began_as = self._claims.get().state
        if self._keeper.holds() and self._began_as in ("planned", "running", "paused", "cancelled"):
            return True
        self._claims.release()
        return False

    def _strategy_or_release(self) -> ReplayStrategy:
        """Where there is none nothing was sent, and who asks again need not wait for our lease to end."""
        try:
            return self._make_strategy(self)
        except ProducerError:
            with contextlib.suppress(StoreError):
                self._claims.release()
            raise

    # what the way may ask

    def holds(self) -> bool:
        """Whether the operation is ours still."""
        return self._keeper.holds()

    def rate(self) -> float | None:
        """How many a second an operator wants at most, as the last visit to the store said."""
        return None if self._pace is None else self._pace.rate

    def ending(self) -> bool:
        """Whether this process is to end: what is in flight is settled, and nothing more is sent."""
        return self._stopping.is_set()

    def interrupted(self) -> bool:
        """Whether to leave while waiting: it is not ours any more, the process must end, or nobody wants it any more.

        Who took over what was cancelled already is here to find out what its dead owner sent, and does not leave for it.
        """
        now = time.monotonic()
        if not self._keeper.holds():
            return True
        if self._stopping.is_set():
            self._leave_by = self._leave_by or now + self._settings.drain
            return now > self._leave_by
        if now - self._asked > _ASK:
            self._asked = now
            with contextlib.suppress(StoreError):
                state = self._claims.get().state
                return state in ("paused", "cancelled") and state != self._began_as
        return False

    def say(self, text: str) -> None:
        """What an operator should know while the way waits. It is written down every two seconds at most; the last one
        is kept for the next turn, so that nothing stands there which is not true any more."""
        self._unsaid = text
        if time.monotonic() - self._said > _ASK:
            self._say_it()

    def _say_it(self) -> None:
        text, self._unsaid, self._said = self._unsaid, None, time.monotonic()
        if text is not None:
            with contextlib.suppress(StoreError):
                self._claims.say(text)

    # steps

    def _step(self) -> None:
        if self._pace is None:
            self._begin()
            return
        self._send()  # what an earlier step could not, because the store was away
        now = time.monotonic()
        room = self._room(self._pace, now)
        stop = self._guard.verdict()
        if self._outcomes or (now >= self._turn_due and (room or stop)):
            self._claimed = self._turn(0 if stop else room, stop=stop)
            self._pace.spend(len(self._claimed))
            self._turn_due = now + (0.0 if self._claimed else self._settings.interval * 5)
            self._send()
            if room and not (self._over or self._claimed or self._strategy.in_flight or self._outcomes):
                self._pick_up()
        if not self._over:
            self._hear(self._strategy.gather(self._settings.interval))

    def _begin(self) -> None:
        """What the owner before us left claimed is settled before anything is sent."""
        if not self._begun:
            self._strategy.begin(self._claims.topics())
            self._claims.begin(self._strategy.guarantee)
            self._outcomes = self._strategy.after(self._claims.orphans())
            self._begun = True  # never twice: the floors are above what was found
        if self._outcomes:
            self._turn(0)
        self._pace = ReplayPace(self._claims.get().rate, time.monotonic(), burst=self._settings.burst)

    def _pick_up(self) -> None:
        """Records that are claimed and in nobody's hand: the store took the claim, and failed before it said so.

        Those of dead owners were settled before, so these were never sent. With transactions it is found out all the same.
        """
        orphans = self._claims.orphans()
        if self._strategy.guarantee == "at_least_once":
            self._outcomes += [RecordOutcome(orphan.dead_letter.message_id, "pending") for orphan in orphans]
        elif orphans:
            self._outcomes += self._strategy.after(orphans)

    def _room(self, pace: ReplayPace, now: float) -> int:
        if not self._keeper.holds() or now < self._rest_until:
            return 0
        return self._guard.room(
            self._strategy.in_flight, pace.room(now, max(0, self._batch_sizer.now - self._strategy.in_flight))
        )

    def _turn(self, want: int, *, stop: str | None = None) -> tuple[ReplayRecord, ...]:
        """One visit to the store; outcomes are forgotten only when it has them."""
        if self._unsaid is not None:
            self._say_it()
        started = time.monotonic()
        quiet_in = self._settings.quiet - (started - self._started)
        turn = self._claims.turn(
            self._outcomes,
            want=want,
            busy=self._strategy.in_flight > 0,
            room=BYTES - self._strategy.bytes,
            stop=stop,
            floors=self._strategy.floors,
            everything_may_go=quiet_in <= 0,
        )
        nothing = not (turn.dead_letters or turn.over or turn.halt or self._strategy.in_flight)
        self._say_whether_it_waits(quiet_in, waits=nothing and want > 0 and quiet_in > 0)
        self._batch_sizer.took(time.monotonic() - started, len(turn.dead_letters))
        self._outcomes = []
        self._over = turn.over
        if not turn.over:
            self._keeper.renewed(started)
            if self._pace is not None and not turn.halt:  # it was paused and resumed with another rate
                self._pace.follow(turn.rate)
        if turn.halt:
            self._give_back()
            self._turn_due = 0.0
        return turn.dead_letters

    def _say_whether_it_waits(self, seconds: float, *, waits: bool) -> None:
        """Said when it begins to, and taken back when they go: else nobody knows why nothing happens."""
        if waits != self._waits:
            self._waits = waits
            text = (
                f"It waits {seconds:.0f} s at most: an old attempt of the next dead letters may still arrive"
            )
            self.say(text if waits else "")

    def _send(self) -> None:
        if not self._claimed:
            return
        sendable, outcomes = self._doubt.look_first(self._claimed)
        self._claimed = ()
        if any(
            one.ending == "pending" for one in outcomes
        ):  # a broker is away, and they are looked for again
            self._rest_until = time.monotonic() + REST
        self._hear([*outcomes, *self._strategy.send(sendable)])

    def _give_back(self) -> None:
        """What was not sent yet goes back, in the next turn."""
        self._outcomes += [RecordOutcome(dead_letter.message_id, "pending") for dead_letter in self._claimed]
        self._outcomes += self._strategy.give_back()
        self._claimed = ()

    def _hear(self, outcomes: Sequence[RecordOutcome]) -> None:
        for one in outcomes:
            if one.ending in ("acknowledged", "failed"):
                self._guard.heard(failed=one.ending == "failed")
        self._outcomes += outcomes

    # ending

    def _finish(self) -> None:
        """Waits for what is in flight, within the bound, writes it down, and gives the operation back."""
        if not self._over:
            self._give_back()
        deadline = time.monotonic() + self._settings.drain
        while not self._over and self._strategy.in_flight and time.monotonic() < deadline:
            self._hear(self._strategy.gather(self._settings.interval))
        while not self._over and time.monotonic() < deadline + 1:
            self._safely(self._leave)

    def _leave(self) -> None:
        self._turn(0)
        if not self._over and not self._strategy.in_flight:
            self._claims.release()
        self._over = True

    def _abandon(self) -> None:
        """Leaves with records whose fate nobody knows; they stay claimed, and the next owner finds out."""
        if self._keeper.holds():
            with contextlib.suppress(StoreError):
                self._turn(0)
                if (
                    not self._over and self._strategy.guarantee == "exactly_once"
                ):  # he fences whatever we left behind
                    self._claims.release()
        self._over = True

    def _safely(self, step: Callable[[], None]) -> None:
        """A step that the store may refuse; it is tried again until the store is back."""
        try:
            step()
        except StoreError as error:
            if not self._store_away:
                logger.warning("store away during a replay", extra={"error": str(error)})
            self._store_away = True
            self._hear(self._strategy.gather(self._settings.interval))
        else:
            if self._store_away:
                logger.info("store back during a replay")
            self._store_away = False
