"""What fails, in words: the sentence on top, kinds of errors, and how it was in the same time before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from producer_core.dashboard.wording.numbers import count, plural, short

KINDS: Mapping[str, str] = {
    "permanent": "The broker refuses it: it fails again until something is mended.",
    "timed_out": "No answer came in time: the message may be on the broker.",
    "temporary": "It passes by itself: the client tries again.",
    "local": "The client refused it before it was sent.",
    "fatal": "The client cannot go on as it is, and is made anew.",
}
"""What an error of a kind means for its message."""


@dataclass(frozen=True)
class FailingSentence:
    """What the sentence on top of the errors page is made of. `worst`: what killed most, as code, topic, meaning and how
    many; `cured` of the dead were replayed since, `aside` put aside; `during` is a part of a sentence.
    """

    during: str
    settled: int
    attempts: int
    saved: int
    dead: int
    worst: tuple[str, str, str, int] | None = None
    new: Sequence[str] = ()
    cured: int = 0
    aside: int = 0


def failing(now: FailingSentence) -> tuple[str, str]:
    """A tone and one sentence or two, with what was never seen before at the end."""
    tone, text = _failing(now)
    if now.new:
        names = ", ".join(now.new[:3]) + (f" and {len(now.new) - 3} more" if len(now.new) > 3 else "")
        text = f"{text} Never seen before: {names}."
        tone = "warning" if tone in ("quiet", "good") else tone
    return tone, text


def _failing(now: FailingSentence) -> tuple[str, str]:
    if not now.attempts and not now.dead:
        if not now.settled:
            return "quiet", f"Nothing was sent {now.during}."
        return "good", f"Nothing failed {now.during}: {_all(now.settled)} acknowledged at the first attempt."
    saved = f"{plural(now.saved, 'message')} {_was(now.saved)} acknowledged after a retry"
    if not now.dead:
        text = f"{plural(now.attempts, 'attempt')} failed {now.during}, and no message died"
        return "good" if now.saved else "quiet", f"{text}: {saved}." if now.saved else f"{text}."
    share = now.dead / now.settled if now.settled else 1.0
    died = f"{count(now.dead)} of {plural(now.settled, 'message')} died {now.during}"
    parts = [f"{died}{_because(now)}"]
    if dealt := _dealt_with(now):
        parts.append(dealt)
    if now.saved:
        parts.append(f"{saved.capitalize()}.")
    if now.cured + now.aside >= now.dead:
        return "good", " ".join(parts)
    return "bad" if share > 0.05 else "warning", " ".join(parts)


def _dealt_with(now: FailingSentence) -> str:
    """What became of those that died."""
    if now.dead == 1 and now.cured + now.aside:
        return f"It was {'replayed' if now.cured else 'put aside'} since."
    told = [
        f"{'all' if number >= now.dead else ''} {count(number)} {_was(number)} {what}".strip()
        for number, what in ((now.cured, "replayed"), (now.aside, "put aside"))
        if number
    ]
    text = " and ".join(told)
    return f"{text[:1].upper()}{text[1:]} since." if text else ""


def _because(now: FailingSentence) -> str:
    if now.worst is None:
        return "."
    code, topic, meaning, number = now.worst
    part = (
        "all"
        if number >= now.dead
        else "most of them"
        if 2 * number > now.dead
        else f"{count(number)} of them"
    )
    on = f" on {topic}" if topic else ""
    return f", {part}{on} with {code}: {meaning[:1].lower()}{meaning[1:].rstrip('.')}."


def _all(number: int) -> str:
    return "the one message was" if number == 1 else f"all {count(number)} messages were"


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def before(number: int, now: int) -> str:
    """What stands small beside a number: how it was in the same time before."""
    if number == now:
        return "as before" if number else ""
    return f"before: {count(number)}" if number else "none before"


def compared(*, compares: bool, begins: str | None) -> str:
    """What «before» means here, or why there is none."""
    if compares:
        return "«Before» is the same length of time just before the range."
    if begins is None:
        return ""
    return f"The store begins at {begins}, so there is no whole time before to compare with."


def kind(name: str) -> str:
    """A kind as people read it: timed out."""
    return name.replace("_", " ")


def topics(names: Sequence[str], most: int = 3) -> str:
    """Some names, and how many more."""
    rest = len(names) - most
    return ", ".join(short(name, 40) for name in names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def without_dead_letters(missing: int, dead: int) -> str:
    """Why codes and groups add up to less than what died."""
    who = "the one message" if dead == 1 else f"{count(dead)} messages"
    return (
        f"Of {who} that died, {count(missing)} left no dead letter in this store: telemetry counts deaths, and the dead letters "
        "are in the stores of their producers. Codes and groups are of the dead letters that are here."
    )


def trend(counts: Sequence[int], length: str) -> str:
    """What small bars show, for who cannot see them; `length` is a bar's, in words."""
    most = max(counts, default=0)
    return f"{count(sum(counts))} deaths in time, at most {count(most)} in {length}"


def group_unknown(fingerprint: str) -> str:
    """What stands where an address names a group that is not there."""
    return f"No dead letter here has the cause {fingerprint}: it was never in this store, or its time was up."


def states(found: Mapping[str, int]) -> str:
    """What became of dead letters: «12 dead, 3 replayed»."""
    order = ("dead", "replaying", "replayed", "landed", "archived", "purged")
    said = [f"{count(found[state])} {state}" for state in order if found.get(state)]
    return ", ".join(said) or "none"
