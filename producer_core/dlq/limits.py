"""The bounds of the dead letters that wait: how many, how many bytes, how long; and what is said beyond them.

With a store a bound is a threshold, not a knife: nothing is dropped or refused, a notice (and its alert) says once
that it was passed, with what to do, and once that it holds again. Without a store the dead letters are in memory up to the
bound; beyond it the oldest go to the spill file beside the default store, where the next producer with a store takes
them in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from producer_core.events import Notice

if TYPE_CHECKING:
    from producer_core.store import Store

OVER, WITHIN = "dlq_over_bound", "dlq_within_bound"
"""The kinds of the notices at the beginning and at the end."""

What = Literal["number", "bytes", "age"]

_SUBJECTS: Mapping[What, str] = {
    "number": "number of dead letters",
    "bytes": "bytes of dead letters",
    "age": "age of dead letters",
}
_ADVICE: Mapping[What, str] = {
    "number": "Look at the groups, mend the cause, then replay or archive them.",
    "bytes": "Replay, archive or export the largest, and purge what is archived; the disk of the store holds them.",
    "age": "Decide about the oldest: readers and retention go on without them. Replay or archive.",
}

_SHARE = 100.0
_SOONEST = 5.0
_DAY = 86400.0

_MEASURED = """
SELECT count(*), coalesce(sum(value_size), 0), min(failed_at) FROM dead_letters WHERE state = 'dead'"""


@dataclass(frozen=True, slots=True)
class DeadLetterLimits:
    """What may wait; None: as much as comes. A store's settings `dlq_max_size`, `dlq_max_bytes` and `dlq_max_age`
    go before what a producer was given, because all producers of a store share one queue.
    """

    dead_letters: int | None = 10_000
    bytes: int | None = 256 << 20
    age: float | None = 7 * _DAY

    def set_by(self, settings: Mapping[str, Any]) -> DeadLetterLimits:
        """These bounds, where the store's settings say nothing else; 0 there means none."""
        return DeadLetterLimits(
            settings.get("dlq_max_size", self.dead_letters) or None,
            settings.get("dlq_max_bytes", self.bytes) or None,
            settings.get("dlq_max_age", self.age) or None,
        )


@dataclass(frozen=True, slots=True)
class DeadLetterLoad:
    """What waits: dead letters, bytes of their values, when the one that waits longest died."""

    dead_letters: int
    bytes: int
    oldest: float | None


@dataclass(frozen=True, slots=True)
class LimitExcess:
    """A bound that was passed."""

    what: What
    value: float
    limit: float
    text: str
    advice: str

    @property
    def subject(self) -> str:
        return _SUBJECTS[self.what]


def judge(load: DeadLetterLoad, bounds: DeadLetterLimits, now: float) -> tuple[LimitExcess, ...]:
    """The bounds that are passed."""
    return tuple(_passed(load, bounds, now))


def measure(store: Store) -> DeadLetterLoad:
    """What waits in a store; of ten million dead letters in under a second."""
    with store.borrow() as connection:
        row = connection.execute(_MEASURED).fetchone()
    assert row is not None, "an aggregate has a row"
    dead_letters, size, oldest = row
    return DeadLetterLoad(int(dead_letters), int(size), oldest)


class LimitWatch:
    """Looks now and then and says what changed. Asked once a second; looks at most every five seconds, and so seldom
    that it takes a hundredth of its caller's time, however many dead letters there are. One thread.
    """

    def __init__(self, bounds: DeadLetterLimits, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._bounds = bounds
        self._timer = timer
        self._next = 0.0
        self._passed: frozenset[What] = frozenset()

    def look(self, store: Store, now: float) -> list[Notice]:
        """What began or ended since the last look; StoreError when the store cannot be had."""
        began = self._timer()
        if began < self._next:
            return []
        found = judge(measure(store), self._bounds.set_by(store.settings()), now)
        took = self._timer() - began
        self._next = began + max(_SOONEST, took * _SHARE)
        return self.follow(found, now)

    def follow(self, found: tuple[LimitExcess, ...], now: float) -> list[Notice]:
        """One notice for each bound that is passed now and was not, and for each that holds again."""
        passed: frozenset[What] = frozenset(excess.what for excess in found)
        began = [_over(excess, now) for excess in found if excess.what not in self._passed]
        ended = [_within(what, now) for what in sorted(self._passed - passed)]
        self._passed = passed
        return began + ended


def _passed(load: DeadLetterLoad, bounds: DeadLetterLimits, now: float) -> Iterator[LimitExcess]:
    if bounds.dead_letters is not None and load.dead_letters > bounds.dead_letters:
        text = (
            f"{load.dead_letters:,} dead letters wait; the bound (dlq_max_size) is {bounds.dead_letters:,}."
        )
        yield LimitExcess("number", load.dead_letters, bounds.dead_letters, text, _ADVICE["number"])
    if bounds.bytes is not None and load.bytes > bounds.bytes:
        text = f"{_mebibytes(load.bytes)} of dead letters wait; the bound (dlq_max_bytes) is {_mebibytes(bounds.bytes)}."
        yield LimitExcess("bytes", load.bytes, bounds.bytes, text, _ADVICE["bytes"])
    waits = 0.0 if load.oldest is None else now - load.oldest
    if bounds.age is not None and waits > bounds.age:
        text = f"A dead letter has waited for {_length(waits)}; the bound (dlq_max_age) is {_length(bounds.age)}."
        yield LimitExcess("age", waits, bounds.age, text, _ADVICE["age"])


def _over(excess: LimitExcess, now: float) -> Notice:
    details = {"subject": excess.subject, "value": excess.value, "threshold": excess.limit}
    return Notice(OVER, "warning", f"{excess.text} {excess.advice}", now, details)


def _within(what: What, now: float) -> Notice:
    subject = _SUBJECTS[what]
    return Notice(WITHIN, "info", f"The {subject} is within its bound again.", now, {"subject": subject})


def _mebibytes(number: int) -> str:
    return f"{number / (1 << 20):,.1f} MiB"


def _length(seconds: float) -> str:
    return f"{seconds / _DAY:,.1f} days" if seconds >= 2 * _DAY else f"{seconds / 3600:,.1f} hours"
