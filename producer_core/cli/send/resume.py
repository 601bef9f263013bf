"""The decision at the start of a `send`: begin, resume, do nothing, or refuse."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from producer_core._internal.plural import plural
from producer_core.cli.send.file_progress import FileProgress
from producer_core.cli.send.input_file import InputError
from producer_core.cli.send.recover_position import RecoveredPosition
from producer_core.cli.send.state_file import Partition, SendJob, SendState, StateFile
from producer_core.cli.send.unsaved_rows import UnsavedRows
from producer_core.errors import BrokerError, JournalDamaged

Recover = Callable[[str], RecoveredPosition]
StartMode = Literal["new", "resumed", "complete", "found"]
"""`found`: the state file is missing, and the topic already contains rows of this file."""
_RESTART = "Use --restart to send the whole file again."


class ResumeRefused(InputError):
    """The input or the command differs from the one that was started."""


@dataclass(frozen=True)
class ResumePoint:
    """The position where a send starts, and a message for its user."""

    progress: FileProgress
    mode: StartMode
    text: str


def begin(
    file: StateFile,
    job: SendJob,
    *,
    restart: bool = False,
    recover: Recover | None = None,
    ends: Callable[[], dict[Partition, int]] = dict,
    truncated: Callable[[SendState], str | None] = lambda state: None,
    unsaved: Callable[[SendState], UnsavedRows] = lambda state: UnsavedRows(),
    extends: Callable[[SendJob], bool] = lambda before: False,
    in_client: int = 0,
    limit: int | None = None,
) -> ResumePoint:
    """Read the state file and decide. The first row that is sent writes the decision to disk.

    `recover(reason)` searches the topic for rows of this file; it is called where exactly_once has no valid state.
    `ends()` returns the last offset of each partition, where a new run begins.
    `truncated` returns how the topic lost records that the state records as acknowledged, if it did.
    `unsaved` reads the topic for rows that reached it after an at_least_once state was saved.
    `extends` returns whether the file is longer than that of an earlier job and begins with its content.
    `in_client` is the number of rows that a client can hold. `limit` is the number of rows that this run reads.
    """
    state, reason = _read(file, job, restart=restart)
    note = ""
    if state is not None and state.complete and state.job.delivery == "at_least_once" and not restart:
        note = _after_complete(state, job, extends, limit)
        state = None  # at_least_once sends a file again
    if state is None and recover is not None and not restart:
        return _recovered(file, job, recover, reason or (f"{note} " if note else ""))
    if state is None or restart:
        new = _new_run(job, state)
        new.offsets = ends()
        return ResumePoint(FileProgress(file, new), "new", note)
    check(state.job, job)
    if state.complete:
        return ResumePoint(FileProgress(file, state), "complete", _complete(state))
    if (loss := _loss(state, truncated)) is not None:
        raise ResumeRefused(
            f"The topic has changed: {loss}. It was recreated, or records were lost.", fix=_RESTART
        )
    if job.delivery == "exactly_once":
        text = f"Resuming: {_rows_are(len(state.settled))} settled."
        return ResumePoint(FileProgress(file, state), "resumed", text)
    return _resumed(file, state, unsaved(state), in_client, limit)


def _loss(state: SendState, truncated: Callable[[SendState], str | None]) -> str | None:
    """Return how the topic lost records. An at_least_once send continues where a broker does not respond."""
    try:
        return truncated(state)
    except BrokerError:
        if state.job.delivery == "exactly_once":
            raise
        return None


def _read(file: StateFile, job: SendJob, *, restart: bool) -> tuple[SendState | None, str]:
    try:
        return file.read(), ""
    except JournalDamaged as error:
        if job.delivery != "exactly_once" and not restart:
            raise JournalDamaged(
                f"{error} The position of the earlier run is unknown.",
                fix=f"{_RESTART} Every row that was already sent will then be on the topic twice.",
            ) from error
        return None, f"{error} It is kept as {file.set_aside().name}. "


def _new_run(job: SendJob, before: SendState | None) -> SendState:
    """Return the state of a new run, with new message ids. Its number exceeds any earlier one, even of a lost state."""
    if job.delivery != "exactly_once":
        return SendState(job, secrets.randbits(32))
    earlier = before.run if before is not None and before.job.delivery == job.delivery else 0
    return SendState(job, max(earlier + 1, int(time.time())) & 0xFFFFFFFF)


def _recovered(file: StateFile, job: SendJob, recover: Recover, reason: str) -> ResumePoint:
    found = recover(reason or "No saved state from an earlier run of this file was found. ")
    number, run = found.newest()
    if (gap := found.retention_gap(run)) is not None:
        raise ResumeRefused(
            f"Rows of this file are on {job.topic}, but {gap}: retention may have removed rows that were sent.",
            fix=_RESTART,
        )
    progress = FileProgress(file, SendState(job, number, settled=run.rows, offsets=found.offsets))
    if not len(run.rows):
        return ResumePoint(progress, "new", "")
    return ResumePoint(
        progress,
        "found",
        f"{reason}{_rows_are(len(run.rows), ' of this file')} already on {job.topic} and will not be sent again.",
    )


def _resumed(
    file: StateFile, state: SendState, unsaved: UnsavedRows, in_client: int, limit: int | None
) -> ResumePoint:
    topic, saved = state.job.topic, len(state.settled)
    for start, end in unsaved.rows:
        state.settled.add(start, end)
    text = f"Resuming: {_rows_are(len(state.settled))} settled"
    text += f", {found:,} found on {topic}." if (found := len(state.settled) - saved) else "."
    if unsaved.rows.highest >= state.reached:
        text += " The state file is older than these rows."
        state.reached = unsaved.rows.highest + 1 + in_client
    possible = state.possible(limit)
    state.doubtful += possible + unsaved.copies
    if possible:
        again = (
            "it is sent again with the same id" if possible == 1 else "they are sent again with the same ids"
        )
        text += f" Up to {possible:,} more may already be on {topic}; {again}."
    elif not unsaved.unread:
        text += " No row is sent twice."
    return ResumePoint(FileProgress(file, state, unsaved), "resumed", text + _limits(topic, unsaved))


def _limits(topic: str, unsaved: UnsavedRows) -> str:
    """Return what is unknown where the topic was not read completely."""
    text = (
        f" {unsaved.unread}. If the state file is an older copy, more rows may be sent twice."
        if unsaved.unread
        else ""
    )
    if unsaved.compacted and unsaved.newer is None:
        text += (
            f" {topic} may be compacted: a row that is sent again can replace a newer record with its key."
        )
    return text


def _rows_are(number: int, of: str = "") -> str:
    return f"1 row{of} is" if number == 1 else f"{number:,} rows{of} are"


def _complete(state: SendState) -> str:
    dead = state.dead + state.malformed
    if dead and state.rows == 1:
        return f"The only row is a dead letter; there is nothing to send. {_RESTART}"
    rows = "The only row was" if state.rows == 1 else f"All {state.rows:,} rows were"
    text = f"{rows} already sent to {state.job.topic}"
    if dead:
        text += f", except {dead:,} that {'is a dead letter' if dead == 1 else 'are dead letters'}"
    return f"{text}; there is nothing to send. {_RESTART}"


def _after_complete(
    state: SendState, now: SendJob, extends: Callable[[SendJob], bool], limit: int | None
) -> str:
    """Return a note about the rows that a complete at_least_once run has sent.

    Raise ResumeRefused for exactly_once of the same content, and for an extended file: only its new rows may be meant.
    """
    before, sent = state.job, len(state.settled) - state.malformed
    if not sent:
        return ""
    same = (before.size, before.sha256) == (now.size, now.sha256)
    if same and now.delivery == "exactly_once":
        raise _sent_at_least_once(sent, now.topic)
    extended = not same and now.size > before.size and extends(before)
    if (same or extended) and _skip(now) >= _skip(before) + (state.rows or 0):
        return ""
    if extended:
        raise _extended(before, now, sent)
    return _sent_again(before, now, sent, limit) if same else _replaced(before, now, sent, limit)


def _extended(before: SendJob, now: SendJob, sent: int) -> ResumeRefused:
    return ResumeRefused(
        f"This file was extended after an earlier run sent {plural(sent, 'row')} from it to {now.topic}: it had "
        f"{before.size:,} bytes and has {now.size:,}.",
        fix=f"Use --skip to leave out the rows that were sent, or send a file with only the new rows. {_RESTART}",
    )


def _replaced(before: SendJob, now: SendJob, sent: int, limit: int | None) -> str:
    change = "replaced or truncated" if now.size < before.size else "replaced"
    note = f"This file was {change} after an earlier run sent {plural(sent, 'row')} from it to {now.topic}."
    sends = "none of its rows" if limit == 0 else "its current rows"
    return note if now.delivery == "exactly_once" else f"{note} This run sends {sends}."


def _sent_again(before: SendJob, now: SendJob, sent: int, limit: int | None) -> str:
    changed = "; ".join(_changed(before, now))
    options = f" with different options: {changed}" if changed else ""
    earlier = f"An earlier run sent {plural(sent, 'row')} of this file to {now.topic}{options}."
    return f"{earlier} This run sends {_which_again(sent, limit)}."


def _which_again(sent: int, limit: int | None) -> str:
    if limit == 0:
        return "none"
    if sent == 1:
        return "it again, with a new message id"
    if limit is None or limit >= sent:
        return "them again, with new message ids"
    if limit == 1:
        return "the first of them again, with a new message id"
    return f"the first {limit:,} of them again, with new message ids"


def _sent_at_least_once(sent: int, topic: str) -> ResumeRefused:
    again = "row that is" if sent == 1 else "rows that are"
    return ResumeRefused(
        f"An earlier run with --delivery at_least_once sent {plural(sent, 'row')} of this file to {topic}.",
        fix=f"{_RESTART} The {again} still on the topic will then be there twice.",
    )


def _skip(job: SendJob) -> int:
    return int(job.options.get("skip", "0"))


def check(before: SendJob, now: SendJob) -> None:
    """Raise ResumeRefused, with the difference, unless both are the same job."""
    if before.delivery != now.delivery:
        raise ResumeRefused(
            f"This send was started with --delivery {before.delivery}.",
            fix=f"Use the same delivery to resume. {_RESTART}",
        )
    if changed := _changed(before, now):
        raise ResumeRefused(
            f"This send was started with different options: {'; '.join(changed)}.",
            fix=f"Use the same options to resume. {_RESTART}",
        )
    if (before.size, before.sha256) != (now.size, now.sha256):
        raise ResumeRefused(
            f"{now.path} has changed since the send started: {_difference(before, now)}.",
            fix=f"Restore the old content to resume. {_RESTART}",
        )


def _changed(before: SendJob, now: SendJob) -> list[str]:
    names = sorted({*before.options, *now.options})
    pairs = [(name, before.options.get(name, ""), now.options.get(name, "")) for name in names]
    return [
        f"{name} was {old or 'not given'} and is now {new or 'not given'}"
        for name, old, new in pairs
        if old != new
    ]


def _difference(before: SendJob, now: SendJob) -> str:
    if now.size < before.size:
        return f"it had {before.size:,} bytes and has {now.size:,}, so it was truncated or replaced"
    if now.size > before.size:
        return f"it had {before.size:,} bytes and has {now.size:,}, so it has grown or was replaced"
    return "its bytes differ"
