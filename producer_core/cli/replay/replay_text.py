"""Format a replay: as text for the terminal, as a dict for JSON."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from producer_core._internal.masking import mask_text
from producer_core._internal.plural import plural
from producer_core.cli import output

if TYPE_CHECKING:
    from producer_core.replay import Operation
    from producer_core.store import Store

_MAX_LINES = 20


def facts(operation: Operation) -> list[tuple[str, str | int | None]]:
    """Return the state of the replay, one fact per line; unset options are left out."""
    from producer_core.replay import wording

    lines: list[tuple[str, str | int | None]] = [
        ("replay", operation.operation_id),
        ("state", f"{operation.state}: {wording.STATE_MEANINGS[operation.state]}"),
        ("created", f"{output.moment(operation.created_at)} by {operation.who} ({operation.origin})"),
        ("reason", operation.reason),
        ("progress", _progress(operation)),
        ("acknowledged", operation.acknowledged),
        ("already on the topic", operation.landed),
        ("failed again", operation.failed_again),
        ("skipped", operation.skipped),
        ("left", operation.left),
        ("delivery", _delivery(operation)),
        ("stop rule", wording.rule(operation)),
        ("keys with newer records", operation.newer and wording.NEWER[operation.newer]),
        ("inconclusive", operation.inconclusive and wording.INCONCLUSIVE[operation.inconclusive]),
        ("rate", None if operation.rate is None else f"at most {operation.rate:g} per second"),
        ("message", operation.message and mask_text(operation.message)),
    ]
    return [(name, value) for name, value in lines if value is not None]


def _progress(operation: Operation) -> str:
    from producer_core.replay.wording import done_of_total

    if operation.state == "cancelled":
        sent = operation.acknowledged + operation.landed + operation.failed_again
        return f"{sent:,} of {operation.total:,} before it was cancelled"
    done = operation.total - operation.left
    share = f" ({100 * done / operation.total:.0f}%)" if operation.total else ""
    return f"{done_of_total(operation)}{share}{_time_left(operation)}"


def _time_left(operation: Operation) -> str:
    """Return the estimated remaining time at the average rate so far."""
    sent = operation.acknowledged + operation.failed_again + operation.landed
    if operation.state != "running" or operation.started_at is None or not sent or not operation.left:
        return ""
    seconds = (time.time() - operation.started_at) * operation.left / sent
    return f", about {output.duration(seconds)} left"


def _delivery(operation: Operation) -> str | None:
    from producer_core.replay.wording import delivered

    return delivered(operation) or None


def print_check(store: Store, operation: Operation) -> None:
    """Print the preflight check: the dry run's sentences before the decision, the text of each topic afterwards."""
    if operation.checked is None:
        return
    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay.broker_check import BrokerCheck
    from producer_core.replay.dry_run import dry_run

    output.say(f"\nTopics checked {output.ago(operation.checked_at)}:")
    if operation.state == "ready":
        found = dry_run(store, DeadLetterFilter(), operation=operation).sentences
    else:
        found = tuple(
            f"{topic.topic}: {topic.text}" for topic in BrokerCheck.from_json(operation.checked).topics
        )
    for sentence in found[:_MAX_LINES]:
        output.say(f"  {sentence}")


def print_reasons(store: Store, operation: Operation) -> None:
    """Print why records failed again or were skipped, most frequent reason first, with the option that sends them."""
    from producer_core.replay import phrases

    options = (
        ("--newer send", phrases.NEWER_KEY),
        ("--include-quarantined", phrases.QUARANTINED),
        ("--to CLUSTER", phrases.OTHER_CLUSTER),
        ("--to CLUSTER", phrases.UNKNOWN_CLUSTER),
    )
    rows = store.rows("replay_reasons", operation=operation.operation_id)
    if rows:
        output.say("")
        found = [
            (row["count"], row["state"], mask_text(row["text"] or "no reason given"))
            for row in rows[:_MAX_LINES]
        ]
        output.table(("records", "outcome", "reason"), found, right=("records",), shrink=("reason",))
    for option, reason in options:
        if any(reason in (row["text"] or "") for row in rows):
            output.say(
                f'To send the records skipped with the reason "{reason}", replay them again with {option}.'
            )
    if len(rows) > _MAX_LINES:
        output.say(f"… and {plural(len(rows) - _MAX_LINES, 'more reason')}")


def progress(operation: Operation) -> str:
    from producer_core.replay.wording import done_of_total

    done = operation.total - operation.left
    canary = f" (canary of {operation.canary:,})" if operation.canary and done < operation.canary else ""
    message = f"; {output.shorten(operation.message, 100)}" if operation.message else ""
    return (
        f"replay {operation.operation_id}: {done_of_total(operation)}{canary}, "
        f"{operation.failed_again:,} failed again{message}"
    )


def existing_replay(operation: Operation) -> str:
    return (
        f"{operation.operation_id}, {operation.state}, {operation.left:,} of {operation.total:,} left, created "
        f"{output.ago(operation.created_at)} by {operation.who}. It continues as planned."
    )


def sentence(operation: Operation) -> str:
    if operation.state == "paused":
        return (
            f"Replay {operation.operation_id} is paused with {operation.left:,} of {operation.total:,} left. "
            "Resume with the same command."
        )
    return f"{operation.message or 'No result yet'}."


def print_doubtful(store: Store, operation: Operation | None) -> None:
    """Print the ids of records that may or may not be on their topic."""
    if operation is None or not operation.ended:
        return
    from producer_core.replay import doubtful

    found = doubtful(store, operation.operation_id, limit=_MAX_LINES + 1)
    if found:
        output.say("These records may be on their topic. Another replay searches for them again:")
    for row in found[:_MAX_LINES]:
        output.say(f"  {row['message_id']}  {row['topic']}  {row['verdict']}")
    if len(found) > _MAX_LINES:
        output.say(f"  … and more: producer-core replay status {operation.operation_id} --json")


def as_dict(operation: Operation | None, text: str, store: Store | None = None) -> dict[str, Any]:
    """Return an operation for JSON; times are seconds since 1970.

    With `store`, include its outcomes by reason and the records that may or may not be on their topic.
    """
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
