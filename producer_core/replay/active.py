"""A cause that is still active: letters of the same error group and topic die now, or an alert about their topic fires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core.masking import mask_told

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.replay.operation import Operation
    from producer_core.store import Store

LATELY = 120.0
"""Seconds without a death after which a group counts as one that does not grow any more."""
RULES = (
    "connection_lost",
    "delivery_stalled",
    "dead_letters_growing",
    "error_budget_fast",
    "high_error_rate",
)
"""Alerts that say that sending fails now; the others may fire because of the very letters that are to be replayed."""

_MOST = 20
"""Groups, and alerts, that are asked about: each question ends with the first letter, however many there are."""
_WHAT_NOW = "What is sent now may fail the same way."
_RECENT = f"""
SELECT fingerprint, topic, any_value(code) AS code, count(*) AS died, max(failed_at) AS last FROM dead_letters
WHERE failed_at > ? GROUP BY fingerprint, topic ORDER BY died DESC LIMIT {_MOST}"""
_SELECTED = "SELECT * FROM dead_letters WHERE ({where}) AND state = 'dead'"
_PLANNED = """
SELECT letters.* FROM operation_records AS records JOIN dead_letters AS letters USING (message_id)
WHERE records.operation_id = ? AND records.state IN ('pending', 'claimed')"""
_OF_GROUP = "SELECT 1 FROM ({letters}) WHERE fingerprint = ? AND topic = ? LIMIT 1"
_ALERTS = """
SELECT subject, text FROM alerts WHERE state = 'firing' AND list_contains(?::VARCHAR[], rule)
ORDER BY CASE severity WHEN 'critical' THEN 0 ELSE 1 END, started_at DESC"""
_ABOUT = "SELECT 1 FROM ({letters}) WHERE topic = ? OR producer_id = ? LIMIT 1"


@dataclass(frozen=True, slots=True)
class Growing:
    """A group of the letters in question, on one of their topics, of which more died there lately."""

    code: str
    died: int
    last: float


def still_active(
    store: Store, selection: DeadLetterFilter, now: float, *, operation: Operation | None = None
) -> str:
    """One sentence where the cause of these letters (or of what an operation has still to send) is active; else ''."""
    if operation is not None:
        letters, given = _PLANNED, [operation.operation_id]
    else:
        where, parameters = selection.where()
        letters, given = _SELECTED.format(where=where), list(parameters)
    with store.borrow() as connection:
        growing = list(_growing(connection, letters, given, now))
        alert = _alert(connection, letters, given)
    return " ".join(_sentences(growing, alert, now))


def _growing(connection: Any, letters: str, given: Sequence[Any], now: float) -> Iterator[Growing]:
    recent = connection.execute(_RECENT, [now - LATELY]).fetchall()
    asked = _OF_GROUP.format(letters=letters)
    for fingerprint, topic, *group in recent:
        if connection.execute(asked, [*given, fingerprint, topic]).fetchone():
            yield Growing(*group)


def _alert(connection: Any, letters: str, given: Sequence[Any]) -> str | None:
    firing = connection.execute(_ALERTS, [list(RULES)]).fetchmany(_MOST)
    asked = _ABOUT.format(letters=letters)
    for subject, text in firing:
        if connection.execute(asked, [*given, subject, subject]).fetchone():
            return f"«{text}»"
    return None


def _sentences(growing: Sequence[Growing], alert: str | None, now: float) -> Iterator[str]:
    if not growing and alert is None:
        return
    parts = []
    if growing:
        died, last = sum(one.died for one in growing), max(one.last for one in growing)
        codes = ", ".join(dict.fromkeys(one.code for one in growing[:2]))
        letters = "1 letter" if died == 1 else f"{died:,} letters"
        parts.append(
            f"{letters} died of it within {LATELY / 60:.0f} min, the last {max(0.0, now - last):.0f} s ago ({codes})"
        )
    if alert is not None:
        parts.append(f"an alert fires: {mask_told(alert)}")
    yield f"Their cause may still be there: {', and '.join(parts)}. {_WHAT_NOW}"
