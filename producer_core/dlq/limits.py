"""Check the number, bytes and age of pending dead letters against limits, and report changes as notices.

With a store, a limit is only a threshold: no dead letter is dropped or rejected. A notice, and its alert, reports when
a limit is exceeded and when it is met again. Without a store, dead letters above the limit go to the spill file beside
the default store; the next producer with that store imports them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from producer_core.alerts.health import DEFAULT_THRESHOLDS
from producer_core.events import Notice
from producer_core.store.removed_clusters import removed_clusters

if TYPE_CHECKING:
    from producer_core.store import Store

OVER, WITHIN = "dlq_over_bound", "dlq_within_bound"
"""The kinds of the notices for a limit that is exceeded, and met again."""

EXPLANATION = (
    "The limits of pending dead letters are those of the store: dlq_max_size, dlq_max_bytes and dlq_max_age. When a limit is "
    "exceeded, an alert fires; nothing is dropped. Before that, each application warns above its dlq_size_threshold, by "
    f"default {DEFAULT_THRESHOLDS['dlq_size_threshold']:.0f} dead letters."
)
"""The explanation of the limits wherever a person sees one."""

LimitKind = Literal["number", "bytes", "age"]

_SUBJECTS: Mapping[LimitKind, str] = {
    "number": "number of dead letters",
    "bytes": "total size of dead letters",
    "age": "age of dead letters",
}
_ADVICE: Mapping[LimitKind, str] = {
    "number": "List the groups, fix the cause, then replay or archive the dead letters.",
    "bytes": "They fill the store's disk. Replay, archive or export the largest, and purge archived ones.",
    "age": "Replay or archive the oldest; consumers continue without these messages.",
}

_IDLE_SHARE = 100.0
_MIN_INTERVAL, _EMPTY_INTERVAL = 5.0, 15.0
_UNCHANGED_INTERVAL = 60.0
"""Seconds between two measurements of a store without pending dead letters to which no process writes."""
_DAY = 86400.0

_LOAD = """
SELECT count(*) FILTER (NOT gone), coalesce(sum(value_size), 0), min(failed_at) FILTER (NOT gone), count(*) FILTER (gone)
FROM (SELECT value_size, failed_at, list_contains(?::VARCHAR[], cluster_id) AS gone FROM dead_letters WHERE state = 'dead')"""


@dataclass(frozen=True, slots=True)
class DeadLetterLimits:
    """Limits of pending dead letters; None means no limit.

    A store's settings `dlq_max_size`, `dlq_max_bytes` and `dlq_max_age` override the producer's, because all producers
    of a store share one queue.
    """

    dead_letters: int | None = 10_000
    bytes: int | None = 256 << 20
    age: float | None = 7 * _DAY

    def overridden_by(self, settings: Mapping[str, Any]) -> DeadLetterLimits:
        """Return these limits with the store's settings applied; a setting of 0 removes a limit."""
        return DeadLetterLimits(
            settings.get("dlq_max_size", self.dead_letters) or None,
            settings.get("dlq_max_bytes", self.bytes) or None,
            settings.get("dlq_max_age", self.age) or None,
        )


@dataclass(frozen=True, slots=True)
class DeadLetterLoad:
    """The number of pending dead letters, the bytes of all their values, and the time of the oldest failure.

    `removed` more dead letters are of clusters that no longer exist; only `bytes` includes them.
    """

    dead_letters: int
    bytes: int
    oldest: float | None
    removed: int = 0


@dataclass(frozen=True, slots=True)
class LimitExcess:
    """A limit that is exceeded."""

    what: LimitKind
    value: float
    limit: float
    text: str
    advice: str

    @property
    def subject(self) -> str:
        return _SUBJECTS[self.what]


def exceeded_limits(load: DeadLetterLoad, limits: DeadLetterLimits, now: float) -> tuple[LimitExcess, ...]:
    """Return the limits that are exceeded."""
    return tuple(_exceeded(load, limits, now))


def measure(store: Store, now: float) -> DeadLetterLoad:
    """Return the pending dead letters of a store; takes less than a second for ten million."""
    with store.borrow() as connection:
        row = connection.execute(_LOAD, [list(removed_clusters(store, now))]).fetchone()
    assert row is not None, "an aggregate query returns one row"
    dead_letters, size, oldest, removed = row
    return DeadLetterLoad(int(dead_letters), int(size), oldest, int(removed))


class LimitWatch:
    """Reports changes of exceeded limits. `check` may be called every second. It measures at most every five seconds, and
    every 15 seconds without pending dead letters if the store has changed, and uses at most 1% of the caller's time. Not
    thread-safe.
    """

    def __init__(self, limits: DeadLetterLimits, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._timer = timer
        self._next = 0.0
        self._empty_at: tuple[int, float] | None = (
            None  # the store's changes and the time when it had no dead letter
        )
        self._exceeded: frozenset[LimitKind] = frozenset()

    def check(self, store: Store, now: float) -> list[Notice]:
        """Return a notice for each limit that is newly exceeded or met again. Raise StoreError if the store is
        unavailable."""
        started = self._timer()
        if started < self._next:
            return []
        changes = store.changes()
        if self._is_still_empty(changes, started):
            self._next = started + _EMPTY_INTERVAL
            return []
        with store.borrow():  # once for both queries
            load = measure(store, now)
            found = exceeded_limits(load, self._limits.overridden_by(store.settings()), now)
        duration = self._timer() - started
        interval = _MIN_INTERVAL if load.dead_letters else _EMPTY_INTERVAL
        self._next = started + max(interval, duration * _IDLE_SHARE)
        self._empty_at = None if load.dead_letters else (changes, started)
        return self._changes(found, now)

    def _is_still_empty(self, changes: int, started: float) -> bool:
        if self._empty_at is None:
            return False
        before, measured_at = self._empty_at
        return changes == before and started - measured_at < _UNCHANGED_INTERVAL

    def _changes(self, found: tuple[LimitExcess, ...], now: float) -> list[Notice]:
        exceeded: frozenset[LimitKind] = frozenset(excess.what for excess in found)
        over = [_over(excess, now) for excess in found if excess.what not in self._exceeded]
        within = [_within(what, now) for what in sorted(self._exceeded - exceeded)]
        self._exceeded = exceeded
        return over + within


def _exceeded(load: DeadLetterLoad, limits: DeadLetterLimits, now: float) -> Iterator[LimitExcess]:
    if limits.dead_letters is not None and load.dead_letters > limits.dead_letters:
        noun = "dead letter" if load.dead_letters == 1 else "dead letters"
        text = f"{load.dead_letters:,} {noun} pending; the limit (dlq_max_size) is {limits.dead_letters:,}."
        yield LimitExcess("number", load.dead_letters, limits.dead_letters, text, _ADVICE["number"])
    if limits.bytes is not None and load.bytes > limits.bytes:
        text = (
            f"{_mebibytes(load.bytes)} of dead letters pending; the limit (dlq_max_bytes) is "
            f"{_mebibytes(limits.bytes)}."
        )
        yield LimitExcess("bytes", load.bytes, limits.bytes, text, _ADVICE["bytes"])
    age = 0.0 if load.oldest is None else now - load.oldest
    if limits.age is not None and age > limits.age:
        text = f"The oldest dead letter has been pending for {_length(age)}; the limit (dlq_max_age) is {_length(limits.age)}."
        yield LimitExcess("age", age, limits.age, text, _ADVICE["age"])


def _over(excess: LimitExcess, now: float) -> Notice:
    details = {"subject": excess.subject, "value": excess.value, "threshold": excess.limit}
    return Notice(OVER, "warning", f"{excess.text} {excess.advice}", now, details)


def _within(what: LimitKind, now: float) -> Notice:
    subject = _SUBJECTS[what]
    return Notice(WITHIN, "info", f"The {subject} is within its limit again.", now, {"subject": subject})


def _mebibytes(number: int) -> str:
    return f"{number / (1 << 20):,.1f} MiB"


def _length(seconds: float) -> str:
    return f"{seconds / _DAY:,.1f} days" if seconds >= 2 * _DAY else f"{seconds / 3600:,.1f} hours"
