"""A replay in words: for a person where it stands, for programs as a dict."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from producer_core._internal.masking import mask_text
from producer_core.cli import output

if TYPE_CHECKING:
    from producer_core.replay import Operation
    from producer_core.store import Store

_SHOWN = 20

_TO_SEND_THEM = (
    ("--newer send", "its key has a newer record"),
    ("--include-quarantined", "quarantined: it failed again"),
    ("--to CLUSTER", "it comes from another cluster"),
    ("--to CLUSTER", "nobody knows on which cluster it may be"),
)
"""Options of `dlq replay`, by the reason for which records were left out."""

STATES: Mapping[str, str] = {
    "checking": "a runner looks ahead; then it waits for you, unless it may go on by itself",
    "ready": "it was looked ahead; start it with replay go, or drop it with replay cancel",
    "planned": "it waits for a runner: a live producer of this store, or dlq replay with --bootstrap-servers",
    "running": "it is being sent",
    "paused": "go on with replay resume",
    "done": "every record has its outcome",
    "stopped": "it stopped itself; the rest stays dead letters, to be replayed anew",
    "cancelled": "somebody ended it; the rest stays dead letters",
    "failed": "it could not go on",
}
"""What each state means for the operator."""


def facts(operation: Operation) -> list[tuple[str, str | int | None]]:
    """Where it stands, one fact a line; what was not chosen is left out."""
    from producer_core.replay.wording import INCONCLUSIVE, NEWER, rule

    done = operation.total - operation.left
    share = f" ({100 * done / operation.total:.0f} %)" if operation.total else ""
    lines: list[tuple[str, str | int | None]] = [
        ("replay", operation.operation_id),
        ("state", f"{operation.state}: {STATES[operation.state]}"),
        ("begun", f"{output.moment(operation.created_at)} by {operation.who} ({operation.origin})"),
        ("reason", operation.reason),
        ("progress", f"{done:,} of {operation.total:,}{share}{_time_left(operation, done)}"),
        ("acknowledged", operation.acknowledged),
        ("landed already", operation.landed),
        ("failed again", operation.failed_again),
        ("skipped", operation.skipped),
        ("left", operation.left),
        ("delivery", _delivery(operation)),
        ("stop rule", rule(operation)),
        ("newer keys", operation.newer and NEWER[operation.newer]),
        ("inconclusive", operation.inconclusive and INCONCLUSIVE[operation.inconclusive]),
        ("rate", None if operation.rate is None else f"at most {operation.rate:g} a second"),
        ("in words", operation.message and mask_text(operation.message)),
    ]
    return [(name, value) for name, value in lines if value is not None]


def _time_left(operation: Operation, done: int) -> str:
    """By its own speed so far."""
    sent = operation.acknowledged + operation.failed_again + operation.landed
    if operation.state != "running" or operation.started_at is None or not sent or not operation.left:
        return ""
    seconds = (time.time() - operation.started_at) * operation.left / sent
    return f", about {output.duration(seconds)} left"


def _delivery(operation: Operation) -> str | None:
    from producer_core.replay.wording import delivered

    return delivered(operation) or None


def say_check(store: Store, operation: Operation) -> None:
    """What the look ahead found: the dry run's sentences while it waits, what it saw of each topic afterwards."""
    if operation.checked is None:
        return
    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay.broker_check import BrokerCheck
    from producer_core.replay.dry_run import dry_run

    output.say(f"\nLooked ahead {output.ago(operation.checked_at)}:")
    if operation.state == "ready":
        found = dry_run(store, DeadLetterFilter(), operation=operation).sentences
    else:
        found = tuple(
            f"{topic.topic}: {topic.text}" for topic in BrokerCheck.from_json(operation.checked).topics
        )
    for sentence in found[:_SHOWN]:
        output.say(f"  {sentence}")


def say_reasons(store: Store, operation: Operation) -> None:
    """Why records failed again or were skipped, the most frequent reason first."""
    rows = store.rows("replay_reasons", operation=operation.operation_id)
    if rows:
        output.say("")
        found = [
            (row["count"], row["state"], mask_text(row["text"] or "no reason given")) for row in rows[:_SHOWN]
        ]
        output.table(("records", "outcome", "why"), found, right=("records",), shrink=("why",))
    for flag, reason in _TO_SEND_THEM:
        if any(reason in (row["text"] or "") for row in rows):
            output.say(f"To send those all the same, replay them again with {flag}: «{reason}».")
    if len(rows) > _SHOWN:
        output.say(f"… and {len(rows) - _SHOWN:,} more reasons")


def progress(operation: Operation) -> str:
    done = operation.total - operation.left
    canary = f" (canary of {operation.canary:,})" if operation.canary and done < operation.canary else ""
    words = f"; {output.shorten(operation.message, 100)}" if operation.message else ""
    return (
        f"replay {operation.operation_id}: {done:,} of {operation.total:,}{canary}, "
        f"{operation.failed_again:,} failed again{words}"
    )


def standing(operation: Operation) -> str:
    return (
        f"{operation.operation_id}, {operation.state}, {operation.left:,} of {operation.total:,} left, begun "
        f"{output.ago(operation.created_at)} by {operation.who}. It goes on as it was planned."
    )


def sentence(operation: Operation) -> str:
    if operation.state == "paused":
        return (
            f"Replay {operation.operation_id} is paused with {operation.left:,} of {operation.total:,} left. "
            "Resume with the same command."
        )
    return f"{operation.message or 'No answer yet'}."


def say_doubtful(store: Store, operation: Operation | None) -> None:
    """By id, those of which nobody can say whether they are on their topic."""
    if operation is None or not operation.ended:
        return
    from producer_core.replay import doubtful

    found = doubtful(store, operation.operation_id, limit=_SHOWN + 1)
    if found:
        output.say(
            "Nobody can say whether these are on their topic; replayed again they are looked for again:"
        )
    for row in found[:_SHOWN]:
        output.say(f"  {row['message_id']}  {row['topic']}  {row['verdict']}")
    if len(found) > _SHOWN:
        output.say(f"  … and more: producer-core replay status {operation.operation_id} --json")


def as_dict(operation: Operation | None, text: str, store: Store | None = None) -> dict[str, Any]:
    """An operation for programs; times are seconds since 1970. With the store also its outcomes by reason, and the
    records of which nobody can say whether they are there."""
    import dataclasses

    import orjson

    if operation is None:
        return {
            "operation_id": None,
            "state": "done",
            "total": 0,
            "acknowledged": 0,
            "failed_again": 0,
            "message": text,
        }
    found = dataclasses.asdict(operation)
    found["selection"] = orjson.loads(operation.selection)
    found["check"] = orjson.loads(found.pop("checked") or "null")
    found |= {"left": operation.left, "message": text}
    del found["floors"]
    if store is not None:
        from producer_core.replay import doubtful

        rows = store.rows("replay_reasons", operation=operation.operation_id)
        found["reasons"] = [{**row, "text": row["text"] and mask_text(row["text"])} for row in rows]
        found["doubtful"] = doubtful(store, operation.operation_id)
    return found
