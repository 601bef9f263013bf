"""Dead letters as a page shows them: their groups, a page of the list, one from inside, and what an act would be about."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from producer_core.dlq import DeadLetterFilter, DeadLetters, Group, PageCursor, SearchResult
from producer_core.dlq.limits import DeadLetterLimits, DeadLetterLoad, LimitExcess, judge, measure
from producer_core.dlq.timeline import TimelineEvent, timeline
from producer_core.events import SAFE_VERDICTS, DeadLetter
from producer_core.store import Store

LISTED = 100
GROUPS = 20
SEARCHED = 500
"""A search in bodies stops when it has found so many more."""

NOTHING = ("",)
"""No message has this id: what was found when nothing was found, because no ids at all means everything."""


@dataclass(frozen=True)
class DeadLetterPage:
    """A page of the dead letters that a filter matches, as of one moment.

    `where` is what they can be acted upon by: for a search in bodies that saw everything the ids that it found.
    `newest` is when the latest of all pages died. `over`: the filter's own end had passed by then.
    """

    where: DeadLetterFilter
    total: int
    dead_letters: tuple[DeadLetter, ...]
    verdicts: Mapping[str, int]
    next: PageCursor | None = None
    newest: float | None = None
    over: bool = False

    @property
    def seen(self) -> DeadLetterFilter:
        """The filter bounded by what this page shows: an act leaves dead letters that died later alone."""
        if self.newest is None or self.over:
            return self.where
        until = math.nextafter(self.newest, math.inf)
        return replace(self.where, until=until if self.where.until is None else min(until, self.where.until))


@dataclass(frozen=True)
class ActionScope:
    """What an act would be about now: how many dead letters, with which verdicts."""

    about: DeadLetterFilter
    verdicts: Mapping[str, int]

    @property
    def count(self) -> int:
        return sum(self.verdicts.values())

    @property
    def safe(self) -> bool:
        """Every verdict says that a resend cannot write a second copy."""
        return all(verdict in SAFE_VERDICTS for verdict in self.verdicts)


@dataclass(frozen=True)
class OtherCauses:
    """The largest groups; `one` is the group that was chosen, which may be small. `total` counts the dead letters of all."""

    groups: tuple[Group, ...]
    one: Group | None
    total: int

    @property
    def others(self) -> int:
        """Letters in groups that are not listed."""
        return max(0, self.total - sum(group.count for group in self.groups))


@dataclass(frozen=True)
class PendingCounts:
    """What waits against its bounds, which of them are passed, and how many were put aside."""

    load: DeadLetterLoad
    bounds: DeadLetterLimits
    excess: tuple[LimitExcess, ...]
    archived: int


@dataclass(frozen=True)
class OpenDeadLetter:
    """All that a page shows of a filter, as of one moment, so that its numbers agree."""

    page: DeadLetterPage
    causes: OtherCauses
    waiting: PendingCounts


@dataclass(frozen=True)
class BodySearch:
    """Looks into bodies, one after the other, each going on where the one before ended."""

    where: DeadLetterFilter
    dead_letters: tuple[DeadLetter, ...]
    looked_at: int
    of: int
    complete: bool
    next: PageCursor | None
    began: float

    @property
    def frozen(self) -> DeadLetterFilter | None:
        """What it found as a filter; None while it may have missed some, and where nothing was found."""
        if not self.complete or not self.dead_letters:
            return None
        return replace(self.where, body=None, ids=self.ids)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(one.message_id for one in self.dead_letters)


def dead_letters(store: Store, where: DeadLetterFilter, *, after: PageCursor | None = None) -> DeadLetterPage:
    """LISTED dead letters of the filter, the latest first, from a place on."""
    dead_letters = DeadLetters(store)
    over = where.until is not None and where.until <= time.time()
    with store.borrow():
        page = dead_letters.page(where, limit=LISTED, after=after)
        latest = page.dead_letters if after is None else dead_letters.find(where, limit=1)
        verdicts = dead_letters.count_by(where, "verdict")
        return DeadLetterPage(
            where=where,
            total=sum(verdicts.values()),
            dead_letters=page.dead_letters,
            verdicts=verdicts,
            next=page.next,
            newest=latest[0].failed_at if latest else None,
            over=over,
        )


def seen(
    store: Store, where: DeadLetterFilter, now: float, *, after: PageCursor | None = None
) -> OpenDeadLetter:
    """In one visit: nobody writes meanwhile."""
    with store.borrow():
        return OpenDeadLetter(
            dead_letters(store, where, after=after), causes(store, where), waiting(store, now)
        )


def causes(store: Store, where: DeadLetterFilter) -> OtherCauses:
    """The groups of a filter, whichever of them it chose."""
    dead_letters, every = DeadLetters(store), replace(where, group=None)
    with store.borrow():
        groups = tuple(dead_letters.groups(every, limit=GROUPS))
        one = next((group for group in groups if group.fingerprint == where.group), None)
        if one is None and where.group is not None:
            one = next(iter(dead_letters.groups(where, limit=1)), None)
        return OtherCauses(groups, one, dead_letters.count(every))


def searched(
    store: Store, where: DeadLetterFilter, now: float, before: BodySearch | None = None, seconds: float = 5.0
) -> BodySearch:
    """A look into bodies that ends after `seconds`; after one before, from where that ended."""
    found: SearchResult = DeadLetters(store).search(
        where, limit=SEARCHED, after=before.next if before else None, seconds=seconds
    )
    if before is None:
        return BodySearch(
            where, found.dead_letters, found.looked_at, found.of, found.complete, found.next, now
        )
    return replace(
        before,
        dead_letters=before.dead_letters + found.dead_letters,
        looked_at=before.looked_at + found.looked_at,
        of=max(before.of, before.looked_at + found.looked_at),
        complete=found.complete,
        next=found.next,
    )


def found_page(store: Store, search: BodySearch) -> DeadLetterPage:
    """What a search found, as a page: the dead letters that are still as they were asked for."""
    where = replace(search.where, body=None, ids=search.ids or NOTHING)
    dead_letters = DeadLetters(store)
    with store.borrow():
        verdicts = dead_letters.count_by(where, "verdict")
        listed = tuple(dead_letters.find(where, limit=len(where.ids)))
        return DeadLetterPage(where, sum(verdicts.values()), listed, verdicts)


def scope(store: Store, about: DeadLetterFilter) -> ActionScope:
    """The dead letters of a selection that are still in its state, by verdict."""
    return ActionScope(about, DeadLetters(store).count_by(about, "verdict"))


def states(store: Store, ids: Sequence[str]) -> dict[str, int]:
    """How many of these are in which state."""
    return DeadLetters(store).count_by(DeadLetterFilter(state=None, ids=tuple(ids)), "state") if ids else {}


def choices(store: Store, state: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The topics and the error codes that dead letters in a state have, by name: counts would move them under a click."""
    dead_letters, whole = DeadLetters(store), DeadLetterFilter(state=state)
    with store.borrow():
        topics, codes = dead_letters.count_by(whole, "topic"), dead_letters.count_by(whole, "code")
    return tuple(sorted(topics)), tuple(sorted(codes))


def clusters(store: Store) -> tuple[str, ...]:
    """The clusters that dead letters were for, by name."""
    return tuple(sorted(DeadLetters(store).count_by(DeadLetterFilter(state=None), "cluster_id")))


def waiting(store: Store, now: float) -> PendingCounts:
    """What waits, against the bounds that this store is set to."""
    bounds = DeadLetterLimits().set_by(store.settings())
    with store.borrow():
        load = measure(store)
        archived = DeadLetters(store).count(DeadLetterFilter(state="archived"))
    return PendingCounts(load, bounds, judge(load, bounds, now), archived)


# one dead letter


def dead_letter(store: Store, message_id: str) -> DeadLetter | None:
    """One dead letter with its body."""
    return DeadLetters(store).get(message_id)


def producer_of(store: Store, dead_letter: DeadLetter) -> str:
    """The name of the producer that sent it, and its process; empty where nobody here knows it any more."""
    rows = store.rows("letter_producer", producer=dead_letter.producer_id)
    return f"{rows[0]['client_id'] or 'producer'} (process {rows[0]['pid']})" if rows else ""


def stamp(store: Store, message_id: str) -> tuple[str, float, int] | None:
    """What changes when anything happens to a dead letter: its state, since when, its replays; None when it is gone.

    Cheap, so that a dead letter of ten megabytes is not read again every second.
    """
    rows = store.rows("letter_stamp", message_id=message_id)
    return (rows[0]["state"], rows[0]["state_at"], rows[0]["replay_count"]) if rows else None


def life(store: Store, message_id: str) -> tuple[TimelineEvent, ...]:
    """Everything that happened to a dead letter, in order."""
    return timeline(store, message_id)
