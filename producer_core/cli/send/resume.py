"""Resuming: whether a `send` begins, goes on, has nothing to do, or is refused."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from producer_core.cli.send.file_progress import FileProgress
from producer_core.cli.send.input_file import InputError
from producer_core.cli.send.recover_position import RecoveredPosition
from producer_core.cli.send.state_file import SendJob, SendState, StateFile, Where
from producer_core.errors import JournalDamaged

How = Literal["new", "resumed", "complete", "found"]
_ANEW = "Say --restart to send all of it again, from its first row."


class ResumeRefused(InputError):
    """The input, or the command, is not the one that was begun."""


@dataclass(frozen=True)
class ResumePoint:
    """Where a send stands at its start, and a sentence or two for its user."""

    progress: FileProgress
    how: How
    text: str


def begin(
    file: StateFile,
    job: SendJob,
    *,
    restart: bool = False,
    look: Callable[[str], RecoveredPosition] | None = None,
    ends: Callable[[], dict[Where, int]] = dict,
    cut: Callable[[SendState], str | None] = lambda state: None,
) -> ResumePoint:
    """Read the state file and decide. What was decided is written down with the first row that is sent.

    `look(why)` reads the topic for what is there, and is asked where exactly_once has no state to trust; `ends()`
    returns the last offset of each partition, where an exactly_once run that is begun anew
    begins; `cut` says whether the topic has lost what the state says was acknowledged.
    """
    state, damage = _read(file, job, restart=restart)
    if restart:
        anew = _anew(job, state)
        anew.offsets = ends()
        return ResumePoint(FileProgress(file, anew), "new", "")
    if state is None:
        if look is None:
            return ResumePoint(FileProgress(file, _anew(job, None)), "new", "")
        return _from_the_topic(file, job, look, damage)
    check(state.job, job)
    if state.rows is not None and len(state.settled) >= state.rows:
        return ResumePoint(FileProgress(file, state), "complete", _complete(state))
    if (why := cut(state)) is not None:
        raise ResumeRefused(
            f"The topic is not what it was: {why}. It was made anew, or records were lost.", fix=_ANEW
        )
    return _resumed(file, state)


def _read(file: StateFile, job: SendJob, *, restart: bool) -> tuple[SendState | None, str]:
    try:
        return file.read(), ""
    except JournalDamaged as error:
        if job.delivery != "exactly_once" and not restart:
            raise JournalDamaged(
                f"{error} How far the earlier run came is not known.",
                fix=f"{_ANEW} Every row that was sent is on the topic twice then.",
            ) from error
        return None, f"{error} It is kept as {file.set_aside().name}. "


def _anew(job: SendJob, before: SendState | None) -> SendState:
    """A run of its own, with ids of its own. Its number is higher than any before, also of a lost state."""
    if job.delivery != "exactly_once":
        return SendState(job, secrets.randbits(32))
    earlier = before.run if before is not None and before.job.delivery == job.delivery else 0
    return SendState(job, max(earlier + 1, int(time.time())) & 0xFFFFFFFF)


def _from_the_topic(
    file: StateFile, job: SendJob, look: Callable[[str], RecoveredPosition], damage: str
) -> ResumePoint:
    found = look(damage or "No earlier run of this file is known here. ")
    number, run = found.newest()
    if (why := found.retention_took(run)) is not None:
        raise ResumeRefused(
            f"Rows of this file are on {job.topic}, but {why}: retention may have removed rows that were sent.",
            fix=_ANEW,
        )
    progress = FileProgress(file, SendState(job, number, settled=run.rows, offsets=found.offsets))
    if not len(run.rows):
        return ResumePoint(progress, "new", "")
    return ResumePoint(
        progress,
        "found",
        f"{damage}{_rows_are(len(run.rows), ' of it')} on {job.topic} already and not sent again.",
    )


def _resumed(file: StateFile, state: SendState) -> ResumePoint:
    done = len(state.settled)
    text = f"Going on: {_rows_are(done)} done."
    if state.job.delivery != "exactly_once":
        possible = state.possible()
        state.doubtful += possible
        text += (
            f" Up to {possible:,} more may be on {state.job.topic} already and be there twice now, under the same ids."
            if possible
            else " None is sent twice."
        )
    return ResumePoint(FileProgress(file, state), "resumed", text)


def _rows_are(number: int, of: str = "") -> str:
    return f"1 row{of} is" if number == 1 else f"{number:,} rows{of} are"


def _complete(state: SendState) -> str:
    dead = state.dead + state.malformed
    rows = "The only row was" if state.rows == 1 else f"All {state.rows:,} rows were"
    text = f"{rows} sent to {state.job.topic} before"
    if dead:
        text += f", but for {dead:,} that {'is a dead letter' if dead == 1 else 'are dead letters'}"
    return f"{text}; nothing is sent now. {_ANEW}"


def check(before: SendJob, now: SendJob) -> None:
    """Refused, with what differs."""
    if before.delivery != now.delivery:
        raise ResumeRefused(
            f"This send was begun with --delivery {before.delivery}.", fix=f"Go on with that. Or: {_ANEW}"
        )
    if changed := _changed(before, now):
        raise ResumeRefused(
            f"This send was begun with other options: {'; '.join(changed)}.",
            fix=f"Go on with those of before. Or: {_ANEW}",
        )
    if (before.size, before.sha256) != (now.size, now.sha256):
        raise ResumeRefused(
            f"{now.path} is not the file that was begun with: {_difference(before, now)}.",
            fix=f"Bring the old content back to go on. Or: {_ANEW}",
        )


def _changed(before: SendJob, now: SendJob) -> list[str]:
    names = sorted({*before.options, *now.options})
    pairs = [(name, before.options.get(name, ""), now.options.get(name, "")) for name in names]
    return [
        f"{name} was {old or 'not given'}, is {new or 'not given'}" for name, old, new in pairs if old != new
    ]


def _difference(before: SendJob, now: SendJob) -> str:
    if now.size < before.size:
        return f"it was {before.size:,} bytes and is {now.size:,}, so it was truncated or replaced"
    if now.size > before.size:
        return f"it was {before.size:,} bytes and is {now.size:,}, so it has grown or was replaced"
    return "it has other bytes than before"
