"""Build the query that counts a filter's dead letters, from the hourly counts where possible."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

from producer_core.dlq.filter import DeadLetterFilter

HOUR = 3600.0

Column = Literal[
    "topic", "code", "verdict", "state", "kind", "fingerprint", "cluster_id", "producer_id", "application"
]
COLUMNS = (
    "topic",
    "code",
    "verdict",
    "state",
    "kind",
    "fingerprint",
    "cluster_id",
    "producer_id",
    "application",
)

_COUNTED_COLUMNS = frozenset(COLUMNS) - {"producer_id", "application"}
_COUNTED_FIELDS = frozenset(
    {"topic", "group", "code", "verdict", "state", "cluster_id", "cluster_or_unknown", "since", "until"}
)
HOUR_OF = f"floor(failed_at / {HOUR:.0f})::BIGINT"


def count_query(where: DeadLetterFilter, keys: Sequence[str]) -> tuple[str, list[Any]]:
    """Return a query for the number `n` of dead letters per value of these columns, with its parameters.

    `hour` is also a valid column. The same key may occur in several rows. Whole hours are read from
    `dead_letter_counts`, which triggers keep up to date. Partial hours, and filters on single dead letters, are read
    from `dead_letters`.
    """
    if not has_counts(where) or not {*keys} <= _COUNTED_COLUMNS | {"hour"}:
        return _from_dead_letters(where, keys)
    first, last = _whole_hours(where)
    queries = [
        _from_counts(where, keys, first, last),
        *(_from_dead_letters(end, keys) for end in _partial_hours(where)),
    ]
    parameters = [value for _, values in queries for value in values]
    return " UNION ALL ".join(sql for sql, _ in queries), parameters


def has_counts(where: DeadLetterFilter) -> bool:
    """Return whether the hourly counts cover the filter: only counted columns, and at least one whole hour."""
    restricted = {field.name for field in fields(where) if getattr(where, field.name) not in (None, ())}
    first, last = _whole_hours(where)
    return restricted <= _COUNTED_FIELDS and first < last


def _whole_hours(where: DeadLetterFilter) -> tuple[float, float]:
    """Return the first whole hour of the filter's range and the hour after the last one."""
    first = -math.inf if where.since is None else math.ceil(where.since / HOUR)
    last = math.inf if where.until is None else math.floor(where.until / HOUR)
    return first, last


def _partial_hours(where: DeadLetterFilter) -> Iterator[DeadLetterFilter]:
    """Yield the filter for the partial hours before and after the whole ones."""
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
