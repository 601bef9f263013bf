"""The progress of a `send`: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from producer_core.cli.sending import Sending

_PLAIN_EVERY = 5.0
_BAR_EVERY = 0.2


@contextlib.contextmanager
def shown(job: Sending) -> Iterator[None]:
    """Progress on standard error while the block runs."""
    with contextlib.ExitStack() as stack:
        if sys.stderr.isatty():
            draw, every = stack.enter_context(_bar(job)), _BAR_EVERY
        else:
            draw, every = _plain(job), _PLAIN_EVERY
        stack.enter_context(_repeating(draw, every))
        yield


@contextlib.contextmanager
def _repeating(draw: Callable[[], None], every: float) -> Iterator[None]:
    done = threading.Event()

    def loop() -> None:
        while not done.wait(every):
            draw()

    thread = threading.Thread(target=loop, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _plain(job: Sending) -> Callable[[], None]:
    def draw() -> None:
        if job.phase == "reading" and job.rows.stage == "typing":
            click.echo(f"reading the types of the columns{_share(job)}", err=True)
            return
        click.echo(_sentence(job), err=True)

    return draw


@contextlib.contextmanager
def _bar(job: Sending) -> Iterator[Callable[[], None]]:
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
            typing = job.phase == "reading" and job.rows.stage == "typing"
            text = "reading the types of the columns" if typing else _sentence(job)
            bar.update(task, completed=done, total=total, description=text)

        draw()
        yield draw


def _sentence(job: Sending) -> str:
    snapshot = job.producer.metrics.snapshot()
    seconds = max(time.monotonic() - job.started, 1e-9)
    text = f"{job.read:,} rows, {snapshot.acknowledged:,} acknowledged, {snapshot.dead:,} dead, {snapshot.acknowledged / seconds:,.0f}/s"
    left = job.producer.pending_count
    if job.phase == "settling":
        text += f"; waiting for {left:,}"
        text += " (Ctrl-C again gives them up)" if job.interrupted else ""
    if left and not snapshot.acknowledged and (error := job.producer.connection.error):
        text += f"; {error}"
    return text


def _share(job: Sending) -> str:
    done, total = job.rows.progress()
    return f": {done / total:.0%}" if total else ""
