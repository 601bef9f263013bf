"""The numbers of dead letters that a filter matches, from the counts by hour wherever those can answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

from producer_core.dlq.filter import DeadLetterFilter

HOUR = 3600.0

Column = Literal["topic", "code", "verdict", "state", "kind", "fingerprint", "cluster_id", "producer_id"]
COLUMNS = ("topic", "code", "verdict", "state", "kind", "fingerprint", "cluster_id", "producer_id")

_COUNTED = frozenset(COLUMNS) - {"producer_id"}
_ANSWERED = frozenset(
    {"topic", "group", "code", "verdict", "state", "cluster_id", "cluster_or_unknown", "since", "until"}
)
HOUR_OF = f"floor(failed_at / {HOUR:.0f})::BIGINT"


def counted(where: DeadLetterFilter, keys: Sequence[str]) -> tuple[str, list[Any]]:
    """A query for the number `n` of dead letters by these columns, among them perhaps `hour`; a key may come twice.

    Whole hours come from `dead_letter_counts`, the pieces of hours at both ends of a time range, and what a
    filter asks of single dead letters, from the letters. Both say the same: triggers keep the counts.
    """
    if not answered(where) or not {*keys} <= _COUNTED | {"hour"}:
        return _from_dead_letters(where, keys)
    first, last = _whole_hours(where)
    queries = [
        _from_counts(where, keys, first, last),
        *(_from_dead_letters(end, keys) for end in _ends(where)),
    ]
    return " UNION ALL ".join(sql for sql, _ in queries), [one for _, given in queries for one in given]


def answered(where: DeadLetterFilter) -> bool:
    """Whether the counts can answer: the filter asks nothing of single dead letters, and of an hour at least."""
    asked = {field.name for field in fields(where) if getattr(where, field.name) not in (None, ())}
    first, last = _whole_hours(where)
    return asked <= _ANSWERED and first < last


def _whole_hours(where: DeadLetterFilter) -> tuple[float, float]:
    """The first whole hour of the filter's range, and the one after the last."""
    first = -math.inf if where.since is None else math.ceil(where.since / HOUR)
    last = math.inf if where.until is None else math.floor(where.until / HOUR)
    return first, last


def _ends(where: DeadLetterFilter) -> Iterator[DeadLetterFilter]:
    """The filter within the pieces of hours before and after the whole ones."""
    first, last = _whole_hours(where)
    if where.since is not None and where.since < first * HOUR:
        yield replace(where, until=first * HOUR)
    if where.until is not None and where.until > last * HOUR:
        yield replace(where, since=last * HOUR)


def _from_dead_letters(where: DeadLetterFilter, keys: Sequence[str]) -> tuple[str, list[Any]]:
    condition, parameters = where.where()
    named = "".join(f"{HOUR_OF} AS hour, " if key == "hour" else f"{key}, " for key in keys)
    return f"SELECT {named}count(*) AS n FROM dead_letters WHERE {condition} GROUP BY ALL", parameters


def _from_counts(
    where: DeadLetterFilter, keys: Sequence[str], first: float, last: float
) -> tuple[str, list[Any]]:
    condition, parameters = replace(where, since=None, until=None).where()
    for test, hour in (("hour >= ?", first), ("hour < ?", last)):
        if math.isfinite(hour):
            condition, parameters = f"{condition} AND {test}", [*parameters, int(hour)]
    named = "".join(f"{key}, " for key in keys)
    sql = f"SELECT {named}sum(n)::BIGINT AS n FROM dead_letter_counts WHERE {condition} GROUP BY ALL"
    return sql if keys else f"SELECT coalesce(n, 0) AS n FROM ({sql})", parameters
