"""The progress of a `send` on standard error: a bar on a terminal, otherwise a plain line every few seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from producer_core._internal.periodic import run_periodically
from producer_core._internal.plural import plural, them
from producer_core.cli import output
from producer_core.cli.plain_text import plain

if TYPE_CHECKING:
    from producer_core.cli.send.run_state import RunState

_PLAIN_EVERY = 5.0
_BAR_EVERY = 0.2
_STAGES = {"typing": "reading the column types", "checking": "checking the compressed file"}


@contextlib.contextmanager
def show_progress(state: RunState) -> Iterator[None]:
    """Show progress on standard error while the block runs."""
    with contextlib.ExitStack() as stack:
        if sys.stderr.isatty():
            draw, every = stack.enter_context(_bar(state)), _BAR_EVERY
        else:
            draw, every = _plain(state), _PLAIN_EVERY
        stack.enter_context(run_periodically(draw, every, name="progress"))
        yield


@contextlib.contextmanager
def counter(action: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a callable that takes the amount done and the total, and prints the share from time to time.

    Work that ends within a second prints nothing.
    """
    every = _BAR_EVERY if sys.stderr.isatty() else _PLAIN_EVERY
    printed_at = time.monotonic() + max(0.0, 1.0 - every)
    drawn = False

    def report(done: int, total: int) -> None:
        nonlocal printed_at, drawn
        if time.monotonic() - printed_at < every:
            return
        printed_at, drawn = time.monotonic(), sys.stderr.isatty()
        text = f"{action}: {done / max(total, 1):.0%} of {total:,}"
        click.echo(f"\r{plain(text)}" if drawn else plain(text), err=True, nl=not drawn)

    yield report
    if drawn:
        click.echo("\r\033[K", err=True, nl=False)


def _plain(state: RunState) -> Callable[[], None]:
    def draw() -> None:
        if preparation := _preparation(state):
            output.say(f"{preparation}{_share(state)}", err=True)
            return
        output.say(f"{_sentence(state)}{_remaining(state)}", err=True)

    return draw


@contextlib.contextmanager
def _bar(state: RunState) -> Iterator[Callable[[], None]]:
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
            done, total = _progress(state)
            description = _preparation(state) or _sentence(state)
            bar.update(task, completed=done, total=total, description=description)

        draw()
        yield draw


def _preparation(state: RunState) -> str:
    """Return the step that precedes the first row; "" once rows are being sent."""
    return _STAGES.get(state.rows.stage, "") if state.phase == "reading" else ""


def _sentence(state: RunState) -> str:
    snapshot = state.producer.metrics.snapshot()
    seconds = max(time.monotonic() - state.started, 1e-9)
    before = f" ({state.already_done:,} from earlier runs)" if state.already_done else ""
    dead = max(0, snapshot.dead - state.malformed)
    malformed = f", {state.malformed:,} malformed" if state.malformed else ""
    rate = snapshot.acknowledged / seconds
    text = (
        f"{plural(state.read, 'row')}{before}, {snapshot.acknowledged:,} acknowledged, {dead:,} dead{malformed}, "
        f"{rate:,.0f}/s"
    )
    pending = state.producer.pending_count
    if state.phase == "settling":
        text += f"; waiting for {pending:,}"
        text += f" (press Ctrl-C again to abandon {them(pending)})" if state.interrupted else ""
    return text + (_connection_trouble(state, anything=bool(snapshot.acknowledged)) if pending else "")


def _connection_trouble(state: RunState, *, anything: bool) -> str:
    """Return why nothing is delivered now; "" while a broker is connected and has acknowledged `anything`."""
    connection = state.producer.connection
    error = connection.error
    if not error or (connection.connected and anything):
        return ""
    return f"; {error}" if connection.connected or not anything else f"; no broker is connected: {error}"


def _remaining(state: RunState) -> str:
    """Return the share of the input whose rows were accepted, and the time that the rest takes at this rate."""
    done, total = _progress(state)
    if not total or not done or state.phase != "reading":
        return ""
    seconds = (time.monotonic() - state.started) * (total - done) / done
    return f", {done / total:.0%}, {output.duration(seconds)} left"


def _share(state: RunState) -> str:
    done, total = _progress(state)
    return f": {done / total:.0%}" if total else ""


def _progress(state: RunState) -> tuple[int, int | None]:
    """Return the amount of the input that was processed, and the total: before the first row, what was read."""
    return state.rows.progress() if _preparation(state) else (state.covered, state.rows.content()[1])
