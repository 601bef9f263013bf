"""Build the issues of the errors page: the failures of one code on one topic, with their trend and their state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal

from producer_core.dashboard.queries.deaths import FailureCounts, pending_rows
from producer_core.dashboard.queries.view import View
from producer_core.kafka.classify import Failure, failure_of
from producer_core.store import Store
from producer_core.store.resolved_causes import CauseStatus, cause_statuses

Rows = Sequence[Mapping[str, Any]]
Key = tuple[str, str]
"""Topic and code."""

State = Literal["failing", "pending", "replaying", "handled", "retried", "elsewhere"]

BARS = 30
"""The approximate number of bars in a trend."""
_MINUTE = 60.0


@dataclass(frozen=True)
class Trend:
    """Counts failed attempts, or dead letters where the producer reported no attempt, over the range, oldest first."""

    counts: tuple[int, ...] = ()
    width: int = 1
    of_attempts: bool = True


@dataclass(frozen=True)
class Issue:
    """Counts the failures of one code on one topic in the range.

    `waiting` counts its pending dead letters of any age, `handled` the failed messages of the range that were replayed
    or archived since. `first_seen` goes back as far as the store does. `new` marks an issue first seen in the range.
    `state` is `failing` after a failure within the last minute; else `pending` while it has pending dead
    letters, `replaying`, `handled` once all were replayed or archived, `retried` if no message became a dead letter, or
    `elsewhere` where messages of the topic failed whose dead letters are in other stores. `status` is that of its cause, if
    it was ever marked as resolved: of a group that is back, or else of the largest group.
    """

    topic: str
    failure: Failure
    fingerprint: str
    attempts: int
    attempts_before: int
    dead: int
    dead_before: int
    waiting: int
    handled: int
    trend: Trend
    first_seen: float | None
    last_seen: float | None
    new: bool
    state: State
    status: CauseStatus | None = None

    @property
    def code(self) -> str:
        return self.failure.code


@dataclass(frozen=True)
class IssueRows:
    """Holds the rows from which issues are built, read from one view of the store."""

    waiting: Mapping[Key, int]
    first_seen: Mapping[Key, float]
    attempts: Mapping[Key, Mapping[int, int]]
    dead_letters: Mapping[Key, Mapping[int, int]]
    width: int
    statuses: Mapping[str, CauseStatus] = field(default_factory=dict)


def issue_rows(store: Store, view: View, since: int, until: int | None) -> IssueRows:
    width = max(view.step, view.seconds // BARS // view.step * view.step)
    span = {"since": since, "until": until, "bucket": width, **view.where}
    filters = {name: view.where[name] for name in ("topic", "application", "cluster")}
    return IssueRows(
        waiting=_counted(pending_rows(store, view)),
        first_seen={_key(row): row["first_seen"] for row in store.rows("issues_first_seen", **filters)},
        attempts=_series(store.rows("issues_series", **span)),
        dead_letters=_series(store.rows("deaths_series", **span)),
        width=width,
        statuses=cause_statuses(store),
    )


def issues(
    rows: IssueRows,
    failures: Rows,
    failed: FailureCounts,
    failed_before: FailureCounts,
    view: View,
    now: float,
    *,
    detects_new: bool,
) -> tuple[Issue, ...]:
    """Return the issues of the range by failed messages, then by failed attempts.

    `failures` are the failed attempts of the range and of the period before it.
    """
    attempts, earlier, seen = Counter[Key](), Counter[Key](), dict[Key, float]()
    for row in failures:
        (attempts if row["inside"] else earlier)[_key(row)] += row["count"]
        if row["inside"]:
            seen[_key(row)] = max(seen.get(_key(row), 0.0), min(row["last_seen"], view.at(now)))
    dead = {_key(row): row for row in failed.rows}
    before = {_key(row): row["count"] for row in failed_before.rows}
    found = []
    for key in {*attempts, *dead}:
        deaths: Mapping[str, Any] = dead.get(key, {})
        failed_count, waiting = deaths.get("count", 0), rows.waiting.get(key, 0)
        handled = deaths.get("cured", 0) + deaths.get("aside", 0)
        last, first = max(seen.get(key, 0.0), deaths.get("last", 0.0)) or None, rows.first_seen.get(key)
        found.append(
            Issue(
                topic=key[0],
                failure=failure_of(key[1]),
                fingerprint=deaths.get("fingerprint", ""),
                attempts=attempts[key],
                attempts_before=earlier[key],
                dead=failed_count,
                dead_before=before.get(key, 0),
                waiting=waiting,
                handled=handled,
                trend=_trend(rows, key, view, now),
                first_seen=first,
                last_seen=last,
                new=detects_new and first is not None and first >= view.since(now),
                state=_state(
                    last,
                    failed_count,
                    waiting,
                    handled,
                    view,
                    now,
                    elsewhere=key[0] in failed.without_dead_letters,
                ),
                status=_status(rows.statuses, key, deaths.get("fingerprint", "")),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.dead, -one.attempts, one.code, one.topic)))


def _state(
    last: float | None, dead: int, waiting: int, handled: int, view: View, now: float, *, elsewhere: bool
) -> State:
    if last is not None and not view.over(now) and now - last <= _MINUTE:
        return "failing"
    if waiting:
        return "pending"
    if not dead:
        return "elsewhere" if elsewhere else "retried"
    return "handled" if handled >= dead else "replaying"


def _status(statuses: Mapping[str, CauseStatus], key: Key, fingerprint: str) -> CauseStatus | None:
    topic, code = key
    back = (one for one in statuses.values() if one.is_back and one.code == code and topic in one.topics)
    return next(back, statuses.get(fingerprint))


def _trend(rows: IssueRows, key: Key, view: View, now: float) -> Trend:
    counts = rows.attempts.get(key) or rows.dead_letters.get(key, {})
    begin = view.since(now) // rows.width * rows.width
    places = range(begin, max(begin + 1, ceil(view.at(now))), rows.width)
    return Trend(tuple(counts.get(at, 0) for at in places), rows.width, key in rows.attempts)


def _counted(rows: Rows) -> Mapping[Key, int]:
    counts: Counter[Key] = Counter()
    for row in rows:
        counts[_key(row)] += row["count"]
    return counts


def _series(rows: Iterable[Mapping[str, Any]]) -> Mapping[Key, Mapping[int, int]]:
    series: dict[Key, dict[int, int]] = defaultdict(dict)
    for row in rows:
        series[_key(row)][row["window_start"]] = row["count"]
    return dict(series)


def _key(row: Mapping[str, Any]) -> Key:
    return row["topic"], row["code"]
