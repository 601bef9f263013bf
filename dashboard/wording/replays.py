"""Replays in words: what one is about, how it stands, who carries it out, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from producer_core._internal.masking import mask_text
from producer_core.dashboard.wording.numbers import plural, rate, sentence_case
from producer_core.dashboard.wording.time import age
from producer_core.dlq import DeadLetterFilter
from producer_core.replay import Operation
from producer_core.replay.operation import SENT_ANYWAY
from producer_core.replay.wording import INCONCLUSIVE, NEWER, delivered, rule

Tone = str

SILENT = 3.0
"""Seconds after the end of its lease from which a runner counts as one that died or hangs: it renews long before."""

CLICK = (
    "Looks ahead on the topics first. Where there is something to decide it asks; else it goes on by itself."
)

OTHER_FILTER = (
    "Nothing was done: the address asks for other dead letters than the ones that this button was about. "
    "The page now shows what the address asks for."
)

WAYS_OUT: Mapping[str, str] = {
    "hands": (
        "Start a producer on this store, and it is carried out at once; or start this dashboard with PRODUCER_CORE_CONFIG "
        "set to a file of client settings. Or send from a shell that reaches the brokers:"
    ),
    "cluster": "If they belong to the cluster that can be reached, send them there from a shell:",
}
"""What to do where no process can carry out a replay."""

NOBODY = "Nobody can carry it out now: no live process of this store has the credentials for its cluster."

STATES: Mapping[str, str] = {
    "checking": "looking ahead",
    "ready": "waits for a decision",
    "planned": "waits for a runner",
    "running": "being sent",
    "paused": "paused",
    "done": "done",
    "stopped": "stopped itself",
    "cancelled": "cancelled",
    "failed": "could not go on",
}

ACTS: Mapping[str, str] = {
    "replay": "asked for it",
    "replay_go": "started it",
    "replay_pause": "paused it",
    "replay_resume": "let it go on",
    "replay_cancel": "cancelled it",
    "replay_end": "its end",
    "archive": "archived dead letters of it",
}

_PLAIN = ("replay", "replay_go", "replay_pause", "replay_resume", "replay_cancel")
"""Acts of which the outcome says no more than their name."""
_OPERATION = re.compile(r"\s*\(?(?:planned as )?\b([0-9a-f]{12})\)?$")

REASONS: Mapping[str, str] = {"failed": "failed again", "skipped": "left out"}

_FATES: Mapping[str, str] = {
    "replaying": "being replayed",
    "replayed": "replayed",
    "landed": "found on the topic",
    "archived": "archived",
    "purged": "purged",
}
_OWN = {"topic": "topic {}", "code": "error {}", "group": "cause {}", "verdict": "verdict {}", "cluster_id": "cluster {}",
        "cluster_or_unknown": "unknown cluster or {}", "producer_id": "producer {}", "message_id": "message {}"}  # fmt: skip
_LOOKED_FOR = {"key": "key «{}»", "text": "error text with «{}»", "body": "content with «{}»"}


def carried_out(variable: str, file: str = "", servers: str = "", problem: str = "") -> str:
    """Who carries out replays that are begun on a page, for the settings."""
    if not file:
        return f"Live producers carry them out. Started with {variable} set to a file of client settings, this server does too."
    if problem:
        return f"This server would carry them out, with {file}, and cannot: {problem}"
    return f"This server carries them out, with {file} ({servers}), and so do live producers."


# before


def replay_label(number: int, *, at_once: bool) -> str:
    """The button: «Replay 43» acts, «Replay 43 …» shows first what would be done."""
    if not number:
        return "Replay"
    return f"Replay {number:,}" if at_once else f"Replay {number:,} …"


def why_first(number: int, most: int, doubtful: int, left_out: int, held: int) -> str:
    """Why a click shows first what would be done; empty where it acts at once."""
    reasons = []
    if doubtful:
        reasons.append(f"{plural(doubtful, 'dead letter')} may be on the broker already")
    if left_out:
        reasons.append(f"{plural(left_out, 'dead letter')} would be left out")
    if held:
        reasons.append(f"{plural(held, 'dead letter')} {_was(held)} in a replay already")
    if number > most:
        reasons.append(f"there are more than {most:,}")
    return f"Replay shows first what it would do: {' and '.join(reasons)}." if reasons else ""


def joined(operation: Operation, now: float) -> str:
    """A click on dead letters that are being replayed already."""
    return (
        f"This replay was there already: begun {age(now - operation.created_at)} ago by {operation.who}. "
        "No second one was made."
    )


def fewer(shown: int | None, total: int) -> str:
    """What became of the number on the button."""
    if shown is None or total == shown:
        return ""
    if total < shown:
        gone = shown - total
        waits = "waits" if gone == 1 else "wait"
        return f"{gone:,} of the {shown:,} {waits} no more: somebody was faster."
    return f"{plural(total - shown, 'dead letter')} more had died by then."


def moved(states: Mapping[str, int]) -> str:
    """Chosen dead letters of which none waits any more."""
    parts = [f"{number:,} {_was(number)} {_FATES.get(state, state)}" for state, number in states.items()]
    return f"None of them waits any more: {', '.join(parts)}." if parts else "They are not here any more."


class AuditEntry(NamedTuple):
    """An act in words, what came of it where that says more, and the replay it was about."""

    text: str
    more: str
    operation_id: str


def did(action: str, outcome: str) -> AuditEntry:
    """A row of the audit, whose outcome names the replay."""
    text = ACTS.get(action, action.replace("_", " "))
    found = _OPERATION.search(outcome)
    if outcome.startswith("Refused"):
        return AuditEntry(f"{text}: refused", outcome.removeprefix("Refused: "), "")
    if SENT_ANYWAY in outcome:
        return AuditEntry(text, f"{sentence_case(SENT_ANYWAY)}.", found.group(1) if found else "")
    more = "" if found and action in _PLAIN else outcome.replace(found.group(), "") if found else outcome
    return AuditEntry(text, more, found.group(1) if found else "")


def _was(number: int) -> str:
    return "is" if number == 1 else "are"


def selection(where: DeadLetterFilter | None) -> str:
    """What a replay is about: «payments, error POLICY_VIOLATION»."""
    if where is None:
        return "a selection of a newer version"
    if where.ids:
        return f"{plural(len(where.ids), 'dead letter')} chosen by hand"
    parts = [form.format(value) for name, form in _OWN.items() if (value := getattr(where, name)) is not None]
    parts += [
        form.format(mask_text(value))
        for name, form in _LOOKED_FOR.items()
        if (value := getattr(where, name)) is not None
    ]
    return ", ".join(parts) or "all dead letters"


def about(operation: Operation, where: DeadLetterFilter | None) -> str:
    """«43 dead letters: topic payments, error POLICY_VIOLATION»."""
    return f"{plural(operation.total, 'dead letter')}: {selection(where)}"


def facts(operation: Operation) -> list[tuple[str, str]]:
    """What was chosen for it, one fact a line; what was not chosen is left out."""
    found = (
        ("Why", mask_text(operation.reason or "")),
        ("Rate", f"at most {operation.rate:g} a second" if operation.rate else "no limit"),
        ("Stops itself", sentence_case(rule(operation) or "")),
        ("Newer keys", sentence_case(NEWER.get(operation.newer or "", ""))),
        ("Inconclusive", sentence_case(INCONCLUSIVE.get(operation.inconclusive or "", ""))),
        ("Delivery", sentence_case(delivered(operation))),
        ("Cluster", operation.cluster_id),
    )
    return [(name, text) for name, text in found if text]


def counts(operation: Operation) -> list[tuple[str, str]]:
    """Its outcomes as numbers, each with what it means."""
    return [
        (f"{number:,}", name)
        for number, name in (
            (operation.acknowledged, "acknowledged by the broker"),
            (operation.landed, "had landed already, not sent"),
            (operation.failed_again, "failed again"),
            (operation.skipped, "left out"),
            (operation.left, "without an outcome"),
        )
        if number
    ]


# under way


def standing(
    operation: Operation, *, owner: str, hands: int, now: float, behind: Operation | None = None
) -> tuple[Tone, str]:
    """How it stands and who has it. `owner` is the process that has it, `hands` how many live ones could, `behind` the
    replay that is carried out first."""
    if operation.ended:
        return outcome(operation)
    if operation.owner is not None and silent(operation, now):
        return _orphaned(operation, owner, hands, now)
    if operation.state == "ready":
        looked = age(now - (operation.checked_at or now))
        return "warning", f"Looked ahead {looked} ago; it waits for a decision. Nothing was sent."
    if operation.state == "paused":
        if operation.owner is not None:
            return "quiet", "It pauses: what is on its way is settled first."
        return "quiet", f"Paused with {operation.left:,} of {operation.total:,} left. Nothing is sent."
    if operation.state == "cancelled":
        return "quiet", "It is being cancelled: what is on its way is settled first."
    if operation.owner is None:
        if not hands:
            return "bad", NOBODY
        if behind is not None and operation.state == "checking":
            return "quiet", "It waits: a look ahead for another replay goes first. 20 s at most."
        if behind is not None:
            left = f"{plural(behind.left, 'dead letter')} {'is' if behind.left == 1 else 'are'} left of it"
            return "quiet", f"It waits its turn: another replay, begun by {behind.who}, goes first. {left}."
        return "quiet", "It waits for a runner. A live producer takes it within seconds."
    if operation.state == "checking":
        first = "Looking ahead on the topics: sizes, newer keys, topics that are gone. 20 s at most."
        then = " Where nothing is to be asked it goes on by itself." if operation.go_at_once else ""
        return "quiet", f"{first}{then}"
    said = f" {mask_text(operation.message)}" if operation.message else ""
    return "good", f"Being sent by {owner}.{said}"


def another(operation: Operation) -> str:
    """One line about a replay that somebody else began."""
    done = operation.total - operation.left
    return (
        f"{operation.who} replays {plural(operation.total, 'dead letter')}: {STATES[operation.state]}, "
        f"{done:,} of {operation.total:,} done."
    )


def silent(operation: Operation, now: float) -> bool:
    """Whether the process that has it was not heard for longer than it may be silent."""
    return operation.owner is not None and now > (operation.lease_until or now) + SILENT


def _orphaned(operation: Operation, owner: str, hands: int, now: float) -> tuple[Tone, str]:
    late = age(now - (operation.lease_until or now))
    first = f"The process that had it, {owner}, has let its lease run out {late} ago: it died or hangs."
    if hands:
        return "warning", (
            f"{first} Another live producer takes it over by itself within about 20 s, and looks first for what "
            "was on its way: nothing is sent twice or forgotten."
        )
    return "bad", f"{first} {NOBODY} What was on its way is looked for before anything else is sent."


def progress(operation: Operation, pace: float | None) -> str:
    """Beside the bar: «120 of 500, 35 /s, about 11 s left; 2 failed again»."""
    done = operation.total - operation.left
    parts = [f"{done:,} of {operation.total:,}"]
    if operation.state == "running" and pace:
        parts.append(rate(pace))
        parts.append(f"about {duration(operation.left / pace)} left")
    told = [
        f"{number:,} {what}"
        for number, what in (
            (operation.failed_again, "failed again"),
            (operation.landed, "had landed already"),
            (operation.skipped, "left out"),
        )
        if number
    ]
    return "; ".join([", ".join(parts), *told])


def canary(operation: Operation) -> str:
    """While the first few go alone."""
    sent = operation.acknowledged + operation.failed_again
    few = operation.canary or 0
    if operation.state != "running" or sent >= few or operation.total <= few:
        return ""
    return f"The first {few:,} go alone; the rest follows when they are acknowledged."


# after


def outcome(operation: Operation) -> tuple[Tone, str]:
    """What became of it, in the core's own words."""
    text = mask_text(operation.message or STATES[operation.state])
    whole = operation.acknowledged + operation.landed == operation.total
    tones = {"done": "good" if whole else "warning", "stopped": "bad", "failed": "bad", "cancelled": "quiet"}
    return tones.get(operation.state, "quiet"), text if text.endswith(".") else f"{text}."


def afterwards(operation: Operation, doubtful: int) -> list[str]:
    """What to know and do about what was not delivered."""
    told = []
    if operation.state == "stopped":
        told.append("What was not sent stays a dead letter. Mend the cause first, then replay it anew.")
    if operation.failed_again:
        they = "It is a dead letter" if operation.failed_again == 1 else "They are dead letters"
        told.append(f"{operation.failed_again:,} failed again. {they} as before, with the new error.")
    if doubtful:
        told.append("Replay them again with «Send them anyway» if a second copy does no harm.")
        they = "It may" if doubtful == 1 else "They may"
        told.append(
            f"Of {doubtful:,} nobody can say whether {'it is' if doubtful == 1 else 'they are'} on the topic. {they} be "
            "there: a reader that drops what it has seen by message id is safe, others may see a second copy."
        )
    return told


def still_dead(state: str, number: int, listed: int) -> str:
    """A link to dead letters that a replay left as dead letters."""
    what = "failed again" if state == "failed" else "were left out"
    those = f"The first {listed:,} of {number:,}" if number > listed else f"The {number:,}"
    return f"{those} that {what} and {'is' if number == 1 else 'are'} dead letters now"


def duration(seconds: float) -> str:
    """How long something takes: 0.8 s, 12 s, 3 min 20 s, 1 h 5 min."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def took(operation: Operation) -> str:
    """From its start to its end; what was never begun took no time."""
    if operation.started_at is None or operation.finished_at is None:
        return ""
    return duration(operation.finished_at - operation.started_at)


def in_all(replays: Sequence[Operation]) -> tuple[Tone, str]:
    """The sentence on top of the page: «2 replays are under way, 160 dead letters left; 1 waits for a decision.»"""
    groups = (
        (("running", "planned", "checking", "cancelled"), "is under way", "are under way"),
        (("ready",), "waits for a decision", "wait for a decision"),
        (("paused",), "is paused", "are paused"),
    )
    parts: list[str] = []
    for states, one, more in groups:
        chosen = [operation for operation in replays if operation.state in states]
        if not chosen:
            continue
        number = f"{len(chosen):,}" if parts else plural(len(chosen), "replay")
        left = sum(operation.left for operation in chosen if operation.state in ("running", "planned"))
        still = f", {plural(left, 'dead letter')} left" if left else ""
        parts.append(f"{number} {one if len(chosen) == 1 else more}{still}")
    if not parts:
        return "quiet", "No replay is under way."
    goes = any(operation.state in ("running", "planned") for operation in replays)
    return "good" if goes else "warning", f"{'; '.join(parts)}."
