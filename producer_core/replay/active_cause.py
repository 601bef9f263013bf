"""Detect an active cause: recent dead letters of the same error group and topic, or an alert about their topic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.masking import mask_or_hide

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay.operation import Operation
    from producer_core.store import Store

LATELY = 120.0
"""Seconds without a new dead letter after which a group no longer counts as growing."""
LATE = 2.0
"""Seconds by which statistics may count a delivery late."""
QUIET = 10.0
"""Seconds after a dead letter in which the next may follow, however many messages are delivered in between."""
RULES = (
    "connection_lost",
    "delivery_stalled",
    "dead_letters_growing",
    "error_budget_fast",
    "high_error_rate",
)
"""Alerts that show that sending fails now; others may fire because of the dead letters to be replayed."""

_LOOK_BACK = ("dead_letters_growing", "error_budget_fast")
_BACK = 900.0
_ROW = 3.0
"""At a failure rate p, _ROW / p messages in a row have no failure with a probability of exp(-_ROW), about 5 %."""
_LEAST = 10
_MOST = 20
"""Maximum number of groups, and of alerts, to check; each query stops at the first matching dead letter."""
_WHAT_NOW = "Records sent now may fail the same way."
_RECENT = f"""
SELECT fingerprint, topic, any_value(code) AS code, count(*) AS died, max(failed_at) AS last FROM dead_letters
WHERE failed_at > ? GROUP BY fingerprint, topic ORDER BY died DESC LIMIT {_MOST}"""
_DELIVERED = """
SELECT coalesce(sum(acknowledged) FILTER (window_start <= ?), 0)::BIGINT,
       coalesce(sum(acknowledged) FILTER (window_start > ?), 0)::BIGINT
FROM statistics WHERE topic = ? AND window_start >= ?"""
_SELECTED = "SELECT * FROM dead_letters WHERE ({where}) AND state = 'dead'"
_PLANNED = """
SELECT dead.* FROM operation_records AS records JOIN dead_letters AS dead USING (message_id)
WHERE records.operation_id = ? AND records.state IN ('pending', 'claimed')"""
_OF_GROUP = "SELECT 1 FROM ({dead_letters}) WHERE fingerprint = ? AND topic = ? LIMIT 1"
_ALERTS = """
SELECT rule, subject, text FROM alerts WHERE state = 'firing' AND list_contains(?::VARCHAR[], rule)
ORDER BY CASE severity WHEN 'critical' THEN 0 ELSE 1 END, started_at DESC"""
_DIED = "SELECT count(*), max(failed_at) FROM dead_letters WHERE topic = ? AND failed_at > ?"
_ABOUT = "SELECT 1 FROM ({dead_letters}) WHERE topic = ? OR producer_id = ? LIMIT 1"


@dataclass(frozen=True, slots=True)
class ActiveCause:
    """An error group of the selected dead letters that grew recently on one topic.

    `before` of the topic's messages were acknowledged while the group grew, `since` after its last dead letter.
    """

    topic: str
    code: str
    died: int
    last: float
    before: int = 0
    since: int = 0

    def over(self, now: float) -> bool:
        return is_over(now - self.last, died=self.died, before=self.before, since=self.since)


def proof(died: int, before: int) -> int:
    """Return how many deliveries in a row show that a fault with `died` failures per `before` deliveries is over.

    If the fault were still active, such a run without a failure would have a probability of 5 %. At least ten.
    """
    return max(_LEAST, math.ceil(_ROW * (died + before) / died)) if died else _LEAST


def is_over(silent: float, *, died: int, before: int, since: int) -> bool:
    """Return whether a fault is over, `silent` seconds and `since` delivered messages after its last dead letter."""
    return silent >= QUIET and since >= proof(died, before)


def still_active(
    store: Store, selection: DeadLetterFilter, now: float, *, operation: Operation | None = None
) -> str:
    """Return the evidence that the cause of these dead letters, or of an operation's open records, is active; else ''."""
    if operation is not None:
        dead_letters, given = _PLANNED, [operation.operation_id]
    else:
        where, parameters = selection.where()
        dead_letters, given = _SELECTED.format(where=where), list(parameters)
    with store.borrow() as connection:
        growing = [one for one in _growing(connection, dead_letters, given, now) if not one.over(now)]
        alert = _alert(connection, dead_letters, given, now)
    return " ".join(_sentences(growing, alert, now))


def _growing(connection: Any, dead_letters: str, given: Sequence[Any], now: float) -> Iterator[ActiveCause]:
    recent = connection.execute(_RECENT, [now - LATELY]).fetchall()
    query = _OF_GROUP.format(dead_letters=dead_letters)
    for fingerprint, topic, code, died, last in recent:
        if connection.execute(query, [*given, fingerprint, topic]).fetchone():
            moments = [last + LATE, last + LATE, topic, int(now - LATELY)]
            before, since = connection.execute(_DELIVERED, moments).fetchone()
            yield ActiveCause(topic, code, died, last, before, since)


def _alert(connection: Any, dead_letters: str, given: Sequence[Any], now: float) -> str | None:
    """Return the text of a firing alert about the dead letters.

    Alerts over a past window keep firing for minutes after a fault; they are ignored once the topic has recovered.
    """
    firing = connection.execute(_ALERTS, [list(RULES)]).fetchmany(_MOST)
    query = _ABOUT.format(dead_letters=dead_letters)
    for rule, subject, text in firing:
        about = connection.execute(query, [*given, subject, subject]).fetchone()
        if about and not (rule in _LOOK_BACK and _recovered(connection, subject, now)):
            return f'"{_without_reason(rule, text)}"'
    return None


def _without_reason(rule: str, text: str) -> str:
    """Return the text without the error text of the client library, which ends the text of a lost connection."""
    return text.partition(": ")[0] if rule == "connection_lost" else text


def _recovered(connection: Any, topic: str, now: float) -> bool:
    """Return whether the topic delivered enough messages since its last dead letter in the window of such alerts."""
    died, last = connection.execute(_DIED, [topic, now - _BACK]).fetchone()
    moment = now - _BACK - 1 if last is None else last + LATE
    before, since = connection.execute(_DELIVERED, [moment, moment, topic, int(now - _BACK)]).fetchone()
    return is_over(now - (last or 0.0), died=died, before=before, since=since)


def _sentences(growing: Sequence[ActiveCause], alert: str | None, now: float) -> Iterator[str]:
    if not growing and alert is None:
        return
    parts = []
    if growing:
        died, last = sum(one.died for one in growing), max(one.last for one in growing)
        codes = ", ".join(dict.fromkeys(one.code for one in growing[:2]))
        ago = f"{max(0.0, now - last):.0f} s ago ({codes})"
        parts.append(
            f"1 new dead letter {ago}"
            if died == 1
            else f"{died:,} new dead letters within {LATELY / 60:.0f} min, the last one {ago}"
        )
    if alert is not None:
        parts.append(f"an alert is firing: {mask_or_hide(alert)}")
    yield f"The cause may still be active: {', and '.join(parts)}. {_WHAT_NOW}"
    if growing:
        yield _what_would_show_it(growing, now)


def _what_would_show_it(growing: Sequence[ActiveCause], now: float) -> str:
    """Return the condition under which the cause counts as gone, for the topic farthest from it."""
    open_ = max(growing, key=lambda one: proof(one.died, one.before) - one.since)
    left = max(1, proof(open_.died, open_.before) - open_.since)
    wait = max(1.0, LATELY - (now - max(one.last for one in growing)))
    return (
        f"This warning clears after {left:,} more message{' is' if left == 1 else 's are'} delivered to {open_.topic} without "
        f"a new dead letter, or after {LATELY / 60:.0f} min without one ({wait:.0f} s from now)."
    )
