"""A reader: takes readings of a store, each part as often as it is worth its price."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core.alerts.alert_state import Silence
from producer_core.alerts.conditions import DAY, HOUR, Section
from producer_core.alerts.rule_set import RuleSet
from producer_core.alerts.snapshot import (
    DeadLetterCounts,
    LastSeen,
    SnapshotNeeds,
    StoreSnapshot,
    WindowSums,
    WriterState,
)
from producer_core.errors import StoreError

if TYPE_CHECKING:
    from producer_core.store import Store

Row = dict[str, Any]

_SHARE = 50.0
"""A question that took so long is not asked again for fifty times that long: at most 2 % of the time."""


class SnapshotReader:
    """Reads what rules need. Not thread-safe: its evaluator owns it.

    A part that cannot be read in time is `missing` from the reading; StoreError when nothing can be read at all.
    """

    def __init__(self, store: Store, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._heartbeats = Heartbeats(monotonic)
        self._answers: dict[tuple[str, float], _CachedResult] = {}

    def read(self, book: RuleSet, now: float) -> StoreSnapshot:
        needs = SnapshotNeeds.of(book.rules.values())
        with self._store.borrow():
            producers = self._store.rows("alerts_producers", since=now - 2 * DAY, closed_since=now - HOUR)
            silences = self._store.rows("silences", now=now)
            routes = self._store.rows("alert_routes")
        self._heartbeats.forget_all_but(row["producer_id"] for row in producers)
        missing: set[Section] = set()

        def answers(section: Section, *questions: _CachedQuery) -> list[list[Row]]:
            try:
                return self._ask(questions)
            except StoreError:
                missing.add(section)
                return [[] for _ in questions]

        def over(name: str, windows: Sequence[float]) -> list[_CachedQuery]:
            return [_CachedQuery(name, w, _every(w), {"since": now - w, "now": now}) for w in windows]

        sums = answers("sums", *over("alerts_sums", needs.windows))
        latencies = answers("latencies", *over("alerts_latencies", needs.latency_windows))
        waiting, *came = answers(
            "letters",
            *([_CachedQuery("alerts_letters", 0.0, 0.0, {})] if needs.dead_letters else []),
            *(_CachedQuery("alerts_letters_came", w, 0.0, {"since": now - w}) for w in needs.letter_windows),
        ) or [[]]
        return StoreSnapshot(
            now,
            sums=dict(zip(needs.windows, map(_sums, sums), strict=True)),
            latencies=dict(zip(needs.latency_windows, map(_histograms, latencies), strict=True)),
            producers=tuple(_seen(row, self._heartbeats.silent(row, now)) for row in producers),
            dead_letters=_dead_letters(waiting, dict(zip(needs.letter_windows, came, strict=True))),
            failing_routes={
                row["name"]: (row["failing_since"], row["answer"] or "it does not answer")
                for row in routes
                if row["failing_since"] is not None
            },
            silences=tuple(Silence(**row) for row in silences),
            problem=(book.path.name, book.problem) if book.path and book.problem else None,
            missing=frozenset(missing),
        )

    def _ask(self, questions: Sequence[_CachedQuery]) -> list[list[Row]]:
        """The answers, in one borrowing of the store; what was asked a moment ago is not asked again."""
        due = [question for question in questions if self._is_due(question)]
        with self._store.borrow() if due else contextlib.nullcontext():
            for question in due:
                self._answers[question.key] = self._answered(question)
        found = [self._answers[question.key].rows for question in questions]
        for rows in found:
            if isinstance(rows, StoreError):
                raise rows
        return [rows for rows in found if not isinstance(rows, StoreError)]

    def _is_due(self, question: _CachedQuery) -> bool:
        known = self._answers.get(question.key)
        return known is None or self._monotonic() - known.asked_at >= max(
            question.every, _SHARE * known.price
        )

    def _answered(self, question: _CachedQuery) -> _CachedResult:
        started = self._monotonic()
        rows: list[Row] | StoreError
        try:
            rows = self._store.rows(question.name, **question.parameters)
        except StoreError as error:  # not asked again at once: it held the store for all that time
            rows = error
        return _CachedResult(started, self._monotonic() - started, rows)


@dataclass(frozen=True, slots=True)
class _CachedQuery:
    """A named query over a window; its answer is good for `every` seconds."""

    name: str
    window: float
    every: float
    parameters: Mapping[str, float]

    @property
    def key(self) -> tuple[str, float]:
        return self.name, self.window


@dataclass(frozen=True, slots=True)
class _CachedResult:
    asked_at: float
    price: float
    rows: list[Row] | StoreError


class Heartbeats:
    """How long producers have been silent, by watching: a clock that is set makes nobody dead and nobody alive.

    Only of a producer that is seen for the first time the clock is believed.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, tuple[float, float]] = {}

    def silent(self, row: Row, now: float) -> float:
        producer, seen_at, moment = row["producer_id"], row["seen_at"], self._monotonic()
        known = self._seen.get(producer)
        if known is None or known[0] != seen_at:
            heard = moment - max(0.0, now - seen_at) if known is None else moment
            self._seen[producer] = (seen_at, heard)
        return moment - self._seen[producer][1]

    def forget_all_but(self, producers: Iterable[str]) -> None:
        kept = set(producers)
        self._seen = {producer: seen for producer, seen in self._seen.items() if producer in kept}


def _every(window: float) -> float:
    """A long window moves slowly: six hours are read once a minute, three days every five."""
    return 0.0 if window <= HOUR else min(window / 360, 300.0)


def _sums(rows: Iterable[Row]) -> dict[WriterState, WindowSums]:
    return {
        WriterState(row["topic"], row["producer_id"]): WindowSums(*(row[name] for name in WindowSums._fields))
        for row in rows
    }


def _histograms(rows: Iterable[Row]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for row in rows:
        found.setdefault(row["topic"], {})[row["bucket"]] = row["count"]
    return found


def _dead_letters(rows: Iterable[Row], came: Mapping[float, list[Row]]) -> dict[str, DeadLetterCounts]:
    by_topic: dict[str, dict[float, int]] = {}
    for seconds, counted in came.items():
        for row in counted:
            by_topic.setdefault(row["topic"], {})[seconds] = row["count"]
    return {
        row["topic"]: DeadLetterCounts(row["count"], row["oldest"], by_topic.get(row["topic"], {}))
        for row in rows
    }


def _seen(row: Row, silent: float) -> LastSeen:
    return LastSeen(
        producer_id=row["producer_id"],
        client=f"{row['client_id']} ({row['host']}, process {row['pid']})",
        seen_at=row["seen_at"],
        silent=silent,
        closed=row["closed_at"] is not None,
        started_at=row["started_at"],
        connected=row["connected"],
        pending=row["pending"],
        waiting_retry=row["waiting_retry"],
        queue_messages=row["queue_messages"],
        queue_limit=row["queue_limit"],
        memory_bytes=row["memory_bytes"],
        memory_limit=row["memory_limit"],
    )
