"""Texts about replays: their selection, state, progress and outcome."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from producer_core._internal.masking import mask_text
from producer_core._internal.plural import plural
from producer_core.dashboard.wording.dead_letters import STATE_PHRASES
from producer_core.dashboard.wording.numbers import rate, sentence_case
from producer_core.dashboard.wording.time import age
from producer_core.dlq import DeadLetterFilter
from producer_core.replay import Operation
from producer_core.replay.operation import DECIDE_WITHIN
from producer_core.replay.phrases import SENT_ANYWAY, stay_dead_letters
from producer_core.replay.wording import INCONCLUSIVE, NEWER, STATES, delivered, done_of_total, rule

Tone = str

SILENT = 3.0
"""Seconds after the end of its lease after which a runner counts as crashed or hanging; it renews the lease well before.
"""

CLICK = "Checks the topics first. Sends automatically unless a decision is needed."

OTHER_FILTER = (
    "No action taken: the filter in the URL differs from the filter that this button applied to. "
    "The page now shows the filter from the URL."
)

REMEDIES: Mapping[str, str] = {
    "no_runner": (
        "To run the replay, start a producer on this store, or start this dashboard with PRODUCER_CORE_CONFIG set to a "
        "client configuration file. To send from a shell with access to the brokers:"
    ),
    "cluster": "If the records belong on a different cluster that can be reached, send them from a shell:",
}
"""What to do where no process can run a replay."""

NO_RUNNER = "No running producer has credentials for this cluster."

ACTS: Mapping[str, str] = {
    "replay": "requested",
    "replay_go": "started",
    "replay_pause": "paused",
    "replay_resume": "resumed",
    "replay_cancel": "cancelled",
    "replay_end": "ended",
    "archive": "archived records",
    "resolve": "marked a cause as resolved",
    "reopen": "reopened a cause",
    "request": "asked for approval",
    "request_approve": "approved",
    "request_refuse": "refused",
    "request_used": "started with the approval",
    "request_withdrawn": "withdrew the request",
    "request_void": "request became void",
    "request_expired": "request expired",
    "request_decide": "tried to decide",
}

_ACTS_WITHOUT_DETAIL = ("replay", "replay_go", "replay_pause", "replay_resume", "replay_cancel")
"""Actions whose outcome in the audit log adds nothing to their name."""
_OPERATION = re.compile(r"\s*\(?(?:planned as )?\b([0-9a-f]{12})\)?$")

REASONS: Mapping[str, str] = {"failed": "failed again", "skipped": "skipped"}

_FILTERS = {"topic": "topic {}", "code": "error {}", "group": "cause {}", "verdict": "verdict {}", "cluster_id": "cluster {}",
            "cluster_or_unknown": "unknown cluster or {}", "producer_id": "producer {}", "application": "application {}", "message_id": "message {}"}  # fmt: skip
_MASKED_FILTERS = {"key": "key “{}”", "text": "error text contains “{}”", "body": "content contains “{}”"}


def runner_setup(variable: str, file: str = "", servers: str = "", problem: str = "") -> str:
    """Return which processes run replays that were started from a page."""
    if not file:
        return f"Run by producers. To run replays on this server too, set {variable} to a client configuration file."
    if problem:
        return f"This server cannot run replays with {file}: {problem}"
    return f"Run by this server with {file} ({servers}), and by producers."


# before the start


def replay_label(number: int, *, at_once: bool) -> str:
    """Return the button label: "Replay 43" sends, "Replay 43 …" opens the dry run."""
    if not number:
        return "Replay"
    return f"Replay {number:,}" if at_once else f"Replay {number:,} …"


def why_dry_run(number: int, most: int, doubtful: int, left_out: int, held: int, *, skipped: str = "") -> str:
    """Return why the button opens the dry run; empty where it sends. `skipped` names the reasons for records left out."""
    reasons = []
    if doubtful:
        reasons.append(f"{plural(doubtful, 'record')} may already be on the broker")
    if left_out:
        reasons.append(f"{plural(left_out, 'record')} would be skipped{f' ({skipped})' if skipped else ''}")
    if held:
        reasons.append(f"{plural(held, 'record is', 'records are')} already in a replay")
    if number > most:
        reasons.append(f"one click replays at most {most:,} records")
    return f"Replay opens a dry run first: {' and '.join(reasons)}." if reasons else ""


def already_planned(operation: Operation, now: float) -> str:
    """Return the note on a click that found an existing replay of the same records."""
    return (
        f"This replay was already requested {age(now - operation.created_at)} ago by {operation.who}. "
        "No second replay was created."
    )


def count_changed(shown: int | None, total: int) -> str:
    """Return why the replay has more or fewer records than the button showed; empty where the numbers agree."""
    if shown is None or total == shown:
        return ""
    if total < shown:
        handled = shown - total
        return f"{handled:,} of {shown:,} {_was(handled)} already handled by someone else."
    return f"{plural(total - shown, 'more record')} failed in the meantime."


def none_pending(states: Mapping[str, int]) -> str:
    """Return why none of the selected dead letters can be replayed."""
    parts = [
        f"{plural(number, 'is', 'are')} {STATE_PHRASES.get(state, state)}" for state, number in states.items()
    ]
    if not parts:
        return "The selection is no longer in this store."
    if sum(states.values()) == 1:
        (state,) = states
        return f"The selected dead letter is not pending: it is {STATE_PHRASES.get(state, state)}."
    return f"None of the selected dead letters is pending: {', '.join(parts)}."


class AuditEntry(NamedTuple):
    """Describes an act, its outcome where that adds something, and the replay it refers to."""

    text: str
    more: str
    operation_id: str


def audit_entry(action: str, outcome: str) -> AuditEntry:
    """Return a row of the audit log, whose outcome names the replay."""
    text = ACTS.get(action, action.replace("_", " "))
    found = _OPERATION.search(outcome)
    if outcome.startswith("Refused"):
        return AuditEntry(f"{text}: refused", outcome.removeprefix("Refused: "), "")
    if SENT_ANYWAY in outcome:
        return AuditEntry(text, f"{sentence_case(SENT_ANYWAY)}.", found.group(1) if found else "")
    if found is None:
        return AuditEntry(text, outcome, "")
    more = "" if action in _ACTS_WITHOUT_DETAIL else outcome.replace(found.group(), "")
    return AuditEntry(text, more, found.group(1))


def more_in_progress(number: int) -> str:
    """Return how many replays in progress the page does not list."""
    return f"{plural(number, 'more is', 'more are')} in progress; see Replays."


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def selection(where: DeadLetterFilter | None) -> str:
    """Return the selection of a replay, such as "topic payments, error POLICY_VIOLATION"."""
    if where is None:
        return "a selection written by a newer version"
    if where.ids:
        return f"{plural(len(where.ids), 'record')} selected by id"
    parts = [
        form.format(value or "(none)")
        for name, form in _FILTERS.items()
        if (value := getattr(where, name)) is not None
    ]
    parts += [
        form.format(mask_text(value))
        for name, form in _MASKED_FILTERS.items()
        if (value := getattr(where, name)) is not None
    ]
    return ", ".join(parts) or "all dead letters"


def about(operation: Operation, where: DeadLetterFilter | None) -> str:
    """Return size and selection, such as "43 records: topic payments, error POLICY_VIOLATION"."""
    return f"{plural(operation.total, 'record')}: {selection(where)}"


def facts(operation: Operation) -> list[tuple[str, str]]:
    """Return the options of a replay as name and text; unset options are left out."""
    found = (
        ("Reason", mask_text(operation.reason or "")),
        ("Rate", f"at most {operation.rate:g}/s" if operation.rate else "no limit"),
        ("Automatic stop", sentence_case(rule(operation) or "")),
        ("Keys with newer records", sentence_case(NEWER.get(operation.newer or "", ""))),
        ("Inconclusive", sentence_case(INCONCLUSIVE.get(operation.inconclusive or "", ""))),
        ("Delivery", sentence_case(delivered(operation))),
        ("Cluster", operation.cluster_id),
    )
    return [(name, text) for name, text in found if text]


def counts(operation: Operation) -> list[tuple[str, str]]:
    """Return the outcomes that occurred, each as a number and its meaning."""
    return [
        (f"{number:,}", name)
        for number, name in (
            (operation.acknowledged, "acknowledged by the broker"),
            (operation.landed, "already on the topic, not resent"),
            (operation.failed_again, "failed again"),
            (operation.skipped, "skipped"),
            (operation.left, "without an outcome"),
        )
        if number
    ]


# in progress


def replay_status(
    operation: Operation, *, owner: str, runners: int, now: float, blocked_by: Operation | None = None
) -> tuple[Tone, str]:
    """Return a tone and the state of a replay.

    `owner` names the process that runs it, `runners` counts the live processes that could, and `blocked_by` is the
    replay that runs first.
    """
    if operation.ended:
        return outcome(operation)
    if operation.owner is not None and silent(operation, now):
        return _orphaned(operation, owner, runners, now)
    if operation.state == "ready":
        checked = age(now - (operation.checked_at or now))
        left = age((operation.checked_at or now) + DECIDE_WITHIN - now)
        return (
            "warning",
            f"Awaiting your decision; expires in {left}. Topics checked {checked} ago; nothing sent.",
        )
    if operation.state == "paused":
        if operation.owner is not None:
            return "quiet", "Pausing: waiting for records in flight."
        return "quiet", f"Paused: {operation.left:,} of {operation.total:,} left."
    if operation.state == "cancelled":
        return "quiet", "Cancelling: waiting for records in flight."
    if operation.owner is None:
        return _waiting(operation, runners, blocked_by)
    if operation.state == "checking":
        then = " Sending starts automatically unless a decision is needed." if operation.go_at_once else ""
        return (
            "quiet",
            f"Checking for size limits, keys with newer records and missing topics (20 s at most).{then}",
        )
    message = f" {mask_text(operation.message)}" if operation.message else ""
    return "good", f"Running on {owner}.{message}"


def _waiting(operation: Operation, runners: int, blocked_by: Operation | None) -> tuple[Tone, str]:
    """Return the state of a replay that no process has taken yet."""
    if not runners:
        return "bad", NO_RUNNER
    if blocked_by is not None and operation.state == "checking":
        return "quiet", "Queued: another replay's topic check runs first (20 s at most)."
    if blocked_by is not None:
        left = f"{plural(blocked_by.left, 'record')} left"
        return "quiet", f"Queued behind a replay started by {blocked_by.who}, {left}."
    return "quiet", "Queued: a running producer picks it up within seconds."


def other_replay(operation: Operation) -> str:
    """Return one line about a replay that someone else started."""
    return (
        f"Replay of {plural(operation.total, 'record')} by {operation.who}: {STATES[operation.state]}, "
        f"{done_of_total(operation)} done."
    )


def silent(operation: Operation, now: float) -> bool:
    """Return whether the owner let its lease expire more than `SILENT` seconds ago."""
    return operation.owner is not None and now > (operation.lease_until or now) + SILENT


def _orphaned(operation: Operation, owner: str, runners: int, now: float) -> tuple[Tone, str]:
    late = age(now - (operation.lease_until or now))
    expired = f"The lease of {owner} expired {late} ago; the process has crashed or is hanging."
    if runners:
        return "warning", (
            f"{expired} Another producer takes over automatically within about 20 s. It checks the records in flight first, "
            "so none is sent twice or lost."
        )
    return "bad", f"{expired} {NO_RUNNER} Records in flight are checked before sending resumes."


def progress(operation: Operation, pace: float | None) -> str:
    """Return the progress, such as "120 of 500, 35/s, about 11 s left; 2 failed again"."""
    parts = [done_of_total(operation)]
    if operation.state == "running" and pace:
        parts.append(rate(pace))
        parts.append(f"about {duration(operation.left / pace)} left")
    outcomes = [
        f"{number:,} {name}"
        for number, name in (
            (operation.failed_again, "failed again"),
            (operation.landed, "already on the topic"),
            (operation.skipped, "skipped"),
        )
        if number
    ]
    return "; ".join([", ".join(parts), *outcomes])


def canary(operation: Operation) -> str:
    """Return the note shown until the canary is settled."""
    sent = operation.acknowledged + operation.failed_again
    size = operation.canary or 0
    if operation.state != "running" or sent >= size or operation.total <= size:
        return ""
    if size == 1:
        return "Canary: the first one is sent on its own; the rest follow once it is acknowledged."
    return f"Canary: the first {size:,} are sent on their own; the rest follow once those {size:,} are acknowledged."


# after the end


_NOT_FOUND = re.compile(
    r"inconclusive, so not sent; to send anyway, use --inconclusive send if a duplicate does no harm\. "
    r"The record is not on (\S+): the topic was read to its end \([^)]*\)"
)
"""The reason of one record that a search did not find; the result of a replay shows it for all of them."""


def without_options(text: str) -> str:
    """Replace the option of the commands in a stored text by the choice of the page."""
    return text.replace("use --inconclusive send", "replay with “Send anyway”")


def outcome(operation: Operation) -> tuple[Tone, str]:
    """Return a tone and the message that the runner stored."""
    text = mask_text(operation.message or STATES[operation.state])
    text = without_options(_NOT_FOUND.sub(r"not found on \1, so kept as dead letters", text))
    whole = operation.acknowledged + operation.landed == operation.total
    tones = {"done": "good" if whole else "warning", "stopped": "bad", "failed": "bad", "cancelled": "quiet"}
    return tones.get(operation.state, "quiet"), text if text.endswith(".") else f"{text}."


def follow_up(operation: Operation, doubtful: int, *, listed: int) -> list[str]:
    """Return what to do about the records that were not delivered. More than `listed` doubtful ones are not counted."""
    notes = []
    if operation.state == "stopped":
        notes.append("Unsent records remain dead letters. Fix the cause, then start a new replay.")
    if operation.failed_again:
        stay = stay_dead_letters(operation.failed_again)
        notes.append(f"{operation.failed_again:,} failed again. {stay} with the new error.")
    if doubtful:
        records = plural(doubtful, "record") if doubtful <= listed else f"More than {listed:,} records"
        notes.append(
            f"{records} may already be on the topic, or still arrive there. If a second copy does no harm, replay with "
            "“Send anyway”. Consumers that deduplicate by message id ignore the copy."
        )
    return notes


def still_dead(state: str, number: int, listed: int) -> str:
    """Return the link text for records that a replay left as dead letters."""
    if number > listed:
        which = f"The first {listed:,} of {number:,} records"
    else:
        which = "The record" if number == 1 else f"The {number:,} records"
    if state == "failed":
        return f"{which} that failed again"
    return f"{which} that {_was(number)} skipped"


def duration(seconds: float) -> str:
    """Return a duration, such as 0.8 s, 12 s, 3 min 20 s or 1 h 5 min."""
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
    """Return the time from start to end; empty for a replay that never started."""
    if operation.started_at is None or operation.finished_at is None:
        return ""
    return duration(operation.finished_at - operation.started_at)


def replays_summary(replays: Sequence[Operation]) -> tuple[Tone, str]:
    """Return a tone and a summary, such as "2 replays in progress, 160 records left; 1 awaiting decision."."""
    groups = (
        (("running", "planned", "checking", "cancelled"), "in progress"),
        (("ready",), "awaiting decision"),
        (("paused",), "paused"),
    )
    parts: list[str] = []
    for states, name in groups:
        chosen = [operation for operation in replays if operation.state in states]
        if not chosen:
            continue
        number = f"{len(chosen):,}" if parts else plural(len(chosen), "replay")
        left = sum(operation.left for operation in chosen if operation.state in ("running", "planned"))
        still = f", {plural(left, 'record')} left" if left else ""
        parts.append(f"{number} {name}{still}")
    if not parts:
        return "quiet", "No replays in progress."
    active = any(operation.state in ("running", "planned") for operation in replays)
    return "good" if active else "warning", f"{'; '.join(parts)}."
