"""Texts of the errors page: the summary, the kinds of errors, and the comparison with the previous period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer_core._internal.plural import plural
from producer_core.dashboard.wording.numbers import count, short
from producer_core.dashboard.wording.time import age

if TYPE_CHECKING:
    from producer_core.dashboard.queries.issues import State, Trend

KINDS: Mapping[str, str] = {
    "permanent": "Rejected by the broker; fails again until the cause is fixed.",
    "timed_out": "No response in time; the message may be on the broker.",
    "temporary": "Transient; retried automatically.",
    "local": "Rejected by the client before sending.",
    "fatal": "The client cannot continue and is recreated.",
}
"""The consequence of each kind of error for its message."""


@dataclass(frozen=True)
class FailingSentence:
    """Holds the numbers of the summary.

    `worst` is the most frequent failure as code, topic, meaning and count. `replayed` and `archived` count the failed
    messages that were handled since. `during` is a phrase such as "in the last 15 min".
    """

    during: str
    settled: int
    attempts: int
    saved: int
    dead: int
    worst: tuple[str, str, str, int] | None = None
    new: Sequence[str] = ()
    replayed: int = 0
    archived: int = 0


def failing(now: FailingSentence) -> tuple[str, str]:
    """Return a tone and the summary; codes seen for the first time come last."""
    tone, text = _failing(now)
    if now.new:
        names = ", ".join(now.new[:3]) + (f" and {len(now.new) - 3} more" if len(now.new) > 3 else "")
        text = f"{text} New: {names}."
        tone = "warning" if tone in ("quiet", "good") else tone
    return tone, text


def _failing(now: FailingSentence) -> tuple[str, str]:
    if not now.attempts and not now.dead:
        if not now.settled:
            return "quiet", f"No messages sent {now.during}."
        return "good", f"No failures {now.during}: {_all(now.settled)} acknowledged on the first attempt."
    saved = f"{plural(now.saved, 'message')} {_was(now.saved)} acknowledged after a retry"
    if not now.dead:
        text = f"{plural(now.attempts, 'failed attempt')} and no failed messages {now.during}"
        return "good" if now.saved else "quiet", f"{text}: {saved}." if now.saved else f"{text}."
    share = now.dead / now.settled if now.settled else 1.0
    parts = [f"{count(now.dead)} of {plural(now.settled, 'message')} failed {now.during}{_because(now)}"]
    if handled := _handled(now):
        parts.append(handled)
    if now.saved:
        parts.append(f"{saved.capitalize()}.")
    if now.replayed + now.archived >= now.dead:
        return "good", " ".join(parts)
    return "bad" if share > 0.05 else "warning", " ".join(parts)


def _handled(now: FailingSentence) -> str:
    """Return how many of the failed messages were replayed or archived since."""
    if now.dead == 1 and now.replayed + now.archived:
        return f"It has since been {'replayed' if now.replayed else 'archived'}."
    parts = [
        f"{'all ' if number >= now.dead else ''}{count(number)} {verb}"
        for number, verb in ((now.replayed, "replayed"), (now.archived, "archived"))
        if number
    ]
    text = " and ".join(parts)
    return f"{text[:1].upper()}{text[1:]} since." if text else ""


def _because(now: FailingSentence) -> str:
    if now.worst is None:
        return "."
    code, topic, meaning, number = now.worst
    on = f"on {topic} " if topic else ""
    return f", {_part(number, now.dead)}{on}with {code}: {meaning[:1].lower()}{meaning[1:].rstrip('.')}."


def _part(number: int, dead: int) -> str:
    """Return how many of the failed messages share a cause, before its name; empty for a single message."""
    if dead == 1:
        return ""
    return "all " if number >= dead else "most " if 2 * number > dead else f"{count(number)} "


def _all(number: int) -> str:
    return "the only message was" if number == 1 else f"all {count(number)} messages were"


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def before(number: int, now: int) -> str:
    """Return the number of the previous period, to show below the current one."""
    if number == now:
        return "unchanged" if number else ""
    return f"before: {count(number)}" if number else "none before"


def compared(*, compares: bool, begins: str | None) -> str:
    """Return what "before" refers to, or why there is no comparison."""
    if compares:
        return "“Before” is the preceding period of the same length."
    if begins is None:
        return ""
    return f"No comparison: the store has data only since {begins}."


def kind(name: str) -> str:
    """Return a kind for display, such as "timed out"."""
    return name.replace("_", " ")


def topics(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(short(name, 40) for name in names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def without_dead_letters(missing: int, dead: int) -> str:
    """Return why the codes and groups add up to less than the failed messages."""
    failed = "1 failed message" if dead == 1 else f"{count(dead)} failed messages"
    kept = (
        "telemetry counts it, but its producer keeps the dead letter in another store"
        if missing == 1
        else "telemetry counts them, but their producers keep the dead letters in other stores"
    )
    return (
        f"{count(missing)} of {failed} left no dead letter in this store: {kept}. Codes and groups cover only dead "
        "letters in this store."
    )


ISSUE_STATES: Mapping[State, tuple[str, str, str]] = {
    "failing": ("failing now", "bad", "It failed within the last minute."),
    "pending": ("pending", "warning", "Its dead letters wait to be replayed or cleared."),
    "replaying": ("replaying", "plain", "A replay sends its dead letters."),
    "handled": ("handled", "good", "All of its failed messages were replayed or archived."),
    "retried": ("retried", "quiet", "Attempts failed, but no message became a dead letter."),
    "elsewhere": ("in other stores", "quiet", "Producers of the topic keep dead letters in other stores."),
}
"""The name of an issue's state, its look, and its meaning."""


def issue_counts(waiting: int, handled: int) -> str:
    """Return how many dead letters of an issue wait, and how many were handled."""
    parts = [plural(waiting, "dead letter")] if waiting else []
    parts += [f"{count(handled)} handled"] if handled else []
    return ", ".join(parts)


def issue_trend(found: Trend) -> str:
    """Return the text alternative of the trend of an issue."""
    most, noun = max(found.counts, default=0), "failed attempt" if found.of_attempts else "dead letter"
    return f"{plural(sum(found.counts), noun)} over time, at most {count(most)} in {age(found.width)}"


def trend(counts: Sequence[int], length: str) -> str:
    """Return the text alternative of a row of bars; `length` is the time that a bar covers."""
    most = max(counts, default=0)
    return f"{plural(sum(counts), 'dead letter')} over time, at most {count(most)} in {length}"


def group_unknown(fingerprint: str) -> str:
    """Return the text for a group that is not in the store."""
    return f"No dead letter in this store has the cause {fingerprint}. It may have expired."


_STATE_NAMES = {"landed": "found on the topic"}


def states(found: Mapping[str, int]) -> str:
    """Return counts by state, such as "12 dead, 3 replayed"."""
    order = ("dead", "replaying", "replayed", "landed", "archived", "purged")
    return (
        ", ".join(
            f"{count(found[state])} {_STATE_NAMES.get(state, state)}" for state in order if found.get(state)
        )
        or "none"
    )
