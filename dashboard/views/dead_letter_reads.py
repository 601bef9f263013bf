"""Read the data of the dead letters page through a cache for all browsers; expensive reads are cached longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from producer_core._internal.masking import MaskingRules
from producer_core.dashboard import queries
from producer_core.dashboard.queries import dead_letter_list as dead_letter_queries
from producer_core.dashboard.queries.decisions import DecisionsPage, decisions_page
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.wording import dead_letters as dead_letter_wording
from producer_core.dashboard.wording.decoded_content import decoded_content
from producer_core.dlq import DeadLetterFilter, PageCursor
from producer_core.dlq.displayed_body import decoder_of
from producer_core.dlq.timeline import TimelineEvent
from producer_core.events import DeadLetter

P = ParamSpec("P")
T = TypeVar("T")

_MAX_ENTRIES = 64


class AdaptiveCache(Generic[P, T]):
    """Cache a read for at least `min_age` seconds, and for `factor` times as long as the read took.

    With the default factor, viewing ten million dead letters takes at most a tenth of one core.
    """

    def __init__(
        self,
        read: Callable[P, T],
        min_age: float,
        factor: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._min_age, self._factor, self._clock = read, min_age, factor, clock
        self._lock = threading.Lock()  # guards the next field
        self._cached: dict[Any, tuple[float, T]] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (args, tuple(kwargs.items()))
        began = self._clock()
        with self._lock:
            cached = self._cached.get(key)
        if cached is not None and began < cached[0]:
            return cached[1]
        value = self._read(*args, **kwargs)
        ended = self._clock()
        with self._lock:
            self._cached.pop(key, None)
            self._cached[key] = ended + max(self._min_age, self._factor * (ended - began)), value
            while len(self._cached) > _MAX_ENTRIES:
                self._cached.pop(next(iter(self._cached)))
        return value

    def clear(self) -> None:
        with self._lock:
            self._cached.clear()


def _snapshot(
    path: Path, where: DeadLetterFilter, after: PageCursor | None = None
) -> dead_letter_queries.DeadLettersSnapshot:
    return dead_letter_queries.snapshot(open_store(path), where, time.time(), after=after)


def _choices(path: Path, state: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return queries.choices(open_store(path), state)


def _clusters(path: Path) -> tuple[str, ...]:
    return dead_letter_queries.clusters(open_store(path))


def _applications(path: Path) -> tuple[str, ...]:
    return dead_letter_queries.applications(open_store(path))


def _causes(path: Path, where: DeadLetterFilter) -> dead_letter_queries.CauseGroups:
    return dead_letter_queries.causes(open_store(path), where)


def _pending(path: Path) -> dead_letter_queries.PendingCounts:
    return dead_letter_queries.waiting(open_store(path), time.time())


def _decisions(path: Path, seconds: float) -> DecisionsPage:
    return decisions_page(open_store(path), time.time(), seconds)


def _data_time(path: Path) -> float | None:
    """Return the time of the newest data in the store."""
    rows = open_store(path).rows("data_age")
    return rows[0]["seen_at"] if rows else None


def _timeline(path: Path, message_id: str, stamp: tuple[str, float, int]) -> tuple[TimelineEvent, ...]:
    return dead_letter_queries.dead_letter_timeline(open_store(path), message_id)


snapshot = AdaptiveCache(_snapshot, min_age=0.8)
choices = AdaptiveCache(_choices, min_age=2.0)
clusters = AdaptiveCache(_clusters, min_age=10.0)
applications = AdaptiveCache(_applications, min_age=10.0)
causes = AdaptiveCache(_causes, min_age=0.8)
pending = AdaptiveCache(_pending, min_age=4.0, factor=50.0)
decisions = AdaptiveCache(_decisions, min_age=4.0, factor=50.0)
data_time = AdaptiveCache(_data_time, min_age=0.8)
timeline = AdaptiveCache(_timeline, min_age=4.0)


def clear() -> None:
    """Discard everything that an action may have changed."""
    for one in (snapshot, choices, causes, pending, decisions, timeline):
        one.clear()


def clear_records() -> None:
    """Discard the dead letters that were read and masked."""
    _open_record.cache_clear()


class OpenRecord(NamedTuple):
    """Hold a dead letter with its key, value and headers in displayable form. `producer` is the sender's name."""

    dead_letter: DeadLetter
    key: dead_letter_wording.RecordContent
    value: dead_letter_wording.RecordContent
    headers: tuple[dead_letter_wording.RecordHeader, ...]
    producer: str = ""


def open_record(
    path: Path, message_id: str, stamp: tuple[str, float, int], rules: MaskingRules, *, reveal: bool
) -> OpenRecord | None:
    """Read, decode and mask a dead letter; the cache keeps it until `stamp` or the masking rules change.

    A key or value whose schema was not available is decoded again.
    """
    found = _open_record(path, message_id, stamp, rules, reveal=reveal)
    if found is None or not (found.key.undecoded or found.value.undecoded):
        return found
    key, value = _contents(path, found.dead_letter, reveal=reveal)
    return found._replace(key=key, value=value)


@lru_cache(maxsize=16)
def _open_record(
    path: Path, message_id: str, stamp: tuple[str, float, int], rules: MaskingRules, *, reveal: bool
) -> OpenRecord | None:
    dead_letter = queries.dead_letter(open_store(path), message_id)
    if dead_letter is None:
        return None
    return OpenRecord(
        dead_letter,
        *_contents(path, dead_letter, reveal=reveal),
        dead_letter_wording.headers(dead_letter.headers, reveal=reveal),
        dead_letter_queries.producer_of(open_store(path), dead_letter),
    )


def _contents(
    path: Path, dead_letter: DeadLetter, *, reveal: bool
) -> tuple[dead_letter_wording.RecordContent, dead_letter_wording.RecordContent]:
    """Return the key and the value for display."""
    headers, topic, decoder = dead_letter.headers, dead_letter.topic, decoder_of(open_store(path))
    return (
        decoded_content(dead_letter.key, headers, decoder, topic=topic, reveal=reveal, key=True),
        decoded_content(dead_letter.value, headers, decoder, topic=topic, reveal=reveal),
    )
