"""The reader of store snapshots. It repeats each query only as often as its cost allows."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core.alerts import decision_rows
from producer_core.alerts.alert_state import Silence
from producer_core.alerts.conditions import DAY, HOUR, Section
from producer_core.alerts.rule_set import RuleSet
from producer_core.alerts.snapshot import (
    DeadLetterCounts,
    ProducerState,
    SnapshotNeeds,
    StoreSnapshot,
    WaitingRequest,
    WindowSums,
    Writer,
)
from producer_core.errors import StoreError

if TYPE_CHECKING:
    from producer_core._internal.decision_objective import DecisionObjective
    from producer_core.store import Store

Row = dict[str, Any]

_COST_FACTOR = 50.0
"""A query is not repeated for fifty times its duration, so it uses at most 2% of the time."""


class SnapshotReader:
    """Reads the parts of a store that rules need. Not thread-safe: one evaluator owns it.

    A part that cannot be read in time is `missing` from the snapshot. Raises StoreError when nothing can be read.
    """

    def __init__(self, store: Store, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._heartbeats = Heartbeats(monotonic)
        self._results: dict[tuple[str, tuple[float, ...]], _CachedResult] = {}

    def read(self, rule_set: RuleSet, now: float) -> StoreSnapshot:
        needs = SnapshotNeeds.of(rule_set.rules.values())
        with self._store.borrow():
            producers = self._store.rows("alerts_producers", since=now - 2 * DAY, closed_since=now - HOUR)
            silences = self._store.rows("silences", now=now)
            failing_routes = self._store.rows("alerts_failing_routes")
            objectives = decision_rows.objectives(self._store) if needs.decisions else {}
            removed = self._removed(now)
            requests = self._store.rows("alerts_requests", now=now)
        self._heartbeats.forget_all_but(row["producer_id"] for row in producers)
        missing: set[Section] = set()

        def results(section: Section, *queries: _CachedQuery) -> list[list[Row]]:
            try:
                return self._run(queries)
            except StoreError:
                missing.add(section)
                return [[] for _ in queries]

        rows = results("sums", *_sums_queries(needs.windows, now))
        sums = _sums(needs.windows, itertools.chain.from_iterable(rows))
        # Without acknowledgements there is no latency, and without pending dead letters there are no new ones.
        acknowledging = [
            window
            for window in needs.latency_windows
            if window not in needs.windows
            or "sums" in missing
            or any(item.acknowledged for item in sums[window].values())
        ]
        latencies = results("latencies", *_latency_queries(acknowledging, now))
        pending = results("dead_letters", _pending_query(removed))[0] if needs.dead_letters else []
        growing = needs.dead_letter_windows if pending else ()
        new = results("dead_letters", *_new_dead_letter_queries(growing, now, removed))
        decided = results("decisions", _decision_query(objectives, now, removed))[0] if objectives else []
        causes = results("causes", _CAUSES)[0] if needs.causes else []
        return StoreSnapshot(
            now,
            sums=sums,
            latencies=dict(zip(acknowledging, map(_histograms, latencies), strict=True)),
            producers=tuple(_producer_state(row, self._heartbeats.silent(row, now)) for row in producers),
            dead_letters=_dead_letters(pending, dict(zip(growing, new, strict=True))),
            decisions=tuple(decision_rows.decisions(decided, objectives)),
            returned=tuple(decision_rows.returned(causes)),
            failing_routes={
                row["name"]: (row["failing_since"], row["answer"] or "the receiver is not responding")
                for row in failing_routes
            },
            silences=tuple(Silence(**row) for row in silences),
            requests=tuple(WaitingRequest(**row) for row in requests),
            problem=(rule_set.path.name, rule_set.problem) if rule_set.path and rule_set.problem else None,
            missing=frozenset(missing),
        )

    def _removed(self, now: float) -> tuple[str, ...]:
        from producer_core.store.removed_clusters import removed_clusters  # loads DuckDB

        return removed_clusters(self._store, now)

    def _run(self, queries: Sequence[_CachedQuery]) -> list[list[Row]]:
        """Return the results. Run the queries that are due while borrowing the store once; use cached results otherwise."""
        due = [query for query in queries if self._is_due(query)]
        with self._store.borrow() if due else contextlib.nullcontext():
            for query in due:
                self._results[query.key] = self._result(query)
        found = [self._results[query.key].rows for query in queries]
        for rows in found:
            if isinstance(rows, StoreError):
                raise rows
        return [rows for rows in found if not isinstance(rows, StoreError)]

    def _is_due(self, query: _CachedQuery) -> bool:
        known = self._results.get(query.key)
        return known is None or self._monotonic() - known.started_at >= max(
            query.every, _COST_FACTOR * known.duration
        )

    def _result(self, query: _CachedQuery) -> _CachedResult:
        started = self._monotonic()
        rows: list[Row] | StoreError
        try:
            rows = self._store.rows(query.name, **query.parameters)
        except (
            StoreError
        ) as error:  # cached too, because the failed query blocked the store for its whole duration
            rows = error
        return _CachedResult(started, self._monotonic() - started, rows)


@dataclass(frozen=True, slots=True)
class _CachedQuery:
    """A named query over windows. Its result is valid for `every` seconds."""

    name: str
    windows: tuple[float, ...]
    every: float
    parameters: Mapping[str, object]

    @property
    def key(self) -> tuple[str, tuple[float, ...]]:
        return self.name, self.windows


_CAUSES = _CachedQuery("cause_resolutions", (), 5.0, {})


@dataclass(frozen=True, slots=True)
class _CachedResult:
    started_at: float
    duration: float
    rows: list[Row] | StoreError


class Heartbeats:
    """Measures how long each producer has been silent, with the monotonic clock.

    A change of the system time therefore makes no producer appear gone or alive. Only for a producer that is read for
    the first time does the system time count.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, tuple[float, float]] = {}

    def silent(self, row: Row, now: float) -> float:
        producer, seen_at, moment = row["producer_id"], row["seen_at"], self._monotonic()
        known = self._seen.get(producer)
        if known is None or known[0] != seen_at:
            last_heartbeat = moment - max(0.0, now - seen_at) if known is None else moment
            self._seen[producer] = (seen_at, last_heartbeat)
        return moment - self._seen[producer][1]

    def forget_all_but(self, producers: Iterable[str]) -> None:
        kept = set(producers)
        self._seen = {producer: seen for producer, seen in self._seen.items() if producer in kept}


def _interval(window: float) -> float:
    """Return the seconds between two reads of a window: a minute for six hours, five minutes for three days."""
    return 0.0 if window <= HOUR else min(window / 360, 300.0)


def _sums_queries(windows: Iterable[float], now: float) -> list[_CachedQuery]:
    """Return one query for all windows that are read equally often: planning a query costs more than its rows."""
    by_interval: dict[float, list[float]] = {}
    for window in windows:
        by_interval.setdefault(_interval(window), []).append(window)
    return [
        _CachedQuery(
            "alerts_sums", tuple(group), every, {"windows": group, "since": now - max(group), "now": now}
        )
        for every, group in by_interval.items()
    ]


def _latency_queries(windows: Iterable[float], now: float) -> list[_CachedQuery]:
    return [
        _CachedQuery("alerts_latencies", (window,), _interval(window), {"since": now - window, "now": now})
        for window in windows
    ]


def _pending_query(removed: Sequence[str]) -> _CachedQuery:
    return _CachedQuery("alerts_letters", (), 0.0, {"removed": removed})


def _new_dead_letter_queries(
    windows: Iterable[float], now: float, removed: Sequence[str]
) -> list[_CachedQuery]:
    return [
        _CachedQuery("alerts_letters_came", (window,), 0.0, {"since": now - window, "removed": removed})
        for window in windows
    ]


def _decision_query(
    objectives: Mapping[str, DecisionObjective], now: float, removed: Sequence[str]
) -> _CachedQuery:
    return _CachedQuery("decision_report", (), 5.0, decision_rows.parameters(objectives, now, removed))


def _sums(windows: Iterable[float], rows: Iterable[Row]) -> dict[float, dict[Writer, WindowSums]]:
    found: dict[float, dict[Writer, WindowSums]] = {window: {} for window in windows}
    for row in rows:
        sums = WindowSums(*(row[name] for name in WindowSums._fields))
        found[row["seconds"]][Writer(row["topic"], row["producer_id"])] = sums
    return found


def _histograms(rows: Iterable[Row]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for row in rows:
        found.setdefault(row["topic"], {})[row["bucket"]] = row["count"]
    return found


def _dead_letters(rows: Iterable[Row], new: Mapping[float, list[Row]]) -> dict[str, DeadLetterCounts]:
    by_topic: dict[str, dict[float, int]] = {}
    for window, counted in new.items():
        for row in counted:
            by_topic.setdefault(row["topic"], {})[window] = row["count"]
    return {
        row["topic"]: DeadLetterCounts(row["count"], row["oldest"], by_topic.get(row["topic"], {}))
        for row in rows
    }


def _producer_state(row: Row, silent: float) -> ProducerState:
    return ProducerState(
        producer_id=row["producer_id"],
        client=f"{row['client_id']} ({row['host']}, process {row['pid']})",
        seen_at=row["seen_at"],
        silent=silent,
        closed=row["closed_at"] is not None,
        succeeded=row["succeeded"],
        started_at=row["started_at"],
        connected=row["connected"],
        pending=row["pending"],
        waiting_retry=row["waiting_retry"],
        queue_messages=row["queue_messages"],
        queue_limit=row["queue_limit"],
        memory_bytes=row["memory_bytes"],
        memory_limit=row["memory_limit"],
    )
