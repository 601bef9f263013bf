"""The pipeline's jobs, in words: what one is, how it is, how far it came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from producer_core.dashboard.wording.numbers import count, percent, plural
from producer_core.dashboard.wording.time import age

Tone = Literal["bad", "warning", "good", "quiet"]

TITLES: Mapping[str, str] = {
    "telemetry": "Telemetry of the fleet",
    "integrity": "Audit",
    "reprocess": "Bulk replay",
}
_UNITS: Mapping[str, str] = {"telemetry": "batch", "integrity": "record", "reprocess": "dead letter"}


def state(
    name: str, now: float, *, started_at: float, seen_at: float, ended_at: float | None
) -> tuple[Tone, str]:
    """A tone, and how the job is."""
    ended = age(now - (ended_at or seen_at))
    known: Mapping[str, tuple[Tone, str]] = {
        "dead": ("bad", f"dead: not seen for {age(now - seen_at)}, and never ended"),
        "running": ("good", f"runs since {age(now - started_at)}"),
        "failed": ("warning", f"failed {ended} ago"),
        "done": ("quiet", f"ended {ended} ago"),
    }
    return known[name]


def progress(kind: str, done: int | None, total: int | None, share: float | None) -> str:
    """How far it came: «24.0 % of 50,000 records», «312 batches»."""
    unit = _UNITS.get(kind, "record")
    if share is not None and total:
        return f"{percent(share)} of {_plural(total, unit)}"
    return "–" if done is None else _plural(done, unit)


def _plural(number: int, noun: str) -> str:
    return f"{number:,} batches" if noun == "batch" and number != 1 else plural(number, noun)


def lag(records: int | None) -> str:
    """What is on the topics and not read yet."""
    return "–" if records is None else "none" if not records else plural(records, "record")


def last_success(seconds: float | None) -> str:
    """How long ago it last came to a good end."""
    return "never" if seconds is None else f"{age(seconds)} ago"


def dead(number: int) -> str:
    """What is wrong, and what to do."""
    which = "1 job is dead: it was" if number == 1 else f"{count(number)} jobs are dead: they were"
    again = "it goes on where it was" if number == 1 else "they go on where they were"
    return f"{which} not seen for a minute, and never ended. Give the same command again, and {again}."


def unheard(seconds: float) -> str:
    """Why producers of other hosts may look silent: nobody brings what they tell. `seconds` since somebody did."""
    return (
        f"No telemetry job runs; the last was seen {age(seconds)} ago. Producers whose words it brought look silent since "
        "then, and may be well. Start producer-core pipeline telemetry again: it adds what they told meanwhile."
    )
