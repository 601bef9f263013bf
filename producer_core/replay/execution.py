"""Run one operation in this process, with a bounded number of records in flight and settled in batches."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.errors import ProducerError, StoreError, StoreTooNew
from producer_core.replay.batch_sizer import BatchSizer
from producer_core.replay.claims import BYTES, BatchResult, ClaimsRefused, ReplayClaims
from producer_core.replay.doubtful_records import DoubtfulRecord
from producer_core.replay.guard import ReplayGuard
from producer_core.replay.lease_renewer import LeaseRenewer
from producer_core.replay.outcome import AcknowledgedBatch, RecordOutcome
from producer_core.replay.pace import MakeSharedLimit, ReplayPace, SharedLimit
from producer_core.replay.strategy import Interrupted, ReplayStrategy

if TYPE_CHECKING:
    from producer_core.delivery.dead_letter import ReplayRecord

logger = queued_logger(__name__)

INTERVAL = 0.2
"""Seconds between two store updates, during which outcomes are collected."""
REST = 5.0
"""Seconds before a failed search for doubtful records is retried."""
DRAIN = 10.0
"""Seconds to wait for the records in flight when the process stops."""
_SETTLE_INTERVAL = 3.0
"""Seconds after which acknowledged records are settled even if the rest of their wave is not sent yet."""
_MAX_SINGLE = 40_000
"""Maximum number of records claimed one by one, of which each becomes a Python object."""
_STATE_INTERVAL = 2.0
"""Seconds between two reads of the requested state while the replay waits for brokers."""


@dataclass(frozen=True)
class ExecutionSettings:
    """Up to `most` records are claimed at once; the rate limit accumulates for up to `burst` seconds.

    `quiet` is the time in seconds after a record's last attempt in which an old request may still arrive. `drain` is
    how long a pause or a stop waits for the records in flight. `limit` applies to replays in transactions; the sender of
    the others has its own.
    """

    lease: float
    most: int
    quiet: float
    interval: float = INTERVAL
    drain: float = DRAIN
    burst: float = 1.0
    limit: MakeSharedLimit | None = None


class ReplayExecution:
    """Run one operation until it ends, is paused, or its lease is lost. Runs in one thread."""

    def __init__(
        self,
        claims: ReplayClaims,
        make_strategy: Callable[[ReplayExecution], ReplayStrategy],
        doubtful: DoubtfulRecord,
        guard: ReplayGuard,
        *,
        preflight: Callable[[ReplayExecution], None],
        stopping: threading.Event,
        settings: ExecutionSettings,
    ) -> None:
        self._claims = claims
        self._doubtful = doubtful
        self._preflight = preflight
        self._guard = guard
        self._settings = settings
        self._stopping = stopping
        self._batch_sizer = BatchSizer(settings.most)
        # Neither searched for nor sent yet: soon after the start, the guard permits only a part of a wave.
        self._claimed: Sequence[ReplayRecord] = ()
        # Bounded by the records in flight while the store is unavailable.
        self._outcomes: list[RecordOutcome] = []
        self._acknowledged: list[AcknowledgedBatch] = []
        self._pace: ReplayPace | None = None
        self._rate: float | None = None  # that of the beginning
        self._limit: SharedLimit | None = None
        self._update_due = self._settle_by = self._rest_until = 0.0
        self._state_read_at = self._status_written_at = 0.0
        self._pending_status: str | None = None
        self._leave_by: float | None = None
        self._over = self._store_away = self._begun = self._waiting = False
        self._initial_state = ""  # the operation's state when this execution began
        self._make_strategy = make_strategy

    def run(self, *, until: float, started: float) -> None:
        """Run until the operation is over, the process stops, or the monotonic time `until` is reached.

        `started` is the monotonic time before the lease was taken. The end waits for the records in flight; records
        without a report by then stay claimed, and the next runner looks for them on the topic.
        """
        self._started = self._state_read_at = started
        with LeaseRenewer(self._claims, self._settings.lease, started) as self._lease_renewer:
            if not self._run_preflight():
                return
            self._strategy = self._strategy_or_release()
            if self._strategy.guarantee == "at_least_once":
                self._batch_sizer.stop_growing()  # the application shares this client for its own messages
            if self._strategy.by_wave:
                self._batch_sizer.use_waves()
            try:
                while not self._over and not self._stopping.is_set() and time.monotonic() < until:
                    self._safely(self._step)
                self._finish()
            except Interrupted:
                self._abandon()
            except StoreTooNew:
                self._finish()
                raise
            except ProducerError:  # the strategy cannot continue, for example because Spark stopped
                self._abandon()
                raise
            finally:
                self._strategy.close()

    def run_check(self, *, started: float) -> None:
        """Run the preflight check and release the operation; another thread sends, perhaps after a decision."""
        self._started = started
        with LeaseRenewer(self._claims, self._settings.lease, started) as self._lease_renewer:
            self._preflight(self)
            self._claims.release()

    def _run_preflight(self) -> bool:
        """Run the preflight check and return whether the operation continues."""
        self._preflight(self)
        self._initial_state = self._claims.get().state
        if self._lease_renewer.holds() and self._initial_state in (
            "planned",
            "running",
            "paused",
            "cancelled",
        ):
            return True
        self._claims.release()
        return False

    def _strategy_or_release(self) -> ReplayStrategy:
        """Make the strategy; on failure release the lease, so that the next attempt need not wait for it."""
        try:
            return self._make_strategy(self)
        except ProducerError:
            with contextlib.suppress(StoreError):
                self._claims.release()
            raise

    # used by the strategy

    def holds(self) -> bool:
        """Return whether this process still holds the lease."""
        return self._lease_renewer.holds()

    def rate(self) -> float | None:
        """Return the operator's rate limit as of the last store update."""
        return None if self._pace is None else self._pace.rate

    def ending(self) -> bool:
        """Return whether this process is stopping: records in flight are settled, and no more are sent."""
        return self._stopping.is_set()

    def interrupted(self) -> bool:
        """Return whether to stop waiting: the lease is lost, the process stops, or the replay was paused or cancelled.

        A runner that took over a cancelled operation continues, because it must find out what the dead owner sent.
        """
        now = time.monotonic()
        if not self._lease_renewer.holds():
            return True
        if self._stopping.is_set():
            self._leave_by = self._leave_by or now + self._settings.drain
            return now > self._leave_by
        if now - self._state_read_at > _STATE_INTERVAL:
            self._state_read_at = now
            with contextlib.suppress(StoreError):
                state = self._claims.get().state
                return state in ("paused", "cancelled") and state != self._initial_state
        return False

    def say(self, text: str) -> None:
        """Set the operation's status text, written at most every two seconds.

        The last text is kept for the next store update, so that no outdated status remains.
        """
        self._pending_status = text
        if time.monotonic() - self._status_written_at > _STATE_INTERVAL:
            self._write_status()

    def _write_status(self) -> None:
        text, self._pending_status, self._status_written_at = self._pending_status, None, time.monotonic()
        if text is not None:
            with contextlib.suppress(StoreError):
                self._claims.say(text)

    # steps

    def _step(self) -> None:
        if self._pace is None:
            self._begin()
            return
        self._send()
        now = time.monotonic()
        stop = self._guard.verdict()
        if self._may_settle_later(now) and not stop:
            self._record_outcomes(self._strategy.gather(self._settings.interval))
            return
        room = 0 if self._claimed else self._room(self._pace, now)
        if self._has_outcomes or (now >= self._update_due and (room or stop)):
            claimed = self._update_store(0 if stop else room, stop=stop)
            self._claimed = claimed or self._claimed
            self._pace.claimed(claimed)
            self._update_due = now + (0.0 if self._claimed else self._settings.interval * 5)
            self._settle_by = now + _SETTLE_INTERVAL
            self._send()
            if room and not (self._over or self._claimed or self._strategy.in_flight or self._has_outcomes):
                self._recover_lost_claims()
        if not self._over:
            self._record_outcomes(self._strategy.gather(self._settings.interval))

    def _may_settle_later(self, now: float) -> bool:
        """Whether the outcomes can wait until the rest of their wave is sent: all of them are acknowledged."""
        rest = self._claimed or (self._strategy.by_wave and self._strategy.in_flight)
        return bool(rest) and not self._outcomes and now < self._settle_by

    def _begin(self) -> None:
        """Settle the records that the previous owner left claimed before sending any record."""
        if not self._begun:
            topics = self._claims.topics()
            self._strategy.begin(topics)
            if self._settings.limit is not None and self._strategy.guarantee == "exactly_once":
                self._limit = self._settings.limit(topics)
            beginning = self._claims.begin(self._strategy.guarantee)
            self._outcomes, self._rate = self._strategy.after(beginning.orphans), beginning.rate
            self._begun = True  # do not repeat it: the floors are now above the records found
        if self._outcomes:
            self._update_store(0)
        self._pace = ReplayPace(self._rate, time.monotonic(), burst=self._settings.burst, shared=self._limit)

    def _recover_lost_claims(self) -> None:
        """Handle records whose claim the store committed although the call failed.

        Orphans of dead owners were settled before, so these records were never sent. A transactional strategy verifies
        this on the topic.
        """
        orphans = self._claims.orphans()
        if self._strategy.guarantee == "at_least_once":
            self._outcomes += [RecordOutcome(orphan.dead_letter.message_id, "pending") for orphan in orphans]
        elif orphans:
            self._outcomes += self._strategy.after(orphans)

    def _room(self, pace: ReplayPace, now: float) -> int:
        """Return how many records may be claimed. It may be more than the guard lets be sent, because some may be on their topic
        already, and the others wait."""
        if not self._lease_renewer.holds() or now < self._rest_until:
            return 0
        return self._most(pace, now) if self._guard.room(self._strategy.in_flight, 1) else 0

    def _most(self, pace: ReplayPace, now: float) -> int:
        return pace.room(now, max(0, self._batch_sizer.now - self._strategy.in_flight))

    def _update_store(self, want: int, *, stop: str | None = None) -> Sequence[ReplayRecord]:
        """Settle the outcomes and claim up to `want` records; outcomes are kept until the store has them."""
        if self._pending_status is not None:
            self._write_status()
        started = time.monotonic()
        wave = self._most(self._pace, started) if want and self._pace and self._strategy.by_wave else 0
        quiet_in = self._settings.quiet - (started - self._started)
        update = self._settle_and_claim(want, stop, wave, everything_may_go=quiet_in <= 0)
        idle = not (update.dead_letters or update.over or update.halt or self._unsettled)
        self._report_waiting(quiet_in, waiting=idle and want > 0 and quiet_in > 0)
        self._batch_sizer.took(update.seconds, self._unsettled + len(update.dead_letters))
        self._over = update.over
        if not update.over:
            self._lease_renewer.renewed(started)
            if self._pace is not None and not update.halt:  # the operator may have resumed with another rate
                self._pace.follow(update.rate)
        if update.halt:
            self._give_back()
            self._update_due = 0.0
        return update.dead_letters

    def _settle_and_claim(
        self, want: int, stop: str | None, wave: int, *, everything_may_go: bool
    ) -> BatchResult:
        with self._outcomes_until_settled():
            return self._claims.settle_and_claim(
                self._outcomes,
                acknowledged=self._acknowledged,
                want=min(want, _MAX_SINGLE),
                busy=self._unsettled > 0,
                room=(BYTES if self._pace is None else self._pace.room_for_bytes(BYTES))
                - self._strategy.bytes,
                stop=stop,
                floors=self._strategy.floors,
                everything_may_go=everything_may_go,
                wave=wave,
            )

    @contextlib.contextmanager
    def _outcomes_until_settled(self) -> Iterator[None]:
        """Keep the outcomes if the store is unavailable. A store that refuses further claims has settled them."""
        try:
            yield
        except ClaimsRefused:
            self._outcomes, self._acknowledged = [], []
            raise
        self._outcomes, self._acknowledged = [], []

    def _report_waiting(self, seconds: float, *, waiting: bool) -> None:
        """Set the status when waiting begins and clear it when sending continues."""
        if waiting != self._waiting:
            self._waiting = waiting
            text = f"Waiting up to {seconds:.0f} s: an earlier request with the next records may still arrive"
            self.say(text if waiting else "")

    @property
    def _unsettled(self) -> int:
        """The number of claimed records without an outcome."""
        return self._strategy.in_flight + len(self._claimed)

    def _send(self) -> None:
        """Send claimed records, as many as the guard permits. Others wait here for the acknowledgement of these, and all records
        wait while the store is unavailable. Records that are found on their topic make room for others."""
        while self._claimed and not self._guard.verdict():
            count = self._guard.room(self._strategy.in_flight, len(self._claimed))
            if count == 0:
                return
            first, following = self._claimed[:count], self._claimed[count:]
            sendable, outcomes = self._doubtful.search_first(first, following)
            self._claimed = following
            self._record_outcomes([*outcomes, *self._strategy.send(sendable)])
            if any(one.ending == "pending" for one in outcomes):
                self._rest_until = time.monotonic() + REST  # a broker is unavailable; search again later
                return

    def _give_back(self) -> None:
        """Return the records that have not been sent yet with the next store update."""
        self._outcomes += [RecordOutcome(dead_letter.message_id, "pending") for dead_letter in self._claimed]
        self._outcomes += self._strategy.give_back()
        self._claimed = ()

    @property
    def _has_outcomes(self) -> bool:
        return bool(self._outcomes or self._acknowledged)

    def _record_outcomes(self, outcomes: Sequence[RecordOutcome] | AcknowledgedBatch) -> None:
        if isinstance(outcomes, AcknowledgedBatch):
            self._guard.record_acknowledged(len(outcomes))
            self._acknowledged.append(outcomes)
            return
        for one in outcomes:
            if one.ending in ("acknowledged", "failed"):
                self._guard.record(failed=one.ending == "failed")
        self._outcomes += outcomes

    # ending

    def _finish(self) -> None:
        """Wait a bounded time for the records in flight, settle them, and release the operation."""
        if not self._over:
            self._give_back()
        deadline = time.monotonic() + self._settings.drain
        while not self._over and self._strategy.in_flight and time.monotonic() < deadline:
            self._record_outcomes(self._strategy.gather(self._settings.interval))
        while not self._over and time.monotonic() < deadline + 1:
            self._safely(self._leave)

    def _leave(self) -> None:
        self._update_store(0)
        if not self._over and not self._strategy.in_flight:
            self._claims.release()
        self._over = True

    def _abandon(self) -> None:
        """Leave records with unknown outcomes claimed; the next owner looks for them on the topic."""
        if self._lease_renewer.holds():
            with contextlib.suppress(StoreError):
                self._update_store(0)
                # The next owner fences this one, so the lease need not expire first.
                if not self._over and self._strategy.guarantee == "exactly_once":
                    self._claims.release()
        self._over = True

    def _safely(self, step: Callable[[], None]) -> None:
        """Run a step and tolerate store errors; the step is retried until the store is available."""
        try:
            step()
        except StoreTooNew:
            raise
        except StoreError as error:
            if not self._store_away:
                logger.warning(**with_fields("store unavailable during a replay", error=str(error)))
            self._store_away = True
            self._record_outcomes(self._strategy.gather(self._settings.interval))
        else:
            if self._store_away:
                logger.info("store available again during a replay")
            self._store_away = False
