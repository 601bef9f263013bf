"""The checks before a resumable `send`: the file's identity, its lock, and the position of an earlier run."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.cli.send import progress_bar
from producer_core.cli.send.fingerprint import (
    Fingerprint,
    begins_with,
    fingerprint,
    is_file,
    session_of,
    state_path,
)
from producer_core.cli.send.recover_position import RecoveredPosition, recover, topic_ends, truncation
from producer_core.cli.send.resume import ResumePoint, begin
from producer_core.cli.send.state_file import Partition, SendJob, SendState, StateFile
from producer_core.cli.send.unsaved_rows import UnsavedRows, find_unsaved_rows
from producer_core.config import ClientConfig
from producer_core.errors import BrokerError, ConfigError, JournalError, JournalLocked
from producer_core.replay.guarantee import WITHOUT_TRANSACTIONS
from producer_core.store import default_path

_QUEUE = 100_000
"""The default of queue.buffering.max.messages."""
_WAITING = 10_000
"""Rows that may wait for a retry outside the client's queue."""
_SECRET = re.compile(
    r"password|secret|jaas|token|\.key|oauthbearer\.(?:config|extensions)|private", re.IGNORECASE
)


@dataclass(frozen=True)
class ResumableJob:
    """A send that can be resumed."""

    start: ResumePoint
    job: SendJob
    content: Fingerprint
    restart: bool


def can_resume(path: Path | None, delivery: str, *, dedup: bool, cluster_id: str, restart: bool) -> bool:
    """Return whether the input can be read again. Raise ConfigError where the command needs that and it cannot."""
    regular = is_file(path)
    source = "Standard input" if path is None else f"{path} is not a regular file; it"
    transactional = not cluster_id.startswith(WITHOUT_TRANSACTIONS)
    if regular and not dedup and (delivery != "exactly_once" or transactional):
        return True
    if delivery == "exactly_once" and not regular:
        raise ConfigError(
            f"{source} cannot be read again after a crash, so exactly_once is not possible.",
            fix="Write it to a file and send the file.",
        )
    if delivery == "exactly_once" and dedup:
        raise ConfigError(
            "--dedup keeps row hashes in memory only, so a resumed send cannot detect earlier duplicates.",
            fix="Omit --dedup, or --delivery exactly_once.",
        )
    if delivery == "exactly_once":
        raise ConfigError(
            "The embedded broker neither fences producers nor hides aborted records, so exactly_once is not possible.",
            fix="Start a real Kafka broker: producer-core broker start.",
        )
    if restart:
        raise ConfigError(
            f"{'A send with --dedup' if regular else source} is never resumed, so there is nothing to restart.",
            fix="Omit --restart.",
        )
    return False


@contextlib.contextmanager
def resumable(
    path: Path, job: SendJob, config: ClientConfig, *, restart: bool, limit: int | None = None
) -> Iterator[ResumableJob | None]:
    """Yield the job, locked and with its state. Yield None where at_least_once cannot keep state."""
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
        with progress_bar.counter(f"computing the checksum of {path.name}") as report:
            content = fingerprint(path, report)
        job = replace(job, size=content.size, sha256=content.sha256)
        start = _begin(file, job, config, restart=restart, limit=limit)
        yield ResumableJob(start, job, content, restart)


def _begin(
    file: StateFile, job: SendJob, config: ClientConfig, *, restart: bool, limit: int | None
) -> ResumePoint:
    exactly_once = job.delivery == "exactly_once"
    return begin(
        file,
        job,
        restart=restart,
        recover=_recover(job, config) if exactly_once else None,
        ends=lambda: _ends(job, config),
        truncated=lambda state: truncation(config.settings, state.offsets),
        unsaved=lambda state: _unsaved(state, config),
        extends=lambda before: _extends(Path(job.path), before),
        in_client=int(config.settings.get("queue.buffering.max.messages", _QUEUE)) + _WAITING,
        limit=limit,
    )


def _ends(job: SendJob, config: ClientConfig) -> dict[Partition, int]:
    try:
        return topic_ends(config.settings, job.topic)
    except BrokerError:
        if job.delivery == "exactly_once":
            raise
        return {}  # a resumed run then reads the topic from its start


def _extends(path: Path, before: SendJob) -> bool:
    with progress_bar.counter(f"comparing {path.name} with its earlier content") as report:
        return begins_with(path, before.size, before.sha256, report)


def _unsaved(state: SendState, config: ClientConfig) -> UnsavedRows:
    with progress_bar.counter(f"reading the new records of {state.job.topic}") as report:
        return find_unsaved_rows(config.settings, state, report=report)


def _recover(job: SendJob, config: ClientConfig) -> Callable[[str], RecoveredPosition]:
    def read_topic(reason: str) -> RecoveredPosition:
        def announce(records: int) -> None:
            text = (
                f"{reason}Searching {job.topic} from its start for rows of this file: {plural(records, 'record')} "
                "(--restart skips this)."
            )
            output.say(text, err=True)

        with progress_bar.counter(f"reading {job.topic} from its start") as report:
            return recover(config.settings, job.topic, session_of(job, 0), announce=announce, report=report)

    return read_topic


def options_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that determine the rows and their content, as text. Omit those that were not given."""
    return {name: _plain(value) for name, value in given.items() if value is not None and value != ()}


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(one if isinstance(one, str) else "=".join(one) for one in value)
    return str(value)


def resume_command(ctx: click.Context) -> str:
    """Return the command line that resumes this send: the same without --restart, with secrets masked."""
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
                parts += (param.opts[0], _as_argument(one, param.type))
    return shlex.join(parts)


def _as_argument(value: Any, type: click.ParamType[Any]) -> str:
    if isinstance(value, tuple):
        name, text = value
        return f"{name}={'...' if _SECRET.search(name) else text}"
    if not isinstance(value, float):
        return str(value)
    exact = f"{Decimal(repr(value)):f}".removesuffix(".0")
    return f"{exact}s" if isinstance(type, options.DurationType) else exact
