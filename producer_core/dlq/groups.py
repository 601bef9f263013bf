"""A group: dead letters with one cause, known by the fingerprint of their error."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from producer_core._internal.masking import mask_or_hide
from producer_core.dlq.count import HOUR, HOUR_OF, answered, counted
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.errors import ConfigError
from producer_core.events import SAFE_VERDICTS
from producer_core.kafka.classify import lookup

if TYPE_CHECKING:
    import duckdb

_BARS = 48
"""A trend has at most so many bars."""

_WIDTHS = (1, 2, 3, 6, 12, 24, 48, 168, 336, 720, 2160, 8760)
_FINE_WIDTHS = (1.0, 5.0, 15.0, 60.0, 300.0, 600.0)
_LONGEST = _BARS * _WIDTHS[-1]
"""Hours that a trend begins before the first dead letter at most, and ends after the last, whatever the filter's range."""
_SHORT = 6
"""Hours up to which a trend is drawn from the dead letters themselves, so that a run of minutes has a shape …"""

_FEW = 2_000_000
"""… where there are no more than so many."""


@dataclass(frozen=True)
class GroupTrend:
    """Deaths in time: one count for each `width` seconds from `start`. The same bars for all groups of a look."""

    start: float = 0.0
    width: float = HOUR
    counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Group:
    """`meaning` and `advice` are from the failures table; empty for a code it does not know."""

    fingerprint: str
    code: str
    count: int
    first_seen: float
    last_seen: float
    topics: tuple[str, ...]
    sample_text: str
    meaning: str
    advice: str
    verdicts: Mapping[str, int]
    trend: GroupTrend = GroupTrend()


class Groups(list[Group]):
    """A list of groups that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        rows = [
            (
                one.count,
                one.code,
                ", ".join(one.topics),
                one.sample_text,
                f"{one.meaning} {one.advice}",
                _safety(one),
            )
            for one in self
        ]
        title = (
            f"{sum(one.count for one in self):,} dead letters by cause" if self else "No dead letters wait."
        )
        columns = ("letters", "code", "topics", "error", "what it means, what to do", "sent again")
        return html.page(title, columns=columns, rows=rows)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Text for a terminal."""
        printer.text("\n".join(map(_said, self)) or "No dead letters wait.")


def _said(group: Group) -> str:
    text = f"{group.count:,} x {group.code} on {', '.join(group.topics)}, sent again: {_safety(group)}"
    return mask_or_hide(f"{text}\n  {group.meaning} {group.advice}".rstrip())


def _safety(group: Group) -> str:
    doubtful = sum(count for verdict, count in group.verdicts.items() if verdict not in SAFE_VERDICTS)
    return f"{doubtful:,} may arrive twice" if doubtful else "safe"


def find(connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, *, limit: int) -> tuple[Group, ...]:
    """The largest groups of what the filter matches, the largest first, the latest among equals."""
    with _on_two_cores(connection) if where.producer_id or where.text else contextlib.nullcontext():
        rows = _summed(connection, where, limit)
        if not rows:
            return ()
        seen = _seen(connection, where, rows)
        bars = _bars(connection, where, rows)
    groups = [_group(row, seen[row["fingerprint"]], bars[row["fingerprint"]]) for row in rows]
    return tuple(sorted(groups, key=lambda group: (-group.count, -group.last_seen, group.fingerprint)))


@contextlib.contextmanager
def _on_two_cores(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """For a look at all letters. Back to one thread at its end: an instance at rest has none that a fork would lose."""
    connection.execute(f"SET threads = {min(2, os.cpu_count() or 1)}")
    try:
        yield
    finally:
        connection.execute("SET threads = 1")


# In one look: the largest groups, and of each its topics and verdicts, and its dead letters by hour.
_SUMMED = """
WITH {scanned} kinds AS MATERIALIZED (
    SELECT fingerprint, topic, verdict, sum(n)::BIGINT AS n FROM ({kinds}) GROUP BY ALL HAVING sum(n) > 0
), hours AS MATERIALIZED (
    SELECT fingerprint, hour, sum(n)::BIGINT AS n FROM ({hours}) GROUP BY ALL HAVING sum(n) > 0
), largest AS MATERIALIZED (
    SELECT fingerprint, sum(n)::BIGINT AS count, min(hour) AS first_hour, max(hour) AS last_hour
    FROM hours GROUP BY fingerprint ORDER BY count DESC, last_hour DESC, fingerprint LIMIT ?
)
SELECT * FROM largest
JOIN (SELECT fingerprint, list_sort(list(DISTINCT topic)) AS topics FROM kinds GROUP BY ALL) USING (fingerprint)
JOIN (SELECT fingerprint, list((verdict, n) ORDER BY verdict) AS verdicts
      FROM (SELECT fingerprint, verdict, sum(n)::BIGINT AS n FROM kinds GROUP BY ALL) GROUP BY ALL) USING (fingerprint)
JOIN (SELECT fingerprint, list((hour, n)) AS hours FROM hours GROUP BY ALL) USING (fingerprint)
{ends}
ORDER BY count DESC, last_hour DESC, fingerprint"""

_SCANNED = f"""scanned AS MATERIALIZED (
    SELECT fingerprint, topic, verdict, {HOUR_OF} AS hour, count(*) AS n, min(failed_at) AS first_seen,
           max(failed_at) AS last_seen, arg_max(rowid, failed_at) AS latest
    FROM dead_letters WHERE {{where}} GROUP BY ALL
), """

_SCANNED_ENDS = """
JOIN (SELECT fingerprint, min(first_seen) AS first_seen, arg_max(latest, last_seen) AS latest,
             max(last_seen) AS last_seen FROM scanned GROUP BY ALL) USING (fingerprint)"""

_SEEN = """
SELECT fingerprint, min(failed_at) AS first_seen, max(failed_at) AS last_seen, arg_max(rowid, failed_at) AS latest
FROM dead_letters WHERE {where} AND fingerprint IN ({marks}) GROUP BY fingerprint"""

_SAMPLES = "SELECT fingerprint, code, error_text AS sample_text FROM dead_letters WHERE rowid IN ({marks})"


def _summed(
    connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, limit: int
) -> list[dict[str, Any]]:
    kinds, hours = ("fingerprint", "topic", "verdict"), ("fingerprint", "hour")
    if answered(where):
        (by_kind, given), (by_hour, also) = counted(where, kinds), counted(where, hours)
        return _rows(
            connection,
            _SUMMED.format(scanned="", kinds=by_kind, hours=by_hour, ends=""),
            [*given, *also, limit],
        )
    condition, given = (
        where.where()
    )  # these dead letters are chosen by a look at each: one look for everything
    once = "SELECT * FROM scanned"
    scanned = _SCANNED.format(where=condition)
    sql = _SUMMED.format(scanned=scanned, kinds=once, hours=once, ends=_SCANNED_ENDS)
    return _rows(connection, sql, [*given, limit])


def _seen(
    connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, rows: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The first and the last dead letter of each group, looked for only in the hours that the counts name."""
    seen = {row["fingerprint"]: dict(row) if "latest" in row else {} for row in rows}
    for hour in {
        hour for row in rows for hour in (row["first_hour"], row["last_hour"]) if "latest" not in row
    }:
        marks = [row["fingerprint"] for row in rows if hour in (row["first_hour"], row["last_hour"])]
        _look(connection, _within(where, hour * HOUR, (hour + 1) * HOUR), marks, seen)
    if missed := [mark for mark, found in seen.items() if not found]:
        _look(
            connection, where, missed, seen
        )  # a dead letter at the very edge of an hour, which rounding put beyond it
    latest = [found["latest"] for found in seen.values()]
    for sample in _rows(connection, _SAMPLES.format(marks=", ".join("?" * len(latest))), latest):
        seen[sample["fingerprint"]] |= sample
    return seen


def _look(
    connection: duckdb.DuckDBPyConnection,
    where: DeadLetterFilter,
    marks: Sequence[str],
    seen: dict[str, dict[str, Any]],
) -> None:
    condition, parameters = where.where()
    sql = _SEEN.format(where=condition, marks=", ".join("?" * len(marks)))
    for found in _rows(connection, sql, [*parameters, *marks]):
        seen[found["fingerprint"]] = _latest(seen[found["fingerprint"]], found)


def _latest(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    if not one:
        return other
    latest = max(one, other, key=lambda found: found["last_seen"])
    return {**latest, "first_seen": min(one["first_seen"], other["first_seen"])}


def _bars(
    connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, rows: Sequence[Mapping[str, Any]]
) -> dict[str, GroupTrend]:
    first, last = min(row["first_hour"] for row in rows), max(row["last_hour"] for row in rows)
    if where.since is not None:
        first = max(where.since // HOUR, first - _LONGEST)
    if where.until is not None:
        last = min((where.until - 1e-6) // HOUR, last + _LONGEST)
    if last - first < _SHORT and sum(row["count"] for row in rows) <= _FEW:
        return _fine_bars(connection, where, rows, first * HOUR, (last + 1) * HOUR)
    width = next((width for width in _WIDTHS if last // width - first // width < _BARS), _WIDTHS[-1])
    counts = {row["fingerprint"]: row["hours"] for row in rows}
    return _trends(counts, float(first), float(last), float(width), scale=HOUR)


def _fine_bars(
    connection: duckdb.DuckDBPyConnection,
    where: DeadLetterFilter,
    rows: Sequence[Mapping[str, Any]],
    since: float,
    until: float,
) -> dict[str, GroupTrend]:
    """Bars of seconds or minutes, over what is there and not over the whole hours around it."""
    condition, parameters = where.where()
    marks = [row["fingerprint"] for row in rows]
    chosen = f"FROM dead_letters WHERE {condition} AND fingerprint IN ({', '.join('?' * len(marks))})"
    ends = _rows(
        connection, f"SELECT min(failed_at) AS a, max(failed_at) AS b {chosen}", [*parameters, *marks]
    )[0]
    first = since if ends["a"] is None or where.since is not None else ends["a"]
    last = until - 1e-6 if ends["b"] is None or where.until is not None else ends["b"]
    first, last = where.since or first, min(last, (where.until or until) - 1e-6)
    width = next(
        (width for width in _FINE_WIDTHS if last // width - first // width < _BARS), _FINE_WIDTHS[-1]
    )
    counts: dict[str, list[tuple[float, int]]] = {mark: [] for mark in marks}
    sql = f"SELECT fingerprint, floor(failed_at / {width}) AS bar, count(*) AS n {chosen} GROUP BY ALL"
    for row in _rows(connection, sql, [*parameters, *marks]):
        counts[row["fingerprint"]].append((row["bar"] * width, row["n"]))
    return _trends(counts, first, last, width, scale=1.0)


def _trends(
    counts: Mapping[str, Sequence[tuple[float, int]]],
    first: float,
    last: float,
    width: float,
    *,
    scale: float,
) -> dict[str, GroupTrend]:
    start, number = first // width, int(last // width - first // width) + 1
    trends = {}
    for mark, pairs in counts.items():
        bars = [0] * number
        for moment, n in pairs:
            bars[min(max(int(moment // width - start), 0), number - 1)] += n
        trends[mark] = GroupTrend(start * width * scale, width * scale, tuple(bars))
    return trends


def _within(where: DeadLetterFilter, since: float, until: float) -> DeadLetterFilter:
    return replace(
        where,
        since=since if where.since is None else max(where.since, since),
        until=until if where.until is None else min(where.until, until),
    )


def _group(row: Mapping[str, Any], seen: Mapping[str, Any], trend: GroupTrend) -> Group:
    """A group from what was counted and seen of it, with what the failures table says of its code."""
    meaning, advice = explained(seen["code"])
    return Group(
        fingerprint=row["fingerprint"],
        code=seen["code"],
        count=row["count"],
        first_seen=seen["first_seen"],
        last_seen=seen["last_seen"],
        topics=tuple(row["topics"]),
        sample_text=seen["sample_text"],
        meaning=meaning,
        advice=advice,
        verdicts=dict(row["verdicts"]),
        trend=trend,
    )


def explained(code: str) -> tuple[str, str]:
    """What an error code means, and what to do about it."""
    try:
        failure = lookup(code)
    except ConfigError:
        return "", ""
    return failure.meaning, failure.advice


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
    found = connection.execute(sql, parameters)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
