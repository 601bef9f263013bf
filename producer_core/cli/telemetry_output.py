"""Print the progress and the result of a job that merges telemetry."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.plural import plural
from producer_core.cli import output
from producer_core.cli.plain_text import plain

if TYPE_CHECKING:
    from producer_core.pipeline.merge_result import MergeResult, RunningJob
    from producer_core.store import Store

_LINE_EVERY = 10.0


class ProgressLine:
    """Print the progress: one updated line on a terminal, else a line every 10 seconds.

    Two threads call it; a rare extra line does no harm.
    """

    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._printed_at = time.monotonic()
        self._last = ""

    def draw(self, stream: RunningJob) -> None:
        text = stream.text
        if text == self._last:
            return
        if self._on_terminal and not stream.trouble:
            click.echo(f"\r\033[K{plain(text)}", err=True, nl=False)
        elif stream.trouble or time.monotonic() - self._printed_at >= _LINE_EVERY:
            output.say(text, err=True)
            self._printed_at = time.monotonic()
        else:
            return
        self._last = text

    def clear(self) -> None:
        if self._on_terminal:
            click.echo("\r\033[K", err=True, nl=False)


def print_result(done: MergeResult, store: Store, as_json: bool) -> None:
    from producer_core.pipeline.merge_batch import missing

    producers, batches = missing(store)
    result: dict[str, Any] = {
        "batches": done.batches, "merged": done.merged, "set_aside": done.set_aside, "missing": batches,
    }  # fmt: skip
    if as_json:
        output.emit(result)
        return
    output.say(merged(done, store.path))
    for reason, count in _reasons(done.versions).items():
        output.say(f"{plural(count, 'record was', 'records were')} set aside: {reason}")
    if batches:
        of_producers = plural(producers, "producer")
        missing_batches = plural(batches, f"batch of {of_producers} is", f"batches of {of_producers} are")
        output.say(f"{missing_batches} missing: late, damaged, or lost before being read.")


def merged(done: MergeResult, path: Path) -> str:
    """Return the result of a run as a sentence."""
    if not done.batches:
        return f"No new batches arrived; {path} is unchanged."
    batches = plural(done.batches, "batch", "batches")
    if not done.merged:
        return f"{batches} arrived; {path} already had {'it' if done.batches == 1 else 'them'}."
    if done.merged == done.batches:
        return f"Merged {batches} into {path}."
    return f"Merged {done.merged:,} of {batches} into {path}, which already had {'the other' if done.batches - done.merged == 1 else 'the others'}."


def _reasons(versions: Mapping[int | None, int]) -> Mapping[str, int]:
    """Return the number of records set aside, by reason."""
    reasons: Counter[str] = Counter()
    for version, count in versions.items():
        reasons[_reason(version)] += count
    return reasons


def _reason(version: int | None) -> str:
    from producer_core.metrics.telemetry import SCHEMA_VERSION

    if version is not None and version > SCHEMA_VERSION:
        return (
            f"schema version {version}, but this producer-core supports version {SCHEMA_VERSION}. Upgrade producer-core, "
            "then run once with a new --checkpoint: the job reads everything again and counts nothing twice."
        )
    return "not telemetry, or damaged."
