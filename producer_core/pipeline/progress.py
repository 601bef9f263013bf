"""Show the progress of a batch job from Spark's status tracker: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TextIO

from producer_core._internal.periodic import run_periodically
from producer_core._internal.plural import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INTERVAL = 0.2
_LINE_INTERVAL = 10.0
_WIDTH = 28
_MIN_SHARE = 0.005


class TaskCounts(NamedTuple):
    """Count the tasks that Spark has run and planned so far."""

    done: int
    total: int


@contextmanager
def show_progress(
    session: SparkSession,
    text: str,
    *,
    records: int | None = None,
    stream: TextIO | None = None,
    on_share: Callable[[float], None] | None = None,
    tasks: int = 0,
) -> Iterator[None]:
    """Show how far Spark is with the work of this thread while the block runs.

    `records` is the number of records that the block reads, where it is known: the bar then counts records, in
    proportion to the tasks. `tasks` is their minimum number, if Spark gets them in several jobs. `on_share` gets the
    share done, 0 to 1, several times a second, from another thread. A terminal gets a bar, which is removed at the end;
    any other output gets a line every 10 seconds, so a short job prints nothing.
    """
    from py4j.protocol import Py4JError

    out = stream or sys.stderr
    context, group = session.sparkContext, f"producer-core-{uuid.uuid4().hex[:8]}"
    bar = _Bar(text, records, out)
    highest = 0.0

    def update() -> bool:
        nonlocal highest
        try:
            counts = tasks_of(session, group)
        except (Py4JError, OSError):  # the session ended first
            return False
        if counts.total:
            # Spark plans later stages later
            highest = max(highest, counts.done / max(counts.total, tasks))
            bar.draw(highest)
            if on_share is not None:
                on_share(highest)
        return True

    before = {name: context.getLocalProperty(name) for name in ("spark.jobGroup.id", "spark.job.description")}
    context.setJobGroup(group, text)
    try:
        with run_periodically(update, _INTERVAL, name="spark-progress"):
            yield
        if on_share is not None:
            on_share(1.0)  # the last update may have been before the last task
    finally:
        bar.clear()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # None removes it


def announce(text: str, stream: TextIO | None = None) -> None:
    """Print the current step, for steps that take seconds before a bar can start.

    On a terminal the next output replaces the line.
    """
    out = stream or sys.stderr
    out.write(f"\r\033[K{text} …" if out.isatty() else f"{text}\n")
    out.flush()


def clear_line(stream: TextIO | None = None) -> None:
    """Remove the line that `announce` printed, on a terminal."""
    out = stream or sys.stderr
    if out.isatty():
        out.write("\r\033[K")
        out.flush()


def tasks_of(session: SparkSession, group: str) -> TaskCounts:
    """Return the finished and known tasks of every stage of a job group."""
    tracker, done, total = session.sparkContext.statusTracker(), 0, 0
    stages = {
        stage
        for job in tracker.getJobIdsForGroup(group)
        if (info := tracker.getJobInfo(job)) is not None
        for stage in info.stageIds
    }
    for stage in stages:
        if (found := tracker.getStageInfo(stage)) is not None:
            done, total = done + found.numCompletedTasks, total + found.numTasks
    return TaskCounts(done, total)


class _Bar:
    """Draw the bar; used by one thread at a time."""

    def __init__(self, text: str, records: int | None, out: TextIO) -> None:
        self._text, self._records, self._out = text, records, out
        self._is_terminal = out.isatty()
        self._began = self._printed = time.monotonic()
        self._drawn = False

    def draw(self, share: float) -> None:
        now = time.monotonic()
        if self._is_terminal:
            full = int(share * _WIDTH)
            bar = "█" * full + "─" * (_WIDTH - full)
            self._out.write(f"\r\033[K{bar} {self._text_of(share, now)}")
            self._drawn = True
        elif now - self._printed >= _LINE_INTERVAL:
            self._out.write(f"{self._text_of(share, now)}\n")
            self._printed = now
        self._out.flush()

    def clear(self) -> None:
        if self._drawn:
            self._out.write("\r\033[K")
            self._out.flush()

    def _text_of(self, share: float, now: float) -> str:
        amount = f"{share:.0%}"
        if self._records:
            amount += f" of {plural(self._records, 'record')}"
        left = (now - self._began) * (1 - share) / share if share > _MIN_SHARE else None
        return f"{self._text}: {amount}" + (f", {left:.0f} s left" if left is not None and share < 1 else "")
