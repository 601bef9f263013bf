"""Group dead letters by cause: dead letters whose errors have the same fingerprint form one group."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from producer_core._internal.masking import mask_or_hide
from producer_core.dlq.count import HOUR, HOUR_OF, count_query, has_counts
from producer_core.dlq.filter import DeadLetterFilter
from producer_core.errors import ConfigError
from producer_core.events import SAFE_VERDICTS
from producer_core.kafka.classify import advice_for, lookup

if TYPE_CHECKING:
    import duckdb

_MAX_BARS = 48

_WIDTHS = (1, 2, 3, 6, 12, 24, 48, 168, 336, 720, 2160, 8760)
_FINE_WIDTHS = (1.0, 5.0, 15.0, 60.0, 300.0, 600.0)
_MAX_MARGIN = _MAX_BARS * _WIDTHS[-1]
"""The maximum number of hours of a trend before the first and after the last dead letter, even if the filter's range is
longer."""
_FINE_HOURS = 6
"""Shorter trends are computed from the dead letters instead of the hourly counts, in bars of seconds or minutes."""

_FINE_COUNT = 2_000_000
"""The maximum number of dead letters for such a trend."""


@dataclass(frozen=True)
class GroupTrend:
    """Dead letters over time: one count per `width` seconds from `start`. All groups of one result have the same bars."""

    start: float = 0.0
    width: float = HOUR
    counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Group:
    """Dead letters with one cause. `meaning` and `advice` explain the error code; empty for an unknown code."""

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
            f"Dead letters by cause: {sum(one.count for one in self):,}"
            if self
            else "No pending dead letters."
        )
        columns = ("dead letters", "code", "topics", "error", "meaning and advice", "replay")
        return html.page(title, columns=columns, rows=rows)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the groups as text for a terminal."""
        printer.text("\n".join(map(_as_text, self)) or "No pending dead letters.")


def _as_text(group: Group) -> str:
    text = f"{group.count:,} x {group.code} on {', '.join(group.topics)}, replay: {_safety(group)}"
    return mask_or_hide(f"{text}\n  {group.meaning} {group.advice}".rstrip())


def _safety(group: Group) -> str:
    doubtful = sum(count for verdict, count in group.verdicts.items() if verdict not in SAFE_VERDICTS)
    return f"{doubtful:,} may be duplicated" if doubtful else "safe"


def find(connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, *, limit: int) -> tuple[Group, ...]:
    """Return the largest groups of the matching dead letters, the largest first, the latest first among equal ones."""
    with (
        _two_threads(connection)
        if where.producer_id or where.application is not None or where.text
        else contextlib.nullcontext()
    ):
        rows = _count_groups(connection, where, limit)
        if not rows:
            return ()
        details = _details(connection, where, rows)
        bars = _bars(connection, where, rows)
    groups = [_group(row, details[row["fingerprint"]], bars[row["fingerprint"]]) for row in rows]
    return tuple(sorted(groups, key=lambda group: (-group.count, -group.last_seen, group.fingerprint)))


@contextlib.contextmanager
def _two_threads(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Let DuckDB scan with two threads. An idle instance has one, because a fork would lose the others."""
    connection.execute(f"SET threads = {min(2, os.cpu_count() or 1)}")
    try:
        yield
    finally:
        connection.execute("SET threads = 1")


# One query for the largest groups with their topics, verdicts and hourly counts.
_GROUPS = """
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

_DETAILS = """
SELECT fingerprint, min(failed_at) AS first_seen, max(failed_at) AS last_seen, arg_max(rowid, failed_at) AS latest
FROM dead_letters WHERE {where} AND fingerprint IN ({marks}) GROUP BY fingerprint"""

_SAMPLES = "SELECT fingerprint, code, error_text AS sample_text FROM dead_letters WHERE rowid IN ({marks})"


def _count_groups(
    connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, limit: int
) -> list[dict[str, Any]]:
    kinds, hours = ("fingerprint", "topic", "verdict"), ("fingerprint", "hour")
    if has_counts(where):
        (by_kind, kind_values), (by_hour, hour_values) = count_query(where, kinds), count_query(where, hours)
        return _rows(
            connection,
            _GROUPS.format(scanned="", kinds=by_kind, hours=by_hour, ends=""),
            [*kind_values, *hour_values, limit],
        )
    # This filter needs a scan of the dead letters, so one scan reads everything.
    condition, parameters = where.where()
    from_scan = "SELECT * FROM scanned"
    scanned = _SCANNED.format(where=condition)
    sql = _GROUPS.format(scanned=scanned, kinds=from_scan, hours=from_scan, ends=_SCANNED_ENDS)
    return _rows(connection, sql, [*parameters, limit])


def _details(
    connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, rows: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the first and latest dead letter of each group, read only in the hours that the counts give."""
    details = {row["fingerprint"]: dict(row) if "latest" in row else {} for row in rows}
    for hour in {
        hour for row in rows for hour in (row["first_hour"], row["last_hour"]) if "latest" not in row
    }:
        fingerprints = [row["fingerprint"] for row in rows if hour in (row["first_hour"], row["last_hour"])]
        _read_details(connection, _within(where, hour * HOUR, (hour + 1) * HOUR), fingerprints, details)
    # Rounding can count a dead letter at the edge of an hour in the next one.
    if missed := [fingerprint for fingerprint, found in details.items() if not found]:
        _read_details(connection, where, missed, details)
    latest = [found["latest"] for found in details.values()]
    for sample in _rows(connection, _SAMPLES.format(marks=", ".join("?" * len(latest))), latest):
        details[sample["fingerprint"]] |= sample
    return details


def _read_details(
    connection: duckdb.DuckDBPyConnection,
    where: DeadLetterFilter,
    fingerprints: Sequence[str],
    details: dict[str, dict[str, Any]],
) -> None:
    condition, parameters = where.where()
    sql = _DETAILS.format(where=condition, marks=", ".join("?" * len(fingerprints)))
    for found in _rows(connection, sql, [*parameters, *fingerprints]):
        details[found["fingerprint"]] = _merged(details[found["fingerprint"]], found)


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    if not one:
        return other
    latest = max(one, other, key=lambda found: found["last_seen"])
    return {**latest, "first_seen": min(one["first_seen"], other["first_seen"])}


def _bars(
    connection: duckdb.DuckDBPyConnection, where: DeadLetterFilter, rows: Sequence[Mapping[str, Any]]
) -> dict[str, GroupTrend]:
    first, last = min(row["first_hour"] for row in rows), max(row["last_hour"] for row in rows)
    if where.since is not None:
        first = max(where.since // HOUR, first - _MAX_MARGIN)
    if where.until is not None:
        last = min((where.until - 1e-6) // HOUR, last + _MAX_MARGIN)
    if last - first < _FINE_HOURS and sum(row["count"] for row in rows) <= _FINE_COUNT:
        return _fine_bars(connection, where, rows, first * HOUR, (last + 1) * HOUR)
    width = next((width for width in _WIDTHS if last // width - first // width < _MAX_BARS), _WIDTHS[-1])
    counts = {row["fingerprint"]: row["hours"] for row in rows}
    return _trends(counts, float(first), float(last), float(width), scale=HOUR)


def _fine_bars(
    connection: duckdb.DuckDBPyConnection,
    where: DeadLetterFilter,
    rows: Sequence[Mapping[str, Any]],
    since: float,
    until: float,
) -> dict[str, GroupTrend]:
    """Return bars of seconds or minutes from the first to the latest dead letter, not over whole hours."""
    condition, parameters = where.where()
    fingerprints = [row["fingerprint"] for row in rows]
    marks = ", ".join("?" * len(fingerprints))
    selected = f"FROM dead_letters WHERE {condition} AND fingerprint IN ({marks})"
    ends = _rows(
        connection,
        f"SELECT min(failed_at) AS first, max(failed_at) AS last {selected}",
        [*parameters, *fingerprints],
    )[0]
    first = since if ends["first"] is None or where.since is not None else ends["first"]
    last = until - 1e-6 if ends["last"] is None or where.until is not None else ends["last"]
    first, last = where.since or first, min(last, (where.until or until) - 1e-6)
    width = next(
        (width for width in _FINE_WIDTHS if last // width - first // width < _MAX_BARS), _FINE_WIDTHS[-1]
    )
    counts: dict[str, list[tuple[float, int]]] = {fingerprint: [] for fingerprint in fingerprints}
    sql = f"SELECT fingerprint, floor(failed_at / {width}) AS bar, count(*) AS n {selected} GROUP BY ALL"
    for row in _rows(connection, sql, [*parameters, *fingerprints]):
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
    for fingerprint, pairs in counts.items():
        bars = [0] * number
        for moment, n in pairs:
            bars[min(max(int(moment // width - start), 0), number - 1)] += n
        trends[fingerprint] = GroupTrend(start * width * scale, width * scale, tuple(bars))
    return trends


def _within(where: DeadLetterFilter, since: float, until: float) -> DeadLetterFilter:
    return replace(
        where,
        since=since if where.since is None else max(where.since, since),
        until=until if where.until is None else min(where.until, until),
    )


def _group(row: Mapping[str, Any], details: Mapping[str, Any], trend: GroupTrend) -> Group:
    verdicts = dict(row["verdicts"])
    meaning, advice = explain_code(details["code"], verdicts)
    return Group(
        fingerprint=row["fingerprint"],
        code=details["code"],
        count=row["count"],
        first_seen=details["first_seen"],
        last_seen=details["last_seen"],
        topics=tuple(row["topics"]),
        sample_text=details["sample_text"],
        meaning=meaning,
        advice=advice,
        verdicts=verdicts,
        trend=trend,
    )


def explain_code(code: str, verdicts: Collection[str]) -> tuple[str, str]:
    """Return the meaning of an error code and the advice for these verdicts, or two empty texts for an unknown code."""
    try:
        failure = lookup(code)
    except ConfigError:
        return "", ""
    return failure.meaning, advice_for(failure, verdicts)


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
    found = connection.execute(sql, parameters)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
