"""The way of a replay over Spark: a wave at a time, each slice of it under its own transactional id. Small waves, the
canary first, the driver sends itself.

Before a driver sends anything it seals every slice: what an earlier driver's tasks had open is aborted, and none of
them can begin again. What a wave's tasks did not answer for is sealed as well, looked for on its topic, and counts as
sent where it is there; else it goes again.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core.delivery.exactly_once.read_back import ReadBack
from producer_core.delivery.exactly_once.transactional_client import ClientStopped
from producer_core.pipeline.reprocess import batches
from producer_core.pipeline.reprocess.batches import BatchLost, DriverBatch, RunningBatch, SparkBatch
from producer_core.pipeline.reprocess.client_pool import ClientPool
from producer_core.pipeline.reprocess.offset_floors import OffsetFloors
from producer_core.pipeline.reprocess.progress_topic import ProgressTopic, seal
from producer_core.pipeline.reprocess.slice_task import SliceTask, outcome_of
from producer_core.pipeline.reprocess.slicing import SliceEpoch
from producer_core.replay.claims import Floors
from producer_core.replay.guard import CanaryRule
from producer_core.replay.outcome import OrphanedRecord, RecordOutcome
from producer_core.replay.strategy import Guarantee, Interrupt, Interrupted
from producer_core.replay.transactional import Supervisor, TransactionalReplay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from producer_core.delivery.dead_letter import ReplayRecord

logger = logging.getLogger(__name__)

IN_A_TRANSACTION = 2000
NEAR = 2000
"""Letters: what is less than this, and no full wave, the driver sends itself. A job of Spark's takes a second to begin."""
_TRIES = 3
"""Waves lost in a row until the job ends; each is settled before the next goes."""
_PACED = 5.0
"""Seconds of a rate in one wave, at most."""
_GRACE = 8.0
"""Seconds that a wave may go on when somebody wants it to end; then its tasks are killed."""
_SETTLE = 20.0
"""Seconds for finding out what became of a wave that was killed because somebody wants it to end."""
_never = threading.Event()  # waiting on it is a pause
_QUIET = 10.0
"""Seconds of a wave until it is said that it still goes."""


@dataclass(frozen=True)
class BatchProgress:
    """What one driver needs to know of its operation: where it sends to, and how its dead letters are sliced."""

    operation_id: str
    settings: Mapping[str, Any]
    life: SliceEpoch
    wave: int
    cores: int
    rule: CanaryRule
    rate: Callable[[], float | None]
    newer: str | None = None


class SparkReplay:
    """The way of one operation in one driver. Used by one thread; Spark's tasks, and threads of waves, do the sending."""

    guarantee: Guarantee = "exactly_once"

    def __init__(
        self,
        session: Callable[[], SparkSession],
        course: BatchProgress,
        *,
        floors: Floors,
        interrupt: Interrupt,
        holds: Callable[[], bool],
        ending: Callable[[], bool],
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._session = session
        self._course = course
        self._rising = OffsetFloors(floors, self._ends)
        self._asked_to_leave = interrupt
        self._holds = holds
        self._ending = ending
        self._keep = ClientPool()
        self._wave: RunningBatch | None = None  # under way
        self._leave_at = float("inf")
        self._settle_by: float | None = None
        self._say = say
        self._clock = clock
        self._number = course.life.first
        self._since: dict[int, int] = {}
        self._hand: deque[ReplayRecord] = deque()
        self._unknown: list[ReplayRecord] = []  # of the wave of which nobody knows yet what became
        self._lost = 0
        self._slow_until = 0.0  # until then it is said how long a wave took

    @property
    def in_flight(self) -> int:
        return len(self._hand) + len(self._unknown)

    @property
    def bytes(self) -> int:
        return sum(dead_letter.size for dead_letter in (*self._hand, *self._unknown))

    @property
    def floors(self) -> Floors:
        return self._rising.now

    # beginning

    def begin(self, topics: Sequence[str]) -> None:
        """Seals every slice; then the ends of new topics are their floors."""
        looker = self._looker()
        try:
            # An ordinary runner's transaction, should there be one, ends beside the seals: either takes half a second.
            with ThreadPoolExecutor(1, thread_name_prefix="fence") as pool:
                fenced = pool.submit(looker.begin, ())
                self._seal(range(self._course.life.slicing.count))
                fenced.result()
            looker.begin(topics)
        finally:
            looker.close()
        self._rising.are(looker.floors)

    def after(self, orphans: Sequence[OrphanedRecord]) -> list[RecordOutcome]:
        return self._look(orphans)

    def _look(self, orphans: Sequence[OrphanedRecord]) -> list[RecordOutcome]:
        """What became of these; to be asked when their slices are sealed, and no wave is under way."""
        looker = self._looker()
        outcomes = looker.after(orphans)
        self._rising.are(looker.floors)
        return outcomes

    def _looker(self) -> TransactionalReplay:
        """The eyes of an ordinary replay: it reads above our floors, and raises them."""
        return TransactionalReplay(
            self._course.settings,
            self._course.operation_id,
            floors=self._rising.now,
            supervisor=Supervisor(self._interrupt, self._say, clock=self._clock),
            most=1,
            newer=self._course.newer,
        )

    def _seal(self, slices: Iterable[int]) -> None:
        self._number += 1
        since = seal(
            self._course.settings,
            self._notes(),
            self._course.operation_id,
            list(slices),
            self._number,
            interrupt=self._interrupt,
            say=self._say,
            keep=self._keep,
        )
        self._since |= since

    def _notes(self) -> ProgressTopic:
        return ProgressTopic(self._course.life.topic, self._course.life.partitions, dict(self._since))

    # sending

    def send(self, dead_letters: Sequence[ReplayRecord]) -> list[RecordOutcome]:
        self._hand += dead_letters
        return []

    def give_back(self) -> list[RecordOutcome]:
        outcomes = [RecordOutcome(dead_letter.message_id, "pending") for dead_letter in self._hand]
        self._hand.clear()
        return outcomes

    def gather(self, seconds: float) -> list[RecordOutcome]:
        """What became of the wave that is under way, when it is over: the next one has begun then, if there is one."""
        if self._wave is None and self._unknown:  # interrupted while it was found out, and asked again
            return self._find_out({})
        if self._wave is None and self._ending():
            return self.give_back()
        if self._wave is None and not self._hand:
            self._idle(seconds)
            return []
        wave = self._wave or self._begin_wave()
        if not wave.done.wait(seconds):
            return self._goes_on(wave)
        leaving, self._wave, self._leave_at = self._leave_at < float("inf"), None, float("inf")
        self._say_how_long(wave)
        outcomes = self._find_out(self._answers(wave))
        if leaving:
            return [*outcomes, *self.give_back()]
        if self._hand and not any(one.ending == "failed" for one in outcomes):
            # While the store is told; where something failed, whoever counts is asked first. What is known must not
            # be lost: a wave that cannot begin raises when it is tried again.
            with contextlib.suppress(Exception):
                self._begin_wave()
        return outcomes

    def _say_how_long(self, wave: RunningBatch) -> None:
        """Of a wave that took long, and of some after it: what was said while it went on must not stand there longer
        than it is true."""
        now = time.monotonic()
        if now - wave.began > _QUIET:
            self._slow_until = now + _QUIET
        if now < self._slow_until:
            self._say(f"{wave.who} sent {len(self._unknown):,} records in {now - wave.began:.1f} s")

    def _goes_on(self, wave: RunningBatch) -> list[RecordOutcome]:
        """Nothing yet; a wave that does not end though somebody wants it to is killed, and what became of it found out.

        Nothing goes after it then: who still wants the rest claims it again.
        """
        now = time.monotonic()
        if now - wave.began > _QUIET:
            self._say(
                f"{wave.who} has been sending {len(self._unknown):,} records for {now - wave.began:.0f} s"
            )
        if self._interrupt() or self._ending():
            self._leave_at = min(self._leave_at, now + _GRACE)
        if now < self._leave_at and self._holds():
            return []
        wave.cancel()
        self._say(
            f"{wave.who} was told to end a wave of {len(self._unknown):,} records; they are looked for on their topics"
        )
        self._wave, self._leave_at = None, float("inf")
        if not self._holds():
            raise Interrupted
        self._settle_by = now + _SETTLE
        try:
            return [*self._find_out({}), *self.give_back()]
        finally:
            self._settle_by = None

    def _interrupt(self) -> bool:
        if self._settle_by is None:
            return self._asked_to_leave()
        return not self._holds() or time.monotonic() > self._settle_by

    def _begin_wave(self) -> RunningBatch:
        """All or nothing: where it fails the dead letters are in hand still."""
        course, rate = self._course, self._course.rate()
        most = course.wave if rate is None else min(course.wave, max(1, int(rate * _PACED)))
        chosen = list(itertools.islice(self._hand, most))
        dead_letters = batches.table(chosen, course.life.slicing, course.cores)
        errand = SliceTask(
            course.operation_id,
            course.settings,
            self._number + 1,
            self._rising.now,
            self._notes(),
            IN_A_TRANSACTION,
            course.rule,
            len(chosen),
            rate,
            course.newer,
        )
        wave: RunningBatch
        if len(chosen) < min(NEAR, course.wave):
            wave = DriverBatch(dead_letters, errand, self._keep, self._holds)
        else:
            wave = SparkBatch(self._session(), dead_letters, errand)
            self._keep.drop(dead_letters["slice"].to_pylist())
        wave.start()
        for _ in chosen:
            self._hand.popleft()
        self._number, self._unknown, self._wave = errand.number, chosen, wave
        return wave

    def _answers(self, wave: RunningBatch) -> dict[str, RecordOutcome]:
        """What its tasks said, by id; nothing where it was lost."""
        try:
            rows = wave.outcomes()
        except BatchLost as lost:
            self._lost += 1
            logger.warning(
                "wave lost",
                extra={"operation": self._course.operation_id, "error": str(lost), "cause": lost.__cause__},
            )
            self._say(f"{wave.who} lost a wave, and it is settled now: {lost}")
            if self._lost >= _TRIES:
                raise lost.error from lost  # the wave stays claimed, and the floors are below it
            return {}
        self._lost = 0
        return {row["message_id"]: outcome_of(row) for row in rows}

    def _find_out(self, told: Mapping[str, RecordOutcome]) -> list[RecordOutcome]:
        """The outcomes of the wave: a commit is believed, everything else is looked for once nobody can send it.

        A failure too: another attempt of the same task may have been luckier, or may yet be.
        """
        sure = {one.message_id: one for one in told.values() if one.ending == "acknowledged"}
        doubtful = [dead_letter for dead_letter in self._unknown if dead_letter.message_id not in sure]
        outcomes = list(sure.values())
        again: list[ReplayRecord] = []
        if doubtful:
            self._seal(sorted({self._course.life.slicing.of(dead_letter) for dead_letter in doubtful}))
            for found, dead_letter in zip(
                self._look([OrphanedRecord(one, 0.0) for one in doubtful]), doubtful, strict=True
            ):
                if found.ending == "landed":
                    outcomes.append(
                        RecordOutcome(found.message_id, "acknowledged", None, found.partition, found.offset)
                    )
                elif dead_letter.message_id in told and told[dead_letter.message_id].ending != "pending":
                    outcomes.append(told[dead_letter.message_id])
                elif found.ending == "pending":
                    again.append(dead_letter)
                else:
                    outcomes.append(found)
            self._hand.extendleft(reversed(again))
        topics = {dead_letter.message_id: dead_letter.topic for dead_letter in self._unknown}
        self._unknown = []
        self._rising.settled((topics[one.message_id], one.partition, one.offset) for one in outcomes)
        return outcomes

    def _ends(self) -> ReadBack:
        return ReadBack(self._course.settings, self._pause, lambda _, text: self._say(text), lambda _: None)

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            _never.wait(seconds)
        if self._interrupt():
            raise ClientStopped

    def _idle(self, seconds: float) -> None:
        try:
            self._pause(seconds)
        except ClientStopped:
            raise Interrupted from None

    def close(self) -> None:
        """A wave that is still under way is killed; whoever comes next finds out what became of it."""
        if self._wave is not None:
            self._wave.cancel()
            self._wave = None
        self._keep.close()
