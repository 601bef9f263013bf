"""Texts about the jobs of the pipeline: their state, progress and lag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from producer_core._internal.plural import plural
from producer_core.dashboard.wording.numbers import count, percent
from producer_core.dashboard.wording.time import age

Tone = Literal["bad", "warning", "good", "quiet"]

TITLES: Mapping[str, str] = {
    "telemetry": "Fleet telemetry",
    "integrity": "Audit",
    "reprocess": "Bulk replay",
}
_UNITS: Mapping[str, str] = {"telemetry": "batch", "integrity": "record", "reprocess": "dead letter"}


def state(
    name: str, now: float, *, started_at: float, seen_at: float, ended_at: float | None
) -> tuple[Tone, str]:
    """Return a tone and the text of a job's state."""
    ended = age(now - (ended_at or seen_at))
    known: Mapping[str, tuple[Tone, str]] = {
        "dead": ("bad", f"dead: never finished, last seen {age(now - seen_at)} ago"),
        "running": ("good", f"running for {age(now - started_at)}"),
        "failed": ("warning", f"failed {ended} ago"),
        "done": ("quiet", f"finished {ended} ago"),
    }
    return known[name]


def progress(kind: str, done: int | None, total: int | None, share: float | None) -> str:
    """Return the progress, such as "24.0% of 50,000 records" or "312 batches"."""
    unit = _UNITS.get(kind, "record")
    if share is not None and total:
        return f"{percent(share)} of {_plural(total, unit)}"
    return "–" if done is None else _plural(done, unit)


def _plural(number: int, noun: str) -> str:
    return f"{number:,} batches" if noun == "batch" and number != 1 else plural(number, noun)


def lag(records: int | None) -> str:
    """Return the number of records that the job has not read yet."""
    return "–" if records is None else "none" if not records else plural(records, "record")


def last_success(seconds: float | None) -> str:
    """Return how long ago the job last succeeded."""
    return "never" if seconds is None else f"{age(seconds)} ago"


def dead_jobs(number: int) -> str:
    """Return the note about jobs that stopped reporting."""
    if number == 1:
        return "1 job is dead: no heartbeat for a minute. Run its command again; it resumes where it stopped."
    return f"{count(number)} jobs are dead: no heartbeat for a minute. Run their commands again; they resume where they stopped."


def telemetry_stopped(seconds: float) -> str:
    """Return why producers of other hosts may look silent; `seconds` have passed since a telemetry job was seen."""
    return (
        f"No telemetry job is running; the last one was seen {age(seconds)} ago. Producers that report through it look silent but may be "
        "healthy. Restart producer-core telemetry collect, or the Spark job; it also merges the missed telemetry."
    )
