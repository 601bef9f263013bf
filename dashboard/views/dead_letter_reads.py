"""What the dead letters page reads: remembered for all browsers for a moment, the longer the more it cost to read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from producer_core._internal.masking import MaskingRules
from producer_core.dashboard import queries
from producer_core.dashboard.queries import dead_letter_list as of_dead_letters
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.wording import dead_letters as said
from producer_core.dlq import DeadLetterFilter, PageCursor
from producer_core.dlq.timeline import TimelineEvent
from producer_core.events import DeadLetter

P = ParamSpec("P")
T = TypeVar("T")

_KEPT = 64


class AdaptiveCache(Generic[P, T]):
    """A reading that is done again when it is `least` seconds old, and ten times older than it took.

    So that looking at ten million dead letters costs the machine no more than a tenth of one core.
    """

    def __init__(
        self,
        read: Callable[P, T],
        least: float,
        share: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._least, self._share, self._clock = read, least, share, clock
        self._kept: dict[Any, tuple[float, T]] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (args, tuple(kwargs.items()))
        began = self._clock()
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and began < kept[0]:
            return kept[1]
        value = self._read(*args, **kwargs)
        ended = self._clock()
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = ended + max(self._least, self._share * (ended - began)), value
            while len(self._kept) > _KEPT:
                self._kept.pop(next(iter(self._kept)))
        return value

    def forget(self) -> None:
        with self._lock:
            self._kept.clear()


def _seen(
    path: Path, where: DeadLetterFilter, after: PageCursor | None = None
) -> of_dead_letters.DeadLettersSnapshot:
    return of_dead_letters.snapshot(opened(path), where, time.time(), after=after)


def _choices(path: Path, state: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return queries.choices(opened(path), state)


def _clusters(path: Path) -> tuple[str, ...]:
    return of_dead_letters.clusters(opened(path))


def _causes(path: Path, where: DeadLetterFilter) -> of_dead_letters.CauseGroups:
    return of_dead_letters.causes(opened(path), where)


def _waiting(path: Path) -> of_dead_letters.PendingCounts:
    return of_dead_letters.waiting(opened(path), time.time())


def _heard(path: Path) -> float | None:
    """When the newest data came."""
    rows = opened(path).rows("data_age")
    return rows[0]["seen_at"] if rows else None


def _life(path: Path, message_id: str, stamp: tuple[str, float, int]) -> tuple[TimelineEvent, ...]:
    return of_dead_letters.dead_letter_timeline(opened(path), message_id)


seen = AdaptiveCache(_seen, least=0.8)
choices = AdaptiveCache(_choices, least=2.0)
clusters = AdaptiveCache(_clusters, least=10.0)
causes = AdaptiveCache(_causes, least=0.8)
waiting = AdaptiveCache(_waiting, least=4.0, share=50.0)
heard = AdaptiveCache(_heard, least=0.8)
life = AdaptiveCache(_life, least=4.0)


def again() -> None:
    """Forget what an act may have changed."""
    for one in (seen, choices, causes, waiting, life):
        one.forget()


class OpenRecord(NamedTuple):
    """A dead letter with what it holds as it may be shown; its value is not kept beside that. `producer`: who sent it."""

    dead_letter: DeadLetter
    key: said.RecordContent
    value: said.RecordContent
    headers: tuple[said.RecordHeader, ...]
    producer: str = ""


@lru_cache(maxsize=16)
def inside(
    path: Path, message_id: str, stamp: tuple[str, float, int], rules: MaskingRules, *, reveal: bool
) -> OpenRecord | None:
    """Read and masked once for each thing that happens to the dead letter, and for each change of the masking rules."""
    dead_letter = queries.dead_letter(opened(path), message_id)
    if dead_letter is None:
        return None
    return OpenRecord(
        dead_letter,
        said.content(dead_letter.key, reveal=reveal, key=True),
        said.content(dead_letter.value, reveal=reveal),
        said.headers(dead_letter.headers, reveal=reveal),
        of_dead_letters.producer_of(opened(path), dead_letter),
    )
