"""What precedes a resumable `send`: the file's identity, its lock, and where an earlier run ended."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from producer_core.cli import output
from producer_core.cli.send import progress_bar
from producer_core.cli.send.fingerprint import Fingerprint, fingerprint, is_file, session_of, state_path
from producer_core.cli.send.recover_position import RecoveredPosition, cut_off, ends, look_for
from producer_core.cli.send.resume import ResumePoint, begin
from producer_core.cli.send.state_file import SendJob, StateFile
from producer_core.config import ClientConfig
from producer_core.errors import ConfigError, JournalError, JournalLocked
from producer_core.store import default_path

_SECRET = re.compile(r"password|secret|jaas|token|\.key", re.IGNORECASE)


@dataclass(frozen=True)
class ResumableJob:
    """A send that can be gone on with."""

    begun: ResumePoint
    job: SendJob
    content: Fingerprint
    restart: bool


def can_resume(path: Path | None, delivery: str, *, dedup: bool, cluster_id: str, restart: bool) -> bool:
    """Whether the input can be read again; ConfigError where the command needs that and it cannot."""
    regular = is_file(path)
    what = "Standard input" if path is None else f"{path} is no regular file; it"
    if regular and not dedup and not (delivery == "exactly_once" and cluster_id.startswith("embedded-")):
        return True
    if delivery == "exactly_once" and not regular:
        raise ConfigError(
            f"{what} cannot be read again after a crash, so it cannot be sent exactly once.",
            fix="Write it to a file and send that.",
        )
    if delivery == "exactly_once" and dedup:
        raise ConfigError(
            "--dedup remembers rows in memory, and a resumed send would not know those of before.",
            fix="Leave out --dedup, or --delivery exactly_once.",
        )
    if delivery == "exactly_once":
        raise ConfigError(
            "The embedded broker neither fences nor hides what was aborted, so nothing is exactly once there.",
            fix="producer-core broker start gives a real Kafka.",
        )
    if restart:
        raise ConfigError(
            f"{'A send with --dedup' if regular else what} is never resumed, so there is nothing to restart.",
            fix="Leave out --restart.",
        )
    return False


@contextlib.contextmanager
def resumable(
    path: Path, job: SendJob, config: ClientConfig, *, restart: bool
) -> Iterator[ResumableJob | None]:
    """The job, locked, with its state read or made; None where at_least_once has no place to keep it."""
    job = replace(job, path=str(path.resolve()))
    try:
        file = StateFile(state_path(default_path().parent, job))
    except JournalLocked:
        raise
    except JournalError as error:
        if job.delivery == "exactly_once":
            raise
        output.say(f"Note: {error} This send cannot be resumed.", err=True)
        yield None
        return
    with contextlib.closing(file):
        with progress_bar.told(f"reading {path.name} for its checksum") as tell:
            content = fingerprint(path, tell)
        job = replace(job, size=content.size, sha256=content.sha256)
        yield ResumableJob(_begin(file, job, config, restart=restart), job, content, restart)


def _begin(file: StateFile, job: SendJob, config: ClientConfig, *, restart: bool) -> ResumePoint:
    exactly = job.delivery == "exactly_once"
    return begin(
        file,
        job,
        restart=restart,
        look=_look(job, config) if exactly else None,
        ends=(lambda: ends(config.settings, job.topic)) if exactly else dict,
        cut=lambda state: cut_off(config.settings, state.offsets) if exactly else None,
    )


def _look(job: SendJob, config: ClientConfig) -> Callable[[str], RecoveredPosition]:
    def look(why: str) -> RecoveredPosition:
        session = session_of(job, 0)

        def begins(records: int) -> None:
            text = f"{why}{job.topic} is read from its start for rows of it: {records:,} records (--restart would not look)."
            output.say(text, err=True)

        with progress_bar.told(f"reading {job.topic} from its start") as tell:
            return look_for(config.settings, job.topic, session, begins=begins, tell=tell)

    return look


def options_of(asked: Mapping[str, Any]) -> dict[str, str]:
    """The options that decide what rows there are and what they say, as text; those not given are left out."""
    return {name: _plain(value) for name, value in asked.items() if value is not None and value != ()}


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(one if isinstance(one, str) else "=".join(one) for one in value)
    return str(value)


def same_again(ctx: click.Context) -> str:
    """The command line that goes on with this one: the same without --restart, secrets left out."""
    parts = ["producer-core", "send"]
    for param in ctx.command.get_params(ctx):
        name = param.name or ""
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE or name == "restart":
            continue
        value = ctx.params[name]
        if isinstance(param, click.Argument):
            parts.append(str(value))
        elif getattr(param, "is_flag", False):
            parts.append(param.opts[0])
        else:
            for one in value if param.multiple else [value]:
                parts += (param.opts[0], _written(one))
    return shlex.join(parts)


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        name, text = value
        return f"{name}={'...' if _SECRET.search(name) else text}"
    return f"{value:g}s" if isinstance(value, float) else str(value)
