"""The progress of a `send`: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from producer_core._internal.periodic import run_periodically
from producer_core.cli import output
from producer_core.cli.plain_text import plain

if TYPE_CHECKING:
    from producer_core.cli.send.send_run import SendRun

_PLAIN_EVERY = 5.0
_BAR_EVERY = 0.2
_STAGES = {"typing": "reading the types of the columns", "checking": "checking that it can be unpacked"}


@contextlib.contextmanager
def shown(job: SendRun) -> Iterator[None]:
    """Progress on standard error while the block runs."""
    with contextlib.ExitStack() as stack:
        if sys.stderr.isatty():
            draw, every = stack.enter_context(_bar(job)), _BAR_EVERY
        else:
            draw, every = _plain(job), _PLAIN_EVERY
        stack.enter_context(run_periodically(draw, every, name="progress"))
        yield


@contextlib.contextmanager
def told(what: str) -> Iterator[Callable[[int, int], None]]:
    """For work before the sending: a callable that hears how much of how much is done, and says it now and then."""
    every = _BAR_EVERY if sys.stderr.isatty() else _PLAIN_EVERY
    said = time.monotonic() + max(0.0, 1.0 - every)  # short work says nothing
    drawn = False

    def tell(done: int, total: int) -> None:
        nonlocal said, drawn
        if time.monotonic() - said < every:
            return
        said, drawn = time.monotonic(), sys.stderr.isatty()
        text = f"{what}: {done / max(total, 1):.0%} of {total:,}"
        click.echo(f"\r{plain(text)}" if drawn else plain(text), err=True, nl=not drawn)

    yield tell
    if drawn:
        click.echo("\r\033[K", err=True, nl=False)


def _plain(job: SendRun) -> Callable[[], None]:
    def draw() -> None:
        if before := _before_the_rows(job):
            output.say(f"{before}{_share(job)}", err=True)
            return
        output.say(f"{_sentence(job)}{_left(job)}", err=True)

    return draw


@contextlib.contextmanager
def _bar(job: SendRun) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        BarColumn(bar_width=28),
        TaskProgressColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=5) as bar:
        task = bar.add_task("", total=None)

        def draw() -> None:
            done, total = job.rows.progress()
            bar.update(task, completed=done, total=total, description=_before_the_rows(job) or _sentence(job))

        draw()
        yield draw


def _before_the_rows(job: SendRun) -> str:
    """What is read of the input before its first row is sent; "" from then on."""
    return _STAGES.get(job.rows.stage, "") if job.phase == "reading" else ""


def _sentence(job: SendRun) -> str:
    snapshot = job.producer.metrics.snapshot()
    seconds = max(time.monotonic() - job.started, 1e-9)
    before = f" ({job.already:,} of before)" if job.already else ""
    dead = max(0, snapshot.dead - job.malformed)
    malformed = f", {job.malformed:,} malformed" if job.malformed else ""
    rate = snapshot.acknowledged / seconds
    text = f"{output.count(job.read, 'row')}{before}, {snapshot.acknowledged:,} acknowledged, {dead:,} dead{malformed}, {rate:,.0f}/s"
    left = job.producer.pending_count
    if job.phase == "settling":
        text += f"; waiting for {left:,}"
        text += " (Ctrl-C again gives them up)" if job.interrupted else ""
    return text + (_connection_trouble(job, anything=bool(snapshot.acknowledged)) if left else "")


def _connection_trouble(job: SendRun, *, anything: bool) -> str:
    """Return why nothing is delivered now; "" while a broker is connected and has acknowledged `anything`."""
    connection = job.producer.connection
    error = connection.error
    if not error or (connection.connected and anything):
        return ""
    return f"; {error}" if connection.connected or not anything else f"; no broker is connected: {error}"


def _left(job: SendRun) -> str:
    """How much of the input is done, and how long the rest may take at this pace."""
    done, total = job.rows.progress()
    if not total or not done or job.phase != "reading":
        return ""
    seconds = (time.monotonic() - job.started) * (total - done) / done
    return f", {done / total:.0%}, {output.duration(seconds)} left"


def _share(job: SendRun) -> str:
    done, total = job.rows.progress()
    return f": {done / total:.0%}" if total else ""
