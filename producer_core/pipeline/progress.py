"""The progress of a batch job, from Spark's status tracker: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TextIO

from producer_core._internal.periodic import run_periodically

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK = 0.2
_LINE_EVERY = 10.0
_WIDTH = 28
_MIN_BAR = 0.005


class TaskCounts(NamedTuple):
    """Of everything that Spark has been asked for so far."""

    done: int
    total: int


@contextmanager
def shown(
    session: SparkSession,
    text: str,
    *,
    records: int | None = None,
    stream: TextIO | None = None,
    told: Callable[[float], None] | None = None,
) -> Iterator[None]:
    """While the block runs, how far Spark is with what this thread asks of it.

    `records` is how many the block reads, where that is known: the bar then speaks of records, in proportion to
    the tasks. `told` hears the share done, 0 to 1, several times a second, from another thread. A terminal gets a
    bar, which is wiped away at the end; anything else a line each 10 seconds, so a short job says nothing.
    """
    from py4j.protocol import Py4JError

    out = stream or sys.stderr
    context, group = session.sparkContext, f"producer-core-{uuid.uuid4().hex[:8]}"
    drawn = _Drawn(text, records, out)
    highest = 0.0

    def look() -> bool:
        nonlocal highest
        try:
            tasks = tasks_of(session, group)
        except (Py4JError, OSError):  # the session ended first
            return False
        if tasks.total:
            highest = max(highest, tasks.done / tasks.total)  # later stages are known later
            drawn.draw(highest)
            if told is not None:
                told(highest)
        return True

    before = {name: context.getLocalProperty(name) for name in ("spark.jobGroup.id", "spark.job.description")}
    context.setJobGroup(group, text)
    try:
        with run_periodically(look, _LOOK, name="spark-progress"):
            yield
        if told is not None:
            told(1.0)  # the last look may have been before the last task
    finally:
        drawn.wipe()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # None takes it away


def said(text: str, stream: TextIO | None = None) -> None:
    """What is done now, where it takes seconds before a bar can say how far it is: a line, but on a terminal one that
    the next thing said there takes away."""
    out = stream or sys.stderr
    out.write(f"\r\033[K{text} …" if out.isatty() else f"{text}\n")
    out.flush()


def wiped(stream: TextIO | None = None) -> None:
    """Takes away what was `said` last, on a terminal."""
    out = stream or sys.stderr
    if out.isatty():
        out.write("\r\033[K")
        out.flush()


def tasks_of(session: SparkSession, group: str) -> TaskCounts:
    """Tasks of every stage of a job group, finished and known."""
    tracker, done, total = session.sparkContext.statusTracker(), 0, 0
    stages = {
        stage
        for job in tracker.getJobIdsForGroup(group)
        if (seen := tracker.getJobInfo(job)) is not None
        for stage in seen.stageIds
    }
    for stage in stages:
        if (found := tracker.getStageInfo(stage)) is not None:
            done, total = done + found.numCompletedTasks, total + found.numTasks
    return TaskCounts(done, total)


class _Drawn:
    """Where the bar is; used by one thread at a time."""

    def __init__(self, text: str, records: int | None, out: TextIO) -> None:
        self._text, self._records, self._out = text, records, out
        self._bar = out.isatty()
        self._began = self._said = time.monotonic()
        self._wipe = False

    def draw(self, share: float) -> None:
        now = time.monotonic()
        if self._bar:
            full = int(share * _WIDTH)
            bar = "█" * full + "─" * (_WIDTH - full)
            self._out.write(f"\r\033[K{bar} {self._words(share, now)}")
            self._wipe = True
        elif now - self._said >= _LINE_EVERY:
            self._out.write(f"{self._words(share, now)}\n")
            self._said = now
        self._out.flush()

    def wipe(self) -> None:
        if self._wipe:
            self._out.write("\r\033[K")
            self._out.flush()

    def _words(self, share: float, now: float) -> str:
        amount = f"{share:.0%}"
        if self._records:
            amount += f" of {self._records:,} records"
        left = (now - self._began) * (1 - share) / share if share > _MIN_BAR else None
        return f"{self._text}: {amount}" + (f", {left:.0f} s left" if left is not None and share < 1 else "")
